//! When something was read, to read it again some time later.
//!
//! Owns: [`ReadTime`]. Because: samples are looked up some time after they were taken, and not in their order; and the
//! machine's clock says nothing in a replay. Does not: know what is read.

use std::time::{Duration, Instant};

/// A time by the clock of the samples, and by that of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadTime {
    /// By the clock of the samples.
    pub(super) time_ns: u64,
    instant: Instant,
}

impl ReadTime {
    /// Now, for a sample of this time.
    pub(super) fn now(time_ns: u64) -> Self {
        Self { time_ns, instant: Instant::now() }
    }

    /// By the clock of the machine.
    pub(super) const fn instant(self) -> Instant {
        self.instant
    }

    /// Whether so much time has passed until `now`, by either clock.
    pub(super) fn is_before(self, now: Self, interval: Duration) -> bool {
        now.instant.saturating_duration_since(self.instant) >= interval
            || Duration::from_nanos(now.time_ns.saturating_sub(self.time_ns)) >= interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_by_either_clock() {
        let second = Duration::from_secs(1);
        let at = ReadTime::now(5);
        assert!(!at.is_before(at, second) && at.is_before(at, Duration::ZERO));
        assert!(at.is_before(ReadTime { time_ns: 1_000_000_005, ..at }, second));
        assert!(at.is_before(ReadTime { instant: at.instant + second, ..at }, second));
        assert!(!at.is_before(ReadTime { time_ns: 0, ..at }, second), "samples are not in order");
    }
}
