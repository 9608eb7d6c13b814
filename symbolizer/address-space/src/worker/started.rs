//! Started: the processes that this one started as workers.
//!
//! Owns: a bounded list of the latest of them. Because: a capture of the whole system shows the profiler's own work
//! apart, and the samples of a worker are used when it may have ended. Does not: know which of them still run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Workers that are remembered: more than run at a time.
pub const STARTED_MAX: usize = 256;

/// Workers started so far.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// The latest of them, oldest first.
static LATEST: Mutex<VecDeque<StartedWorker>> = Mutex::new(VecDeque::new());

/// A process that was started as a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedWorker {
    /// Its id. Once it has ended, another process may get it.
    pub pid: u32,
    /// A time at which it had been started.
    pub at: Instant,
}

/// Records that a worker was started.
pub(super) fn record(pid: u32) {
    let mut latest = latest();
    if latest.len() >= STARTED_MAX {
        latest.pop_front();
    }
    latest.push_back(StartedWorker { pid, at: Instant::now() });
    COUNT.fetch_add(1, Ordering::Release);
}

/// Number of workers started so far, and the latest of those behind the first `known`; `None` if there are no others.
#[inline]
pub fn started_after(known: u64) -> Option<(u64, Vec<StartedWorker>)> {
    if COUNT.load(Ordering::Acquire) == known {
        return None;
    }
    let latest = latest();
    let count = COUNT.load(Ordering::Acquire);
    let new = usize::try_from(count.saturating_sub(known)).unwrap_or(usize::MAX).min(latest.len());
    Some((count, latest.range(latest.len() - new..).copied().collect()))
}

fn latest() -> MutexGuard<'static, VecDeque<StartedWorker>> {
    LATEST.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_started_since_are_listed_once() {
        // No process has such a number. Other tests start workers, too.
        let ours = |pid: &u32| (u32::MAX - 1..=u32::MAX).contains(pid);
        let pids = |known| {
            let (count, started) = started_after(known).unwrap();
            (count, started.iter().map(|worker| worker.pid).filter(ours).collect::<Vec<_>>())
        };
        record(u32::MAX);
        let (before, first) = pids(0);
        assert_eq!(first, [u32::MAX]);
        record(u32::MAX - 1);
        let (after, second) = pids(before);
        assert_eq!(second, [u32::MAX - 1]);
        assert!(after > before);
        let started = LATEST.lock().unwrap().len();
        assert!(started <= STARTED_MAX);
    }
}
