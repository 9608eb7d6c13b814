//! Events: how the chosen lane or counter, the chosen moment, the zoom, the selection and the analysis of a trace
//! change.
//!
//! Owns: navigation, clicks, wheel and drags in a trace. Because: a key press must move by a visible distance. Does
//! not: draw. Tables of a selection are made once, when it ends: they take time in proportion to its events.

use std::sync::Arc;

use deepctx_profile::units::Nanos;

use crate::keys::Action;
use crate::layout::events::EventAreas;
use crate::layout::timeline::time_columns;
use crate::message::Effects;
use crate::model::{Mode, Model};
use crate::tab::Tab;

/// Whether a trace is shown and handles the mouse.
pub(crate) fn is_shown(model: &Model) -> bool {
    model.tab == Tab::Timeline && model.mode == Mode::Browse && model.events_data().is_some()
}

fn areas(model: &Model) -> EventAreas {
    EventAreas::of(model.areas().body, model.events.below())
}

pub(crate) fn navigate(model: &mut Model, action: Action) {
    let Some(lanes) = model.events_data() else { return };
    let (whole, last) = (lanes.length(), lanes.row_count().saturating_sub(1));
    let lane = lanes.lanes().get(model.events.lane);
    let at = model.events.at;
    let event = match action {
        Action::NextEvent => lane.and_then(|lane| lane.next(at)).map(|event| event.from),
        Action::PreviousEvent => lane.and_then(|lane| lane.previous(at)).map(|event| event.from),
        _ => None,
    };
    let counter = lanes.counter_of_row(model.events.lane);
    let value = match action {
        Action::NextEvent => counter.and_then(|counter| counter.next(at)),
        Action::PreviousEvent => counter.and_then(|counter| counter.previous(at)),
        _ => None,
    };
    let areas = areas(model);
    let page = usize::from(areas.lanes.height).saturating_sub(1).max(1);
    let columns = u64::from(time_columns(areas.lanes.width).max(1));
    let step = Nanos((model.events.span(whole).length.0 / columns).max(1));
    let state = &mut model.events;
    match action {
        Action::Up => state.lane = state.lane.saturating_sub(1),
        Action::Down => state.lane = state.lane.saturating_add(1).min(last),
        Action::PageUp => state.lane = state.lane.saturating_sub(page),
        Action::PageDown => state.lane = state.lane.saturating_add(page).min(last),
        Action::First => state.go_to(Nanos(0), whole),
        Action::Last => state.go_to(whole, whole),
        Action::Left => state.go_to(at.saturating_sub(step), whole),
        Action::Right => state.go_to(at.saturating_add(step), whole),
        Action::NextEvent | Action::PreviousEvent => {
            if let Some(begin) = event.or(value) {
                state.go_to(begin, whole);
            }
        }
        Action::Enter => state.zoom(true, whole),
        Action::ZoomOut => state.zoom(false, whole),
        Action::ZoomReset => state.show_all(),
        Action::SelectRange => select(model),
        Action::NextAnalysis => next_analysis(model),
        _ => {}
    }
    keep_in_range(model);
    keep_visible(model);
}

/// Shows the next table over all events, and none after the last.
fn next_analysis(model: &mut Model) {
    let known = model.event_tables().map_or(0, <[_]>::len);
    let next = model.events.analysis.map_or(0, |shown| shown + 1);
    model.events.analysis = (next == 0 || next < known).then_some(next);
}

/// Starts a selection at the selected time, or ends it there. Its tables take the place of others.
fn select(model: &mut Model) {
    let state = &mut model.events;
    state.analysis = None;
    match state.mark.take() {
        None => (state.mark, state.range) = (Some(state.at), None),
        Some(mark) => finish(model, mark),
    }
}

/// Computes the tables of the time between `mark` and the selected time.
fn finish(model: &mut Model, mark: Nanos) {
    let at = model.events.at;
    let (from, to) = (mark.min(at), mark.max(at));
    let tables = model.events_data().filter(|_| from < to).map(|lanes| Arc::new(lanes.range(from, to)));
    model.status = tables.is_none().then_some("nothing is selected: both ends are the same moment");
    model.events.range = tables;
    keep_visible(model);
}

/// Clears the analysis, otherwise the selection, otherwise the zoom. Returns whether there was any.
pub(crate) fn clear(model: &mut Model) -> bool {
    let state = &mut model.events;
    if state.analysis.take().is_some() {
        return true;
    }
    if state.mark.is_some() || state.range.is_some() {
        (state.mark, state.range) = (None, None);
        return true;
    }
    let zoomed = state.length.is_some();
    state.show_all();
    zoomed
}

/// The time at a column of the screen.
fn moment(model: &Model, column: u16) -> Option<Nanos> {
    let lanes = model.events_data()?;
    let area = areas(model).lanes;
    let columns = time_columns(area.width);
    let column = column.checked_sub(area.right() - columns)?.min(columns.saturating_sub(1));
    Some(model.events.span(lanes.length()).moment_at(column, columns))
}

pub(crate) fn click(model: &mut Model, column: u16, row: u16) {
    let EventAreas { lanes: area, tables, .. } = areas(model);
    // The columns of the tables are no moments.
    if tables.contains((column, row).into()) {
        model.events.pressed = None;
        return;
    }
    if area.contains((column, row).into()) {
        model.events.lane = model.events.scroll + usize::from(row - area.y);
    }
    let at = moment(model, column);
    model.events.pressed = at;
    if let Some(at) = at {
        model.events.at = at;
    }
    keep_in_range(model);
}

/// The mouse moved with its button pressed.
pub(crate) fn drag(model: &mut Model, column: u16) -> Effects {
    let (Some(pressed), Some(at)) = (model.events.pressed, moment(model, column)) else {
        return Effects::None;
    };
    if at == model.events.at {
        return Effects::None;
    }
    (model.events.mark, model.events.range, model.events.at) = (Some(pressed), None, at);
    model.events.analysis = None;
    Effects::Redraw
}

/// The button was released: selects the dragged range.
pub(crate) fn release(model: &mut Model) -> Effects {
    let Some(pressed) = model.events.pressed.take() else { return Effects::None };
    match model.events.mark.take_if(|mark| *mark == pressed) {
        Some(mark) => {
            finish(model, mark);
            Effects::Redraw
        }
        None => Effects::None,
    }
}

/// Zooms at the pointer.
pub(crate) fn wheel(model: &mut Model, closer: bool, column: u16) {
    let Some(whole) = model.events_data().map(|lanes| lanes.length()) else { return };
    if let Some(at) = moment(model, column) {
        model.events.at = at;
    }
    model.events.zoom(closer, whole);
}

pub(crate) fn keep_visible(model: &mut Model) {
    let height = usize::from(areas(model).lanes.height).max(1);
    let state = &mut model.events;
    state.scroll = state.scroll.clamp((state.lane + 1).saturating_sub(height), state.lane);
}

pub(crate) fn keep_in_range(model: &mut Model) {
    let height = usize::from(areas(model).lanes.height).max(1);
    let Some((lanes, whole)) = model.events_data().map(|lanes| (lanes.row_count(), lanes.length())) else {
        return;
    };
    let state = &mut model.events;
    state.lane = state.lane.min(lanes.saturating_sub(1));
    state.scroll = state.scroll.min(lanes.saturating_sub(height));
    state.at = state.at.min(whole.saturating_sub(Nanos(1)));
}
