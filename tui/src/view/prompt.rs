//! Prompt: what is typed, and what comes of it.
//!
//! Owns: the line while a search or filter is typed, or a search held. Because: the share is the answer to "how much is
//! that, all in all?", and a wrong pattern must say so before it is used. Does not: match.

use ratatui::style::Style;

use super::Pen;
use crate::app::Model;
use crate::app::prompt::{Prompt, Purpose};
use crate::app::search::Search;
use crate::text;
use crate::theme::Theme;

/// Columns that what is typed should have beside the answer.
const TYPED: usize = 12;

/// Writes the filter; the end of what is typed stays in sight.
pub(crate) fn draw_filter(prompt: &Prompt, theme: &Theme, pen: &mut Pen<'_>) {
    let error = prompt.error.as_deref().unwrap_or_default();
    draw(("filter ", &prompt.text, true), (error, theme.notice()), theme, pen);
}

/// Writes the search.
pub(crate) fn draw_search(model: &Model, search: &Search, theme: &Theme, pen: &mut Pen<'_>) {
    let answer = if search.is_empty() {
        String::new()
    } else {
        let share = text::percent(search.value(), model.whole());
        let boxes = if search.count() == 1 { "box" } else { "boxes" };
        let count = text::count(search.count() as u64);
        format!("{share} · {} in {count} {boxes}", text::value(model.unit(), search.value()))
    };
    draw(("/", search.query(), is_searching(model)), (&answer, theme.strong()), theme, pen);
}

/// Whether a search is typed now.
pub(crate) fn is_searching(model: &Model) -> bool {
    matches!(&model.mode, crate::app::Mode::Typing(prompt) if prompt.purpose == Purpose::Search)
}

fn draw(
    (sign, typed, cursor): (&str, &str, bool),
    (answer, style): (&str, Style),
    theme: &Theme,
    pen: &mut Pen<'_>,
) {
    let room = pen.room().saturating_sub(2 + text::width(sign));
    let for_answer = if room >= text::width(answer) + TYPED { text::width(answer) + 2 } else { 0 };
    pen.write(sign, theme.strong());
    pen.write(&tail(typed, room - for_answer), Style::new());
    if cursor {
        pen.write(" ", theme.chosen());
    }
    if for_answer > 0 {
        pen.skip(2);
        pen.write(answer, style);
    }
}

/// The end of a text, as much of it as fits.
fn tail(text: &str, columns: usize) -> String {
    let mut from = 0;
    while text::width(&text[from..]) > columns {
        from += text[from..].chars().next().map_or(1, char::len_utf8);
    }
    text::cut(&text[from..], columns)
}
