//! Cells: common parts of the tabs of tables over time.
//!
//! Owns: the format of times and shares, and the number of rows of a tab. Because: two files of tabs must look alike.
//! Does not: know a table.

use deepctx_profile::units::Nanos;
use deepctx_storage::export::html::{Column, Tab};

use super::{percent, tab};

/// Maximum rows of a tab: more would slow the page down, and nobody reads them.
const ROWS_MAX: usize = 1000;

/// A tab with the first rows.
pub(super) fn first(
    id: &str,
    title: &str,
    columns: &[Column],
    rows: impl Iterator<Item = Vec<String>>,
) -> Tab {
    let mut rows: Vec<_> = rows.collect();
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    tab(id, title, columns, left_out, rows)
}

/// The tab of a table that has only some of its rows itself.
pub(super) fn without(left_out: usize, of: Tab) -> Tab {
    Tab { left_out: of.left_out.saturating_add(left_out), ..of }
}

pub(super) fn share(part: u64, whole: u64) -> String {
    percent(part as f64 * 100.0 / whole.max(1) as f64)
}

pub(super) fn time(ns: u64) -> String {
    Nanos(ns).to_string()
}

pub(super) fn numbers<const N: usize>(titles: [&str; N]) -> Vec<Column> {
    titles.map(Column::number).to_vec()
}
