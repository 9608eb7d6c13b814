//! CPU clock: how much CPU time a thread has used, and how long it waited for a CPU.
//!
//! Owns: these readings. Because: work done on behalf of a process is charged by CPU time, not by how busy the
//! machine was meanwhile. Does not: charge; see [`crate::time_account`].

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread so far.
pub fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Time in which a thread was runnable without a CPU.
#[derive(Debug)]
pub(crate) struct CpuWaitClock(Option<File>);

impl CpuWaitClock {
    /// The clock of the calling thread. If the kernel keeps none (`CONFIG_SCHED_INFO`), it stands still.
    pub(crate) fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Time so far.
    pub(crate) fn now(&self) -> Duration {
        let mut text = [0; 64];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        text.get(..read).and_then(parse).unwrap_or_default()
    }
}

/// CPU time of the first thread of a process so far; `None` if the kernel does not keep it, or the process is gone.
pub(crate) fn process_cpu_time(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

/// `schedstat` of a thread: time on a CPU, time in a run queue, both in nanoseconds, and number of timeslices
/// (`Documentation/scheduler/sched-stats.rst`).
fn parse(text: &[u8]) -> Option<Duration> {
    let in_queue = std::str::from_utf8(text).ok()?.split(' ').nth(1)?;
    Some(Duration::from_nanos(in_queue.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_setaffinity};

    use super::*;

    #[test]
    fn waiting_time_is_read_from_the_kernels_text() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(parse(text.as_bytes()), expect.map(Duration::from_nanos), "{text:?}");
        };
        check("81234 5678 9\n", Some(5678));
        check("81234 x 9\n", None);
        check("81234", None);
        check("", None);
    }

    #[test]
    fn a_thread_that_shares_its_cpu_waits() {
        let on_one_cpu = || {
            let mut one = CpuSet::new();
            one.set(rustix::thread::sched_getcpu());
            one
        };
        std::thread::spawn(move || {
            let one = on_one_cpu();
            sched_setaffinity(None, &one).unwrap();
            let clock = CpuWaitClock::of_this_thread();
            if clock.0.is_none() {
                return;
            }
            let over = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                // It inherits the CPU.
                scope.spawn(|| {
                    while !over.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
                let before = clock.now();
                while clock.now() < before + Duration::from_millis(2) {
                    std::hint::spin_loop();
                }
                over.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        })
        .join()
        .unwrap();
    }

    #[test]
    fn work_counts_and_sleep_does_not() {
        let began = thread_cpu_time();
        std::thread::sleep(Duration::from_millis(50));
        let slept = thread_cpu_time() - began;
        assert!(slept < Duration::from_millis(40), "{slept:?}");
        while thread_cpu_time() - began <= slept {
            std::hint::spin_loop();
        }
    }
}
