//! Source: which file is open, and how the selected line moves.
//!
//! Owns: opening files, navigation and clicks among lines. Because: text and figures arrive at different times, and
//! the selection must wait for both. Does not: read files or draw.

use deepctx_profile::order::SortRows as _;
use std::sync::Arc;

use deepctx_profile::view::snapshot::{LineRow, SourcePlace, SourceText};

use crate::keys::Action;
use crate::layout::areas::rows_area;
use crate::model::Model;
use crate::state::source::SourceState;

/// Opens a file; an open one is not read again.
pub(super) fn open(model: &mut Model, place: SourcePlace) {
    let same =
        model.source.place.as_ref().is_some_and(|open| open.file == place.file && open.pid == place.pid);
    if !same {
        model.source = SourceState::default();
    }
    model.source.line = place.line;
    model.source.place = Some(place);
    bring_up(model);
}

pub(super) fn take_text(model: &mut Model, text: Arc<SourceText>) {
    model.source.text = Some(text);
    if model.source.line > 0 { bring_up(model) } else { start(model) }
}

/// Selects the hottest line as soon as text or figures are available, unless a line is selected.
pub(super) fn start(model: &mut Model) {
    if model.source.line == 0 && model.source_rows().len() > 0 {
        let hottest = model.source_figures().iter().max_by_key(|row| (row.exclusive, row.inclusive));
        model.source.line = hottest.map_or(0, |row| row.line);
        bring_up(model);
    }
}

/// Visible rows.
fn height(model: &Model) -> usize {
    usize::from(rows_area(model.areas().body).height).max(1)
}

/// Scrolls the selected line to the upper part of the screen: the code of a function is below its first line.
fn bring_up(model: &mut Model) {
    let row = model.source_rows().row(model.source.line);
    model.source.scroll = row.saturating_sub(height(model) / 4);
    keep_in_range(model);
}

pub(super) fn navigate(model: &mut Model, action: Action) {
    let rows = model.source_rows();
    let last = rows.len().saturating_sub(1);
    let page = height(model).saturating_sub(1).max(1);
    let at = rows.row(model.source.line);
    let to = match action {
        Action::Up => at.saturating_sub(1),
        Action::Down => at.saturating_add(1),
        Action::PageUp => at.saturating_sub(page),
        Action::PageDown => at.saturating_add(page),
        Action::First => 0,
        Action::Last => last,
        _ => return,
    };
    model.source.line = rows.line(to.min(last));
    keep_visible(model);
}

/// Selects the next line by its own and total value, hottest first, wrapping at the end.
pub(super) fn next_hot(model: &mut Model, forward: bool) {
    let mut hot: Vec<&LineRow> = model.source_figures().iter().collect();
    if hot.is_empty() {
        model.status = Some("no line has a value");
        return;
    }
    hot.sort_rows_by_key(|row| std::cmp::Reverse((row.exclusive, row.inclusive)));
    let at = hot.iter().position(|row| row.line == model.source.line);
    let next = match (at, forward) {
        (None, _) => 0,
        (Some(at), true) => (at + 1) % hot.len(),
        (Some(at), false) => (at + hot.len() - 1) % hot.len(),
    };
    model.source.line = hot[next].line;
    bring_up(model);
}

pub(super) fn click(model: &mut Model, y: usize) {
    let body = model.areas().body;
    let titles = usize::from(body.height - rows_area(body).height);
    let rows = model.source_rows();
    let row = y.checked_sub(titles).map(|y| model.source.scroll + y).filter(|row| *row < rows.len());
    if let Some(row) = row {
        model.source.line = rows.line(row);
    }
}

pub(crate) fn keep_visible(model: &mut Model) {
    let (row, height) = (model.source_rows().row(model.source.line), height(model));
    let scroll = &mut model.source.scroll;
    *scroll = (*scroll).clamp((row + 1).saturating_sub(height), row);
}

pub(crate) fn keep_in_range(model: &mut Model) {
    let (count, height) = (model.source_rows().len(), height(model));
    model.source.scroll = model.source.scroll.min(count.saturating_sub(height));
}
