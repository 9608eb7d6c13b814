//! Dispatch: records whose time has come → the stages that they belong to, in order.
//!
//! Owns: which records are used at once, which wait until their names have been requested, and which wait behind
//! those. Because: a call can change the meaning of later records, so all of them keep their order. Does not: take
//! records in, or decide when they are due.

use deepctx_common::end::WalkEnd;
use deepctx_common::record::{StackSample, Wake};
use deepctx_profile::owner::Owner;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use crate::account::MissingFrames;
use crate::arena::RecordRef;
use crate::attribution::{Attribution, sample_at, wait_of};
use crate::decode::{Event, Sample, decode};
use crate::input::ProcessRefusal;
use crate::own_work;
use crate::pipeline::{PendingNames, Pipeline};
use crate::seen_python;
use crate::stack_cache::{CachedStack, StackKey};
use crate::stage::CallRecord;
use crate::stages::Notes;
use crate::stages::off_cpu::{Context, OffCpu, WaitEnd, WaitId};
use crate::symbols::Symbols;

impl<S: Symbols> Pipeline<S> {
    /// Attributes a record with a cached stack; queues one whose stack is new.
    #[inline]
    pub(crate) fn dispatch(&mut self, record: RecordRef) {
        let (sample, call) = match decode(self.arena.record(record)) {
            Ok(Event::Sample(sample) | Event::Block(sample)) if self.symbols.is_own(sample.fixed.pid) => {
                return self.attribute_own(record);
            }
            Ok(Event::Sample(sample) | Event::Block(sample)) => (sample, None),
            Ok(Event::Call(_, arguments)) if !self.stages.needs_stack(&arguments) => {
                return self.dispatch_stackless(record);
            }
            Ok(Event::Call(sample, arguments)) => {
                (self.stages.stack_of_call(sample, &arguments), Some(arguments))
            }
            Ok(Event::Wake(wake)) => {
                self.arena.release(record);
                return self.thread_wakes(&wake);
            }
            Ok(Event::Return(_) | Event::Correlation(_) | Event::Message(..)) => {
                return self.dispatch_stackless(record);
            }
            _ => return,
        };
        let (pid, time_ns) = (sample.fixed.pid, sample.fixed.header.time_ns);
        self.profile.grow_for(self.owners.of(pid, &mut self.symbols));
        let space = self.symbols.space(pid, time_ns);
        let Self { stages, stacks, resolve, profile, accounts, config, .. } = self;
        let thread = self.threads.node(&sample.fixed, space, &mut self.symbols, profile);
        let chain = || self.symbols.await_chain(pid, time_ns, &mut seen_python::coroutines(&sample));
        let await_chain = self.coroutines_seen.then(chain).flatten();
        // The scopes of a stack are known only once all calls before it are.
        let must_wait = self.calls_wait && stages.follows_calls();
        let mut key = StackKey::new(thread, space, &sample, await_chain);
        key.refusal = refusal(&sample, &mut self.symbols);
        if !must_wait {
            key.scopes = stages.scopes(&sample.fixed);
        }
        let hash = key.hash(sample.words);
        follow_thread(&mut stages.set.off_cpu, &sample, config.off_cpu);
        let cached = if must_wait { None } else { stacks.get(hash, &key, sample.words) };
        let path = match cached {
            Some(_) => None,
            None => resolve.path_or_note(&key, &sample, profile, accounts).filter(|_| !must_wait),
        };
        let mut attribution = Attribution { config, stages, accounts, profile };
        let stack = match (cached, path) {
            (Some(stack), _) => stack,
            (None, Some(path)) => {
                let stack = attribution.place(&key, &sample, call.as_ref(), &path);
                stacks.put(hash, &key, sample.words, stack);
                stack
            }
            (None, None) => {
                self.calls_wait |= call.is_some();
                return self.unresolved.push(PendingNames::Stack { record, key, hash, behind: must_wait });
            }
        };
        if call.is_some() && self.calls_wait {
            return self.unresolved.push(PendingNames::Call { record, thread, stack });
        }
        attribution.attribute(thread, &sample, call.as_ref(), stack, &mut self.symbols);
        self.arena.release(record);
    }

    /// Attributes a sample, or the beginning of a wait, of one of the profiler's own processes. It needs no names, and
    /// no call before it changes its meaning.
    fn attribute_own(&mut self, record: RecordRef) {
        let Some((sample, _)) = sample_at(&self.arena, record) else { return };
        let sample = own_work::without_stack(sample);
        let (pid, time_ns) = (sample.fixed.pid, sample.fixed.header.time_ns);
        let Self { profile, stages, accounts, config, symbols, owners, threads, .. } = self;
        profile.grow_for(owners.of(pid, symbols));
        let space = symbols.space(pid, time_ns);
        let thread = threads.node(&sample.fixed, space, symbols, profile);
        follow_thread(&mut stages.set.off_cpu, &sample, config.off_cpu);
        let node = own_work::of_sample(thread, &sample, profile);
        let stack = CachedStack { node, missing: MissingFrames::default(), notes: Notes::default() };
        Attribution { config, stages, accounts, profile }.attribute_sample(thread, &sample, stack);
        self.arena.release(record);
    }

    /// Uses a record without a stack, once all calls before it are attributed.
    fn dispatch_stackless(&mut self, record: RecordRef) {
        if self.calls_wait {
            self.unresolved.push(PendingNames::Record(record));
        } else {
            self.use_stackless(record);
        }
    }

    /// Passes a record without a stack to its stage.
    fn use_stackless(&mut self, record: RecordRef) {
        let Self { arena, stages, profile, accounts, symbols, threads, owners, .. } = self;
        let event = decode(arena.record(record));
        let pid = match &event {
            Ok(Event::Call(sample, _)) => Some(sample.fixed.pid),
            Ok(Event::Return(record)) => Some(record.pid),
            Ok(Event::Message(message, _)) => Some(message.pid),
            _ => None,
        };
        profile.grow_for(pid.map_or(Owner::CAPTURE, |pid| owners.of(pid, symbols)));
        match event {
            Ok(Event::Call(..)) => accounts.scope_change(),
            _ => accounts.device_record(),
        }
        match event {
            Ok(Event::Call(sample, arguments)) => {
                let owner = stages.owner(&arguments.call);
                let thread = if owner.stackless_calls_need_thread() {
                    let space = symbols.space(sample.fixed.pid, sample.fixed.header.time_ns);
                    threads.node(&sample.fixed, space, symbols, profile)
                } else {
                    NodeId::ROOT
                };
                let call = CallRecord { sample: &sample.fixed, arguments: &arguments, thread };
                stages.on_call(owner, &call, None, profile, symbols);
            }
            Ok(Event::Return(record)) => stages.set.gpu.returned(&record, profile),
            Ok(Event::Correlation(record)) => stages.set.gpu.correlated(&record),
            Ok(Event::Message(message, bytes)) => {
                let time_ns = message.header.time_ns;
                stages.set.gpu.admit(message.pid, time_ns, symbols, profile);
                let mut node =
                    |profile: &mut Profile| threads.process_node(message.pid, time_ns, "", symbols, profile);
                stages.set.gpu.message(&message, bytes, profile, &mut node);
                stages.set.gpu.ask_names(symbols, profile);
            }
            _ => {}
        }
        self.arena.release(record);
    }

    /// A thread runs again: its wait is over.
    fn thread_wakes(&mut self, wake: &Wake) {
        self.accounts.wake();
        self.profile.grow_for(self.owners.of(wake.pid, &mut self.symbols));
        let id = WaitId { tid: wake.tid, began_ns: wake.began_ns };
        let end = WaitEnd::from(wake);
        let waits = &mut self.stages.set.off_cpu;
        if waits.on_end(id, end, &mut self.profile) || waits.was_given_up(id, wake.stack) {
            return self.stages.record_spans();
        }
        let space = self.symbols.space(wake.pid, end.at_ns);
        let thread = StackSample {
            header: wake.header,
            pid: wake.pid,
            tid: wake.tid,
            comm: wake.comm,
            ..Default::default()
        };
        let thread = self.threads.node(&thread, space, &mut self.symbols, &mut self.profile);
        let waits = &mut self.stages.set.off_cpu;
        let node = if self.symbols.is_own(wake.pid) {
            own_work::of_wait(thread, false, &mut self.profile)
        } else {
            let frame = waits.without_stack(wake.stack, &mut self.profile);
            self.profile.tree.child(thread, frame)
        };
        waits.ended_without_stack(id, wake.pid, Context { node, thread }, end, &mut self.profile);
        self.stages.record_spans();
    }

    /// Resolves all pending stacks and attributes the records that waited for them.
    pub(crate) fn attribute_unresolved(&mut self) {
        self.resolve.ask(&mut self.symbols, &mut self.profile, &mut self.accounts);
        let mut unresolved = std::mem::take(&mut self.unresolved);
        self.calls_wait = false;
        unresolved.drain(..).for_each(|one| self.attribute_resolved(one));
        self.unresolved = unresolved;
        if self.symbols.kernel_renamed() {
            self.resolve.forget_kernel();
            self.stacks.forget_kernel();
        }
        self.resolve.trim();
    }

    /// Attributes the records that waited; all addresses have been resolved.
    fn attribute_resolved(&mut self, unresolved: PendingNames) {
        let (record, mut key, mut hash, behind) = match unresolved {
            PendingNames::Stack { record, key, hash, behind } => (record, key, hash, behind),
            PendingNames::Call { record, thread, stack } => {
                if let Some((sample, call @ Some(_))) = sample_at(&self.arena, record) {
                    let Self { profile, stages, accounts, config, symbols, owners, .. } = self;
                    profile.grow_for(owners.of(sample.fixed.pid, symbols));
                    let mut attribution = Attribution { config, stages, accounts, profile };
                    attribution.attribute(thread, &sample, call.as_ref(), stack, symbols);
                }
                return self.arena.release(record);
            }
            PendingNames::Record(record) => return self.use_stackless(record),
        };
        let Some((sample, call)) = sample_at(&self.arena, record) else { return };
        let Self { resolve, profile, stages, accounts, config, owners, .. } = self;
        profile.grow_for(owners.of(sample.fixed.pid, &mut self.symbols));
        let sample = match &call {
            Some(arguments) => stages.stack_of_call(sample, arguments),
            None => sample,
        };
        if behind {
            key.scopes = stages.scopes(&sample.fixed);
            hash = key.hash(sample.words);
        }
        let path = resolve.path(&key, &sample, profile, accounts);
        let mut attribution = Attribution { config, stages, accounts, profile };
        let stack = attribution.place(&key, &sample, call.as_ref(), &path);
        attribution.attribute(key.thread, &sample, call.as_ref(), stack, &mut self.symbols);
        self.stacks.put(hash, &key, sample.words, stack);
        self.arena.release(record);
    }
}

/// Why the kernel programs did not know the process of a sample, if it was refused.
#[inline]
fn refusal<S: Symbols>(sample: &Sample<'_>, symbols: &mut S) -> Option<ProcessRefusal> {
    let StackSample { native_end, pid, header, .. } = sample.fixed;
    if native_end == WalkEnd::UnknownProcess as u8 { symbols.refusal(pid, header.time_ns) } else { None }
}

/// The thread waits from this record on; or, where waits are recorded, the record shows that it runs.
#[inline]
fn follow_thread(off_cpu: &mut OffCpu, sample: &Sample<'_>, records_waits: bool) {
    if let Some(wait) = wait_of(sample) {
        off_cpu.on_begin(wait, sample.fixed.pid);
    } else if records_waits {
        off_cpu.runs(sample.fixed.tid, sample.fixed.header.time_ns);
    }
}
