//! Standstill: how long the pipeline has made no progress.
//!
//! Owns: what counts as progress. Because: a stalled capture loses data without an error, and a stalled shutdown must
//! not be waited for. Does not: decide what follows from it; [`mod@super::run`] does.

use std::time::{Duration, Instant};

use deepctx_capture::cost::cpu_time;
use deepctx_session::ProgressWatch;

/// CPU time that counts as progress at the end: names of a large library and a large profile take time.
const BUSY: Duration = Duration::from_millis(100);

/// Detects a stalled pipeline.
pub(crate) struct Standstill {
    watch: ProgressWatch,
    /// CPU time of the whole program counts as progress, too: the end waits for threads that detach probes, finish the
    /// profile and encode it. Others may use some meanwhile; the longest duration of the end bounds that.
    counts_cpu: bool,
    /// Progress, and CPU time in units of [`BUSY`].
    seen: (u64, u128),
    since: Instant,
    reported: bool,
}

impl Standstill {
    /// For a running capture.
    pub(crate) fn new(watch: ProgressWatch) -> Self {
        Self { watch, counts_cpu: false, seen: (0, 0), since: Instant::now(), reported: false }
    }

    /// For the end of a capture.
    pub(crate) fn at_end(watch: ProgressWatch) -> Self {
        Self { counts_cpu: true, ..Self::new(watch) }
    }

    fn progress(&self) -> (u64, u128) {
        let cpu = if self.counts_cpu { cpu_time() } else { Duration::ZERO };
        (self.watch.progress(), cpu.as_millis() / BUSY.as_millis())
    }

    /// How long it has been stalled, the first time that this exceeds a limit.
    pub(crate) fn lasted(&mut self, limit: Duration) -> Option<Duration> {
        let seen = self.progress();
        if seen != self.seen {
            (self.seen, self.since) = (seen, Instant::now());
        }
        let lasted = self.since.elapsed();
        if lasted < limit || self.reported {
            return None;
        }
        self.reported = true;
        Some(lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_is_reported_once() {
        let mut standstill = Standstill::new(ProgressWatch::default());
        assert_eq!(standstill.lasted(Duration::MAX), None);
        assert!(standstill.lasted(Duration::ZERO).is_some());
        assert_eq!(standstill.lasted(Duration::ZERO), None);
    }

    #[test]
    fn an_end_that_uses_the_cpu_does_not_stand_still() {
        let [mut capture, mut end] =
            [Standstill::new, Standstill::at_end].map(|standstill| standstill(ProgressWatch::default()));
        assert_eq!((capture.lasted(Duration::MAX), end.lasted(Duration::MAX)), (None, None));
        let (began, before) = (Instant::now(), cpu_time());
        while cpu_time() < before + 2 * BUSY {
            std::hint::black_box(0);
        }
        let took = began.elapsed();
        assert!(capture.lasted(took).is_some());
        assert_eq!(end.lasted(took), None);
    }
}
