//! Own processes: the process numbers of the profiler itself and of its workers.
//!
//! Owns: these numbers, and when one of a worker that ended gets another meaning. Because: in a capture of the whole
//! system, the profiler's own stacks would take a fifth of the tree. Does not: start workers, or decide how their work
//! is shown.

use deepctx_capture::clock::monotonic_ns;
use deepctx_symbolizer::worker::{STARTED_MAX, StartedWorker, started_after};
use rustc_hash::FxHashMap;

/// The profiler's own processes, without those that the capture was asked for by pid. By default there are none.
#[derive(Debug, Default)]
pub(super) struct OwnProcesses {
    /// Since when each number means such a process, `CLOCK_MONOTONIC` nanoseconds. This process is always among them,
    /// unless there are none.
    since_ns: FxHashMap<u32, u64>,
    /// When some of them ended whose samples may still come.
    ended_ns: FxHashMap<u32, u64>,
    /// Workers that were started until the last refresh.
    known: u64,
    /// Targets that were given by pid.
    named: Vec<u32>,
}

impl OwnProcesses {
    /// Those of this process; none if the capture was asked for it by pid, and so for its workers, its children.
    pub(super) fn of_this(named: &[u32]) -> Self {
        let own = std::process::id();
        if named.contains(&own) {
            return Self::default();
        }
        // No other process gets the number while this one runs.
        let since_ns = FxHashMap::from_iter([(own, u64::MAX)]);
        Self { since_ns, named: named.to_vec(), ..Self::default() }
    }

    /// Whether a process is one of them. Workers that ended are, as long as nobody else has their number.
    #[inline]
    pub(super) fn contains(&mut self, pid: u32) -> bool {
        self.refresh();
        self.since_ns.contains_key(&pid)
    }

    /// A process was forked: the number of a worker that ended before means it from now on.
    pub(super) fn forked(&mut self, child: u32, time_ns: u64) {
        self.refresh();
        if self.since_ns.get(&child).is_some_and(|since_ns| *since_ns < time_ns) {
            self.since_ns.remove(&child);
        }
    }

    /// A process ended. Its number is given away once its samples are used: the record of the next fork may be lost.
    pub(super) fn ended(&mut self, pid: u32, time_ns: u64) {
        self.refresh();
        if self.since_ns.get(&pid).is_some_and(|since_ns| *since_ns < time_ns) {
            self.ended_ns.insert(pid, time_ns);
        }
    }

    /// All samples before this time are used.
    pub(super) fn retire(&mut self, before_ns: u64) {
        let since = &mut self.since_ns;
        self.ended_ns.retain(|pid, ended_ns| {
            let is_over = *ended_ns < before_ns;
            // Another worker may have the number by now.
            if is_over && since.get(pid).is_some_and(|since_ns| *since_ns < *ended_ns) {
                since.remove(pid);
            }
            !is_over
        });
    }

    /// Takes up workers that were started since the last refresh.
    #[inline]
    fn refresh(&mut self) {
        if self.since_ns.is_empty() {
            return;
        }
        if let Some((count, started)) = started_after(self.known) {
            self.known = count;
            started.iter().for_each(|worker| self.add(worker.pid, since_ns(worker)));
        }
    }

    fn add(&mut self, pid: u32, since_ns: u64) {
        if self.named.contains(&pid) {
            return;
        }
        if self.since_ns.len() > STARTED_MAX {
            let oldest = self.since_ns.iter().min_by_key(|(_, since_ns)| **since_ns).map(|(pid, _)| *pid);
            if let Some(oldest) = oldest {
                self.since_ns.remove(&oldest);
            }
        }
        self.since_ns.insert(pid, since_ns);
    }
}

/// A time after the fork of a worker and before its end.
fn since_ns(worker: &StartedWorker) -> u64 {
    // First, so that no time passes that would count as its age.
    let age = worker.at.elapsed();
    monotonic_ns().saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    // No process has such numbers, and so no worker of another test.
    const WORKER: u32 = u32::MAX;
    const OTHER: u32 = u32::MAX - 1;
    const NAMED: u32 = u32::MAX - 2;

    #[test]
    fn the_profiler_and_its_workers_are_its_own() {
        let mut own = OwnProcesses::of_this(&[NAMED]);
        own.add(WORKER, 100);
        own.add(NAMED, 100);
        assert!(own.contains(std::process::id()) && own.contains(WORKER));
        assert!(!own.contains(OTHER) && !own.contains(NAMED));
    }

    #[test]
    fn a_lost_fork_keeps_no_number_of_an_ended_worker() {
        let mut own = OwnProcesses::of_this(&[]);
        own.add(WORKER, 100);
        own.ended(WORKER, 200);
        own.retire(200);
        assert!(own.contains(WORKER), "samples until its end may still come");
        own.retire(201);
        assert!(!own.contains(WORKER));
        // Its number went to another worker before that.
        own.add(WORKER, 300);
        own.ended(WORKER, 400);
        own.add(WORKER, 500);
        own.retire(600);
        assert!(own.contains(WORKER));
    }

    #[test]
    fn a_profiler_that_was_named_is_a_target() {
        let mut own = OwnProcesses::of_this(&[OTHER, std::process::id()]);
        assert!(!own.contains(std::process::id()) && !own.contains(OTHER));
        // Nor are its workers taken up.
        assert!(own.since_ns.is_empty() && own.known == 0);
    }

    #[test]
    fn the_number_of_an_ended_worker_is_given_away() {
        let mut own = OwnProcesses::of_this(&[]);
        own.add(WORKER, 100);
        own.forked(WORKER, 90);
        assert!(own.contains(WORKER), "that was the worker's own fork");
        own.forked(WORKER, 110);
        assert!(!own.contains(WORKER));
    }

    #[test]
    fn workers_that_come_and_go_are_bounded() {
        let mut own = OwnProcesses::of_this(&[]);
        let most = STARTED_MAX as u32;
        (0..4 * most).for_each(|n| own.add(WORKER - n, u64::from(n)));
        assert_eq!(own.since_ns.len(), STARTED_MAX + 1);
        assert!(own.contains(std::process::id()) && own.contains(WORKER - 4 * most + 1));
        assert!(!own.contains(WORKER));
    }
}
