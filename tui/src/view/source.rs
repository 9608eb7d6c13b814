//! Source: a file with what each of its lines cost.
//!
//! Owns: the columns, and what is shown where there is no text. Because: figures are true even when the file cannot be
//! read, and a file that was changed must not pass for the one that ran. Does not: read files.

use deepctx_profile::view::snapshot::{LineRow, SourceText};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::{Pen, put};
use crate::layout::areas::rows_area;
use crate::model::Model;
use crate::state::source::{SourceRows, figure};
use crate::text;
use crate::theme::Theme;

/// Columns of a percentage.
const SHARE: usize = 7;
/// Columns below which the total is left out.
const BOTH: u16 = 50;

pub(crate) fn draw(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let Some(place) = &model.source.place else {
        let text = "No source open. Select a function in any tab and press o.";
        put(buffer, area, 0, text, theme.quiet());
        return;
    };
    let lines = rows_area(area);
    if lines.y > area.y {
        title(model, &place.file, theme, area, buffer);
    }
    let (rows, figures) = (model.source_rows(), model.source_figures());
    if rows.len() == 0 {
        let text =
            if model.pending || model.source.text.is_none() { "loading …" } else { "no line has a value" };
        put(buffer, lines, 0, text, theme.quiet());
        return;
    }
    let number = text::count_digits(u64::from(rows.line(rows.len() - 1)));
    for at in 0..lines.height {
        let row = model.source.scroll + usize::from(at);
        if row >= rows.len() {
            break;
        }
        let line = rows.line(row);
        let mut pen = Pen::new(buffer, lines, at);
        draw_figures(model, figure(figures, line), theme, area.width, &mut pen);
        pen.write(&format!("{line:>number$} "), theme.quiet());
        if let SourceRows::Text(text) = rows {
            pen.write(&text::expand_tabs(&text[row], pen.room()), Style::new());
        }
        if model.interactive && line == model.source.line {
            buffer.set_style(Rect { y: lines.y + at, height: 1, ..lines }, theme.chosen());
        }
    }
}

/// Path, and problems with the file.
fn title(model: &Model, file: &str, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let mut pen = Pen::new(buffer, area, 0);
    pen.write("   self", theme.quiet());
    if area.width >= BOTH {
        pen.write("  total", theme.quiet());
    }
    pen.skip(2);
    let note = match model.source.text.as_deref() {
        Some(SourceText::Missing(reason)) => format!("no text: {}", reason),
        Some(SourceText::Lines { changed: true, .. }) => "file changed: lines may have moved".to_owned(),
        _ => match model.source_data().filter(|data| &*data.file == file).map_or(0, |data| data.without_line)
        {
            0 => String::new(),
            value => format!("{} without a line", text::percent(value, model.whole())),
        },
    };
    let for_note = text::width(&note) + 2;
    let for_path = pen.room().saturating_sub(if note.is_empty() { 0 } else { for_note });
    pen.write(&text::cut_left(file, for_path.max(pen.room() / 3)), theme.strong());
    pen.skip(2);
    pen.write(&note, theme.notice());
}

fn draw_figures(model: &Model, row: Option<&LineRow>, theme: &Theme, width: u16, pen: &mut Pen<'_>) {
    let whole = model.whole();
    let mut share = |value: u64| match value {
        0 => pen.skip(SHARE),
        _ => {
            let text = text::percent(value, whole);
            pen.skip(SHARE.saturating_sub(text::width(&text)));
            let share = if whole == 0 { 0.0 } else { value as f64 / whole as f64 };
            pen.write(&text, theme.heat(share));
        }
    };
    share(row.map_or(0, |row| row.exclusive));
    if width >= BOTH {
        share(row.map_or(0, |row| row.inclusive));
    }
    pen.skip(2);
}

/// The selected line, for the footer.
pub(crate) fn selection(model: &Model) -> Option<(String, Option<LineRow>)> {
    let place = model.source.place.as_ref().filter(|_| model.source.line > 0)?;
    let name = place.file.rsplit('/').next().unwrap_or(&place.file);
    let row = figure(model.source_figures(), model.source.line).copied();
    Some((format!("{name}:{}", model.source.line), row))
}
