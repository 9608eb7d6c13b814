//! CPU clock: what a thread has used.
//!
//! Owns: one reading. Because: what a process makes others do is charged by the work, not by how busy the machine was
//! meanwhile. Does not: charge; see [`crate::time_account`].

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread so far.
pub fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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
