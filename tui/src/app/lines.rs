//! Source state: which file is open, and where the user is in it.
//!
//! Owns: the file, its text, and the selected line. Because: text and figures come from different places at different
//! times. Does not: read files or draw.

use std::sync::Arc;

use deepctx_profile::snapshot::{LineRow, SourcePlace};

use super::Model;
use crate::keys::Action;
use crate::source::SourceText;
use crate::view;

/// Where the user is in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinesState {
    /// The file that is open, and the line that it was opened at; 0 for the hottest.
    pub(crate) place: Option<SourcePlace>,
    /// Its text, or why there is none; none while it is looked for.
    pub(crate) text: Option<Arc<SourceText>>,
    /// Selected line, counted from 1; 0 until the figures are there.
    pub(crate) line: u32,
    /// First row in sight.
    pub(crate) scroll: usize,
}

/// What can be scrolled through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows<'a> {
    /// Every line of the text.
    Text(&'a [String]),
    /// Only the lines with figures, since there is no text.
    Figures(&'a [LineRow]),
}

impl Rows<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Rows::Text(lines) => lines.len(),
            Rows::Figures(rows) => rows.len(),
        }
    }

    /// Line of a row, counted from 1.
    pub(crate) fn line(self, row: usize) -> u32 {
        match self {
            Rows::Text(_) => u32::try_from(row + 1).unwrap_or(u32::MAX),
            Rows::Figures(rows) => rows.get(row).map_or(0, |row| row.line),
        }
    }

    /// Row of a line, or of the nearest one above.
    fn row(self, line: u32) -> usize {
        match self {
            Rows::Text(lines) => (line.saturating_sub(1) as usize).min(lines.len().saturating_sub(1)),
            Rows::Figures(rows) => rows.partition_point(|row| row.line <= line).saturating_sub(1),
        }
    }
}

/// Rows of the open file.
pub(crate) fn rows(model: &Model) -> Rows<'_> {
    match model.lines.text.as_deref() {
        Some(SourceText::Lines { lines, .. }) => Rows::Text(lines),
        _ => Rows::Figures(figures(model)),
    }
}

/// Figures of the open file; those of another one do not count.
pub(crate) fn figures(model: &Model) -> &[LineRow] {
    let file = model.lines.place.as_ref().map(|place| &place.file);
    match model.source_data() {
        Some(data) if Some(&data.file) == file => &data.lines,
        _ => &[],
    }
}

/// Figures of a line.
pub(crate) fn figure(rows: &[LineRow], line: u32) -> Option<&LineRow> {
    rows.binary_search_by_key(&line, |row| row.line).ok().map(|at| &rows[at])
}

/// Opens a file; one that is open already is not read again.
pub(super) fn open(model: &mut Model, place: SourcePlace) {
    let same =
        model.lines.place.as_ref().is_some_and(|open| open.file == place.file && open.pid == place.pid);
    if !same {
        model.lines = LinesState::default();
    }
    model.lines.line = place.line;
    model.lines.place = Some(place);
    bring_up(model);
}

pub(super) fn take_text(model: &mut Model, text: Arc<SourceText>) {
    model.lines.text = Some(text);
    if model.lines.line > 0 { bring_up(model) } else { start(model) }
}

/// Goes to the line that the file was opened at, as soon as there is something to go to.
pub(super) fn start(model: &mut Model) {
    if model.lines.line == 0 && rows(model).len() > 0 {
        let hottest = figures(model).iter().max_by_key(|row| (row.exclusive, row.inclusive));
        model.lines.line = hottest.map_or(0, |row| row.line);
        bring_up(model);
    }
}

/// Rows in sight.
fn height(model: &Model) -> usize {
    usize::from(view::lines::rows_area(model.areas().body).height).max(1)
}

/// Brings the selected line to the upper part of the screen: what a function does stands below its first line.
fn bring_up(model: &mut Model) {
    let row = rows(model).row(model.lines.line);
    model.lines.scroll = row.saturating_sub(height(model) / 4);
    keep_in_range(model);
}

pub(super) fn navigate(model: &mut Model, action: Action) {
    let rows = rows(model);
    let last = rows.len().saturating_sub(1);
    let page = height(model).saturating_sub(1).max(1);
    let at = rows.row(model.lines.line);
    let to = match action {
        Action::Up => at.saturating_sub(1),
        Action::Down => at.saturating_add(1),
        Action::PageUp => at.saturating_sub(page),
        Action::PageDown => at.saturating_add(page),
        Action::First => 0,
        Action::Last => last,
        _ => return,
    };
    model.lines.line = rows.line(to.min(last));
    keep_visible(model);
}

/// Selects the next line by its own and total value, hottest first, around the end.
pub(super) fn next_hot(model: &mut Model, forward: bool) {
    let mut hot: Vec<&LineRow> = figures(model).iter().collect();
    if hot.is_empty() {
        model.status = Some("no line has a value");
        return;
    }
    hot.sort_by_key(|row| std::cmp::Reverse((row.exclusive, row.inclusive)));
    let at = hot.iter().position(|row| row.line == model.lines.line);
    let next = match (at, forward) {
        (None, _) => 0,
        (Some(at), true) => (at + 1) % hot.len(),
        (Some(at), false) => (at + hot.len() - 1) % hot.len(),
    };
    model.lines.line = hot[next].line;
    bring_up(model);
}

pub(super) fn click(model: &mut Model, y: usize) {
    let body = model.areas().body;
    let titles = usize::from(body.height - view::lines::rows_area(body).height);
    let rows = rows(model);
    let row = y.checked_sub(titles).map(|y| model.lines.scroll + y).filter(|row| *row < rows.len());
    if let Some(row) = row {
        model.lines.line = rows.line(row);
    }
}

pub(crate) fn keep_visible(model: &mut Model) {
    let (row, height) = (rows(model).row(model.lines.line), height(model));
    let scroll = &mut model.lines.scroll;
    *scroll = (*scroll).clamp((row + 1).saturating_sub(height), row);
}

pub(crate) fn keep_in_range(model: &mut Model) {
    let (count, height) = (rows(model).len(), height(model));
    model.lines.scroll = model.lines.scroll.min(count.saturating_sub(height));
}
