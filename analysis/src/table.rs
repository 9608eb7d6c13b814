//! Tables: rows, and how many more there are.
//!
//! Owns: [`Table`]. Because: every table is cut to the requested number of rows, and must say so. Does not: order rows.

use serde::{Serialize, Serializer};

/// The first rows of a table. Serialized, it is the list of its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Table<R> {
    /// The rows.
    pub rows: Vec<R>,
    /// How many more there are.
    pub left_out: usize,
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Table { rows: Vec::new(), left_out: 0 }
    }
}

impl<R> Table<R> {
    /// All rows, cut to the given number.
    pub(crate) fn cut(mut rows: Vec<R>, most: usize) -> Self {
        let left_out = rows.len().saturating_sub(most);
        rows.truncate(most);
        Table { rows, left_out }
    }

    /// Whether there is no row at all.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.left_out == 0
    }
}

impl<R: Serialize> Serialize for Table<R> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.rows.serialize(to)
    }
}
