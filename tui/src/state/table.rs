//! Table state: order, selection and scroll of the table of functions.
//!
//! Owns: [`TableState`]: sorting, and how the selection follows its function through newer snapshots. Because: rows
//! move while the user reads them. Does not: move the selection; see [`crate::app`].

use std::cmp::{Ordering, Reverse};

use deepctx_profile::view::snapshot::{Table, TableRow};

use super::search::Search;
use crate::layout::table::SortKey;

/// Exclusive and inclusive value of a row by number of the metric.
pub(crate) fn values(row: &TableRow, metric: usize) -> (u64, u64) {
    match metric.checked_sub(1) {
        None => (row.exclusive, row.inclusive),
        Some(other) => row.others.get(other).copied().unwrap_or_default(),
    }
}

/// Order of the rows, and the user's position among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableState {
    /// The sort column.
    pub(crate) sort: SortKey,
    /// Reversed: smallest first, names from the end.
    pub(crate) reversed: bool,
    /// Rows of the snapshot in display order.
    pub(crate) order: Vec<u32>,
    /// Selected position in `order`; none until the user moves, so that an untouched table stays at its top.
    pub(crate) selected: Option<usize>,
    /// First visible position.
    pub(crate) scroll: usize,
}

impl TableState {
    /// The selected position: the first one until the user moves.
    pub(crate) fn position(&self) -> usize {
        self.selected.unwrap_or(0)
    }

    /// Sorts again; the selection stays on its function.
    pub(crate) fn sort_by(&mut self, sort: SortKey, reversed: bool, rows: &[TableRow]) {
        let selected = self.selected.and_then(|at| self.order.get(at)).copied();
        (self.sort, self.reversed) = (sort, reversed);
        self.order = (0u32..).zip(rows).map(|(index, _)| index).collect();
        let compare = |a: &TableRow, b: &TableRow| -> Ordering {
            let by_name = || (&a.label, &a.detail).cmp(&(&b.label, &b.detail));
            let key = |row: &TableRow| match sort {
                SortKey::Exclusive(metric) => values(row, metric),
                SortKey::Inclusive(metric) => (values(row, metric).1, values(row, metric).0),
                SortKey::Label => (0, 0),
            };
            Reverse(key(a)).cmp(&Reverse(key(b))).then_with(by_name)
        };
        self.order.sort_by(|a, b| {
            let order = compare(&rows[*a as usize], &rows[*b as usize]);
            if reversed { order.reverse() } else { order }
        });
        self.selected = selected.and_then(|row| self.order.iter().position(|&it| it == row));
    }

    /// Sorts newer rows: the selection stays on its function, or is cleared with it.
    pub(crate) fn carried_over(mut self, before: &[TableRow], after: &Table) -> Self {
        let selected =
            self.selected.and_then(|at| self.order.get(at)).and_then(|&row| before.get(row as usize));
        let same = |row: &TableRow, old: &TableRow| {
            row.label == old.label && row.detail == old.detail && row.kind == old.kind
        };
        let found = selected.and_then(|old| after.rows.iter().position(|row| same(row, old)));
        self.selected = None;
        let sort = if self.sort.exists(1 + after.others.len()) { self.sort } else { SortKey::default() };
        self.sort_by(sort, self.reversed, &after.rows);
        self.selected = found.and_then(|row| self.order.iter().position(|&it| it as usize == row));
        self
    }

    /// Position of the next matching row, wrapping at the end.
    pub(crate) fn next_match(&self, rows: &[TableRow], search: &Search, forward: bool) -> Option<usize> {
        let count = self.order.len();
        let from = self.selected.unwrap_or(if forward { count.saturating_sub(1) } else { 0 });
        (1..=count)
            .map(|step| if forward { (from + step) % count } else { (from + count - step) % count })
            .find(|&at| rows.get(self.order[at] as usize).is_some_and(|row| search.matches(&row.label)))
    }
}
