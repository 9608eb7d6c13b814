//! Events layout: where the lanes of a trace are, and the tables of a selected part below them.
//!
//! Owns: [`EventAreas`]. Because: a click must find the lane that was drawn. Does not: draw.

use ratatui::layout::Rect;

use super::areas::rows_area;

/// Lines of the tables, with their titles: a third of the screen, if that leaves room for lanes.
const TABLES_MIN: u16 = 4;
const TABLES_MAX: u16 = 16;

/// The parts of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventAreas {
    /// Times, above the lanes.
    pub(crate) axis: Rect,
    /// A line for each lane.
    pub(crate) lanes: Rect,
    /// Tables of the selected part; of height zero without one.
    pub(crate) tables: Rect,
}

impl EventAreas {
    pub(crate) fn of(body: Rect, has_tables: bool) -> Self {
        let wanted = (body.height / 5 * 2 + body.height % 5 * 2 / 5).min(TABLES_MAX);
        let tables = if has_tables && wanted >= TABLES_MIN { wanted } else { 0 };
        let upper = Rect { height: body.height - tables, ..body };
        let lanes = rows_area(upper);
        Self {
            axis: Rect { height: upper.height - lanes.height, ..upper },
            lanes,
            tables: Rect { y: upper.bottom(), height: tables, ..body },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_body() {
        for (height, has_tables, expect) in [
            (19, false, [1, 18, 0]),
            (19, true, [1, 11, 7]),
            (6, true, [1, 5, 0]),
            (2, true, [0, 2, 0]),
            (0, true, [0; 3]),
            (u16::MAX - 3, true, [1, u16::MAX - 20, 16]),
        ] {
            let areas = EventAreas::of(Rect::new(0, 3, 80, height), has_tables);
            assert_eq!([areas.axis, areas.lanes, areas.tables].map(|area| area.height), expect, "{height}");
        }
    }
}
