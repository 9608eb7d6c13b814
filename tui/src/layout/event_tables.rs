//! Event tables layout: which columns of a table have room, and how wide they are.
//!
//! Owns: [`TableColumns`]. Because: ten figures must fit a terminal of 80 columns. Does not: draw.

use deepctx_profile::view::event_tables::EventTable;

use crate::text;

/// Minimum width of a text.
const TEXT_MIN: usize = 8;

/// The columns with room, from the left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableColumns {
    /// Width of each, without the space before it.
    pub(crate) widths: Vec<usize>,
    /// Number of the others.
    pub(crate) left_out: usize,
}

impl TableColumns {
    pub(crate) fn of(table: &EventTable, width: usize) -> Self {
        let mut room = width;
        let mut widths = Vec::new();
        for (place, column) in table.columns.iter().enumerate() {
            let free = room.saturating_sub(1);
            let wanted = wanted(table, place, &column.title);
            let texts = table.columns.iter().skip(place).filter(|column| !column.is_number).count();
            // Texts share what is left.
            let own = match column.is_number {
                true => wanted,
                false => wanted.min((free / texts.max(1)).max(TEXT_MIN)),
            };
            if own > free {
                break;
            }
            widths.push(own);
            room = free - own;
        }
        let left_out = table.columns.len() - widths.len();
        Self { widths, left_out }
    }
}

/// Width of the widest cell, or of the widest word of the title.
fn wanted(table: &EventTable, place: usize, title: &str) -> usize {
    let cells = table.rows.iter().filter_map(|row| row.get(place)).map(|cell| text::width(cell));
    cells.chain(title.split(' ').map(text::width)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use deepctx_profile::view::event_tables::EventColumn;

    use super::*;

    #[test]
    fn columns_without_room_are_counted() {
        let column = |title: &str, is_number| EventColumn { title: title.to_owned(), is_number };
        let table = EventTable {
            columns: vec![
                column("Rank", true),
                column("Late launch", true),
                column("Because of", false),
                column("What", false),
            ],
            rows: vec![vec!["12".to_owned(), "1.00 ms".to_owned(), "a".repeat(30), "b".repeat(30)]],
            ..EventTable::default()
        };
        let check = |width, widths: &[usize], left_out| {
            let expect = TableColumns { widths: widths.to_vec(), left_out };
            assert_eq!(TableColumns::of(&table, width), expect, "{width}");
        };
        check(200, &[4, 7, 30, 30], 0);
        check(55, &[4, 7, 20, 20], 0);
        check(25, &[4, 7, 8], 1);
        check(13, &[4, 7], 2);
        check(12, &[4], 3);
        check(0, &[], 4);
    }
}
