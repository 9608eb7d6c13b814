//! Prompt: the line that is typed, for a search or a filter.
//!
//! Owns: what each key does to it, and what comes of it. Because: a search shows its answer with every letter, a filter
//! when it is complete; for the hand they are the same. Does not: match.

use deepctx_profile::view::Pattern;

use super::search::Search;
use super::update::keep_in_range;
use super::{Effects, Mode, Model, Tab, graph, lines, table};

/// Longest line, in characters: longer than any name worth typing.
const LIMIT: usize = 200;

/// What the line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A text that names of functions have in them.
    Search,
    /// A regular expression that stacks must match.
    Filter,
}

/// A line that is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// What for.
    pub(crate) purpose: Purpose,
    /// What is typed so far.
    pub(crate) text: String,
    /// The search from before, to go back to.
    before: String,
    /// What is wrong with it.
    pub(crate) error: Option<String>,
}

pub(super) fn begin_search(model: &mut Model) {
    let before = model.search.as_ref().map_or(String::new(), |search| search.query().to_owned());
    model.mode = Mode::Typing(Prompt { purpose: Purpose::Search, text: String::new(), before, error: None });
    set_search(model, "");
}

pub(super) fn begin_filter(model: &mut Model) {
    let text = model.request.filter.as_ref().map_or(String::new(), |filter| filter.text().to_owned());
    model.mode = Mode::Typing(Prompt { purpose: Purpose::Filter, text, before: String::new(), error: None });
}

pub(super) fn add(model: &mut Model, character: char) -> Effects {
    if character.is_control() {
        return Effects::None;
    }
    change(model, |text| {
        if text.chars().count() < LIMIT {
            text.push(character);
        }
    })
}

pub(super) fn erase(model: &mut Model) {
    change(model, |text| _ = text.pop());
}

pub(super) fn erase_all(model: &mut Model) {
    change(model, String::clear);
}

fn change(model: &mut Model, change: impl FnOnce(&mut String)) -> Effects {
    let Mode::Typing(prompt) = &mut model.mode else { return Effects::None };
    let before = prompt.text.clone();
    change(&mut prompt.text);
    if prompt.text == before {
        return Effects::None;
    }
    match prompt.purpose {
        Purpose::Search => {
            let text = prompt.text.clone();
            set_search(model, &text);
        }
        Purpose::Filter => {
            prompt.error = Pattern::new(&prompt.text).err().map(|error| error.to_string());
        }
    }
    Effects::Redraw
}

/// What was typed holds.
pub(super) fn accept(model: &mut Model) {
    let Mode::Typing(prompt) = std::mem::take(&mut model.mode) else { return };
    match prompt.purpose {
        Purpose::Search if prompt.text.is_empty() => model.search = None,
        Purpose::Search => next_match(model, true),
        Purpose::Filter if matches!(prompt.text.as_str(), "" | "!") => model.request.filter = None,
        Purpose::Filter => match Pattern::new(&prompt.text) {
            Ok(pattern) => model.request.filter = Some(pattern),
            Err(error) => {
                model.mode = Mode::Typing(Prompt { error: Some(error.to_string()), ..prompt });
            }
        },
    }
}

/// What was before holds.
pub(super) fn cancel(model: &mut Model, prompt: Prompt) {
    match prompt.purpose {
        Purpose::Search if prompt.before.is_empty() => model.search = None,
        Purpose::Search => set_search(model, &prompt.before),
        Purpose::Filter => {}
    }
}

pub(super) fn set_search(model: &mut Model, query: &str) {
    model.search = Some(Search::of(query, model.tree()));
}

/// Matches the search against the tree that is shown now.
pub(super) fn search_again(model: &mut Model) {
    if let Some(query) = model.search.as_ref().map(|search| search.query().to_owned()) {
        set_search(model, &query);
    }
}

pub(super) fn next_match(model: &mut Model, forward: bool) {
    if model.tab == Tab::Source {
        return lines::next_hot(model, forward);
    }
    let Some(search) = model.search.as_ref().filter(|search| !search.is_empty()) else {
        model.status = Some("no search: / begins one");
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
        Tab::Flame | Tab::Callers | Tab::Timeline | Tab::Source | Tab::Losses => {
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
