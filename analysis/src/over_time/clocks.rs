//! Clocks of lanes: the accuracy of each lane's times relative to the other lanes.
//!
//! Owns: [`LaneClock`], [`ClockAccuracy`]. Because: if a kernel begins a microsecond after its launch, two clocks
//! measured that microsecond, and the reader should know how far they differ. Does not: align clocks, or know those of
//! other ranks ([`super::Lateness`] does).

use std::collections::BTreeSet;

use deepctx_common::reason::Reason;
use deepctx_common::reasons;
use deepctx_profile::trace::{RankTrace, Trace};
use serde::Serialize;

use super::reason::fields;

/// Accuracy of one clock relative to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "accuracy", rename_all = "kebab-case")]
pub enum ClockAccuracy {
    /// It is that clock.
    Exact,
    /// Maximum error of any time.
    Bounded {
        /// Nanoseconds.
        within_ns: u64,
    },
    /// Unknown.
    Unknown {
        /// Why not; serialized as `reason`, its key, and `because`, its sentence.
        #[serde(flatten, serialize_with = "fields")]
        because: &'static Reason,
    },
}

impl ClockAccuracy {
    /// Maximum error of a time; `None` if unknown.
    pub fn within_ns(self) -> Option<u64> {
        match self {
            ClockAccuracy::Exact => Some(0),
            ClockAccuracy::Bounded { within_ns } => Some(within_ns),
            ClockAccuracy::Unknown { .. } => None,
        }
    }
}

/// The clock of lanes of a rank, relative to that of its threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneClock {
    /// The lanes: `threads`, or a device with all of its streams (`gpu0`).
    pub lanes: String,
    /// Its accuracy.
    #[serde(flatten)]
    pub accuracy: ClockAccuracy,
}

reasons! {
    class Gap, page "traces.md";
    const CLOCKS_NOT_COMPARED = "clocks-not-compared",
        "the trace does not say how the clocks of devices and threads were compared";
}

/// Accuracy of the device clock of a trace relative to that of its threads.
pub(super) fn of_devices(trace: &Trace) -> ClockAccuracy {
    match trace.device_clock {
        Some(clock) => ClockAccuracy::Bounded { within_ns: clock.uncertainty.0 },
        None => ClockAccuracy::Unknown { because: CLOCKS_NOT_COMPARED },
    }
}

/// The clocks of a rank's lanes: threads first, then devices by number.
pub(super) fn of_lanes(of: &RankTrace) -> Vec<LaneClock> {
    let has_threads = !of.trace.threads().is_empty();
    let threads = LaneClock { lanes: "threads".to_owned(), accuracy: ClockAccuracy::Exact };
    let devices: BTreeSet<u32> = of.trace.streams().iter().map(|stream| stream.device).collect();
    let accuracy = of_devices(&of.trace);
    let device = |device| LaneClock { lanes: format!("gpu{device}"), accuracy };
    has_threads.then_some(threads).into_iter().chain(devices.into_iter().map(device)).collect()
}
