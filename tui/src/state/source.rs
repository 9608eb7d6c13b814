//! Source state: which file is open, and where the user is in it.
//!
//! Owns: [`SourceState`]: the file, its text, and the selected line. Because: text and figures arrive from different
//! sources at different times. Does not: read files or draw.

use std::sync::Arc;

use deepctx_profile::view::snapshot::{LineRow, SourcePlace, SourceText};

/// The user's position in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceState {
    /// The open file, and the line at which it was opened; 0 for the hottest.
    pub(crate) place: Option<SourcePlace>,
    /// Its text, or why there is none; `None` while it is being read.
    pub(crate) text: Option<Arc<SourceText>>,
    /// Selected line, counted from 1; 0 until the figures are available.
    pub(crate) line: u32,
    /// First visible row.
    pub(crate) scroll: usize,
}

/// Content to scroll through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceRows<'a> {
    /// Every line of the text.
    Text(&'a [String]),
    /// Only the lines with figures, since there is no text.
    Figures(&'a [LineRow]),
}

impl SourceRows<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            SourceRows::Text(lines) => lines.len(),
            SourceRows::Figures(rows) => rows.len(),
        }
    }

    /// Line of a row, counted from 1.
    pub(crate) fn line(self, row: usize) -> u32 {
        match self {
            SourceRows::Text(_) => u32::try_from(row + 1).unwrap_or(u32::MAX),
            SourceRows::Figures(rows) => rows.get(row).map_or(0, |row| row.line),
        }
    }

    /// Row of a line, or of the nearest one above.
    pub(crate) fn row(self, line: u32) -> usize {
        match self {
            SourceRows::Text(lines) => (line.saturating_sub(1) as usize).min(lines.len().saturating_sub(1)),
            SourceRows::Figures(rows) => rows.partition_point(|row| row.line <= line).saturating_sub(1),
        }
    }
}

/// Figures of a line.
pub(crate) fn figure(rows: &[LineRow], line: u32) -> Option<&LineRow> {
    rows.binary_search_by_key(&line, |row| row.line).ok().map(|at| &rows[at])
}
