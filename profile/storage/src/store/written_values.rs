//! Values on disk: what of each cell is written already, so that a flush writes only what is new.
//!
//! Owns: [`WrittenValues`]. Because: every context with values has an entry for as long as a capture lasts. Does not:
//! write.

use deepctx_profile::metric::Cell;

/// What of the cells of one metric is written, by index of the cell in the tree.
///
/// All samples of a timer weigh the same: then count and sum tell the sum of squares, which is kept for no cell.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenValues {
    totals: Vec<Totals>,
    /// Of every cell; `None` while those of all follow from their totals.
    squares: Option<Vec<u128>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    count: u64,
    sum: u64,
}

impl WrittenValues {
    /// What `cell` has more than is written; its smallest and largest value are those of all its values. `None` if
    /// everything is written.
    pub(super) fn news(&self, place: usize, cell: &Cell) -> Option<Cell> {
        let before = self.totals.get(place).copied().unwrap_or_default();
        (cell.count != before.count).then(|| Cell {
            count: cell.count.saturating_sub(before.count),
            sum: cell.sum.saturating_sub(before.sum),
            sum_squares: cell.sum_squares.saturating_sub(self.sum_squares(place)),
            ..*cell
        })
    }

    /// From now on, all of `cell` is written.
    pub(super) fn set(&mut self, place: usize, cell: &Cell) {
        let totals = Totals { count: cell.count, sum: cell.sum };
        if place >= self.totals.len() {
            self.totals.resize(place + 1, Totals::default());
        }
        if self.squares.is_none() && totals.squares_of_equal_values() != cell.sum_squares {
            self.squares = Some(self.totals.iter().map(Totals::squares_of_equal_values).collect());
        }
        self.totals[place] = totals;
        if let Some(squares) = &mut self.squares {
            squares.resize(self.totals.len(), 0);
            squares[place] = cell.sum_squares;
        }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        let squares = self.squares.as_ref().map_or(0, Vec::capacity);
        self.totals.capacity() * size_of::<Totals>() + squares * size_of::<u128>()
    }

    fn sum_squares(&self, place: usize) -> u128 {
        match &self.squares {
            Some(squares) => squares.get(place).copied().unwrap_or(0),
            None => self.totals.get(place).map_or(0, Totals::squares_of_equal_values),
        }
    }
}

impl Totals {
    /// The sum of squares if all values are equal.
    fn squares_of_equal_values(&self) -> u128 {
        let value = self.sum.checked_div(self.count).unwrap_or(0);
        Cell::repeated(self.count, value).sum_squares
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cell(values: &[u64]) -> Cell {
        let mut cell = Cell::EMPTY;
        values.iter().for_each(|value| cell.add(*value));
        cell
    }

    #[test]
    fn equal_values_need_no_squares() {
        let mut written = WrittenValues::default();
        written.set(2, &cell(&[7, 7, 7]));
        assert!(written.squares.is_none());
        assert_eq!(written.news(2, &cell(&[7, 7, 7])), None);
        assert_eq!(written.news(2, &cell(&[7, 7, 7, 7])), Some(cell(&[7])));
        assert_eq!(written.news(9, &cell(&[5])), Some(cell(&[5])));
        written.set(0, &cell(&[1, 2]));
        assert!(written.squares.is_some());
        assert_eq!(written.news(2, &cell(&[7, 7, 7, 7])), Some(cell(&[7])));
    }

    proptest! {
        #[test]
        fn news_add_up_to_the_cell(
            flushes in prop::collection::vec(prop::collection::vec((0usize..4, 1u64..4), 0..6), 0..8),
        ) {
            let mut cells = [Cell::EMPTY; 4];
            let mut sums = [Cell::EMPTY; 4];
            let mut written = WrittenValues::default();
            for flush in flushes {
                flush.iter().for_each(|&(place, value)| cells[place].add(value));
                for (place, cell) in cells.iter().enumerate() {
                    if let Some(news) = written.news(place, cell) {
                        sums[place].merge(&news);
                        written.set(place, cell);
                    }
                }
            }
            prop_assert_eq!(sums, cells);
        }
    }
}
