//! Processes: the states of each process's address space over time.
//!
//! Owns: the state of a process at a given time, its number, its name, and when missing names are looked up again.
//! Because: samples are named later than they are taken, and the same address means other code after an exec. Does
//! not: open files or look names up.

use std::collections::VecDeque;

use deepctx_common::memory::{MemoryUse, table_bytes};
use deepctx_pipeline::symbols::SpaceId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::SECOND_NS;

/// Longest time until an address that had no name is looked up again.
const RETRY_MAX_NS: u64 = 60 * SECOND_NS;
/// Most states kept per process; older ones are merged into the oldest kept.
const VERSIONS_MAX: usize = 64;

/// A process at a time: the meaning of a [`SpaceId`].
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedProcess {
    pub(super) pid: u32,
    pub(super) time_ns: u64,
}

/// A process during a state of its address space.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessPeriod {
    pub(super) pid: u32,
    pub(super) first_ns: u64,
    last_ns: u64,
}

impl ProcessPeriod {
    /// The time in this period that is nearest to another.
    pub(super) fn nearest(&self, time_ns: u64) -> u64 {
        time_ns.clamp(self.first_ns, self.last_ns)
    }
}

/// All processes, and the numbers of their states.
#[derive(Debug, Default)]
pub(super) struct Processes {
    by_pid: FxHashMap<u32, Process>,
    spaces: FxHashMap<SpaceId, TimedProcess>,
    /// Spaces that get no new queries; earlier ones may still come.
    stale: Vec<SpaceId>,
    next_space: u32,
    /// Processes that had no recorded end at the last look, and did not exist.
    missing: FxHashSet<u32>,
}

#[derive(Debug, Default)]
struct Process {
    versions: VecDeque<Version>,
    ended_ns: Option<u64>,
}

/// The state of a process from a time on.
#[derive(Debug)]
struct Version {
    since_ns: u64,
    id: SpaceId,
    /// False until its mappings have been read.
    read: bool,
    name: String,
    retry: Option<Retry>,
}

/// When missing names are looked up again, and how long after that if they are still missing.
#[derive(Clone, Copy, Debug)]
struct Retry {
    at_ns: u64,
    wait_ns: u64,
}

impl Processes {
    /// The process and the time of a space.
    pub(super) fn of_space(&self, space: SpaceId) -> Option<TimedProcess> {
        self.spaces.get(&space).copied()
    }

    /// The process of a space, and when it had that.
    pub(super) fn period_of(&self, space: SpaceId) -> Option<ProcessPeriod> {
        let TimedProcess { pid, time_ns: first_ns } = self.of_space(space)?;
        let mut versions = self.by_pid.get(&pid).into_iter().flat_map(|process| &process.versions);
        let next = versions.find(|version| version.since_ns > first_ns);
        Some(ProcessPeriod { pid, first_ns, last_ns: next.map_or(u64::MAX, |next| next.since_ns - 1) })
    }

    /// The space of a process at a time. An unknown process gets one.
    pub(super) fn space(&mut self, pid: u32, time_ns: u64) -> SpaceId {
        match self.version(pid, time_ns) {
            Some(version) if version.retry.is_none_or(|retry| time_ns < retry.at_ns) => version.id,
            Some(_) => {
                let id = self.new_space(pid, time_ns);
                if let Some(version) = self.version(pid, time_ns) {
                    let before = std::mem::replace(&mut version.id, id);
                    // The delay is kept, in case the names are still missing.
                    version.retry = version.retry.map(|retry| Retry { at_ns: u64::MAX, ..retry });
                    self.stale.push(before);
                }
                id
            }
            None => {
                self.push(pid, 0, false, String::new());
                self.version(pid, time_ns).map_or(SpaceId(0), |version| version.id)
            }
        }
    }

    /// What it holds in memory.
    pub(super) fn memory(&self) -> MemoryUse {
        let versions = |process: &Process| process.versions.capacity() * size_of::<Version>();
        let spaces = table_bytes(self.spaces.capacity(), size_of::<(SpaceId, TimedProcess)>());
        let processes = table_bytes(self.by_pid.capacity(), size_of::<(u32, Process)>());
        let versions = self.by_pid.values().map(versions).sum::<usize>();
        MemoryUse::new("states of processes", spaces + processes + versions)
    }

    /// Name of a process at a time.
    pub(super) fn name(&mut self, pid: u32, time_ns: u64) -> Option<&str> {
        self.version(pid, time_ns).map(|version| version.name.as_str())
    }

    /// The mappings of a process were read at a time. `unchanged`: they are as before.
    pub(super) fn read(&mut self, pid: u32, time_ns: u64, name: String, unchanged: bool) {
        let last = self.by_pid.get(&pid).and_then(|process| process.versions.back());
        let known = last.map(|last| if last.name.is_empty() { name.clone() } else { last.name.clone() });
        let last = last.map(|last| (last.read, last.since_ns));
        let name = known.unwrap_or(name);
        match last {
            Some((true, _)) if unchanged => {}
            Some((true, _)) => self.push(pid, time_ns, true, name),
            // The first reading holds for the whole time since the program began.
            Some((false, since_ns)) => {
                let unread = self.by_pid.get_mut(&pid).and_then(|process| process.versions.pop_back());
                self.stale.extend(unread.map(|version| version.id));
                self.push(pid, since_ns, true, name);
            }
            None => self.push(pid, 0, true, name),
        }
    }

    /// A process was forked; its address space is its parent's.
    pub(super) fn forked(&mut self, parent: u32, child: u32, time_ns: u64, name: String) {
        let parent = self.by_pid.get(&parent).and_then(|process| process.versions.back());
        let read = parent.is_some_and(|version| version.read);
        self.push(child, time_ns, read, name);
    }

    /// A process replaced its image.
    pub(super) fn replaced(&mut self, pid: u32, time_ns: u64, name: String) {
        self.push(pid, time_ns, false, name);
    }

    /// A process ended.
    pub(super) fn ended(&mut self, pid: u32, time_ns: u64) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            process.ended_ns = Some(time_ns);
        }
    }

    /// Processes whose end was not recorded, since the ring had no room: those that do not exist, as at the last call.
    pub(super) fn lost_ends(&mut self, exists: impl Fn(u32) -> bool) -> Vec<u32> {
        let running = self.by_pid.iter().filter(|(_, process)| process.ended_ns.is_none());
        let missing: FxHashSet<u32> = running.map(|(pid, _)| *pid).filter(|pid| !exists(*pid)).collect();
        let lost = missing.intersection(&self.missing).copied().collect();
        self.missing = missing;
        lost
    }

    /// A name of this space may be known later: look it up again then, at increasing intervals.
    pub(super) fn retry_later(&mut self, space: SpaceId) {
        let Some(TimedProcess { pid, time_ns }) = self.of_space(space) else { return };
        if let Some(version) = self.version(pid, time_ns).filter(|version| version.id == space) {
            let wait_ns = version.retry.map_or(SECOND_NS, |retry| retry.wait_ns);
            version.retry = Some(Retry {
                at_ns: time_ns.saturating_add(wait_ns),
                wait_ns: (wait_ns * 2).min(RETRY_MAX_NS),
            });
        }
    }

    /// Names of a process are out of date: later queries are looked up again.
    pub(super) fn invalidate_names(&mut self, pid: u32, time_ns: u64) {
        let since_ns = self.by_pid.get(&pid).and_then(|process| process.versions.back()).map(|v| v.since_ns);
        let id = self.new_space(pid, since_ns.unwrap_or(0).max(time_ns));
        let last = self.by_pid.get_mut(&pid).and_then(|process| process.versions.back_mut());
        let unused = last.map_or(id, |version| std::mem::replace(&mut version.id, id));
        self.stale.push(unused);
    }

    /// Drops spaces that were replaced. All queries about samples that used them have been answered.
    pub(super) fn drop_stale(&mut self) {
        for space in self.stale.drain(..) {
            self.spaces.remove(&space);
        }
    }

    /// Drops states that no query about this time or later can need. Returns the processes that are gone.
    pub(super) fn retire(&mut self, before_ns: u64) -> Vec<u32> {
        let mut gone = Vec::new();
        let spaces = &mut self.spaces;
        self.by_pid.retain(|pid, process| {
            while process.versions.get(1).is_some_and(|next| next.since_ns <= before_ns) {
                if let Some(old) = process.versions.pop_front() {
                    spaces.remove(&old.id);
                }
            }
            let dead = process.ended_ns.is_some_and(|ended| ended <= before_ns);
            if dead {
                for version in &process.versions {
                    spaces.remove(&version.id);
                }
                gone.push(*pid);
            }
            !dead
        });
        gone
    }

    fn new_space(&mut self, pid: u32, time_ns: u64) -> SpaceId {
        let id = SpaceId(self.next_space);
        // After four thousand million states the oldest are long retired.
        self.next_space = self.next_space.wrapping_add(1);
        self.spaces.insert(id, TimedProcess { pid, time_ns });
        id
    }

    fn push(&mut self, pid: u32, time_ns: u64, read: bool, name: String) {
        let id = self.new_space(pid, time_ns);
        let process = self.by_pid.entry(pid).or_default();
        process.ended_ns = None;
        process.versions.push_back(Version { since_ns: time_ns, id, read, name, retry: None });
        if process.versions.len() > VERSIONS_MAX
            && let Some(oldest) = process.versions.pop_front()
        {
            self.stale.push(oldest.id);
        }
    }

    fn version(&mut self, pid: u32, time_ns: u64) -> Option<&mut Version> {
        let versions = &mut self.by_pid.get_mut(&pid)?.versions;
        let at = versions.partition_point(|version| version.since_ns <= time_ns).saturating_sub(1);
        versions.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_reading_holds_since_the_program_began() {
        let mut processes = Processes::default();
        processes.replaced(7, 100, "a".into());
        let unread = processes.space(7, 110);
        processes.read(7, 150, "b".into(), false);
        let read = processes.space(7, 110);
        assert_ne!(unread, read);
        assert_eq!(processes.name(7, 110), Some("a"), "the name of the exec is kept");
        assert!(processes.of_space(unread).is_some(), "questions may be under way");
        processes.drop_stale();
        assert!(processes.of_space(unread).is_none() && processes.of_space(read).is_some());
    }

    #[test]
    fn times_of_samples_stay_within_the_period_of_their_space() {
        let mut processes = Processes::default();
        processes.read(7, 100, "a".into(), false);
        processes.read(7, 300, "a".into(), false);
        let mut check = |at_ns: u64, expect: [u64; 3]| {
            let space = processes.space(7, at_ns);
            let period = processes.period_of(space).unwrap();
            assert_eq!([50, 250, 350].map(|time_ns| period.nearest(time_ns)), expect, "{at_ns}");
        };
        check(250, [50, 250, 299]);
        check(350, [300, 300, 350]);
        processes.invalidate_names(7, 320);
        let space = processes.space(7, 350);
        assert_eq!(processes.period_of(space).unwrap().nearest(310), 320);
    }

    #[test]
    fn unchanged_mappings_keep_their_space() {
        let mut processes = Processes::default();
        processes.read(7, 100, "a".into(), false);
        let space = processes.space(7, 120);
        processes.read(7, 200, "a".into(), true);
        assert_eq!(processes.space(7, 250), space);
        processes.read(7, 300, "a".into(), false);
        assert_ne!(processes.space(7, 350), space);
        assert_eq!(processes.space(7, 250), space);
    }

    #[test]
    fn missing_names_are_retried_less_and_less_often() {
        let mut processes = Processes::default();
        processes.read(7, 0, "a".into(), false);
        let (mut now_ns, mut wait_ns) = (0, SECOND_NS);
        for _ in 0..10 {
            let space = processes.space(7, now_ns);
            processes.retry_later(space);
            // The delay counts from the time of the space.
            assert_eq!(processes.space(7, now_ns + wait_ns - 1), space);
            now_ns += wait_ns;
            assert_ne!(processes.space(7, now_ns), space);
            wait_ns = (wait_ns * 2).min(RETRY_MAX_NS);
        }
    }

    #[test]
    fn ended_processes_are_retired_with_their_spaces() {
        let mut processes = Processes::default();
        processes.read(7, 0, "a".into(), false);
        let space = processes.space(7, 10);
        processes.ended(7, 20);
        assert!(processes.retire(19).is_empty());
        assert_eq!(processes.retire(20), [7]);
        assert!(processes.of_space(space).is_none() && processes.name(7, 10).is_none());
    }

    #[test]
    fn a_process_whose_end_was_lost_is_found() {
        let mut processes = Processes::default();
        (7..10).for_each(|pid| processes.read(pid, 0, "a".into(), false));
        processes.ended(8, 20);
        // The record of an end may be on its way.
        assert!(processes.lost_ends(|pid| pid == 9).is_empty());
        processes.read(10, 30, "a".into(), false);
        assert_eq!(processes.lost_ends(|pid| pid == 9), [7]);
        processes.ended(7, 40);
        assert_eq!(processes.lost_ends(|pid| pid == 9), [10]);
    }

    #[test]
    fn states_of_a_process_stay_within_their_bound() {
        let mut processes = Processes::default();
        (0..2 * VERSIONS_MAX as u64).for_each(|n| processes.replaced(7, n, String::new()));
        processes.drop_stale();
        assert_eq!(
            (processes.spaces.len(), processes.by_pid[&7].versions.len()),
            (VERSIONS_MAX, VERSIONS_MAX)
        );
    }
}
