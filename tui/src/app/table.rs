//! Table state: order, selection and scroll of the table of functions.
//!
//! Owns: sorting and how the selection follows its function through newer snapshots. Because: rows change places while
//! they are looked at. Does not: draw.

use std::cmp::Reverse;

use deepctx_profile::snapshot::TableRow;

use super::search::Search;
use super::{Model, Tab, flame, set_search};
use crate::keys::Action;
use crate::view;

/// Column that the rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SortKey {
    /// Exclusive value, largest first.
    #[default]
    Exclusive,
    /// Inclusive value, largest first.
    Inclusive,
    /// Label, then location.
    Label,
}

impl SortKey {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Exclusive => Self::Inclusive,
            Self::Inclusive => Self::Label,
            Self::Label => Self::Exclusive,
        }
    }
}

/// Order of the rows and where the user is among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableState {
    /// Sorted by.
    pub(crate) sort: SortKey,
    /// Rows of the snapshot in the order shown.
    pub(crate) order: Vec<u32>,
    /// Selected position in `order`; none until the user moves, so that an untouched table stays at its top.
    pub(crate) selected: Option<usize>,
    /// First visible position.
    pub(crate) scroll: usize,
}

impl TableState {
    /// Sorts anew; the selection stays on its function.
    pub(crate) fn sort_by(&mut self, sort: SortKey, rows: &[TableRow]) {
        let selected = self.selected.and_then(|at| self.order.get(at)).copied();
        self.sort = sort;
        self.order = (0u32..).zip(rows).map(|(index, _)| index).collect();
        let row = |index: &u32| &rows[*index as usize];
        match sort {
            SortKey::Exclusive => {
                self.order.sort_by_key(|it| (Reverse(row(it).exclusive), Reverse(row(it).inclusive)));
            }
            SortKey::Inclusive => {
                self.order.sort_by_key(|it| (Reverse(row(it).inclusive), Reverse(row(it).exclusive)));
            }
            SortKey::Label => self
                .order
                .sort_by(|a, b| (&row(a).label, &row(a).detail).cmp(&(&row(b).label, &row(b).detail))),
        }
        self.selected = selected.and_then(|row| self.order.iter().position(|&it| it == row));
    }

    /// Takes in newer rows: the selection goes to the same function, or goes away with it.
    pub(crate) fn carry_over(&mut self, before: &[TableRow], after: &[TableRow]) {
        let selected =
            self.selected.and_then(|at| self.order.get(at)).and_then(|&row| before.get(row as usize));
        let same = |row: &TableRow, old: &TableRow| {
            row.label == old.label && row.detail == old.detail && row.kind == old.kind
        };
        let found = selected.and_then(|old| after.iter().position(|row| same(row, old)));
        self.selected = None;
        self.sort_by(self.sort, after);
        self.selected = found.and_then(|row| self.order.iter().position(|&it| it as usize == row));
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
    let selected = model.table.selected.and_then(|at| model.table.order.get(at));
    let Some(label) = selected.and_then(|&row| model.rows().get(row as usize)).map(|row| row.label.clone())
    else {
        model.status = Some("select a row first");
        return;
    };
    set_search(model, &label);
    let hottest = model.search.as_ref().and_then(|search| search.next(u32::MAX, true));
    match hottest {
        Some(node) => {
            model.tab = Tab::Flame;
            flame::reveal(model, node);
        }
        None => model.status = Some("not in the flame graph"),
    }
}

pub(crate) fn click(model: &mut Model, x: u16, y: usize) {
    let body = model.areas().body;
    let titles = usize::from(body.height - view::table::rows_area(body).height);
    if y < titles {
        if let Some(sort) = view::table::column_at(body.width, x) {
            let mut table = std::mem::take(&mut model.table);
            table.sort_by(sort, model.rows());
            model.table = table;
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
