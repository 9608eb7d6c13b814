//! Timeline state: which lane and which moment are selected, and which part of the time is in sight.
//!
//! Owns: how they move. Because: windows widen while a capture goes on, and what is looked at must stay. Does not: draw.

use deepctx_profile::snapshot::{Extra, Lane, Snapshot, Timeline};

use super::Model;
use crate::keys::Action;
use crate::view;

/// How often the time can be zoomed by two: down to a window per screen from a full timeline.
const ZOOM_MAX: u32 = 9;

/// Where the user is. Times are nanoseconds since the capture began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimelineState {
    /// Selected lane.
    pub(crate) lane: usize,
    /// First lane in sight.
    pub(crate) scroll: usize,
    /// The selected moment.
    pub(crate) at_ns: Option<u64>,
    /// The time in sight is the whole, halved so often.
    pub(crate) zoom: u32,
}

/// The time in sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Begin, nanoseconds.
    pub(crate) from_ns: u64,
    /// Length, nanoseconds; never 0.
    pub(crate) length_ns: u64,
}

impl TimelineState {
    /// The time in sight: around the selected moment, inside the whole.
    pub(crate) fn span(&self, timeline: &Timeline) -> Span {
        let whole = whole(timeline);
        let length_ns = (whole >> self.zoom).max(1);
        let middle = self.at_ns.unwrap_or(whole);
        let from_ns = middle.saturating_sub(length_ns / 2).min(whole - length_ns);
        Span { from_ns, length_ns }
    }

    /// Finds the lane again in a newer timeline.
    pub(crate) fn carry_over(&mut self, before: Option<&Snapshot>, after: &Timeline) {
        let Some(Extra::Timeline(before)) = before.map(|snapshot| &snapshot.extra) else { return };
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

/// Length of the whole timeline, nanoseconds; never 0.
fn whole(timeline: &Timeline) -> u64 {
    timeline.window_ns.saturating_mul(timeline.windows as u64).max(1)
}

/// Lanes in sight.
fn height(model: &Model) -> usize {
    usize::from(view::timeline::lanes_area(model.areas().body).height).max(1)
}

pub(crate) fn navigate(model: &mut Model, action: Action) {
    let Some(timeline) = model.timeline_data() else { return };
    let last = timeline.lanes.len().saturating_sub(1);
    let span = model.timeline.span(timeline);
    let columns = u64::from(view::timeline::columns(model.areas().body.width).max(1));
    // A step is what one column shows, a window at least.
    let step = (span.length_ns / columns).max(timeline.window_ns);
    let (whole, page) = (whole(timeline), height(model).saturating_sub(1).max(1));
    let state = &mut model.timeline;
    let at = state.at_ns.unwrap_or(whole);
    match action {
        Action::Up => state.lane = state.lane.saturating_sub(1),
        Action::Down => state.lane = state.lane.saturating_add(1),
        Action::PageUp => state.lane = state.lane.saturating_sub(page),
        Action::PageDown => state.lane = state.lane.saturating_add(page),
        Action::First => state.lane = 0,
        Action::Last => state.lane = last,
        Action::Left => state.at_ns = Some(at.saturating_sub(step)),
        Action::Right => state.at_ns = Some(at.saturating_add(step)),
        Action::Enter => {
            state.at_ns = Some(at);
            state.zoom = (state.zoom + 1).min(ZOOM_MAX);
        }
        Action::ZoomOut => state.zoom = state.zoom.saturating_sub(1),
        Action::ZoomReset => (state.zoom, state.at_ns) = (0, None),
        _ => {}
    }
    keep_in_range(model);
    keep_visible(model);
}

pub(crate) fn click(model: &mut Model, x: u16, y: usize) {
    let body = model.areas().body;
    let titles = usize::from(body.height - view::timeline::lanes_area(body).height);
    let Some(timeline) = model.timeline_data() else { return };
    let span = model.timeline.span(timeline);
    let columns = view::timeline::columns(body.width);
    let column = x.checked_sub(body.width - columns);
    if let Some(lane) = y.checked_sub(titles).map(|y| model.timeline.scroll + y) {
        model.timeline.lane = lane;
    }
    if let Some(column) = column {
        // The middle of the column.
        let offset =
            u128::from(span.length_ns) * (2 * u128::from(column) + 1) / (2 * u128::from(columns.max(1)));
        model.timeline.at_ns = Some(span.from_ns.saturating_add(u64::try_from(offset).unwrap_or(0)));
    }
    keep_in_range(model);
}

pub(crate) fn keep_visible(model: &mut Model) {
    let height = height(model);
    let state = &mut model.timeline;
    state.scroll = state.scroll.clamp((state.lane + 1).saturating_sub(height), state.lane);
}

pub(crate) fn keep_in_range(model: &mut Model) {
    let height = height(model);
    let Some((lanes, whole)) = model.timeline_data().map(|timeline| (timeline.lanes.len(), whole(timeline)))
    else {
        return;
    };
    let state = &mut model.timeline;
    state.lane = state.lane.min(lanes.saturating_sub(1));
    state.scroll = state.scroll.min(lanes.saturating_sub(height));
    state.at_ns = state.at_ns.map(|at| at.min(whole.saturating_sub(1)));
}
