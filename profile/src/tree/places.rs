//! Places: which cell of a column belongs to a node.
//!
//! Owns: [`Places`], which takes memory either by node or by cell, whichever is less. Because: most metrics have values
//! at few of the nodes, and what was added recently is always little beside the whole. Does not: know what a cell is.

use deepctx_common::memory::table_bytes;
use rustc_hash::FxHashMap;

use super::NodeId;

/// The numbers of some nodes' cells.
#[derive(Clone, Debug)]
pub(super) enum Places {
    /// By node: the number of its cell. No node is above the last.
    Few { table: FxHashMap<u32, u32>, last: usize },
    /// By node: the number of its cell plus one, 0 for none. May be shorter than the tree.
    Many(Vec<u32>),
}

/// A table entry takes up to five times the memory of a number of a vector, and is slower: beyond one cell for this
/// many nodes, a vector is used.
const NODES_PER_CELL: usize = 4;
/// Once there are this many nodes for each cell, the vector becomes a table again: far from the other bound, so that
/// neither change comes often.
const NODES_PER_CELL_MOST: usize = 4 * NODES_PER_CELL;

impl Default for Places {
    fn default() -> Self {
        Places::Few { table: FxHashMap::default(), last: 0 }
    }
}

impl Places {
    /// The number of a node's cell, if it has one.
    #[inline]
    pub(super) fn get(&self, node: NodeId) -> Option<usize> {
        match self {
            Places::Few { table, .. } => table.get(&node.number()).map(|&place| place as usize),
            Places::Many(places) => (*places.get(node.index())? as usize).checked_sub(1),
        }
    }

    /// Cell number `cells` is this node's, which had none: there are `cells + 1` from now on.
    pub(super) fn insert(&mut self, node: NodeId, cells: usize) {
        let index = node.index();
        match self {
            Places::Few { last, .. } if (cells + 1) * NODES_PER_CELL > index.max(*last) => self.use_vector(),
            Places::Many(places) if index >= places.len() && (cells + 1) * NODES_PER_CELL_MOST < index => {
                self.use_table();
            }
            _ => {}
        }
        // At most one cell per node, and nodes are numbered by u32.
        let place = cells as u32;
        match self {
            Places::Few { table, last } => {
                table.insert(node.number(), place);
                *last = index.max(*last);
            }
            Places::Many(places) => {
                if index >= places.len() {
                    places.resize(index + 1, 0);
                }
                places[index] = place + 1;
            }
        }
    }

    #[cold]
    fn use_vector(&mut self) {
        let mut places = Vec::new();
        for (node, place) in self.iter() {
            places.resize(node.index(), 0);
            places.push(place as u32 + 1);
        }
        *self = Places::Many(places);
    }

    #[cold]
    fn use_table(&mut self) {
        let (mut table, mut last) = (FxHashMap::default(), 0);
        // By node, so the last one is the highest.
        for (node, place) in self.iter() {
            table.insert(node.number(), place as u32);
            last = node.index();
        }
        *self = Places::Few { table, last };
    }

    /// All nodes with a cell, by node, and the number of each cell.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, usize)> {
        let (few, many) = match self {
            Places::Few { table, .. } => {
                let mut few: Vec<(u32, u32)> = table.iter().map(|(&node, &place)| (node, place)).collect();
                few.sort_unstable();
                (few, &[][..])
            }
            Places::Many(places) => (Vec::new(), places.as_slice()),
        };
        let few = few.into_iter().map(|(node, place)| (NodeId::from_number(node), place as usize));
        let many = (0u32..).map(NodeId::from_number).zip(many);
        few.chain(many.filter_map(|(node, &place)| Some((node, (place as usize).checked_sub(1)?))))
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Places::Few { table, .. } => table_bytes(table.capacity(), size_of::<(u32, u32)>()),
            Places::Many(places) => places.capacity() * size_of::<u32>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Places after cells for these nodes were made one after another.
    fn places(nodes: impl IntoIterator<Item = u32>) -> Places {
        let mut places = Places::default();
        for (cell, node) in nodes.into_iter().enumerate() {
            places.insert(NodeId::from_number(node), cell);
        }
        places
    }

    #[test]
    fn a_few_of_many_nodes_take_little() {
        let few = places((1..=100).map(|n| n * 1000));
        assert!(matches!(few, Places::Few { .. }) && few.bytes() < 4096, "{few:?}");
    }

    #[test]
    fn a_low_node_does_not_make_a_few_many() {
        let few = places([1_000_000, 1, 2, 3]);
        assert!(matches!(few, Places::Few { .. }), "{few:?}");
    }

    #[test]
    fn most_of_the_nodes_take_a_number_each() {
        let many = places(0..1000);
        assert!(matches!(many, Places::Many(_)) && many.bytes() <= 8192, "{many:?}");
    }

    #[test]
    fn a_metric_that_no_new_node_has_becomes_small() {
        let places = places((0..100).chain([1_000_000]));
        assert!(matches!(places, Places::Few { .. }), "{places:?}");
        assert_eq!(places.get(NodeId::from_number(1_000_000)), Some(100));
        assert_eq!(places.get(NodeId::from_number(99)), Some(99));
    }

    proptest! {
        #[test]
        fn each_node_keeps_its_place(
            nodes in prop::collection::hash_set(prop_oneof![0u32..50, 0u32..5000, 0u32..1_000_000], 0..200),
        ) {
            let nodes: Vec<u32> = nodes.into_iter().collect();
            let places = places(nodes.iter().copied());
            let expect: BTreeMap<u32, usize> = nodes.iter().enumerate().map(|(cell, &node)| (node, cell)).collect();
            for (&node, &cell) in &expect {
                prop_assert_eq!(places.get(NodeId::from_number(node)), Some(cell));
            }
            prop_assert_eq!(places.get(NodeId::from_number(2_000_000)), None);
            let all: Vec<(u32, usize)> = places.iter().map(|(node, place)| (node.number(), place)).collect();
            prop_assert_eq!(all, expect.into_iter().collect::<Vec<_>>());
        }
    }
}
