//! Matches: going from one match of the search to the next.
//!
//! Owns: where a match is shown. Because: a table and a graph show the same search in different ways. Does not:
//! match; see [`crate::state::search`].

use super::bounds::keep_in_range;
use super::{graph, source, table};
use crate::model::Model;
use crate::tab::Tab;

/// Selects the next match of the search, or the next line with a value in a source file.
pub(super) fn next(model: &mut Model, forward: bool) {
    match model.tab {
        Tab::Source => source::next_hot(model, forward),
        _ => next_match(model, forward),
    }
}

/// Selects the next match of the search; in the flame graph, if the tab has no functions.
pub(super) fn next_match(model: &mut Model, forward: bool) {
    let Some(search) = model.search.as_ref().filter(|search| !search.is_empty()) else {
        model.status = Some("no search: / starts one");
        return;
    };
    match model.tab {
        Tab::Table => {
            let found = model.table.next_match(model.rows(), search, forward);
            model.status = found.is_none().then_some("no match");
            if let Some(position) = found {
                table::select(model, position);
            }
        }
        Tab::Overview | Tab::Flame | Tab::Callers | Tab::Timeline | Tab::Source | Tab::Health => {
            let found = search.next(model.graph().selected, forward);
            model.status = found.is_none().then_some("no match");
            if let Some(node) = found {
                if model.tab != Tab::Callers {
                    model.tab = Tab::Flame;
                }
                graph::reveal(model, node);
            }
        }
    }
    keep_in_range(model);
}
