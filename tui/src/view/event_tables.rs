//! Event tables: one analysis of a trace at a time, below its lanes.
//!
//! Owns: the drawing of its title, columns and rows. Because: the order of events has causes that lanes do not name.
//! Does not: choose columns; see [`crate::layout::event_tables`].

use deepctx_profile::view::event_tables::EventTable;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::{Pen, put};
use crate::layout::event_tables::TableColumns;
use crate::text;
use crate::theme::Theme;

/// Maximum lines of the title of a column.
const TITLE_LINES: usize = 2;

/// Draws the table with this number; `None` until they are known.
pub(super) fn draw(
    tables: Option<&[EventTable]>,
    number: usize,
    theme: &Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    let Some(tables) = tables else {
        return put(buffer, area, 0, " analyses: being computed …", theme.quiet());
    };
    let Some(table) = tables.get(number) else {
        let text = " no analysis: the trace has no step and no work of a device or thread";
        return put(buffer, area, 0, text, theme.quiet());
    };
    let TableColumns { widths, left_out } = TableColumns::of(table, usize::from(area.width));
    let more = match left_out {
        0 => String::new(),
        columns => format!(" · … {}", text::counted(columns as u64, "more column")),
    };
    let title = format!(" {} · {} of {}{more}", table.title, number + 1, tables.len());
    put(buffer, area, 0, &title, theme.strong());
    let used = 1 + titles(table, &widths, theme, area, buffer);
    rows(table, &widths, used, theme, area, buffer);
}

/// Draws the titles of the columns, the last line of each just above its figures; the number of lines.
fn titles(table: &EventTable, widths: &[usize], theme: &Theme, area: Rect, buffer: &mut Buffer) -> u16 {
    let columns = table.columns.iter().zip(widths);
    let titles: Vec<Vec<String>> =
        columns.map(|(column, width)| text::wrap(&column.title, *width, TITLE_LINES)).collect();
    let lines = titles.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..lines {
        let part = |title: &Vec<String>| (line + title.len()).checked_sub(lines);
        let parts = titles.iter().map(|title| part(title).and_then(|at| title.get(at)));
        let parts = parts.map(|part| part.map_or("", String::as_str));
        write_row(table, widths, parts, theme.quiet(), Pen::new(buffer, area, 1 + line as u16));
    }
    lines as u16
}

/// Draws as many rows as have room below the first `used` lines, and how many more there are.
fn rows(table: &EventTable, widths: &[usize], used: u16, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let room = usize::from(area.height.saturating_sub(used));
    let all = table.rows.len();
    let shown = if table.left_out == 0 && all <= room { all } else { all.min(room.saturating_sub(1)) };
    let mut lines = used..area.height;
    for (row, line) in table.rows.iter().take(shown).zip(&mut lines) {
        write_row(table, widths, row.iter().map(String::as_str), Style::new(), Pen::new(buffer, area, line));
    }
    let left_out = all - shown + table.left_out;
    if let Some(line) = lines.next().filter(|_| left_out > 0) {
        let text = format!("  … {}", text::counted(left_out as u64, "more row"));
        put(buffer, area, line, &text, theme.quiet());
    }
}

fn write_row<'c>(
    table: &EventTable,
    widths: &[usize],
    cells: impl Iterator<Item = &'c str>,
    style: Style,
    mut pen: Pen<'_>,
) {
    for ((column, width), cell) in table.columns.iter().zip(widths).zip(cells) {
        let cell = text::cut(cell, *width);
        let blank = width.saturating_sub(text::width(&cell));
        let (before, behind) = if column.is_number { (blank, 0) } else { (0, blank) };
        pen.skip(1 + before);
        pen.write(&cell, style);
        pen.skip(behind);
    }
}
