//! Columns: the exclusive figures of one metric.
//!
//! Owns: [`Column`]: the figures, and in which form they are kept. Because: nearly all values of a long capture are
//! samples of one timer, which all weigh the same: of such values, count and value say all, in a third of the memory.
//! Does not: know the shape of the tree, or how a node's cell is found (`places`).

use super::NodeId;
use super::places::Places;
use crate::metric::Cell;

/// Figures of one metric.
#[derive(Clone, Debug, Default)]
pub(super) struct Column {
    places: Places,
    cells: Cells,
}

/// Figures, in the order in which nodes got them.
#[derive(Clone, Debug)]
enum Cells {
    /// The values of each cell are equal.
    Equal(Vec<EqualValues>),
    /// Those of some cell are not.
    Any(Vec<Cell>),
}

/// This many times the same value.
#[derive(Clone, Copy, Debug, Default)]
struct EqualValues {
    count: u64,
    value: u64,
}

impl Column {
    /// Adds one value at a node.
    #[inline]
    pub(super) fn add(&mut self, node: NodeId, value: u64) {
        let place = self.place(node);
        if let Cells::Equal(cells) = &mut self.cells {
            if cells[place].add(EqualValues { count: 1, value }) {
                return;
            }
            self.cells.widen();
        }
        if let Cells::Any(cells) = &mut self.cells {
            cells[place].add(value);
        }
    }

    /// Adds the values of a cell at a node.
    pub(super) fn merge(&mut self, node: NodeId, values: &Cell) {
        let place = self.place(node);
        if let Cells::Equal(cells) = &mut self.cells {
            if EqualValues::of(values).is_some_and(|values| cells[place].add(values)) {
                return;
            }
            self.cells.widen();
        }
        if let Cells::Any(cells) = &mut self.cells {
            cells[place].merge(values);
        }
    }

    /// Index of a node's cell, which is empty if it is new.
    #[inline]
    fn place(&mut self, node: NodeId) -> usize {
        match self.places.get(node) {
            Some(place) => place,
            None => self.new_place(node),
        }
    }

    fn new_place(&mut self, node: NodeId) -> usize {
        let place = self.cells.len();
        self.cells.push_empty();
        self.places.insert(node, place);
        place
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.places.bytes() + self.cells.bytes()
    }

    /// Whether no node has figures.
    pub(super) fn is_empty(&self) -> bool {
        self.cells.len() == 0
    }

    /// All cells, by node; nodes have none then.
    pub(super) fn take(&mut self) -> Vec<(NodeId, Cell)> {
        let taken = self.iter().collect();
        *self = Self::default();
        taken
    }

    /// Figures of a node that has any.
    pub(super) fn get(&self, node: NodeId) -> Option<Cell> {
        self.cells.get(self.places.get(node)?)
    }

    /// All cells, by node.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, Cell)> {
        self.placed().map(|(node, _, cell)| (node, cell))
    }

    /// All cells, by node, with the index of each.
    pub(super) fn placed(&self) -> impl Iterator<Item = (NodeId, usize, Cell)> {
        self.places.iter().filter_map(|(node, place)| Some((node, place, self.cells.get(place)?)))
    }

    /// Whether the values of any node have a sum above zero: ends at the first such cell.
    pub(super) fn has_sum(&self) -> bool {
        match &self.cells {
            Cells::Equal(cells) => cells.iter().any(|values| values.count > 0 && values.value > 0),
            Cells::Any(cells) => cells.iter().any(|cell| cell.sum > 0),
        }
    }

    /// All values together.
    pub(super) fn total(&self) -> Cell {
        let mut total = Cell::EMPTY;
        match &self.cells {
            Cells::Equal(cells) => cells.iter().for_each(|values| total.merge(&values.cell())),
            Cells::Any(cells) => cells.iter().for_each(|cell| total.merge(cell)),
        }
        total
    }
}

impl Cells {
    /// Appends an empty cell.
    fn push_empty(&mut self) {
        match self {
            Cells::Equal(cells) => cells.push(EqualValues::default()),
            Cells::Any(cells) => cells.push(Cell::EMPTY),
        }
    }

    /// From now on, the values of a cell may differ.
    #[cold]
    fn widen(&mut self) {
        if let Cells::Equal(cells) = self {
            *self = Cells::Any(cells.iter().map(|values| values.cell()).collect());
        }
    }

    fn get(&self, place: usize) -> Option<Cell> {
        match self {
            Cells::Equal(cells) => cells.get(place).map(|values| values.cell()),
            Cells::Any(cells) => cells.get(place).copied(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Cells::Equal(cells) => cells.len(),
            Cells::Any(cells) => cells.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Cells::Equal(cells) => cells.capacity() * size_of::<EqualValues>(),
            Cells::Any(cells) => cells.capacity() * size_of::<Cell>(),
        }
    }
}

impl Default for Cells {
    fn default() -> Self {
        Cells::Equal(Vec::new())
    }
}

impl EqualValues {
    /// The values of a cell; `None` if they are not equal, or if there are none.
    fn of(cell: &Cell) -> Option<Self> {
        let values = EqualValues { count: cell.count, value: cell.min };
        // A stored cell may contradict itself, and stays as it is.
        (!cell.is_empty() && values.cell() == *cell).then_some(values)
    }

    /// Adds more of the same value; false, without a change, if it is another one.
    #[inline]
    fn add(&mut self, more: EqualValues) -> bool {
        let is_equal = self.count == 0 || self.value == more.value;
        if is_equal {
            *self = EqualValues { count: self.count.saturating_add(more.count), value: more.value };
        }
        is_equal
    }

    fn cell(self) -> Cell {
        Cell::repeated(self.count, self.value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::from_number(number)
    }

    #[test]
    fn equal_values_take_a_third_of_the_memory() {
        let mut column = Column::default();
        (0..1000).for_each(|number| column.add(node(number), 10_101_010));
        (0..1000).for_each(|number| column.add(node(number), 10_101_010));
        assert!(matches!(&column.cells, Cells::Equal(cells) if cells.len() == 1000));
        assert_eq!(3 * size_of::<EqualValues>(), size_of::<Cell>());
    }

    #[test]
    fn a_cell_that_contradicts_itself_stays_as_it_is() {
        let mut column = Column::default();
        let cell = Cell { count: 3, sum: 10, min: 2, max: 2, sum_squares: 1 };
        column.merge(node(1), &cell);
        assert_eq!(column.get(node(1)), Some(cell));
    }

    proptest! {
        #[test]
        fn figures_are_those_of_single_cells(
            values in prop::collection::vec((0u32..5, prop_oneof![Just(7u64), Just(u64::MAX), 0u64..3], any::<bool>()), 0..40),
        ) {
            let (mut column, mut cells) = (Column::default(), [Cell::EMPTY; 5]);
            for (number, value, merged) in values {
                let mut cell = Cell::EMPTY;
                cell.add(value);
                if merged { column.merge(node(number), &cell) } else { column.add(node(number), value) }
                cells[number as usize].add(value);
            }
            let mut total = Cell::EMPTY;
            for (number, cell) in (0u32..).zip(&cells) {
                total.merge(cell);
                prop_assert_eq!(column.get(node(number)).unwrap_or_default(), *cell);
            }
            prop_assert_eq!(column.total(), total);
            prop_assert_eq!(column.has_sum(), total.sum > 0);
            let taken = column.take();
            prop_assert_eq!(taken.len(), cells.iter().filter(|cell| !cell.is_empty()).count());
            prop_assert!(column.is_empty() && column.get(node(0)).is_none());
        }
    }
}
