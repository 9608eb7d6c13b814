//! The calling context tree: who called whom, and at what cost.
//!
//! Owns: nodes (parent and frame), and the exclusive figures of each metric at each node. Because: adding a stack
//! costs one lookup per frame and no copy, and equal contexts share everything. Does not: know what frames mean, or
//! sort.
//!
//! ```text
//!   nodes                              children              columns[cpu-time] (see `column`)
//!   ┌───┬────────┬───────┬─────────┐   first: in the node    places          cells
//!   │ 0 │ parent │ frame │ first ──┼─▶ others: a table,      ┌───┐           ┌─────────────────────┐
//!   │ 1 │        │       │         │   (parent, frame)       │ – │     ┌────▶│ count sum min max … │
//!   │ 2 │        │       │         │     └▶ node             │ 0 ┼─────┘     └─────────────────────┘
//!   └───┴────────┴───────┴─────────┘                         └───┘
//! ```
//!
//! Most nodes have one child, so the first child sits in the node itself: descending an existing stack then costs a
//! load and a comparison per frame, and only side branches pay for hashing. Only nodes with values own a cell. A
//! parent's number is always below its children's, so one backward pass computes all inclusive values.

mod column;
mod places;
mod trie;

pub(crate) use trie::Trie;

use crate::frame::Frame;
use crate::intern::{FrameId, Id};
use crate::metric::{Cell, Metric};
use crate::owner::{Owner, OwnerShares};
use column::Column;

/// Handle of a node.
pub type NodeId = Id<Node>;

/// One calling context: a frame below a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The caller's context; the root is its own parent.
    pub parent: NodeId,
    /// What is called.
    pub frame: FrameId,
}

impl NodeId {
    /// The root of every tree.
    pub const ROOT: NodeId = NodeId::from_number(0);
}

/// A calling context tree with its exclusive figures.
#[derive(Clone, Debug)]
pub struct Tree {
    shape: Trie<Frame>,
    columns: Vec<Column>,
    /// Figures since they were last taken; empty if nobody takes them.
    recent: Vec<Column>,
    nodes_max: usize,
    /// `[tree full]` nodes: they come on top of `nodes_max`.
    full_nodes: usize,
    shares: OwnerShares,
}

/// Figures of one metric at some nodes.
pub type MetricCells = (Metric, Vec<(NodeId, Cell)>);

impl Tree {
    /// A tree that grows to `nodes_max` nodes.
    ///
    /// Beyond that, each node may get one more child, `[tree full]`, for everything that would be below it. So memory
    /// is bounded by twice `nodes_max`, sums stay right, and gaps show where they are.
    pub fn new(nodes_max: usize) -> Self {
        Tree {
            shape: Trie::new(FrameId::ROOT),
            columns: vec![Column::default(); Metric::COUNT],
            recent: Vec::new(),
            // Half the number space, so that the `[tree full]` nodes can always be numbered.
            nodes_max: nodes_max.min(u32::MAX as usize / 2),
            full_nodes: 0,
            shares: OwnerShares::default(),
        }
    }

    /// From now on, new nodes count as this owner's.
    #[inline]
    pub(crate) fn grow_for(&mut self, owner: Owner) {
        self.shares.grow_for(owner);
    }

    /// The owner of new nodes.
    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        self.shares.owner()
    }

    /// The child of `parent` with this frame, created if needed.
    #[inline]
    pub fn child(&mut self, parent: NodeId, frame: FrameId) -> NodeId {
        match self.shape.find(parent.number(), frame) {
            Some(node) => NodeId::from_number(node),
            None => self.new_child(parent, frame),
        }
    }

    #[cold]
    fn new_child(&mut self, parent: NodeId, frame: FrameId) -> NodeId {
        let nodes = self.shape.len();
        if self.shares.take(nodes - self.full_nodes, 1, self.nodes_max).is_ok() {
            return NodeId::from_number(self.shape.insert(parent.number(), frame));
        }
        if self.shape.key(parent.number()) == FrameId::TREE_FULL {
            return parent;
        }
        let full = self.shape.find_or_insert(parent.number(), FrameId::TREE_FULL);
        self.full_nodes += self.shape.len() - nodes;
        NodeId::from_number(full)
    }

    /// The node at the end of a path of frames below `from`, root first, created if needed.
    #[inline]
    pub fn path(&mut self, from: NodeId, frames: impl IntoIterator<Item = FrameId>) -> NodeId {
        frames.into_iter().fold(from, |node, frame| self.child(node, frame))
    }

    /// Adds one value at a node.
    #[inline]
    pub fn add(&mut self, node: NodeId, metric: Metric, value: u64) {
        self.columns[metric.index()].add(node, value);
        if let Some(recent) = self.recent.get_mut(metric.index()) {
            recent.add(node, value);
        }
    }

    /// Adds the values of a cell at a node.
    pub fn add_cell(&mut self, node: NodeId, metric: Metric, values: &Cell) {
        if !values.is_empty() {
            self.columns[metric.index()].merge(node, values);
            if let Some(recent) = self.recent.get_mut(metric.index()) {
                recent.merge(node, values);
            }
        }
    }

    /// From now on, also keeps additions separately, for [`Tree::take_recent`].
    pub fn keep_recent(&mut self) {
        self.recent = vec![Column::default(); Metric::COUNT];
    }

    /// Figures added since [`Tree::take_recent`].
    pub fn recent(&self) -> impl Iterator<Item = (Metric, NodeId, Cell)> {
        let columns = Metric::ALL.iter().zip(&self.recent);
        columns.flat_map(|(&metric, column)| column.iter().map(move |(node, cell)| (metric, node, cell)))
    }

    /// Figures added since the last call, by metric; empty unless [`Tree::keep_recent`] was called.
    pub fn take_recent(&mut self) -> Vec<MetricCells> {
        let columns = Metric::ALL.iter().zip(&mut self.recent);
        let taken = columns.map(|(&metric, column)| (metric, column.take()));
        taken.filter(|(_, cells)| !cells.is_empty()).collect()
    }

    /// Adds all of `other`; `frame` maps its frames to frames of this tree.
    pub fn merge(&mut self, other: &Tree, mut frame: impl FnMut(FrameId) -> FrameId) {
        let mut here = Vec::with_capacity(other.len());
        here.push(NodeId::ROOT);
        for node in other.nodes().skip(1) {
            here.push(self.child(here[node.parent.index()], frame(node.frame)));
        }
        for (&metric, column) in Metric::ALL.iter().zip(&other.columns) {
            for (node, cell) in column.iter() {
                self.add_cell(here[node.index()], metric, &cell);
            }
        }
        self.shares.merge_refused(&other.shares);
    }

    /// The node of a handle; the root for a handle of another tree.
    pub fn node(&self, id: NodeId) -> Node {
        let number = if id.index() < self.len() { id.number() } else { 0 };
        Node { parent: NodeId::from_number(self.shape.parent(number)), frame: self.shape.key(number) }
    }

    /// All nodes by number; parents precede their children.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = Node> + '_ {
        (0..self.len()).map(|number| self.node(NodeId::from_number(number as u32)))
    }

    /// Number of nodes, including the root.
    pub fn len(&self) -> usize {
        self.shape.len()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let columns = self.columns.iter().chain(&self.recent);
        self.shape.bytes() + columns.map(Column::bytes).sum::<usize>()
    }

    /// Whether it has only the root.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Look-ups of new contexts that ended in a `[tree full]` node because the tree was full.
    pub fn refused(&self) -> u64 {
        self.shares.full()
    }

    /// The same because their owner had enough of it.
    pub(crate) fn share_refused(&self) -> u64 {
        self.shares.refused()
    }

    /// Exclusive figures of a node.
    pub fn exclusive(&self, node: NodeId, metric: Metric) -> Cell {
        self.columns[metric.index()].get(node).unwrap_or_default()
    }

    /// Figures of every node that has any, in no particular order.
    pub fn cells(&self, metric: Metric) -> impl Iterator<Item = (NodeId, Cell)> {
        self.columns[metric.index()].iter()
    }

    /// Like [`Tree::cells`], with the index of each cell: a number that never changes, below the count of cells.
    pub fn placed_cells(&self, metric: Metric) -> impl Iterator<Item = (NodeId, usize, Cell)> {
        self.columns[metric.index()].placed()
    }

    /// Metrics that have values.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        Metric::ALL.iter().copied().filter(|m| !self.columns[m.index()].is_empty())
    }

    /// Those of them whose values add up.
    pub fn metrics_with_sum(&self) -> impl Iterator<Item = Metric> + '_ {
        self.metrics().filter(|metric| metric.adds_up())
    }

    /// Whether [`Tree::total`] of a metric is above zero: ends at the first such value.
    pub fn has(&self, metric: Metric) -> bool {
        self.columns[metric.index()].has_sum()
    }

    /// Figures of the whole tree.
    pub fn total(&self, metric: Metric) -> Cell {
        self.columns[metric.index()].total()
    }

    /// Sums of every node and all below it, by node number.
    pub fn inclusive(&self, metric: Metric) -> Vec<u64> {
        let mut sums = vec![0u64; self.len()];
        for (node, cell) in self.cells(metric) {
            sums[node.index()] = cell.sum;
        }
        for number in (1..self.len()).rev() {
            let parent = self.shape.parent(number as u32) as usize;
            sums[parent] = sums[parent].saturating_add(sums[number]);
        }
        sums
    }

    /// Frames from the root (excluded) to the node.
    pub fn stack(&self, node: NodeId) -> Vec<FrameId> {
        let mut frames = Vec::new();
        let mut at = node;
        while at != NodeId::ROOT {
            let Node { parent, frame, .. } = self.node(at);
            frames.push(frame);
            at = parent;
        }
        frames.reverse();
        frames
    }
}

#[cfg(test)]
mod tests;
