//! Event tables: analyses of a trace over time, as texts for a screen.
//!
//! Owns: [`EventTable`]. Because: a screen of any width places each cell by itself. Does not: compute or format a
//! figure; the analysis does, and passes its cells in.

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTable {
    /// What it shows.
    pub title: String,
    /// Its columns.
    pub columns: Vec<EventColumn>,
    /// One text per column.
    pub rows: Vec<Vec<String>>,
    /// Further rows.
    pub left_out: usize,
}

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventColumn {
    /// Its title.
    pub title: String,
    /// Whether it has figures, which are right-aligned.
    pub is_number: bool,
}
