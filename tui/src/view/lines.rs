//! Source: a file with what each of its lines cost.
//!
//! Owns: the columns, and what is shown where there is no text. Because: figures are true even when the file cannot be
//! read, and a file that was changed must not pass for the one that ran. Does not: read files.

use deepctx_profile::snapshot::LineRow;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::Pen;
use crate::app::Model;
use crate::app::lines::{Rows, figure, figures, rows};
use crate::source::SourceText;
use crate::text;
use crate::theme::Theme;

/// Columns of a percentage.
const SHARE: usize = 7;
/// Columns below which the total is left out.
const BOTH: u16 = 50;

/// Where the rows are: below the title, if there is room for one.
pub(crate) fn rows_area(body: Rect) -> Rect {
    let title = u16::from(body.height >= 3);
    Rect { y: body.y + title, height: body.height - title, ..body }
}

pub(crate) fn draw(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let Some(place) = &model.lines.place else {
        let text = "no file is open: select a function in another view, o opens its source";
        super::put(buffer, area, 0, text, theme.quiet());
        return;
    };
    let lines = rows_area(area);
    if lines.y > area.y {
        title(model, &place.file, theme, area, buffer);
    }
    let (rows, figures) = (rows(model), figures(model));
    if rows.len() == 0 {
        let text =
            if model.awaiting || model.lines.text.is_none() { "looking …" } else { "no line has a value" };
        super::put(buffer, lines, 0, text, theme.quiet());
        return;
    }
    let number = text::count_digits(u64::from(rows.line(rows.len() - 1)));
    for at in 0..lines.height {
        let row = model.lines.scroll + usize::from(at);
        if row >= rows.len() {
            break;
        }
        let line = rows.line(row);
        let mut pen = Pen::new(buffer, lines, at);
        draw_figures(model, figure(figures, line), theme, area.width, &mut pen);
        pen.write(&format!("{line:>number$} "), theme.quiet());
        if let Rows::Text(text) = rows {
            pen.write(&text::expand_tabs(&text[row], pen.room()), Style::new());
        }
        if model.interactive && line == model.lines.line {
            buffer.set_style(Rect { y: lines.y + at, height: 1, ..lines }, theme.chosen());
        }
    }
}

/// Path, and what is not as it should be.
fn title(model: &Model, file: &str, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let mut pen = Pen::new(buffer, area, 0);
    pen.write("   self", theme.quiet());
    if area.width >= BOTH {
        pen.write("  total", theme.quiet());
    }
    pen.skip(2);
    let note = match model.lines.text.as_deref() {
        Some(SourceText::Missing(reason)) => format!("no text: {}", reason.sentence()),
        Some(SourceText::Lines { changed: true, .. }) => "changed since: lines may have moved".to_owned(),
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

/// The selected line in words, for the footer.
pub(crate) fn selection(model: &Model) -> Option<(String, Option<LineRow>)> {
    let place = model.lines.place.as_ref().filter(|_| model.lines.line > 0)?;
    let name = place.file.rsplit('/').next().unwrap_or(&place.file);
    let row = figure(figures(model), model.lines.line).copied();
    Some((format!("{name}:{}", model.lines.line), row))
}
