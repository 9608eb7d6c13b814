//! Bounds: keeping selections and scroll positions inside the content.
//!
//! Owns: [`keep_in_range`], [`keep_visible`]. Because: content and screen change under the user. Does not: navigate.

use super::{events, graph, overview, source, table, timeline};
use crate::model::{Mode, Model};
use crate::page;

/// Clamps positions that may be out of range after the content or the screen changed.
pub(super) fn keep_in_range(model: &mut Model) {
    overview::keep_in_range(model);
    graph::keep_in_range(model);
    table::keep_in_range(model);
    timeline::keep_in_range(model);
    events::keep_in_range(model);
    source::keep_in_range(model);
    let (columns, rows) = (model.areas().body.width, model.areas().body.height);
    let lines = |snapshot| page::health::lines(snapshot, usize::from(columns)).len();
    let lines = model.snapshot.as_deref().map_or(0, lines);
    model.health_scroll = model.health_scroll.min(lines.saturating_sub(usize::from(rows)));
    let lines = page::help::lines().len();
    let height = usize::from(page::help::area(model.screen).height);
    let metrics = model.metrics().len();
    match &mut model.mode {
        Mode::Help(line) => *line = (*line).min(lines.saturating_sub(height)),
        Mode::Metrics(at) => *at = (*at).min(metrics.saturating_sub(1)),
        Mode::Browse | Mode::Typing(_) | Mode::ConfirmQuit => {}
    }
}

/// Scrolls to the selection after the screen changed.
pub(super) fn keep_visible(model: &mut Model) {
    graph::keep_visible(model);
    table::keep_visible(model);
    timeline::keep_visible(model);
    events::keep_visible(model);
    source::keep_visible(model);
    keep_in_range(model);
}
