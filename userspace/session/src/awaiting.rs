//! Awaiting: what was read of asyncio's tasks, and when.
//!
//! Owns: readings of who awaits the task that runs a coroutine, and the answer for the time of a sample. Because: a task
//! is read after the sample, when its coroutine may have ended and another may lie at its address: only what was the
//! same before the sample and after it was so when the sample was taken. Does not: read memory, or know CPython.
//!
//! ```text
//!  readings of a coroutine   ──a────────a───────b──▶ time      samples in between are   a  ·  not known: changed
//!  before the first of them, nothing is known either: new
//! ```
//!
//! Two readings that agree may still be of two tasks, with another in between. Tasks that asyncio counted have a number
//! that proves it. For those that were given names, and for places at which task follows task, readings are believed once
//! there are many, and as long as all tasks that were ever met at the place had one name, and no chain came back after
//! another. Two tasks that take turns at random look like one for so many readings once in thirty thousand times.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use deepctx_pipeline::symbols::{AwaitingId, Name, NoName};

/// Coroutines of all processes of which readings are kept.
const COROUTINES_MAX: usize = 1 << 14;
/// Readings of one coroutine that differ from the one before and are kept: samples wait half a second for their turn.
const RUNS_MAX: usize = 64;
/// Readings of tasks at one place after which they are believed without a proof: two thirds of a second's.
const BELIEVED_FROM: u32 = 16;
/// Chains of one place that are remembered to see one come back.
const FORMER_MAX: usize = 8;
/// A coroutine that ran within this time is read again though it does not run now.
const RAN_LATELY_NS: u64 = 1_000_000_000;
/// Shortest time between two readings of a coroutine that does not run: the next should find another task, if one is there.
const AGAIN_NS: u64 = 30_000_000;
/// Coroutines that are read again at a time, at about twenty microseconds each.
const AGAIN_MAX: usize = 32;
/// Time after which a coroutine is forgotten of which nobody asked.
const FORGOTTEN_NS: u64 = 60_000_000_000;
/// Different chains that are told apart.
const CHAINS_MAX: usize = 1 << 16;

/// Part of a chain, as the pipeline will name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// A task with its name; without, one that asyncio counted.
    Task(Option<Box<str>>),
    /// A Python function that waits.
    Function {
        /// Qualified name.
        function: Arc<str>,
        /// Source file.
        file: Arc<str>,
        /// Line on which it waits; 0 when unknown.
        line: u32,
        /// First line of the function.
        first_line: u32,
    },
    /// Something is missing here.
    Unknown(NoName),
}

impl Part {
    /// As the pipeline asks for it.
    pub(crate) fn name(&self) -> Name<'_> {
        match self {
            Part::Task(name) => Name::Task { name: name.as_deref().unwrap_or("") },
            Part::Function { function, file, line, first_line } => {
                Name::Python { function, file, line: *line, first_line: *first_line }
            }
            Part::Unknown(reason) => Name::PythonUnnamed { reason: *reason },
        }
    }
}

/// What a reading gave: a chain, root first; empty when no task runs the coroutine.
pub(crate) type Chain = Vec<Part>;

/// Readings that gave the same, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// When the first was over.
    since_ns: u64,
    /// When the last began.
    until_ns: u64,
    chain: AwaitingId,
    /// The number that asyncio gave the task.
    number: Option<u64>,
}

/// What is known of one address.
#[derive(Debug, Default)]
struct Place {
    runs: VecDeque<Run>,
    /// The one name of all tasks that were met here.
    name: Option<Option<Box<str>>>,
    /// There was more than one, or tasks take turns by what else is known.
    mixed: bool,
    /// Readings that met a task.
    met: u32,
    /// Chains of those, the last one last.
    former: Vec<AwaitingId>,
    /// When it was last seen to run.
    ran_ns: u64,
}

impl Place {
    /// A reading met a task.
    fn meet(&mut self, name: Option<Box<str>>, chain: AwaitingId) {
        self.met = self.met.saturating_add(1);
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

    fn is_believed(&self) -> bool {
        self.met >= BELIEVED_FROM && !self.mixed
    }
}

/// The readings.
#[derive(Debug, Default)]
pub(crate) struct Awaiting {
    places: FxHashMap<(u32, u64), Place>,
    numbers: FxHashMap<Arc<Chain>, AwaitingId>,
    chains: Vec<Arc<Chain>>,
}

const CHANGED: NoName = NoName {
    key: "async-task-changed",
    sentence: "the coroutine was another task's before and after, or its awaiters changed just then",
};
const NEW: NoName = NoName {
    key: "async-task-new",
    sentence: "the coroutine's task was not read before the sample, or not often enough to be sure",
};
const MANY: NoName =
    NoName { key: "async-too-many-chains", sentence: "more chains of awaiting tasks than are told apart" };

impl Awaiting {
    /// Whether the coroutine was read after this time.
    pub(crate) fn was_read_after(&self, pid: u32, frame: u64, time_ns: u64) -> bool {
        let last = self.places.get(&(pid, frame)).and_then(|place| place.runs.back());
        last.is_some_and(|run| run.until_ns >= time_ns)
    }

    /// Takes a reading in that was made between two times. `number`: the one that asyncio gave the task.
    pub(crate) fn read(
        &mut self,
        pid: u32,
        frame: u64,
        [began_ns, ended_ns]: [u64; 2],
        chain: Chain,
        number: Option<u64>,
    ) {
        let own_name = chain.iter().rev().find_map(|part| match part {
            Part::Task(name) => Some(name.clone()),
            _ => None,
        });
        let chain = self.number(chain);
        if self.places.len() >= COROUTINES_MAX && !self.places.contains_key(&(pid, frame)) {
            self.places.clear();
        }
        let place = self.places.entry((pid, frame)).or_default();
        if let Some(name) = own_name {
            place.meet(name, chain);
        }
        match place.runs.back_mut() {
            Some(last) if last.chain == chain && last.number == number => last.until_ns = began_ns,
            _ => {
                if place.runs.len() >= RUNS_MAX {
                    place.runs.pop_front();
                }
                place.runs.push_back(Run { since_ns: ended_ns, until_ns: began_ns, chain, number });
            }
        }
    }

    /// The chain that stood at a time; `None` when no task ran the coroutine then.
    pub(crate) fn at(&mut self, pid: u32, frame: u64, time_ns: u64) -> Option<AwaitingId> {
        let unknown = match self.places.get(&(pid, frame)) {
            None => NEW,
            Some(place) => {
                let before = place.runs.iter().rev().find(|run| run.since_ns <= time_ns);
                let after = place.runs.iter().find(|run| run.until_ns >= time_ns);
                match (before, after) {
                    (Some(before), Some(after)) if before.chain == after.chain => {
                        let proven = before.number.is_some() && before == after;
                        let nothing = self.chain(before.chain).is_empty();
                        if nothing && !place.mixed {
                            return None;
                        }
                        if proven || place.is_believed() || self.is_unknown(before.chain) {
                            return Some(before.chain).filter(|_| !nothing);
                        }
                        if place.mixed { CHANGED } else { NEW }
                    }
                    // Nothing but generators and other libraries' coroutines was ever there.
                    _ if place.runs.iter().all(|run| self.chain(run.chain).is_empty()) => return None,
                    (Some(_), _) => CHANGED,
                    (None, _) => NEW,
                }
            }
        };
        Some(self.number(vec![Part::Unknown(unknown)]))
    }

    /// Notes that a coroutine was seen to run.
    pub(crate) fn ran(&mut self, pid: u32, frame: u64, time_ns: u64) {
        if let Some(place) = self.places.get_mut(&(pid, frame)) {
            place.ran_ns = place.ran_ns.max(time_ns);
        }
    }

    /// Coroutines of a process that ran lately, may run again, and were not read for a while.
    pub(crate) fn due(&self, pid: u32, now_ns: u64) -> Vec<u64> {
        let due = self.places.iter().filter(|((of, _), place)| {
            let read_ns = place.runs.back().map_or(0, |run| run.until_ns.max(run.since_ns));
            *of == pid
                && place.ran_ns.saturating_add(RAN_LATELY_NS) > now_ns
                && read_ns.saturating_add(AGAIN_NS) < now_ns
        });
        due.map(|((_, frame), _)| *frame).take(AGAIN_MAX).collect()
    }

    /// Nothing but a reason why there is no chain.
    fn is_unknown(&self, chain: AwaitingId) -> bool {
        matches!(self.chain(chain), [Part::Unknown(_)])
    }

    /// The parts of a chain, root first.
    pub(crate) fn chain(&self, id: AwaitingId) -> &[Part] {
        self.chains.get(id.0 as usize).map_or(&[], |chain| chain.as_slice())
    }

    /// Forgets a process: its memory is another's now, or nobody's.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.places.retain(|(of, _), _| *of != pid);
    }

    /// Forgets readings that no sample can need any more.
    pub(crate) fn retire(&mut self, before_ns: u64) {
        self.places.retain(|_, Place { runs, .. }| {
            while runs.get(1).is_some_and(|next| next.since_ns <= before_ns) {
                runs.pop_front();
            }
            // A coroutine that nobody asked for in a minute has most likely ended.
            runs.back().is_some_and(|run| run.until_ns.saturating_add(FORGOTTEN_NS) > before_ns)
        });
    }

    fn number(&mut self, chain: Chain) -> AwaitingId {
        if let Some(known) = self.numbers.get(&chain) {
            return *known;
        }
        if self.chains.len() >= CHAINS_MAX {
            return self.number_of_many();
        }
        self.add(chain)
    }

    fn add(&mut self, chain: Chain) -> AwaitingId {
        let id = AwaitingId(self.chains.len() as u32);
        let chain = Arc::new(chain);
        self.chains.push(Arc::clone(&chain));
        self.numbers.insert(chain, id);
        id
    }

    /// One more than the bound, once.
    fn number_of_many(&mut self) -> AwaitingId {
        let many = vec![Part::Unknown(MANY)];
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

    fn task(name: &str) -> Chain {
        vec![Part::Task(Some(name.into()))]
    }

    /// Readings as (time, what), each of one nanosecond; `a` is a task of that name, `3` one that asyncio counted, and the
    /// empty text stands for no task.
    fn awaiting(readings: &[(u64, &str)]) -> Awaiting {
        let mut awaiting = Awaiting::default();
        for (time_ns, what) in readings {
            let number = what.parse().ok();
            let chain = match *what {
                "" => Vec::new(),
                _ if number.is_some() => vec![Part::Task(None)],
                name => task(name),
            };
            awaiting.read(PID, FRAME, [*time_ns, time_ns + 1], chain, number);
        }
        awaiting
    }

    fn check(readings: &[(u64, &str)], time_ns: u64, expect: &str) {
        let mut awaiting = awaiting(readings);
        // As if there had been many more before.
        awaiting.places.values_mut().for_each(|place| place.met += BELIEVED_FROM);
        let got = match awaiting.at(PID, FRAME, time_ns).map(|id| awaiting.chain(id).to_vec()) {
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
    fn only_what_was_the_same_before_and_after_a_sample_was_so_when_it_was_taken() {
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
    fn where_tasks_of_several_names_were_met_only_a_number_proves_that_two_readings_are_of_one_task() {
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
    fn tasks_with_names_are_believed_once_they_were_read_often() {
        let name = |readings: u64, named: &str| {
            let readings: Vec<_> = (1..=readings).map(|n| (10 * n, named)).collect();
            let mut awaiting = awaiting(&readings);
            let id = awaiting.at(PID, FRAME, 15).unwrap();
            match awaiting.chain(id) {
                [Part::Task(name)] => name.as_deref().unwrap_or("counted").to_owned(),
                [Part::Unknown(reason)] => reason.key.to_owned(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(name(u64::from(BELIEVED_FROM) - 1, "a"), "async-task-new");
        assert_eq!(name(u64::from(BELIEVED_FROM), "a"), "a");
        assert_eq!(name(2, "7"), "counted", "its number proves it");
    }

    #[test]
    fn a_chain_that_comes_back_after_another_tells_of_tasks_that_take_turns() {
        let mut awaiting = Awaiting::default();
        let under = |parent: &str| vec![Part::Task(Some(parent.into())), Part::Task(Some("a".into()))];
        let mut times = (1..).map(|n| 10 * n);
        let mut read = |awaiting: &mut Awaiting, parent: &str| {
            let time = times.next().unwrap();
            awaiting.read(PID, FRAME, [time, time + 1], under(parent), None);
            let id = awaiting.at(PID, FRAME, time).unwrap();
            matches!(awaiting.chain(id), [Part::Task(_), _])
        };
        for _ in 0..BELIEVED_FROM {
            read(&mut awaiting, "p");
        }
        assert!(read(&mut awaiting, "p"));
        read(&mut awaiting, "q");
        assert!(read(&mut awaiting, "q"), "who awaits a task may change");
        read(&mut awaiting, "p");
        assert!(!read(&mut awaiting, "p"), "but hardly back again");
    }

    #[test]
    fn what_ran_lately_is_read_again_and_nothing_else() {
        let mut awaiting = awaiting(&[(10, "a")]);
        awaiting.ran(PID, FRAME, RAN_LATELY_NS);
        assert!(awaiting.due(PID, AGAIN_NS).is_empty());
        assert_eq!(awaiting.due(PID, RAN_LATELY_NS), [FRAME]);
        assert!(awaiting.due(PID, 2 * RAN_LATELY_NS).is_empty());
        assert!(awaiting.due(PID + 1, RAN_LATELY_NS).is_empty());
    }

    #[test]
    fn a_process_that_is_forgotten_and_readings_that_are_old_are_gone() {
        let mut readings = awaiting(&[(10, "a"), (20, "b"), (30, "b")]);
        readings.retire(25);
        assert_eq!(readings.places[&(PID, FRAME)].runs.len(), 1);
        readings.retire(30 + FORGOTTEN_NS);
        assert!(readings.places.is_empty());
        let mut readings = awaiting(&[(10, "a")]);
        readings.forget(PID);
        assert!(readings.places.is_empty());
    }

    #[test]
    fn the_tables_stay_within_their_bounds() {
        let mut awaiting = Awaiting::default();
        for n in 0..CHAINS_MAX as u64 + 10 {
            awaiting.read(PID, n % 100, [n, n], task(&n.to_string()), None);
            awaiting.read(PID, FRAME + n, [n, n], Vec::new(), None);
        }
        assert!(awaiting.chains.len() <= CHAINS_MAX + 1 && awaiting.places.len() <= COROUTINES_MAX);
        assert!(awaiting.places.values().all(|place| place.runs.len() <= RUNS_MAX));
    }
}
