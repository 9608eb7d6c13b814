//! Time of a job: the time of an event of any rank since the first event of all ranks.
//!
//! Owns: [`at`]. Because: lanes of events and of counters share one time axis. Does not: align clocks.

use super::TraceTime;
use crate::units::Nanos;

/// A time of a trace on the clock of the job.
pub(super) fn at(shift: i128, time: TraceTime) -> Nanos {
    let at = shift + i128::from(time.as_nanos());
    Nanos(u64::try_from(at.max(0)).unwrap_or(u64::MAX))
}
