//! Table: how the order, selection and scroll of the table of functions move.
//!
//! Owns: navigation, clicks and sorting. Because: a selection that scrolls away is lost. Does not: compare rows; see
//! [`crate::state::table`].

use super::graph;
use crate::keys::Action;
use crate::layout::areas::rows_area;
use crate::layout::table::SortKey;
use crate::model::Model;
use crate::tab::Tab;

/// Visible rows below the column titles.
fn height(model: &Model) -> usize {
    usize::from(rows_area(model.areas().body).height).max(1)
}

/// Selects a position and scrolls to it.
pub(crate) fn select(model: &mut Model, position: usize) {
    model.table.selected = Some(position);
    keep_in_range(model);
    keep_visible(model);
}

fn sort(model: &mut Model, sort: SortKey, reversed: bool) {
    // The model owns both: the state is moved out during the call.
    let mut table = std::mem::take(&mut model.table);
    table.sort_by(sort, reversed, model.rows());
    model.table = table;
}

pub(crate) fn sort_by_next(model: &mut Model) {
    sort(model, model.table.sort.next(model.metric_count()), false);
}

pub(crate) fn reverse(model: &mut Model) {
    sort(model, model.table.sort, !model.table.reversed);
}

pub(crate) fn navigate(model: &mut Model, action: Action) {
    let last = model.table.order.len().saturating_sub(1);
    let page = height(model).saturating_sub(1).max(1);
    // After scrolling alone, continues from the first visible row.
    let from = model.table.selected.unwrap_or(model.table.scroll);
    let to = match action {
        Action::Up => from.saturating_sub(1),
        Action::Down => from.saturating_add(1),
        Action::PageUp => from.saturating_sub(page),
        Action::PageDown => from.saturating_add(page),
        Action::First => 0,
        Action::Last => last,
        Action::Enter => return show_in_flame(model),
        _ => return,
    };
    select(model, to.min(last));
}

/// Searches the flame graph for the selected function and selects its hottest box.
fn show_in_flame(model: &mut Model) {
    let Some(label) = model.selected_row().map(|row| row.label.clone()) else {
        model.status = Some("the table has no rows");
        return;
    };
    match graph::hottest(model, &label) {
        Some(node) => {
            model.tab = Tab::Flame;
            model.set_search(&label);
            graph::reveal(model, node);
        }
        None => model.status = Some("not in the flame graph"),
    }
}

pub(crate) fn click(model: &mut Model, x: u16, y: usize) {
    let body = model.areas().body;
    let titles = usize::from(body.height - rows_area(body).height);
    if y < titles {
        let key = model.table_columns(body.width).key_at(x);
        let again = key == model.table.sort;
        sort(model, key, again && !model.table.reversed);
        return;
    }
    let position = model.table.scroll + y - titles;
    if position >= model.table.order.len() {
        return;
    }
    if model.table.selected == Some(position) { show_in_flame(model) } else { select(model, position) }
}

/// Scrolls so that the selected row is visible.
pub(crate) fn keep_visible(model: &mut Model) {
    let height = height(model);
    if let Some(selected) = model.table.selected {
        let scroll = &mut model.table.scroll;
        *scroll = (*scroll).clamp((selected + 1).saturating_sub(height), selected);
    }
}

/// Keeps selection and scroll position inside the rows.
pub(crate) fn keep_in_range(model: &mut Model) {
    let height = height(model);
    let table = &mut model.table;
    let count = table.order.len();
    table.selected = table.selected.filter(|_| count > 0).map(|at| at.min(count - 1));
    table.scroll = table.scroll.min(count.saturating_sub(height));
}
