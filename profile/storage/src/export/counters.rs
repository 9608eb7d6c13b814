//! Counters of a capture: values over time, as the trace formats draw them.
//!
//! Owns: [`Counter`]. Because: sums by context carry no time, but the activity of a process over time is known, in
//! windows. Does not: know single events.

use std::iter;

use super::Source;
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Unit;
use deepctx_profile::view::lanes::{ProcessLane, ordered};

/// A value that changes over time.
pub(super) struct Counter {
    /// Process; 0 when unknown.
    pub(super) pid: u32,
    /// Name: the metric, and the thread if threads are distinguished, or the part of the machine.
    pub(super) name: String,
    /// Nanoseconds since the start of the capture, with the value from then on.
    pub(super) steps: Vec<(u64, f64)>,
}

/// All of them: time as an average number (CPUs in use, waiting threads), levels unchanged, all others per second.
pub(super) fn counters(source: &Source<'_>) -> Vec<Counter> {
    let profile = source.profile;
    let window_ns = profile.timeline.window().0.max(1);
    let of = |ProcessLane { process, lane }: ProcessLane| {
        let frame = profile.frames.get(profile.tree.node(process).frame);
        let pid = if let Frame::Process { pid, .. } = frame { pid } else { 0 };
        let own_name = frame.label(&profile.strings, false);
        let name = match lane.label {
            label if label == own_name && !matches!(frame, Frame::Resource { .. }) => lane.metric.to_owned(),
            label => format!("{} {label}", lane.metric),
        };
        let per = match lane.unit {
            Unit::Nanoseconds => window_ns as f64,
            Unit::Count | Unit::Bytes if lane.level => 1.0,
            Unit::Count | Unit::Bytes => window_ns as f64 / 1e9,
        };
        // The value after the last window is unknown, which readers show as zero.
        let values = lane.values.iter().map(|value| *value as f64 / per).chain(iter::once(0.0));
        let mut steps: Vec<(u64, f64)> = (0u64..).map(|window| window * window_ns).zip(values).collect();
        steps.dedup_by(|next, kept| next.1 == kept.1);
        Counter { pid, name, steps }
    };
    ordered(profile, source.selection.group_by).into_iter().map(of).collect()
}
