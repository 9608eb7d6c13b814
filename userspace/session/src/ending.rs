//! Ending: how long the end of a session waits for a thread that writes.
//!
//! Owns: what counts as progress of such a thread. Because: encoding takes the time that it takes, but a disk may hang,
//! and the program must end all the same. Does not: wait, write, or report what is missing.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError};
use deepctx_capture::cost::ThreadClock;

/// Longest wait without progress: the program must end within 5 s.
pub(crate) const END_LONGEST: Duration = Duration::from_secs(4);
/// How often progress is looked at. It counts from the time at which it is seen.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);
/// CPU time of the thread that counts as progress: it encodes by itself, without helpers. That of others says nothing
/// of a disk that hangs.
const BUSY: Duration = Duration::from_millis(100);

/// Whether a thread has ended, by a channel that it keeps open and never sends to.
pub(crate) fn has_ended(end: &Receiver<()>) -> bool {
    end.try_recv() == Err(TryRecvError::Disconnected)
}

/// A thread that writes its last part.
#[derive(Debug)]
pub(crate) struct EndingThread {
    clock: ThreadClock,
    /// What was left to write, and its CPU time, when it last made progress, and when that was.
    seen: (usize, Duration),
    since: Instant,
}

impl EndingThread {
    /// From now on it has to make progress. `left`: what is left to write.
    pub(crate) fn new(clock: ThreadClock, left: usize) -> Self {
        Self { clock, seen: (left, clock.now()), since: Instant::now() }
    }

    /// Whether to wait for it: false once it made no progress for [`END_LONGEST`]. To be called every [`LOOK_EVERY`].
    pub(crate) fn goes_on(&mut self, left: usize) -> bool {
        let (cpu, (left_before, cpu_before)) = (self.clock.now(), self.seen);
        if left != left_before || cpu >= cpu_before + BUSY {
            (self.seen, self.since) = ((left, cpu), Instant::now());
        }
        !self.patience().is_zero()
    }

    /// It had nothing to do for this long, which does not count.
    pub(crate) fn excuse(&mut self, time: Duration) {
        self.since += time;
    }

    /// How much longer it may make no progress.
    pub(crate) fn patience(&self) -> Duration {
        END_LONGEST.saturating_sub(self.since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;

    use crossbeam_channel::{Sender, bounded};

    use super::*;

    /// Uses a CPU for this long, unless it is stopped.
    fn compute(longest: Duration, stop: &AtomicBool) {
        let began = Instant::now();
        while began.elapsed() < longest && !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }

    /// Whether a thread ends before it is given up.
    fn ends(thread: &JoinHandle<()>, end: &Receiver<()>) -> bool {
        let mut ending = EndingThread::new(ThreadClock::of(thread), 0);
        while !has_ended(end) && ending.goes_on(0) {
            std::thread::sleep(LOOK_EVERY);
        }
        has_ended(end)
    }

    #[test]
    fn a_thread_that_computes_is_waited_for() {
        let (running, end) = bounded(0);
        let thread = std::thread::spawn(move || {
            let _running: Sender<()> = running;
            compute(END_LONGEST + Duration::from_secs(1), &AtomicBool::new(false));
        });
        assert!(ends(&thread, &end));
        thread.join().unwrap();
    }

    #[test]
    fn a_blocked_thread_is_given_up_while_another_computes() {
        let ((running, end), (goes_on, hangs)) = (bounded(0), bounded::<()>(0));
        let blocked = std::thread::spawn(move || {
            let _running: Sender<()> = running;
            _ = hangs.recv();
        });
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| compute(4 * END_LONGEST, &stop));
            let ends = ends(&blocked, &end);
            let computes = !other.is_finished();
            stop.store(true, Ordering::Relaxed);
            assert!(!ends && computes, "{ends} {computes}");
        });
        drop(goes_on);
        blocked.join().unwrap();
    }

    #[test]
    fn what_is_written_counts_as_progress() {
        let mut thread = EndingThread::new(ThreadClock::default(), 2);
        thread.since -= END_LONGEST;
        assert!(thread.goes_on(1));
        thread.since -= END_LONGEST;
        assert!(!thread.goes_on(1));
    }

    #[test]
    fn time_without_work_does_not_count() {
        let mut thread = EndingThread::new(ThreadClock::default(), 0);
        let idle = END_LONGEST * 3 / 4;
        thread.since -= idle;
        assert!(thread.patience() <= END_LONGEST - idle);
        thread.excuse(idle);
        assert!(thread.patience() > END_LONGEST - idle);
    }

    #[test]
    fn nobody_waits_for_a_thread_that_has_ended() {
        let (running, end) = bounded(0);
        let thread = std::thread::spawn(move || drop::<Sender<()>>(running));
        while !thread.is_finished() {
            std::thread::yield_now();
        }
        assert!(ends(&thread, &end));
        thread.join().unwrap();
    }
}
