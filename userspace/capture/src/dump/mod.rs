//! Dump: the stack of every thread of some processes at this moment, without stopping any of them.
//!
//! Owns: the order of a dump: the kernel's state of all threads, their memory, the kernel's state once more. Because:
//! what is read from a running process is only valid if the thread did not run between the first reading and the
//! last. Does not: name anything; a dump gives records like those of a capture, which the pipeline resolves.
//!
//! ```text
//!  iterator ─▶ threads ─▶ those off their CPU: walk through the reader ─▶ iterator again ─▶ unchanged? a stack
//!                 │                  ▲──────────── changed: once more ───────────┘
//!                 └─▶ those on a CPU: take that CPU for some microseconds, then as above
//! ```
//! A thread that is not on a CPU has saved all of its user registers in the kernel, whether it sleeps or waits for a
//! CPU. As long as its switch count stays the same and it is off the CPU, it has not executed an instruction.

mod borrowed_cpu;
mod code;
mod iterator;
mod pages;
mod walker;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use deepctx_common::thread::{Thread, thread_flag};
use deepctx_symbolizer::NoSymbol;
use deepctx_symbolizer::maps::Maps;
use deepctx_symbolizer::unwind_rows::cache::{Cache, DEFAULT_BYTES};

use self::borrowed_cpu::BorrowedCpu;
use self::code::Files;
use self::iterator::{AllThreads, ThreadIterator};
use self::walker::{Target, WalkOutcome};
use super::clock::{log_progress, monotonic_ns};
use super::config::FrameSource;
use super::doctor;
use super::error::CaptureError;
use super::targets::{self, Targets};

/// Rounds over threads that changed since the last one: most waits are longer than a round takes.
const ROUNDS_MAX: usize = 4;
/// Tries for a thread that is on a CPU at every look.
const TRIES_MAX: usize = 10;
/// Most threads for which a CPU is taken: a machine runs as many at a time as it has CPUs.
const RUNNING_MAX: usize = 1024;

/// What to dump.
#[derive(Clone, Debug, Default)]
pub struct DumpConfig {
    /// Which processes.
    pub targets: Vec<Targets>,
    /// Also their descendants.
    pub follow_children: bool,
    /// Frames to read.
    pub context: Vec<FrameSource>,
    /// Folder of unwind tables; `None`: all are built again.
    pub cache: Option<PathBuf>,
}

/// The processes that were dumped.
#[derive(Debug)]
pub struct RawDump {
    /// In the order of their pids.
    pub processes: Vec<ProcessStacks>,
    /// From the first reading of the first round to the last of the last.
    pub took: Duration,
    /// There are more processes, or they have more threads, than are read.
    pub is_cut: bool,
}

/// A process.
#[derive(Debug)]
pub struct ProcessStacks {
    /// Its id, in the pid namespace of this process.
    pub pid: u32,
    /// Its name (`comm`); empty if it ended before it was read.
    pub name: String,
    /// Its executable mappings.
    pub maps: Maps,
    /// Why it could not be read; `None` if it could.
    pub unread: Option<NoSymbol>,
    /// The part that ended meanwhile.
    pub gone: VanishedPart,
    /// Its threads, by id.
    pub threads: Vec<ThreadStack>,
}

/// The part of a process that ended while it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VanishedPart {
    /// All of it.
    Process,
    /// This many threads.
    Threads(u64),
}

/// A thread.
#[derive(Debug)]
pub struct ThreadStack {
    /// Its kernel data.
    pub thread: Thread,
    /// How long it has been off its CPU, nanoseconds; `None` if the kernel does not report it.
    pub off_cpu_ns: Option<u64>,
    /// Its stack, if it could be read while the thread did not run.
    pub stack: Stack,
}

/// A stack, or why there is none.
#[derive(Debug)]
pub enum Stack {
    /// A record of [`deepctx_common::record::kind::SAMPLE`].
    Read(Vec<u8>),
    /// The thread ran between the readings, in every round.
    Moving,
}

impl Stack {
    /// The bytes of the record; none if the thread kept running.
    pub fn record(&self) -> &[u8] {
        match self {
            Self::Read(record) => record,
            Self::Moving => &[],
        }
    }
}

/// Reads the stacks of all threads of the selected processes.
///
/// # Errors
/// A missing process, a missing privilege, or a refusal of the kernel: see [`CaptureError`].
pub fn dump(config: &DumpConfig) -> Result<RawDump, CaptureError> {
    let selected = targets::find_matches(&config.targets, config.follow_children)?;
    let missing = doctor::missing_capabilities();
    if !missing.is_empty() {
        return Err(CaptureError::NotPrivileged { capabilities: missing });
    }
    let asked_ns = monotonic_ns();
    let cache = config.cache.as_deref().and_then(|folder| Cache::open(folder, DEFAULT_BYTES).ok());
    let mut files = Files::new(cache);
    let iterator = ThreadIterator::load(&selected.pids)?;
    log_progress(asked_ns, "iterator loaded");
    let OpenedProcesses { mut targets, mut unopened } =
        open_all(&selected.pids, |pid| Target::open(pid, &config.context))?;
    log_progress(asked_ns, "processes looked at");
    let began_ns = monotonic_ns();
    let found = Dumper { iterator: &iterator, targets: &mut targets, files: &mut files }.run()?;
    let took = Duration::from_nanos(monotonic_ns().saturating_sub(began_ns));
    log_progress(asked_ns, "stacks read");
    let is_cut = found.is_cut || selected.is_cut;
    let mut processes = grouped(targets, found);
    processes.append(&mut unopened);
    processes.sort_by_key(|process| process.pid);
    Ok(RawDump { processes, took, is_cut })
}

/// The processes of a dump, before their threads are read.
#[derive(Debug)]
struct OpenedProcesses<T> {
    targets: BTreeMap<u32, T>,
    /// Those that have ended or cannot be read.
    unopened: Vec<ProcessStacks>,
}

/// Opens processes. One that cannot be read costs the others nothing.
///
/// # Errors
/// None can be read, or reading is not possible at all.
fn open_all<T>(
    pids: &[u32],
    open: impl Fn(u32) -> Result<T, CaptureError>,
) -> Result<OpenedProcesses<T>, CaptureError> {
    let mut opened = OpenedProcesses { targets: BTreeMap::new(), unopened: Vec::new() };
    let mut refused = None;
    for &pid in pids {
        match open(pid) {
            Ok(target) => drop(opened.targets.insert(pid, target)),
            // It existed a moment ago.
            Err(CaptureError::NoSuchProcess { .. }) => opened.unopened.push(ProcessStacks::ended(pid)),
            Err(CaptureError::ProcessUnreadable { reason, .. }) if reason != NoSymbol::NoMemoryReader => {
                opened.unopened.push(ProcessStacks::unreadable(pid, reason));
                refused.get_or_insert(CaptureError::ProcessUnreadable { pid, reason });
            }
            Err(error) => return Err(error),
        }
    }
    match refused {
        Some(error) if opened.targets.is_empty() => Err(error),
        _ => Ok(opened),
    }
}

struct Dumper<'d> {
    iterator: &'d ThreadIterator,
    targets: &'d mut BTreeMap<u32, Target>,
    files: &'d mut Files,
}

/// Threads that were read, and those that ended meanwhile.
#[derive(Default)]
struct ThreadSnapshot {
    by_tid: HashMap<u32, ThreadStack>,
    ended: HashMap<u32, u64>,
    /// There are more threads than are read.
    is_cut: bool,
}

impl Dumper<'_> {
    /// Reads until no thread changes, or up to the maximum of rounds.
    fn run(&mut self) -> Result<ThreadSnapshot, CaptureError> {
        let AllThreads { threads: mut before, is_cut } = self.iterator.read()?;
        let mut found = ThreadSnapshot { is_cut, ..ThreadSnapshot::default() };
        for _ in 0..ROUNDS_MAX {
            let is_pending = |thread: &&Thread| {
                let is_read = found.by_tid.contains_key(&thread.tid);
                !is_read && !is_running(thread) && self.targets.contains_key(&thread.pid)
            };
            let pending: Vec<Thread> = before.iter().filter(is_pending).copied().collect();
            if pending.is_empty() {
                break;
            }
            self.targets.values_mut().for_each(Target::forget_memory);
            let walked: Vec<(Thread, Vec<u8>)> =
                pending.iter().filter_map(|thread| Some((*thread, self.walk(thread)?))).collect();
            let AllThreads { threads: after, is_cut } = self.iterator.read()?;
            found.keep_unchanged(walked, &after);
            found.count_ended(&before, &after);
            found.is_cut |= is_cut;
            before = after;
        }
        // Threads of processes that cannot be read take no room from others.
        let is_left = |thread: &Thread| {
            !found.by_tid.contains_key(&thread.tid) && self.targets.contains_key(&thread.pid)
        };
        let rest: Vec<Thread> = before.into_iter().filter(is_left).collect();
        for (n, thread) in rest.iter().enumerate() {
            let taken = if n < RUNNING_MAX { self.take(thread)? } else { Some(moving(thread)) };
            match taken {
                Some(taken) => drop(found.by_tid.insert(thread.tid, taken)),
                None => *found.ended.entry(thread.pid).or_default() += 1,
            }
        }
        Ok(found)
    }

    fn walk(&mut self, thread: &Thread) -> Option<Vec<u8>> {
        match self.targets.get_mut(&thread.pid)?.walk(thread, self.files) {
            WalkOutcome::Stack(record) => Some(record),
            WalkOutcome::Wanted => None,
        }
    }

    /// Takes the CPU of a running thread, and reads its stack before it continues. `None` if it ended.
    fn take(&mut self, thread: &Thread) -> Result<Option<ThreadStack>, CaptureError> {
        let Some(target) = self.targets.get_mut(&thread.pid) else { return Ok(None) };
        let mut last = *thread;
        for _ in 0..TRIES_MAX {
            target.forget_memory();
            let taken = BorrowedCpu::of_thread(thread.pid, thread.tid);
            let is_taken = taken.is_some();
            target.read_directly(is_taken);
            let before = self.iterator.read_thread(thread.pid, thread.tid)?;
            let walked =
                before.filter(|thread| !is_running(thread)).map(|thread| target.walk(&thread, self.files));
            let after = self.iterator.read_thread(thread.pid, thread.tid)?;
            drop(taken);
            target.read_directly(false);
            let (Some(before), Some(after)) = (before, after) else { return Ok(None) };
            last = after;
            match walked {
                Some(WalkOutcome::Stack(record)) if is_same(&before, &after) => {
                    return Ok(Some(ThreadStack::of(as_it_was(before, is_taken), Stack::Read(record))));
                }
                // Loading them takes too long while others wait for the CPU.
                Some(WalkOutcome::Wanted) => target.load_wanted(self.files),
                _ => {}
            }
        }
        Ok(Some(moving(&last)))
    }
}

impl ThreadSnapshot {
    /// Keeps the stacks of threads that did not change.
    fn keep_unchanged(&mut self, walked: Vec<(Thread, Vec<u8>)>, after: &[Thread]) {
        let now: HashMap<u32, &Thread> = after.iter().map(|thread| (thread.tid, thread)).collect();
        for (thread, record) in walked {
            match now.get(&thread.tid) {
                Some(now) if is_same(&thread, now) => {
                    self.by_tid.insert(thread.tid, ThreadStack::of(thread, Stack::Read(record)));
                }
                Some(_) => {}
                None => *self.ended.entry(thread.pid).or_default() += 1,
            }
        }
    }

    /// Counts the threads that ended and were running, so that nobody walked them.
    fn count_ended(&mut self, before: &[Thread], after: &[Thread]) {
        let now: HashSet<u32> = after.iter().map(|thread| thread.tid).collect();
        for thread in before.iter().filter(|thread| is_running(thread) && !now.contains(&thread.tid)) {
            if !self.by_tid.contains_key(&thread.tid) {
                *self.ended.entry(thread.pid).or_default() += 1;
            }
        }
    }
}

impl ThreadStack {
    /// The iterator has converted the times to one clock.
    fn of(thread: Thread, stack: Stack) -> Self {
        let left_ns = thread.arrived_ns.saturating_add(thread.ran_ns);
        let off_cpu_ns = (thread.arrived_ns != 0).then(|| thread.time_ns.saturating_sub(left_ns));
        Self { thread, off_cpu_ns, stack }
    }
}

impl ProcessStacks {
    fn ended(pid: u32) -> Self {
        let (maps, threads) = (Maps::default(), Vec::new());
        Self { pid, name: String::new(), maps, unread: None, gone: VanishedPart::Process, threads }
    }

    fn unreadable(pid: u32, reason: NoSymbol) -> Self {
        let name = targets::comm_of(pid).unwrap_or_default();
        Self { name, unread: Some(reason), gone: VanishedPart::Threads(0), ..Self::ended(pid) }
    }
}

fn moving(thread: &Thread) -> ThreadStack {
    ThreadStack::of(*thread, Stack::Moving)
}

fn is_running(thread: &Thread) -> bool {
    thread.flags & thread_flag::ON_CPU != 0
}

/// A thread as it was before it was read: if its CPU was taken and it can run, it has none only because of that.
fn as_it_was(thread: Thread, is_taken: bool) -> Thread {
    let runs = if is_taken && thread.state == 0 { thread_flag::ON_CPU } else { 0 };
    Thread { flags: thread.flags | runs, ..thread }
}

/// Whether a thread did not run between two readings. One that was woken and has no CPU yet has not moved.
fn is_same(before: &Thread, after: &Thread) -> bool {
    !is_running(before) && !is_running(after) && before.pid == after.pid && before.switches == after.switches
}

fn grouped(targets: BTreeMap<u32, Target>, mut found: ThreadSnapshot) -> Vec<ProcessStacks> {
    let of = |(pid, target): (u32, Target)| {
        let gone = VanishedPart::Threads(found.ended.remove(&pid).unwrap_or_default());
        let name = target.name().to_owned();
        ProcessStacks { pid, name, maps: target.into_maps(), unread: None, gone, threads: Vec::new() }
    };
    let mut processes: BTreeMap<u32, ProcessStacks> =
        targets.into_iter().map(of).map(|process| (process.pid, process)).collect();
    for thread in found.by_tid.into_values() {
        if let Some(process) = processes.get_mut(&thread.thread.pid) {
            process.threads.push(thread);
        }
    }
    let mut processes: Vec<ProcessStacks> = processes.into_values().collect();
    for process in &mut processes {
        process.threads.sort_by_key(|thread| thread.thread.tid);
        if process.threads.is_empty() && !found.is_cut {
            process.gone = VanishedPart::Process;
        }
    }
    processes
}

#[cfg(test)]
mod tests {
    use deepctx_common::Plain as _;

    use super::*;

    fn thread(flags: u32, switches: u64) -> Thread {
        let zeros = Thread::read_from(&[0; size_of::<Thread>()]);
        Thread { tid: 7, flags, switches, ..zeros.unwrap() }
    }

    #[test]
    fn a_process_that_does_not_answer_leaves_the_others() {
        let refused = |pid, reason| Err(CaptureError::ProcessUnreadable { pid, reason });
        let open = |pid: u32| match pid {
            1 => Ok(()),
            2 => Err(CaptureError::NoSuchProcess { pid }),
            3 => refused(pid, NoSymbol::ProcessSilent),
            _ => refused(pid, NoSymbol::NoMemoryReader),
        };
        let OpenedProcesses { targets, unopened } = open_all(&[1, 2, 3], open).unwrap();
        let unopened: Vec<_> = unopened.iter().map(|one| (one.pid, one.unread, one.gone)).collect();
        let silent = (3, Some(NoSymbol::ProcessSilent), VanishedPart::Threads(0));
        assert_eq!((targets.len(), unopened), (1, vec![(2, None, VanishedPart::Process), silent]));

        let check = |pids: &[u32], expect: NoSymbol| {
            let error = open_all(pids, open).unwrap_err();
            assert!(
                matches!(error, CaptureError::ProcessUnreadable { reason, .. } if reason == expect),
                "{error}"
            );
        };
        // Nothing can be shown, or no process can be read at all.
        check(&[2, 3], NoSymbol::ProcessSilent);
        check(&[1, 4], NoSymbol::NoMemoryReader);
    }

    #[test]
    fn a_stack_counts_only_if_its_thread_stood_still() {
        let check = |before: (u32, u64), after: (u32, u64), expect: bool| {
            let (before, after) = (thread(before.0, before.1), thread(after.0, after.1));
            let mut found = ThreadSnapshot::default();
            found.keep_unchanged(vec![(before, Vec::new())], &[after]);
            assert_eq!(found.by_tid.contains_key(&7), expect, "{before:?} {after:?}");
            assert!(found.ended.is_empty());
        };
        check((0, 5), (0, 5), true);
        check((0, 5), (0, 6), false);
        check((0, 5), (thread_flag::ON_CPU, 5), false);
        check((thread_flag::ON_CPU, 5), (0, 5), false);
    }

    #[test]
    fn a_thread_that_ended_is_counted() {
        let mut found = ThreadSnapshot::default();
        found.keep_unchanged(vec![(thread(0, 1), Vec::new())], &[]);
        assert!(found.by_tid.is_empty() && found.ended.values().sum::<u64>() == 1);
    }

    #[test]
    fn a_thread_that_ran_until_its_end_is_counted() {
        let check = |before: Thread, after: &[Thread], expect: u64| {
            let mut found = ThreadSnapshot::default();
            found.count_ended(&[before], after);
            assert_eq!(found.ended.values().sum::<u64>(), expect, "{before:?}");
        };
        let running = thread(thread_flag::ON_CPU, 1);
        check(running, &[], 1);
        check(running, &[running], 0);
        // It was walked, and is counted there.
        check(thread(0, 1), &[], 0);
    }

    #[test]
    fn who_waits_for_a_cpu_is_not_running() {
        let check = |state, is_taken, expect: bool| {
            let before = Thread { state, ..thread(0, 1) };
            assert_eq!(is_running(&as_it_was(before, is_taken)), expect, "{state} {is_taken}");
        };
        check(0, true, true);
        check(0, false, false);
        check(1, true, false);
    }

    #[test]
    fn time_off_the_cpu_begins_when_the_thread_left_it() {
        let check = |arrived_ns, ran_ns, expect| {
            let thread = Thread { time_ns: 1000, arrived_ns, ran_ns, ..thread(0, 0) };
            assert_eq!(ThreadStack::of(thread, Stack::Moving).off_cpu_ns, expect);
        };
        check(100, 300, Some(600));
        check(0, 300, None);
        check(900, 300, Some(0));
    }
}
