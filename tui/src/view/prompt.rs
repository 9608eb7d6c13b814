//! Prompt: what is typed, and what comes of it.
//!
//! Owns: the line while a search or filter is typed, or a search held. Because: the share is the answer to "how much is
//! that, all in all?", and a wrong pattern must say so before it is used. Does not: match.

use ratatui::style::Style;

use super::pen::Pen;
use crate::model::Model;
use crate::state::prompt::Prompt;
use crate::state::search::Search;
use crate::text;
use crate::theme::Theme;

/// Columns that what is typed should have beside the answer.
const TYPED: usize = 12;

/// Writes the filter; the end of what is typed stays in sight.
pub(crate) fn draw_filter(prompt: &Prompt, theme: &Theme, pen: &mut Pen<'_>) {
    let error = prompt.error.as_deref().unwrap_or_default();
    let line =
        Line { sign: "filter ", typed: &prompt.text, cursor: true, answer: error, style: theme.notice() };
    line.draw(theme, pen);
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
    let cursor = model.is_searching();
    let line = Line { sign: "/", typed: search.query(), cursor, answer: &answer, style: theme.strong() };
    line.draw(theme, pen);
}

/// A line that is typed, and the answer to it.
struct Line<'a> {
    sign: &'a str,
    typed: &'a str,
    /// Whether it is typed now.
    cursor: bool,
    answer: &'a str,
    /// Style of the answer.
    style: Style,
}

impl Line<'_> {
    fn draw(&self, theme: &Theme, pen: &mut Pen<'_>) {
        let room = pen.room().saturating_sub(2 + text::width(self.sign));
        let answer = text::width(self.answer);
        let for_answer = if room >= answer + TYPED { answer + 2 } else { 0 };
        pen.write(self.sign, theme.strong());
        pen.write(&tail(self.typed, room - for_answer), Style::new());
        if self.cursor {
            pen.write(" ", theme.chosen());
        }
        if for_answer > 0 {
            pen.skip(2);
            pen.write(self.answer, self.style);
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
