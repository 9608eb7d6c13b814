//! Timeline state: which lane and which moment are selected, and which part of the time is in sight.
//!
//! Owns: [`TimelineState`]. Because: windows widen during a capture, and the selected moment must stay. Does not:
//! move the selection; see [`crate::app`].

use deepctx_profile::units::Nanos;
use deepctx_profile::view::snapshot::{Lane, Snapshot, TabData, Timeline};

use crate::layout::timeline::TimeSpan;

/// The user's position. Times are relative to the start of the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimelineState {
    /// Selected lane.
    pub(crate) lane: usize,
    /// First visible lane.
    pub(crate) scroll: usize,
    /// The selected time.
    pub(crate) at: Option<Nanos>,
    /// How often the whole was halved to get the visible time.
    pub(crate) zoom: u32,
}

impl TimelineState {
    /// The visible time: around the selected moment, inside the whole.
    pub(crate) fn span(&self, timeline: &Timeline) -> TimeSpan {
        let whole = length(timeline);
        let length = Nanos((whole.0 >> self.zoom).max(1));
        let middle = self.at.unwrap_or(whole);
        let from = middle.saturating_sub(Nanos(length.0 / 2)).min(whole.saturating_sub(length));
        TimeSpan { from, length }
    }

    /// Finds the lane again in a newer timeline.
    pub(crate) fn carry_over(&mut self, before: Option<&Snapshot>, after: &Timeline) {
        let Some(TabData::Timeline(before)) = before.map(|snapshot| &snapshot.extra) else { return };
        let Some(old) = before.lanes.get(self.lane) else { return };
        let key = |lane: &Lane| (lane.label.clone(), lane.kind, lane.metric);
        let same = after.lanes.iter().position(|lane| key(lane) == key(old));
        // An untouched timeline stays at its top, where the hottest process is.
        if self.lane > 0
            && let Some(lane) = same
        {
            self.lane = lane;
        }
    }
}

/// Length of the whole timeline; never 0.
pub(crate) fn length(timeline: &Timeline) -> Nanos {
    Nanos(timeline.window.0.saturating_mul(timeline.windows as u64).max(1))
}
