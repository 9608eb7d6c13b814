//! Prompt: editing the line being typed, and applying it.
//!
//! Owns: typing, accepting and cancelling. Because: a search applies with every letter, a filter when it is complete.
//! Does not: match.

use deepctx_profile::view::request::Pattern;

use super::matches;
use crate::message::Effects;
use crate::model::{Mode, Model};
use crate::state::prompt::{Prompt, Purpose};

/// Maximum characters of a line, more than any useful name.
const LIMIT: usize = 200;

pub(super) fn begin_search(model: &mut Model) {
    let before = model.search.as_ref().map_or(String::new(), |search| search.query().to_owned());
    model.mode = Mode::Typing(Prompt { purpose: Purpose::Search, text: String::new(), before, error: None });
    model.set_search("");
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
            model.set_search(&text);
        }
        Purpose::Filter => {
            prompt.error = Pattern::new(&prompt.text).err().map(|error| error.to_string());
        }
    }
    Effects::Redraw
}

/// Applies the typed line.
pub(super) fn accept(model: &mut Model) {
    let Mode::Typing(prompt) = std::mem::take(&mut model.mode) else { return };
    match prompt.purpose {
        Purpose::Search if prompt.text.is_empty() => model.search = None,
        Purpose::Search => matches::next_match(model, true),
        Purpose::Filter if matches!(prompt.text.as_str(), "" | "!") => model.request.filter = None,
        Purpose::Filter => match Pattern::new(&prompt.text) {
            Ok(pattern) => model.request.filter = Some(pattern),
            Err(error) => {
                model.mode = Mode::Typing(Prompt { error: Some(error.to_string()), ..prompt });
            }
        },
    }
}

/// Restores the previous state.
pub(super) fn cancel(model: &mut Model, prompt: Prompt) {
    match prompt.purpose {
        Purpose::Search if prompt.before.is_empty() => model.search = None,
        Purpose::Search => model.set_search(&prompt.before),
        Purpose::Filter => {}
    }
}
