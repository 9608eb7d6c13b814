//! Table: functions with their own and their total values.
//!
//! Owns: the columns. Because: a click on a title must find the column that was drawn. Does not: sort.

use deepctx_profile::snapshot::{TableRow, Unit};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::Pen;
use crate::app::Model;
use crate::app::search::Search;
use crate::app::table::SortKey;
use crate::text;
use crate::theme::{Theme, letter};

/// Columns of a value.
const VALUE: usize = 9;
/// Columns of a percentage.
const SHARE: usize = 7;
/// Columns of the kind's letter with its gap.
const KIND: usize = 3;
/// Columns that a name should have; the figures that leave less are left out.
const NAME: usize = 16;
/// Columns that a name must have beside the one figure that is never left out before.
const SHORT_NAME: usize = 8;

/// Which figures a width has room for.
#[derive(Clone, Copy, Debug)]
struct Columns {
    values: bool,
    shares: bool,
    total: bool,
    location: usize,
}

impl Columns {
    fn of(width: u16) -> Self {
        let room = usize::from(width).saturating_sub(KIND + NAME + 1);
        let total = room >= 2 * SHARE;
        let values = room >= 2 * (SHARE + VALUE);
        let figures = if values { 2 * (SHARE + VALUE) } else { 2 * SHARE };
        let free = room.saturating_sub(figures);
        Self {
            values,
            shares: usize::from(width) > KIND + SHORT_NAME + SHARE,
            total,
            location: if free >= 24 { free / 2 } else { 0 },
        }
    }

    fn figures(self) -> usize {
        usize::from(self.shares) * (SHARE + usize::from(self.values) * VALUE)
    }
}

/// Where the rows are: below the titles, if there is room for titles.
pub(crate) fn rows_area(body: Rect) -> Rect {
    let titles = u16::from(body.height >= 3);
    Rect { y: body.y + titles, height: body.height - titles, ..body }
}

/// The column whose title is at `x`, as the key to sort by.
pub(crate) fn column_at(width: u16, x: u16) -> Option<SortKey> {
    let columns = Columns::of(width);
    let (x, figures) = (usize::from(x), columns.figures());
    Some(match () {
        () if x < figures => SortKey::Exclusive,
        () if columns.total && x < 2 * figures => SortKey::Inclusive,
        () => SortKey::Label,
    })
}

pub(crate) fn draw(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let columns = Columns::of(area.width);
    let rows = rows_area(area);
    if rows.y > area.y {
        titles(model, theme, columns, area, buffer);
    }
    let unit = model.snapshot.as_ref().map_or(Unit::Count, |snapshot| snapshot.header.unit);
    let search = model.search.as_ref().filter(|search| !search.is_empty());
    for line in 0..rows.height {
        let position = model.table.scroll + usize::from(line);
        let Some(row) = model.table.order.get(position).and_then(|&row| model.rows().get(row as usize))
        else {
            break;
        };
        let found = search.is_some_and(|search: &Search| search.matches(&row.label));
        let selected = model.interactive && model.table.selected == Some(position);
        draw_row(row, unit, model.whole(), theme, columns, found, Pen::new(buffer, rows, line));
        if selected {
            buffer.set_style(Rect { y: rows.y + line, height: 1, ..rows }, theme.chosen());
        }
    }
    if model.table.order.is_empty() {
        super::put(buffer, rows, 0, "no samples yet", theme.quiet());
    }
}

fn titles(model: &Model, theme: &Theme, columns: Columns, area: Rect, buffer: &mut Buffer) {
    let mut pen = Pen::new(buffer, area, 0);
    let title = |name: &str, key: SortKey| {
        let chosen = model.table.sort == key;
        (
            format!("{name}{}", if chosen { "▾" } else { "" }),
            if chosen { theme.strong() } else { theme.quiet() },
        )
    };
    let figures = columns.figures();
    let shown = [("self", SortKey::Exclusive, columns.shares), ("total", SortKey::Inclusive, columns.total)];
    for (name, key, _) in shown.into_iter().filter(|(_, _, shown)| *shown) {
        let (name, style) = title(name, key);
        pen.skip(figures.saturating_sub(text::width(&name)));
        pen.write(&name, style);
    }
    pen.skip(KIND);
    let (name, style) = title("function", SortKey::Label);
    pen.write(&name, style);
    if columns.location > 0 {
        pen.align_right(columns.location);
        pen.write("where", theme.quiet());
    }
}

fn draw_row(
    row: &TableRow,
    unit: Unit,
    whole: u64,
    theme: &Theme,
    columns: Columns,
    found: bool,
    mut pen: Pen<'_>,
) {
    let plain = Style::new();
    let mut figures = |value: u64| {
        if columns.values {
            pen.write(&format!("{:>VALUE$}", text::value(unit, value)), plain);
        }
        pen.write(&format!("{:>SHARE$}", text::percent(value, whole)), plain);
    };
    if columns.shares {
        figures(row.exclusive);
    }
    if columns.total {
        figures(row.inclusive);
    }
    pen.skip(1);
    pen.write(&letter(row.kind).to_string(), theme.mark(row.kind));
    pen.skip(1);
    let name = text::cut(&row.label, pen.room().saturating_sub(columns.location + 1));
    let end = pen.room().saturating_sub(columns.location);
    pen.write(&name, if found { theme.found() } else { plain });
    pen.skip(end.saturating_sub(text::width(&name)));
    if columns.location > 0 {
        pen.write(&row.detail, theme.quiet());
    }
}
