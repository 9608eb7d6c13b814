//! Await chains: readings of asyncio's tasks, and the chain that held at the time of a sample.
//!
//! Owns: readings of the awaiters of the task that runs a coroutine, and the answer for the time of a sample.
//! Because: a task is read after the sample, when its coroutine may have ended and another may be at its address.
//! Only a chain that was the same before and after the sample is certain. Does not: read memory, or know CPython.
//!
//! ```text
//!  readings of a coroutine   ──a────────a───────b──▶ time      samples between them     a  ·  unknown: changed
//!  before the first reading, nothing is known either: new
//! ```
//!
//! Two readings that agree may still be of two tasks, with another in between. For tasks that asyncio numbered, the
//! number proves that they are one. For tasks with names of their own, and for addresses at which task follows task,
//! readings are trusted once there are many, as long as all tasks at the address had one name, and no chain came back
//! after another. Two tasks that alternate at random pass as one for that many readings once in thirty thousand
//! times.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use deepctx_common::reason::Reason;
use deepctx_pipeline::symbols::{AwaitChainId, Name};

use super::reason::{TASK_CHANGED, TASK_NEW, TOO_MANY_CHAINS};

/// Most coroutines, of all processes, with kept readings.
const COROUTINES_MAX: usize = 1 << 14;
/// Most different consecutive readings kept per coroutine: samples wait half a second until they are used.
const RUNS_MAX: usize = 64;
/// Readings of tasks at one address after which they are trusted without proof: two thirds of a second.
const TRUSTED_FROM: u32 = 16;
/// Chains per address that are kept, to notice when one comes back.
const FORMER_MAX: usize = 8;
/// A coroutine that ran within this time is read again even if it does not run now.
const RAN_RECENTLY_NS: u64 = 1_000_000_000;
/// Shortest time between two readings of a coroutine that does not run: the next should find another task, if one is
/// there.
const REREAD_INTERVAL_NS: u64 = 30_000_000;
/// Most coroutines that are read again at a time, at about twenty microseconds each.
const REREAD_MAX: usize = 32;
/// Time after which a coroutine is dropped that was not asked for.
const FORGOTTEN_NS: u64 = 60_000_000_000;
/// Most different chains.
const CHAINS_MAX: usize = 1 << 16;

/// Part of a chain, as the pipeline will show it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// A task with its name, unless asyncio gave it a default one.
    Task(Option<Box<str>>),
    /// A Python function that waits.
    Function {
        /// Qualified name.
        function: Arc<str>,
        /// Source file.
        file: Arc<str>,
        /// Line on which it waits; 0 if unknown.
        line: u32,
        /// First line of the function.
        first_line: u32,
    },
    /// A gap.
    Unknown(&'static Reason),
}

impl Part {
    /// In the form that the pipeline expects.
    pub(super) fn name(&self) -> Name<'_> {
        match self {
            Part::Task(name) => Name::Task { name: name.as_deref().unwrap_or("") },
            Part::Function { function, file, line, first_line } => {
                Name::Python { function, file, line: *line, first_line: *first_line }
            }
            Part::Unknown(reason) => Name::PythonUnnamed { reason },
        }
    }
}

/// A chain, root first; empty when no task runs the coroutine.
pub(super) type Chain = Vec<Part>;

/// A reading of the task that runs a coroutine.
#[derive(Debug)]
pub(super) struct Reading {
    /// When it began, `CLOCK_MONOTONIC`.
    pub(super) began_ns: u64,
    /// When it ended.
    pub(super) ended_ns: u64,
    pub(super) chain: Chain,
    /// The number that asyncio gave the task.
    pub(super) number: Option<u64>,
}

/// Equal readings, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// When the first ended.
    since_ns: u64,
    /// When the last began.
    until_ns: u64,
    chain: AwaitChainId,
    /// The number that asyncio gave the task.
    number: Option<u64>,
}

/// The readings of one address.
#[derive(Debug, Default)]
struct Coroutine {
    runs: VecDeque<Run>,
    /// The name of all tasks found here.
    name: Option<Option<Box<str>>>,
    /// Tasks had several names, or alternate according to their chains.
    mixed: bool,
    /// Readings that found a task.
    found: u32,
    /// Chains of those readings, the newest last.
    former: Vec<AwaitChainId>,
    /// When it was last seen running.
    ran_ns: u64,
}

impl Coroutine {
    /// A reading found a task.
    fn task_found(&mut self, name: Option<Box<str>>, chain: AwaitChainId) {
        self.found = self.found.saturating_add(1);
        self.mixed |= self.name.get_or_insert_with(|| name.clone()) != &name;
        if self.former.last() == Some(&chain) {
            return;
        }
        self.mixed |= self.former.contains(&chain);
        if self.former.len() >= FORMER_MAX {
            self.former.remove(0);
        }
        self.former.push(chain);
    }

    fn is_trusted(&self) -> bool {
        self.found >= TRUSTED_FROM && !self.mixed
    }
}

/// The readings of all coroutines.
#[derive(Debug, Default)]
pub(super) struct AwaitChains {
    coroutines: FxHashMap<(u32, u64), Coroutine>,
    numbers: FxHashMap<Arc<Chain>, AwaitChainId>,
    chains: Vec<Arc<Chain>>,
}

impl AwaitChains {
    /// Whether the coroutine was read after this time.
    pub(super) fn was_read_after(&self, pid: u32, frame: u64, time_ns: u64) -> bool {
        let last = self.coroutines.get(&(pid, frame)).and_then(|coroutine| coroutine.runs.back());
        last.is_some_and(|run| run.until_ns >= time_ns)
    }

    /// Adds a reading.
    pub(super) fn read(&mut self, pid: u32, frame: u64, reading: Reading) {
        let Reading { began_ns, ended_ns, chain, number } = reading;
        let own_name = chain.iter().rev().find_map(|part| match part {
            Part::Task(name) => Some(name.clone()),
            _ => None,
        });
        let chain = self.number(chain);
        if self.coroutines.len() >= COROUTINES_MAX && !self.coroutines.contains_key(&(pid, frame)) {
            self.coroutines.clear();
        }
        let coroutine = self.coroutines.entry((pid, frame)).or_default();
        if let Some(name) = own_name {
            coroutine.task_found(name, chain);
        }
        match coroutine.runs.back_mut() {
            Some(last) if last.chain == chain && last.number == number => last.until_ns = began_ns,
            _ => {
                if coroutine.runs.len() >= RUNS_MAX {
                    coroutine.runs.pop_front();
                }
                coroutine.runs.push_back(Run { since_ns: ended_ns, until_ns: began_ns, chain, number });
            }
        }
    }

    /// The chain that was valid at a time; `None` if no task ran the coroutine then.
    pub(super) fn at(&mut self, pid: u32, frame: u64, time_ns: u64) -> Option<AwaitChainId> {
        let unknown = match self.coroutines.get(&(pid, frame)) {
            None => TASK_NEW,
            Some(coroutine) => {
                let before = coroutine.runs.iter().rev().find(|run| run.since_ns <= time_ns);
                let after = coroutine.runs.iter().find(|run| run.until_ns >= time_ns);
                match (before, after) {
                    (Some(before), Some(after)) if before.chain == after.chain => {
                        let proven = before.number.is_some() && before == after;
                        let nothing = self.chain(before.chain).is_empty();
                        if nothing && !coroutine.mixed {
                            return None;
                        }
                        if proven || coroutine.is_trusted() || self.is_unknown(before.chain) {
                            return Some(before.chain).filter(|_| !nothing);
                        }
                        if coroutine.mixed { TASK_CHANGED } else { TASK_NEW }
                    }
                    // Only generators and other libraries' coroutines were ever there.
                    _ if coroutine.runs.iter().all(|run| self.chain(run.chain).is_empty()) => return None,
                    (Some(_), _) => TASK_CHANGED,
                    (None, _) => TASK_NEW,
                }
            }
        };
        Some(self.number(vec![Part::Unknown(unknown)]))
    }

    /// Records that a coroutine ran at a time.
    pub(super) fn ran(&mut self, pid: u32, frame: u64, time_ns: u64) {
        if let Some(coroutine) = self.coroutines.get_mut(&(pid, frame)) {
            coroutine.ran_ns = coroutine.ran_ns.max(time_ns);
        }
    }

    /// Coroutines of a process that ran recently, may run again, and were not read for a while.
    pub(super) fn due(&self, pid: u32, now_ns: u64) -> Vec<u64> {
        let due = self.coroutines.iter().filter(|((of, _), coroutine)| {
            let read_ns = coroutine.runs.back().map_or(0, |run| run.until_ns.max(run.since_ns));
            *of == pid
                && coroutine.ran_ns.saturating_add(RAN_RECENTLY_NS) > now_ns
                && read_ns.saturating_add(REREAD_INTERVAL_NS) < now_ns
        });
        due.map(|((_, frame), _)| *frame).take(REREAD_MAX).collect()
    }

    /// Whether a chain consists only of a reason why there is none.
    fn is_unknown(&self, chain: AwaitChainId) -> bool {
        matches!(self.chain(chain), [Part::Unknown(_)])
    }

    /// The parts of a chain, root first.
    pub(super) fn chain(&self, id: AwaitChainId) -> &[Part] {
        self.chains.get(id.0 as usize).map_or(&[], |chain| chain.as_slice())
    }

    /// Forgets a process: it has ended, or runs another program.
    pub(super) fn forget(&mut self, pid: u32) {
        self.coroutines.retain(|(of, _), _| *of != pid);
    }

    /// Forgets readings that no sample of this time or later can need.
    pub(super) fn retire(&mut self, before_ns: u64) {
        self.coroutines.retain(|_, Coroutine { runs, .. }| {
            while runs.get(1).is_some_and(|next| next.since_ns <= before_ns) {
                runs.pop_front();
            }
            // A coroutine that was not asked for in a minute has most likely ended.
            runs.back().is_some_and(|run| run.until_ns.saturating_add(FORGOTTEN_NS) > before_ns)
        });
    }

    fn number(&mut self, chain: Chain) -> AwaitChainId {
        if let Some(known) = self.numbers.get(&chain) {
            return *known;
        }
        if self.chains.len() >= CHAINS_MAX {
            return self.overflow_chain();
        }
        self.add(chain)
    }

    fn add(&mut self, chain: Chain) -> AwaitChainId {
        let id = AwaitChainId(self.chains.len() as u32);
        let chain = Arc::new(chain);
        self.chains.push(Arc::clone(&chain));
        self.numbers.insert(chain, id);
        id
    }

    /// The chain used for all beyond the bound.
    fn overflow_chain(&mut self) -> AwaitChainId {
        let many = vec![Part::Unknown(TOO_MANY_CHAINS)];
        match self.numbers.get(&many) {
            Some(known) => *known,
            None => self.add(many),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = 7;
    const FRAME: u64 = 0x7000;

    /// A reading of one nanosecond.
    fn reading(began_ns: u64, chain: Chain, number: Option<u64>) -> Reading {
        Reading { began_ns, ended_ns: began_ns + 1, chain, number }
    }

    fn task(name: &str) -> Chain {
        vec![Part::Task(Some(name.into()))]
    }

    /// Readings as (time, what), each of one nanosecond; `a` is a task of that name, `3` one with a default name, and
    /// the empty text no task.
    fn chains(readings: &[(u64, &str)]) -> AwaitChains {
        let mut chains = AwaitChains::default();
        for (time_ns, what) in readings {
            let number = what.parse().ok();
            let chain = match *what {
                "" => Vec::new(),
                _ if number.is_some() => vec![Part::Task(None)],
                name => task(name),
            };
            chains.read(PID, FRAME, reading(*time_ns, chain, number));
        }
        chains
    }

    fn check(readings: &[(u64, &str)], time_ns: u64, expect: &str) {
        let mut chains = chains(readings);
        // As if there had been many more before.
        chains.coroutines.values_mut().for_each(|coroutine| coroutine.found += TRUSTED_FROM);
        let got = match chains.at(PID, FRAME, time_ns).map(|id| chains.chain(id).to_vec()) {
            None => "none".to_owned(),
            Some(chain) => match &chain[..] {
                [Part::Task(name)] => name.as_deref().unwrap_or("counted").to_owned(),
                [Part::Unknown(reason)] => reason.key.to_owned(),
                other => panic!("{other:?}"),
            },
        };
        assert_eq!(got, expect, "{readings:?} at {time_ns}");
    }

    #[test]
    fn a_chain_holds_if_equal_before_and_after_a_sample() {
        let readings = [(10, "a"), (20, "a"), (30, "a"), (60, ""), (70, "")];
        check(&readings, 11, "a");
        check(&readings, 25, "a");
        check(&readings, 30, "a");
        check(&readings, 55, "async-task-changed");
        check(&readings, 65, "none");
        check(&readings, 71, "async-task-changed");
        check(&readings, 10, "async-task-new");
        check(&[], 5, "async-task-new");
        check(&[(10, ""), (20, "")], 5, "none");
    }

    #[test]
    fn tasks_of_several_names_need_a_number_as_proof() {
        let named = [(10, "a"), (20, "a"), (40, "b"), (50, "b")];
        check(&named[..2], 15, "a");
        check(&named, 15, "async-task-changed");
        check(&named, 45, "async-task-changed");
        let counted = [(10, "1"), (20, "1"), (40, "2"), (50, "2"), (60, "a")];
        check(&counted[..4], 15, "counted");
        check(&counted[..4], 30, "counted");
        check(&counted, 15, "counted");
        check(&counted, 30, "async-task-changed");
    }

    #[test]
    fn named_tasks_are_trusted_after_many_readings() {
        let name = |readings: u64, named: &str| {
            let readings: Vec<_> = (1..=readings).map(|n| (10 * n, named)).collect();
            let mut chains = chains(&readings);
            let id = chains.at(PID, FRAME, 15).unwrap();
            match chains.chain(id) {
                [Part::Task(name)] => name.as_deref().unwrap_or("counted").to_owned(),
                [Part::Unknown(reason)] => reason.key.to_owned(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(name(u64::from(TRUSTED_FROM) - 1, "a"), "async-task-new");
        assert_eq!(name(u64::from(TRUSTED_FROM), "a"), "a");
        assert_eq!(name(2, "7"), "counted", "its number proves it");
    }

    #[test]
    fn a_chain_that_comes_back_means_alternating_tasks() {
        let mut chains = AwaitChains::default();
        let under = |parent: &str| vec![Part::Task(Some(parent.into())), Part::Task(Some("a".into()))];
        let mut times = (1..).map(|n| 10 * n);
        let mut read = |chains: &mut AwaitChains, parent: &str| {
            let time = times.next().unwrap();
            chains.read(PID, FRAME, reading(time, under(parent), None));
            let id = chains.at(PID, FRAME, time).unwrap();
            matches!(chains.chain(id), [Part::Task(_), _])
        };
        for _ in 0..TRUSTED_FROM {
            read(&mut chains, "p");
        }
        assert!(read(&mut chains, "p"));
        read(&mut chains, "q");
        assert!(read(&mut chains, "q"), "who awaits a task may change");
        read(&mut chains, "p");
        assert!(!read(&mut chains, "p"), "but hardly back again");
    }

    #[test]
    fn only_recent_coroutines_are_read_again() {
        let mut chains = chains(&[(10, "a")]);
        chains.ran(PID, FRAME, RAN_RECENTLY_NS);
        assert!(chains.due(PID, REREAD_INTERVAL_NS).is_empty());
        assert_eq!(chains.due(PID, RAN_RECENTLY_NS), [FRAME]);
        assert!(chains.due(PID, 2 * RAN_RECENTLY_NS).is_empty());
        assert!(chains.due(PID + 1, RAN_RECENTLY_NS).is_empty());
    }

    #[test]
    fn forgotten_processes_and_old_readings_are_dropped() {
        let mut readings = chains(&[(10, "a"), (20, "b"), (30, "b")]);
        readings.retire(25);
        assert_eq!(readings.coroutines[&(PID, FRAME)].runs.len(), 1);
        readings.retire(30 + FORGOTTEN_NS);
        assert!(readings.coroutines.is_empty());
        let mut readings = chains(&[(10, "a")]);
        readings.forget(PID);
        assert!(readings.coroutines.is_empty());
    }

    #[test]
    fn the_tables_stay_within_their_bounds() {
        let mut chains = AwaitChains::default();
        for n in 0..CHAINS_MAX as u64 + 10 {
            chains.read(PID, n % 100, reading(n, task(&n.to_string()), None));
            chains.read(PID, FRAME + n, reading(n, Vec::new(), None));
        }
        assert!(chains.chains.len() <= CHAINS_MAX + 1 && chains.coroutines.len() <= COROUTINES_MAX);
        assert!(chains.coroutines.values().all(|coroutine| coroutine.runs.len() <= RUNS_MAX));
    }
}
