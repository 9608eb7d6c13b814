//! Last samples: when each process was last sampled.
//!
//! Owns: these times. Because: in a full table, processes that do nothing for long can go without anybody's loss. Does
//! not: read records, or choose who gives way.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rustc_hash::{FxHashMap, FxHashSet};

/// Without a sample for this long, a process is idle.
pub(crate) const IDLE_NS: u64 = 10_000_000_000;
/// Without news for this long, nothing is known about who is idle: records wait, or the profiler was stopped.
const CURRENT_NS: u64 = 2_000_000_000;
/// Number of processes from which on those that are idle are dropped.
const KNOWN_MAX: usize = 1 << 14;

/// Times of the last samples. One thread adds them, another one reads them.
#[derive(Debug, Default)]
pub(crate) struct LastSamples(Mutex<SampleTimes>);

/// The times, by process.
#[derive(Debug, Default)]
pub(crate) struct SampleTimes {
    by_pid: FxHashMap<u32, u64>,
    /// When times were last added; 0 before that.
    added_ns: u64,
}

impl LastSamples {
    /// These processes were sampled by now. False if they are to be added later: the times are being read.
    pub(crate) fn add(&self, pids: &FxHashSet<u32>, now_ns: u64) -> bool {
        let mut times = match self.0.try_lock() {
            Ok(times) => times,
            Err(TryLockError::Poisoned(times)) => times.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if times.by_pid.len() >= KNOWN_MAX {
            times.by_pid.retain(|_, at_ns| now_ns < at_ns.saturating_add(IDLE_NS));
        }
        times.by_pid.extend(pids.iter().map(|pid| (*pid, now_ns)));
        times.added_ns = now_ns;
        true
    }

    /// The times so far.
    pub(crate) fn read(&self) -> MutexGuard<'_, SampleTimes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SampleTimes {
    /// When a process was last sampled; 0: never, or long ago.
    pub(crate) fn of(&self, pid: u32) -> u64 {
        self.by_pid.get(&pid).copied().unwrap_or(0)
    }

    /// Whether a process was neither published nor sampled recently.
    pub(crate) fn is_idle(&self, pid: u32, published_ns: u64, now_ns: u64) -> bool {
        self.are_current(now_ns) && self.of(pid).max(published_ns).saturating_add(IDLE_NS) <= now_ns
    }

    fn are_current(&self, now_ns: u64) -> bool {
        self.added_ns != 0 && now_ns < self.added_ns.saturating_add(CURRENT_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: u64 = 1_000_000_000;

    fn set(pids: &[u32]) -> FxHashSet<u32> {
        pids.iter().copied().collect()
    }

    #[test]
    fn a_process_is_idle_long_after_its_last_sample() {
        let samples = LastSamples::default();
        assert!(!samples.read().is_idle(1, 0, u64::MAX), "nothing is known");
        assert!(samples.add(&set(&[1]), BEGAN));
        let later = BEGAN + IDLE_NS;
        assert!(!samples.read().is_idle(1, 0, later), "nothing is known any more");
        assert!(samples.add(&set(&[2]), later - 1));
        let times = samples.read();
        let idle = |pid, published_ns| times.is_idle(pid, published_ns, later);
        assert_eq!([idle(1, 0), idle(1, BEGAN + 1), idle(2, 0), idle(3, BEGAN)], [true, false, false, true]);
        assert_eq!([times.of(1), times.of(2), times.of(3)], [BEGAN, later - 1, 0]);
        assert!(!samples.add(&set(&[1]), later), "who adds never waits for who reads");
    }

    #[test]
    fn idle_processes_are_forgotten() {
        let samples = LastSamples::default();
        let many: FxHashSet<u32> = (0..KNOWN_MAX as u32).collect();
        samples.add(&many, BEGAN);
        samples.add(&set(&[7]), BEGAN + IDLE_NS);
        assert_eq!(samples.read().by_pid.len(), 1);
    }
}
