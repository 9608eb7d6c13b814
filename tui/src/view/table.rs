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
use crate::app::table::{SortKey, values};
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
/// Columns of a value of another metric, and of its title.
const OTHER: usize = 15;
/// Columns that the place of a function should have, or it is left out.
const LOCATION: usize = 24;
/// Columns that a name should have before other metrics get any.
const WIDE_NAME: usize = 24;

/// Which figures a width has room for.
#[derive(Clone, Debug)]
struct Columns {
    values: bool,
    shares: bool,
    total: bool,
    /// Columns of other metrics, as keys to sort by.
    others: Vec<SortKey>,
    location: usize,
}

impl Columns {
    /// `metrics` counts the one shown and the others. The column that is sorted by is always among those shown.
    fn of(width: u16, metrics: usize, sort: SortKey) -> Self {
        let room = usize::from(width).saturating_sub(KIND + NAME + 1);
        let total = room >= 2 * SHARE;
        let values = room >= 2 * (SHARE + VALUE);
        let figures = if values { 2 * (SHARE + VALUE) } else { 2 * SHARE };
        let mut free = room.saturating_sub(figures);
        // The place of a function comes before figures of other metrics, but not before the one sorted by.
        let by_other = !matches!(sort, SortKey::Exclusive(0) | SortKey::Inclusive(0) | SortKey::Label);
        let beside = (free + NAME).saturating_sub(WIDE_NAME);
        let fits = (beside.saturating_sub(LOCATION) / OTHER).max(usize::from(by_other && beside >= OTHER));
        let mut others: Vec<SortKey> = (1..metrics)
            .flat_map(|metric| [SortKey::Exclusive(metric), SortKey::Inclusive(metric)])
            .collect();
        if let Some(at) = others.iter().position(|key| *key == sort).filter(|at| *at >= fits) {
            others.swap(at, fits.saturating_sub(1));
        }
        others.truncate(fits);
        free = free.saturating_sub(others.len() * OTHER);
        Self {
            values,
            shares: usize::from(width) > KIND + SHORT_NAME + SHARE,
            total,
            others,
            location: if free >= LOCATION { free / 2 } else { 0 },
        }
    }

    fn figures(&self) -> usize {
        usize::from(self.shares) * (SHARE + usize::from(self.values) * VALUE)
    }
}

fn columns(model: &Model, width: u16) -> Columns {
    let metrics = 1 + model.table_data().map_or(0, |table| table.others.len());
    Columns::of(width, metrics, model.table.sort)
}

/// Where the rows are: below the titles, if there is room for titles.
pub(crate) fn rows_area(body: Rect) -> Rect {
    let titles = u16::from(body.height >= 3);
    Rect { y: body.y + titles, height: body.height - titles, ..body }
}

/// The column whose title is at `x`, as the key to sort by.
pub(crate) fn column_at(model: &Model, width: u16, x: u16) -> Option<SortKey> {
    let columns = columns(model, width);
    let (x, figures) = (usize::from(x), columns.figures());
    let own = figures * (1 + usize::from(columns.total));
    let other = x.checked_sub(own).and_then(|x| columns.others.get(x / OTHER));
    Some(match (x, other) {
        (x, _) if x < figures => SortKey::Exclusive(0),
        (x, _) if x < own => SortKey::Inclusive(0),
        (_, Some(&other)) => other,
        _ => SortKey::Label,
    })
}

pub(crate) fn draw(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let columns = columns(model, area.width);
    let rows = rows_area(area);
    if rows.y > area.y {
        titles(model, theme, &columns, area, buffer);
    }
    let search = model.search.as_ref().filter(|search| !search.is_empty());
    for line in 0..rows.height {
        let position = model.table.scroll + usize::from(line);
        let Some(row) = model.table.order.get(position).and_then(|&row| model.rows().get(row as usize))
        else {
            break;
        };
        let found = search.is_some_and(|search: &Search| search.matches(&row.label));
        let selected = model.interactive && model.table.selected == Some(position);
        draw_row(model, row, theme, &columns, found, Pen::new(buffer, rows, line));
        if selected {
            buffer.set_style(Rect { y: rows.y + line, height: 1, ..rows }, theme.chosen());
        }
    }
    if model.table.order.is_empty() {
        super::put(buffer, rows, 0, super::nothing(model), theme.quiet());
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
            SortKey::Inclusive(number) => ("all", number),
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

fn draw_row(model: &Model, row: &TableRow, theme: &Theme, columns: &Columns, found: bool, mut pen: Pen<'_>) {
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
    let label = if pinned { &format!("◆{}", row.label) } else { &row.label };
    let name = text::cut(label, pen.room().saturating_sub(columns.location + 1));
    let end = pen.room().saturating_sub(columns.location);
    pen.write(&name, if found { theme.found() } else { plain });
    pen.skip(end.saturating_sub(text::width(&name)));
    if columns.location > 0 {
        pen.write(&row.detail, theme.quiet());
    }
}
