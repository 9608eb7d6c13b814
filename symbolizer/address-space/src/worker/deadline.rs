//! Deadline: how long the answer of a worker may take.
//!
//! Owns: when a worker is late, and the end of all waiting. Because: the same file takes many times as long on a busy
//! machine, which is nobody's fault; but a file may also be made to take long, and a program that ends must not wait.
//! Does not: know workers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval of checks whether a late worker has work.
const BUSY_LOOK: Duration = Duration::from_secs(1);

/// Increases while a caller waits for a worker that is busy.
static AT_WORK: AtomicU64 = AtomicU64::new(0);

/// A number that changes as long as a worker has work that may take long. A client that waits for it is not stuck: on a
/// busy machine, the names of a large library take many times as long.
pub fn work_in_progress() -> u64 {
    AT_WORK.load(Ordering::Relaxed)
}

/// Last time at which answers are awaited, in a program that is about to end.
static LAST_ANSWER: OnceLock<Instant> = OnceLock::new();

/// From `last` on, no answer is awaited, and no request is sent. Only the first call counts.
pub fn end_answers(last: Instant) {
    LAST_ANSWER.get_or_init(|| last);
}

pub(super) fn is_past_last_answer() -> bool {
    LAST_ANSWER.get().is_some_and(|last| Instant::now() >= *last)
}

/// Deadline of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    silent: Instant,
    /// Deadline for a worker that has work.
    busy: Instant,
    /// CPU time that this work may take, where the author of its input may want it to take long.
    work_max: Option<Duration>,
}

impl Deadline {
    /// `silent` after the request, and `busy` if the worker has work, or only waits for a CPU.
    pub fn new(begun: Instant, silent: Duration, busy: Duration) -> Self {
        Self { silent: begun + silent, busy: begun + busy, work_max: None }
    }

    /// For input whose author may want it to take long: `work` after the request, or up to `longest` while the worker
    /// has used less CPU time than that. In a program that is about to end always `work`.
    pub fn of_work(begun: Instant, work: Duration, longest: Duration) -> Self {
        Self { silent: begun + work, busy: begun + longest.max(work), work_max: Some(work) }
    }

    /// Whether the worker's CPU time matters.
    pub(super) fn needs_cpu_time(&self) -> bool {
        self.work_max.is_some()
    }

    /// Whether the answer is late. `is_running`: the worker has a CPU, or only waits for one; `used`: its CPU time
    /// since the request, where that matters and the kernel says how much.
    pub(super) fn is_over(&self, now: Instant, is_running: bool, used: Option<Duration>) -> bool {
        let has_time = self
            .work_max
            .is_none_or(|most| LAST_ANSWER.get().is_none() && used.is_some_and(|used| used < most));
        let is_over = now >= self.busy || now >= self.silent && !(is_running && has_time);
        let may_be_busy = self.busy > self.silent && self.work_max.is_none();
        AT_WORK.fetch_add(u64::from(!is_over && may_be_busy && is_running), Ordering::Relaxed);
        is_over
    }

    /// How long to wait before the next check.
    pub(super) fn look_after(&self, now: Instant) -> Duration {
        let most = if self.busy > self.silent { BUSY_LOOK } else { Duration::MAX };
        let left = self.silent.saturating_duration_since(now);
        if left.is_zero() && self.busy > now { BUSY_LOOK } else { left.clamp(Duration::from_millis(1), most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_lacks_a_cpu_may_take_longer() {
        let begun = Instant::now();
        let seconds = Duration::from_secs;
        let check = |deadline: Deadline, after: u64, work: Option<Option<u64>>, expect: bool| {
            let used = work.flatten().map(seconds);
            let is_over = deadline.is_over(begun + seconds(after), work.is_some(), used);
            assert_eq!(is_over, expect, "{after} {work:?}");
        };
        let of_root = Deadline::new(begun, seconds(10), seconds(60));
        check(of_root, 9, None, false);
        check(of_root, 10, None, true);
        check(of_root, 59, Some(None), false);
        check(of_root, 60, Some(None), true);

        let of_others = Deadline::of_work(begun, seconds(4), seconds(8));
        check(of_others, 3, Some(Some(3)), false);
        check(of_others, 4, None, true);
        check(of_others, 4, Some(Some(4)), true);
        check(of_others, 7, Some(Some(2)), false);
        check(of_others, 8, Some(Some(2)), true);
        // Some kernels do not say how much it worked.
        check(of_others, 4, Some(None), true);
    }
}
