//! Prompt: the line being typed, and its result.
//!
//! Owns: the line while a search or filter is typed, or while there is a search. Because: the total share of all
//! matches is what a search is for, and an invalid pattern must be reported before it is used. Does not: match.

use ratatui::style::Style;

use super::pen::Pen;
use crate::model::Model;
use crate::state::prompt::Prompt;
use crate::state::search::Search;
use crate::text;
use crate::theme::Theme;

/// Columns for the text beside the result.
const TYPED: usize = 12;

/// Writes the filter; the end of the text stays visible.
pub(crate) fn draw_filter(prompt: &Prompt, theme: &Theme, pen: &mut Pen<'_>) {
    let error = prompt.error.as_deref().unwrap_or_default();
    let line =
        Line { sign: "filter ", typed: &prompt.text, cursor: true, result: error, style: theme.notice() };
    line.draw(theme, pen);
}

/// Writes the search.
pub(crate) fn draw_search(model: &Model, search: &Search, theme: &Theme, pen: &mut Pen<'_>) {
    let result = if search.is_empty() {
        String::new()
    } else {
        let share = text::percent(search.value(), model.whole());
        let boxes = if search.count() == 1 { "box" } else { "boxes" };
        let count = text::count(search.count() as u64);
        format!("{share} · {} in {count} {boxes}", text::value(model.unit(), search.value()))
    };
    let cursor = model.is_searching();
    let line = Line { sign: "/", typed: search.query(), cursor, result: &result, style: theme.strong() };
    line.draw(theme, pen);
}

/// A line being typed, and its result.
struct Line<'a> {
    sign: &'a str,
    typed: &'a str,
    /// Whether it is being typed.
    cursor: bool,
    result: &'a str,
    /// Style of the result.
    style: Style,
}

impl Line<'_> {
    fn draw(&self, theme: &Theme, pen: &mut Pen<'_>) {
        let room = pen.room().saturating_sub(2 + text::width(self.sign));
        let width = text::width(self.result);
        let for_result = if room >= width + TYPED { width + 2 } else { 0 };
        pen.write(self.sign, theme.strong());
        pen.write(&tail(self.typed, room - for_result), Style::new());
        if self.cursor {
            pen.write(" ", theme.chosen());
        }
        if for_result > 0 {
            pen.skip(2);
            pen.write(self.result, self.style);
        }
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
