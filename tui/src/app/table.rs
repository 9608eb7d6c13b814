//! Table state: order, selection and scroll of the table of functions.
//!
//! Owns: sorting and how the selection follows its function through newer snapshots. Because: rows change places while
//! they are looked at. Does not: draw.

use std::cmp::{Ordering, Reverse};

use deepctx_profile::snapshot::{Table, TableRow};

use super::search::Search;
use super::{Model, Tab, graph, prompt};
use crate::keys::Action;
use crate::view;

/// Column that the rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SortKey {
    /// Exclusive value of a metric: 0 is the one shown, then the others.
    Exclusive(usize),
    /// Inclusive value of a metric.
    Inclusive(usize),
    /// Label, then location.
    Label,
}

impl Default for SortKey {
    fn default() -> Self {
        Self::Exclusive(0)
    }
}

impl SortKey {
    /// The column to the right; `metrics` counts the one shown and the others.
    fn next(self, metrics: usize) -> Self {
        match self {
            Self::Exclusive(metric) => Self::Inclusive(metric),
            Self::Inclusive(metric) if metric + 1 < metrics => Self::Exclusive(metric + 1),
            Self::Inclusive(_) => Self::Label,
            Self::Label => Self::Exclusive(0),
        }
    }

    /// Whether a table with so many metrics has this column.
    fn exists(self, metrics: usize) -> bool {
        match self {
            Self::Exclusive(metric) | Self::Inclusive(metric) => metric < metrics,
            Self::Label => true,
        }
    }
}

/// Exclusive and inclusive value of a row by number of the metric.
pub(crate) fn values(row: &TableRow, metric: usize) -> (u64, u64) {
    match metric.checked_sub(1) {
        None => (row.exclusive, row.inclusive),
        Some(other) => row.others.get(other).copied().unwrap_or_default(),
    }
}

/// Order of the rows and where the user is among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableState {
    /// Sorted by.
    pub(crate) sort: SortKey,
    /// The other way round: smallest first, names from the end.
    pub(crate) reversed: bool,
    /// Rows of the snapshot in the order shown.
    pub(crate) order: Vec<u32>,
    /// Selected position in `order`; none until the user moves, so that an untouched table stays at its top.
    pub(crate) selected: Option<usize>,
    /// First visible position.
    pub(crate) scroll: usize,
}

impl TableState {
    /// Sorts anew; the selection stays on its function.
    fn sort_by(&mut self, sort: SortKey, reversed: bool, rows: &[TableRow]) {
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

    /// Takes in newer rows: the selection goes to the same function, or goes away with it.
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

    /// Position of the next matching row, around the end.
    pub(crate) fn next_match(&self, rows: &[TableRow], search: &Search, forward: bool) -> Option<usize> {
        let count = self.order.len();
        let from = self.selected.unwrap_or(if forward { count.saturating_sub(1) } else { 0 });
        (1..=count)
            .map(|step| if forward { (from + step) % count } else { (from + count - step) % count })
            .find(|&at| rows.get(self.order[at] as usize).is_some_and(|row| search.matches(&row.label)))
    }
}

/// The selected row.
pub(crate) fn selected(model: &Model) -> Option<&TableRow> {
    let row = model.table.selected.and_then(|at| model.table.order.get(at))?;
    model.rows().get(*row as usize)
}

/// Rows in sight below the column titles.
fn height(model: &Model) -> usize {
    usize::from(view::table::rows_area(model.areas().body).height).max(1)
}

/// Selects a position and scrolls to it.
pub(crate) fn select(model: &mut Model, position: usize) {
    model.table.selected = Some(position);
    keep_in_range(model);
    keep_visible(model);
}

fn sort(model: &mut Model, sort: SortKey, reversed: bool) {
    // The model owns both: the state is taken out for the time of the call.
    let mut table = std::mem::take(&mut model.table);
    table.sort_by(sort, reversed, model.rows());
    model.table = table;
}

pub(crate) fn sort_by_next(model: &mut Model) {
    let metrics = 1 + model.table_data().map_or(0, |table| table.others.len());
    sort(model, model.table.sort.next(metrics), false);
}

pub(crate) fn reverse(model: &mut Model) {
    sort(model, model.table.sort, !model.table.reversed);
}

pub(crate) fn navigate(model: &mut Model, action: Action) {
    let last = model.table.order.len().saturating_sub(1);
    let page = height(model).saturating_sub(1).max(1);
    let at = model.table.selected;
    let from = at.unwrap_or(model.table.scroll);
    let to = match action {
        Action::Up => from.saturating_sub(1),
        Action::Down => at.map_or(from, |at| at + 1),
        Action::PageUp => from.saturating_sub(page),
        Action::PageDown => from.saturating_add(page),
        Action::First => 0,
        Action::Last => last,
        Action::Enter => return show_in_flame(model),
        _ => return,
    };
    select(model, to.min(last));
}

/// Searches the flame graph for the selected function and goes to where it is hottest.
fn show_in_flame(model: &mut Model) {
    let Some(label) = selected(model).map(|row| row.label.clone()) else {
        model.status = Some("select a row first");
        return;
    };
    prompt::set_search(model, &label);
    let hottest = model.search.as_ref().and_then(|search| search.next(u32::MAX, true));
    match hottest {
        Some(node) => {
            model.tab = Tab::Flame;
            graph::reveal(model, node);
        }
        None => model.status = Some("not in the flame graph"),
    }
}

pub(crate) fn click(model: &mut Model, x: u16, y: usize) {
    let body = model.areas().body;
    let titles = usize::from(body.height - view::table::rows_area(body).height);
    if y < titles {
        if let Some(key) = view::table::column_at(model, body.width, x) {
            let again = key == model.table.sort;
            sort(model, key, again && !model.table.reversed);
        }
        return;
    }
    let position = model.table.scroll + y - titles;
    if position >= model.table.order.len() {
        return;
    }
    if model.table.selected == Some(position) { show_in_flame(model) } else { select(model, position) }
}

/// Scrolls so that the selected row is in sight.
pub(crate) fn keep_visible(model: &mut Model) {
    let height = height(model);
    if let Some(selected) = model.table.selected {
        let scroll = &mut model.table.scroll;
        *scroll = (*scroll).clamp((selected + 1).saturating_sub(height), selected);
    }
}

/// Keeps selection and scroll inside the rows.
pub(crate) fn keep_in_range(model: &mut Model) {
    let height = height(model);
    let table = &mut model.table;
    let count = table.order.len();
    table.selected = table.selected.filter(|_| count > 0).map(|at| at.min(count - 1));
    table.scroll = table.scroll.min(count.saturating_sub(height));
}
