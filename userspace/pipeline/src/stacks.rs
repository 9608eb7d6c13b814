//! Stacks: single records → the frames of each, without a tree.
//!
//! Owns: resolving stacks that were taken at one moment. Because: a dump needs the same frames as a profile, but
//! neither times nor sums. Does not: attribute anything, or read clocks: the caller passes the time.

use deepctx_common::record::sample_flag;
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use crate::account::Accounts;
use crate::decode::{Event, Sample, decode};
use crate::resolve::ResolveStage;
use crate::seen_python::{self, SeenPythonObjects};
use crate::stack_cache::StackKey;
use crate::stages::off_cpu;
use crate::symbols::Symbols;

/// Resolves stacks; its profile holds only their interned frames.
#[derive(Debug)]
pub struct Stacks<S: Symbols> {
    symbols: S,
    resolve: ResolveStage,
    seen: SeenPythonObjects,
    accounts: Accounts,
    profile: Profile,
}

/// The frames of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedStack {
    /// Root first, those of the kernel last.
    pub frames: Vec<FrameId>,
    /// The wait reason according to the kernel frames, as in off-CPU time; `blocked` if they do not show one.
    pub waits_for: &'static str,
}

impl<S: Symbols> Stacks<S> {
    /// An empty resolver. [`Stacks::symbols`] must know address spaces before their stacks are resolved.
    pub fn new(symbols: S) -> Self {
        Self {
            symbols,
            resolve: ResolveStage::default(),
            seen: SeenPythonObjects::default(),
            accounts: Accounts::default(),
            profile: Profile::new(Default::default(), Default::default()),
        }
    }

    /// The source of names.
    pub fn symbols(&mut self) -> &mut S {
        &mut self.symbols
    }

    /// The profile that holds the frames.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Reads what only a running process can give: Python functions, and the await chains of running coroutines, for
    /// the first of two times.
    pub fn note<'r>(&mut self, records: impl Iterator<Item = &'r [u8]>) {
        for sample in records.filter_map(sample) {
            let new = self.seen.new_in(&sample);
            if !new.functions.is_empty() {
                self.symbols.python_seen(sample.fixed.pid, new.functions);
            }
            if !new.coroutines.is_empty() {
                self.symbols.coroutines_seen(sample.fixed.pid, sample.fixed.header.time_ns, new.coroutines);
            }
        }
    }

    /// The frames of each record, `None` if it has no stack. `time_ns`: between [`Stacks::note`] and now,
    /// `CLOCK_MONOTONIC`; an await chain counts if it was the same before and after.
    pub fn resolve<'r>(
        &mut self,
        records: impl Iterator<Item = &'r [u8]> + Clone,
        time_ns: u64,
    ) -> Vec<Option<ResolvedStack>> {
        let samples: Vec<Option<(StackKey, Sample<'r>)>> =
            records.map(|record| sample(record).map(|sample| (self.key(&sample, time_ns), sample))).collect();
        let Self { symbols, resolve, profile, accounts, .. } = self;
        for (key, sample) in samples.iter().flatten() {
            resolve.path_or_note(key, sample, profile, accounts);
        }
        resolve.ask(symbols, profile, accounts);
        let resolved = |stack: &Option<(StackKey, Sample<'r>)>| {
            let (key, sample) = stack.as_ref()?;
            let frames = resolve.path(key, sample, profile, accounts).frames.to_vec();
            let preempted = sample.fixed.flags & sample_flag::PREEMPTED != 0;
            let waits_for = off_cpu::reason(profile, &frames, preempted);
            Some(ResolvedStack { frames, waits_for })
        };
        samples.iter().map(resolved).collect()
    }

    fn key(&mut self, sample: &Sample<'_>, time_ns: u64) -> StackKey {
        let pid = sample.fixed.pid;
        let coroutines: Vec<_> = seen_python::coroutines(sample).collect();
        let mut awaited = None;
        if !coroutines.is_empty() {
            self.symbols.coroutines_seen(pid, time_ns, &coroutines);
            awaited = self.symbols.await_chain(pid, time_ns, &mut coroutines.into_iter());
        }
        StackKey::new(NodeId::ROOT, self.symbols.space(pid, time_ns), sample, awaited)
    }
}

fn sample(record: &[u8]) -> Option<Sample<'_>> {
    match decode(record) {
        Ok(Event::Sample(sample)) => Some(sample),
        _ => None,
    }
}
