//! Table: functions with their own and their total values.
//!
//! Owns: titles and rows. Because: figures of different metrics appear side by side. Does not: sort, or choose the
//! columns; see [`crate::layout::table`].

use deepctx_profile::frame::short_labels;
use deepctx_profile::view::snapshot::{TableRow, Unit};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::{Pen, put};
use crate::layout::areas::rows_area;
use crate::layout::table::{Columns, KIND, OTHER, SHARE, SortKey, VALUE};
use crate::model::Model;
use crate::state::search::Search;
use crate::state::table::values;
use crate::text;
use crate::theme::{Theme, letter};

pub(crate) fn draw(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let columns = model.table_columns(area.width);
    let rows = rows_area(area);
    if rows.y > area.y {
        titles(model, theme, &columns, area, buffer);
    }
    let search = model.search.as_ref().filter(|search| !search.is_empty());
    let first = model.table.scroll;
    let shown = model.table.order.iter().skip(first).take(usize::from(rows.height));
    let shown: Vec<&TableRow> = shown.map_while(|&row| model.rows().get(row as usize)).collect();
    let names = short_labels(shown.iter().map(|row| (row.kind, row.label.as_str())));
    for (line, (row, name)) in (0u16..).zip(shown.into_iter().zip(&names)) {
        let position = first + usize::from(line);
        let found = search.is_some_and(|search: &Search| search.matches(&row.label));
        let selected = model.interactive && model.table.position() == position;
        let row = Row { row, name, found };
        draw_row(model, &row, theme, &columns, Pen::new(buffer, rows, line));
        if selected {
            buffer.set_style(Rect { y: rows.y + line, height: 1, ..rows }, theme.chosen());
        }
    }
    if model.table.order.is_empty() {
        put(buffer, rows, 0, model.empty_reason(), theme.quiet());
    }
}

/// Name and unit of a metric by its number.
fn metric(model: &Model, number: usize) -> (&'static str, Unit) {
    let other = number.checked_sub(1).and_then(|other| model.table_data()?.others.get(other));
    other.map_or(("", model.unit()), |other| (other.metric, other.unit))
}

fn titles(model: &Model, theme: &Theme, columns: &Columns, area: Rect, buffer: &mut Buffer) {
    let mut pen = Pen::new(buffer, area, 0);
    let sign = if model.table.reversed { "▴" } else { "▾" };
    let title = |name: String, key: SortKey| match model.table.sort == key {
        true => (format!("{name}{sign}"), theme.strong()),
        false => (name, theme.quiet()),
    };
    let figures = columns.figures();
    let own = [
        ("self", SortKey::Exclusive(0), columns.shares),
        ("total", SortKey::Inclusive(0), columns.total && columns.shares),
    ];
    let own =
        own.into_iter().filter(|(.., shown)| *shown).map(|(name, key, _)| (name.to_owned(), key, figures));
    let others = columns.others.iter().map(|&key| {
        let (word, number) = match key {
            SortKey::Exclusive(number) => ("self", number),
            SortKey::Inclusive(number) => ("total", number),
            SortKey::Label => ("", 0),
        };
        (format!("{} {word}", metric(model, number).0.trim_end_matches("-time")), key, OTHER)
    });
    for (name, key, width) in own.chain(others) {
        let (name, style) = title(name, key);
        let name = text::cut_left(&name, width.saturating_sub(1));
        pen.skip(width.saturating_sub(text::width(&name)));
        pen.write(&name, style);
    }
    pen.skip(KIND);
    let (name, style) = title("function".to_owned(), SortKey::Label);
    pen.write(&name, style);
    if columns.location > 0 {
        pen.align_right(columns.location);
        pen.write("where", theme.quiet());
    }
}

/// A row to draw.
struct Row<'a> {
    row: &'a TableRow,
    /// Its name, just long enough to differ from the others on screen.
    name: &'a String,
    /// It matches the search.
    found: bool,
}

fn draw_row(
    model: &Model,
    Row { row, name, found }: &Row<'_>,
    theme: &Theme,
    columns: &Columns,
    mut pen: Pen<'_>,
) {
    let (unit, whole) = (model.unit(), model.whole());
    let plain = Style::new();
    let mut figures = |value: u64| {
        if columns.values {
            pen.write(&format!("{:>VALUE$}", text::value(unit, value)), plain);
        }
        pen.write(&format!("{:>SHARE$}", text::percent(value, whole)), plain);
    };
    if columns.shares {
        figures(row.exclusive);
        if columns.total {
            figures(row.inclusive);
        }
    }
    for &key in &columns.others {
        let (number, value) = match key {
            SortKey::Exclusive(number) => (number, values(row, number).0),
            SortKey::Inclusive(number) => (number, values(row, number).1),
            SortKey::Label => continue,
        };
        pen.write(&format!("{:>OTHER$}", text::value(metric(model, number).1, value)), plain);
    }
    pen.skip(1);
    pen.write(&letter(row.kind).to_string(), theme.mark(row.kind));
    pen.skip(1);
    let pinned = model.pin.as_ref().is_some_and(|pin| pin.is(&row.label, &row.detail, row.kind));
    let label = if pinned { &format!("◆{name}") } else { *name };
    let name = text::cut(label, pen.room().saturating_sub(columns.location + 1));
    let end = pen.room().saturating_sub(columns.location);
    pen.write(&name, if *found { theme.found() } else { plain });
    pen.skip(end.saturating_sub(text::width(&name)));
    if columns.location > 0 {
        pen.write(&row.detail, theme.quiet());
    }
}
