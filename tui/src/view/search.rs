//! Search line: what is typed, and how much of the whole it matches.
//!
//! Owns: the line while a search is typed or held. Because: the share is the answer to "how much is that, all in all?".
//! Does not: match.

use ratatui::style::Style;

use super::Pen;
use crate::app::Model;
use crate::app::search::Search;
use crate::text;
use crate::theme::Theme;

/// Writes the search; the end of what is typed stays in sight.
pub(crate) fn draw(model: &Model, search: &Search, theme: &Theme, pen: &mut Pen<'_>) {
    let answer = if search.is_empty() {
        String::new()
    } else {
        let share = text::percent(search.value(), model.whole());
        let unit = model.snapshot.as_ref().map(|snapshot| snapshot.header.unit).unwrap_or_default();
        let boxes = if search.count() == 1 { "box" } else { "boxes" };
        let count = text::count(search.count() as u64);
        format!("{share} · {} in {count} {boxes}", text::value(unit, search.value()))
    };
    let room = pen.room().saturating_sub(3);
    let for_answer = if room >= text::width(&answer) + 12 { text::width(&answer) + 2 } else { 0 };
    pen.write("/", theme.strong());
    pen.write(&tail(search.query(), room - for_answer), Style::new());
    if model.is_typing() {
        pen.write(" ", theme.chosen());
    }
    if for_answer > 0 {
        pen.skip(2);
        pen.write(&answer, theme.strong());
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
