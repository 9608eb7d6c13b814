//! Timeline: how the selected lane, the selected moment and the zoom move.
//!
//! Owns: navigation and clicks in time. Because: a key press must move by a visible distance. Does not: draw.

use deepctx_profile::units::Nanos;

use crate::keys::Action;
use crate::layout::areas::rows_area;
use crate::layout::timeline::time_columns;
use crate::model::Model;
use crate::state::timeline::length;

/// How often the time can be zoomed by two: from a full timeline down to one window per screen.
const ZOOM_MAX: u32 = 9;

/// Visible lanes.
fn height(model: &Model) -> usize {
    usize::from(rows_area(model.areas().body).height).max(1)
}

pub(crate) fn navigate(model: &mut Model, action: Action) {
    let Some(timeline) = model.timeline_data() else { return };
    let last = timeline.lanes.len().saturating_sub(1);
    let span = model.timeline.span(timeline);
    let columns = u64::from(time_columns(model.areas().body.width).max(1));
    // A key press moves by one column, at least one window.
    let step = Nanos(span.length.0 / columns).max(timeline.window);
    let (whole, page) = (length(timeline), height(model).saturating_sub(1).max(1));
    let state = &mut model.timeline;
    let at = state.at.unwrap_or(whole);
    match action {
        Action::Up => state.lane = state.lane.saturating_sub(1),
        Action::Down => state.lane = state.lane.saturating_add(1),
        Action::PageUp => state.lane = state.lane.saturating_sub(page),
        Action::PageDown => state.lane = state.lane.saturating_add(page),
        Action::First => state.lane = 0,
        Action::Last => state.lane = last,
        Action::Left => state.at = Some(at.saturating_sub(step)),
        Action::Right => state.at = Some(at.saturating_add(step)),
        Action::Enter => {
            state.at = Some(at);
            state.zoom = (state.zoom + 1).min(ZOOM_MAX);
        }
        Action::ZoomOut => state.zoom = state.zoom.saturating_sub(1),
        Action::ZoomReset => (state.zoom, state.at) = (0, None),
        _ => {}
    }
    keep_in_range(model);
    keep_visible(model);
}

pub(crate) fn click(model: &mut Model, x: u16, y: usize) {
    let body = model.areas().body;
    let titles = usize::from(body.height - rows_area(body).height);
    let Some(timeline) = model.timeline_data() else { return };
    let span = model.timeline.span(timeline);
    let columns = time_columns(body.width);
    let column = x.checked_sub(body.width - columns);
    if let Some(lane) = y.checked_sub(titles).map(|y| model.timeline.scroll + y) {
        model.timeline.lane = lane;
    }
    if let Some(column) = column {
        model.timeline.at = Some(span.moment_at(column, columns));
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
    let Some((lanes, whole)) = model.timeline_data().map(|timeline| (timeline.lanes.len(), length(timeline)))
    else {
        return;
    };
    let state = &mut model.timeline;
    state.lane = state.lane.min(lanes.saturating_sub(1));
    state.scroll = state.scroll.min(lanes.saturating_sub(height));
    state.at = state.at.map(|at| at.min(whole.saturating_sub(Nanos(1))));
}
