//! Events layout: where the lanes of a trace are, and the tables below them.
//!
//! Owns: [`EventAreas`]. Because: a click must find the lane that was drawn. Does not: draw.

use ratatui::layout::Rect;

use super::areas::rows_area;

/// Lines of the tables, with their titles, if that leaves room for lanes: of a selection two fifths of the screen, of
/// an analysis three.
const TABLES_MIN: u16 = 4;
const TABLES_MAX: u16 = 16;
const ANALYSIS_MAX: u16 = 24;

/// What is below the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BelowLanes {
    Nothing,
    /// The tables of the selected part.
    Selection,
    /// A table over all events.
    Analysis,
}

/// The parts of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventAreas {
    /// Times, above the lanes.
    pub(crate) axis: Rect,
    /// A line for each lane.
    pub(crate) lanes: Rect,
    /// What is below them; of height zero without anything.
    pub(crate) tables: Rect,
}

impl EventAreas {
    pub(crate) fn of(body: Rect, below: BelowLanes) -> Self {
        // Without a product, which the highest terminal would overflow.
        let fifths = |count: u16| body.height / 5 * count + body.height % 5 * count / 5;
        let wanted = match below {
            BelowLanes::Nothing => 0,
            BelowLanes::Selection => fifths(2).min(TABLES_MAX),
            BelowLanes::Analysis => fifths(3).min(ANALYSIS_MAX),
        };
        let tables = if wanted >= TABLES_MIN { wanted } else { 0 };
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
        use BelowLanes::{Analysis, Nothing, Selection};

        for (height, below, expect) in [
            (19, Nothing, [1, 18, 0]),
            (19, Selection, [1, 11, 7]),
            (19, Analysis, [1, 7, 11]),
            (6, Selection, [1, 5, 0]),
            (6, Analysis, [1, 5, 0]),
            (2, Selection, [0, 2, 0]),
            (0, Selection, [0; 3]),
            (0, Analysis, [0; 3]),
            (u16::MAX - 3, Selection, [1, u16::MAX - 20, 16]),
            (u16::MAX - 3, Analysis, [1, u16::MAX - 28, 24]),
        ] {
            let areas = EventAreas::of(Rect::new(0, 3, 80, height), below);
            assert_eq!([areas.axis, areas.lanes, areas.tables].map(|area| area.height), expect, "{height}");
        }
    }
}
