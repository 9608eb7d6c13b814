//! Graphs: the nodes captured into them, and which of these a launch runs.
//!
//! Owns: the nodes of captured graphs with the contexts that captured them, and the mapping from nodes of a running
//! graph to captured nodes. Because: all kernels of a graph share one launch, which says nothing about the code that
//! each comes from. Does not: see graphs that were created before the profiler attached.
//!
//! The profiling interface renumbers the nodes of a launched graph. A collector reports each number when a node is
//! created or cloned, which makes the mapping exact. Where the numbers were not reported (another tool's records; a
//! graph that was created before the collector listened; one that was updated), they are assumed to follow the order
//! in which nodes were captured: once as many have arrived, the smallest is the first captured, and so on, provided
//! the names agree. Until then, and where names do not agree, the numbers of a name are assigned in order of arrival.

use std::collections::BTreeMap;
use std::sync::Arc;

use deepctx_common::activity;
use deepctx_profile::intern::FrameId;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

/// Graphs, and as many launchable ones, remembered per process: serving engines keep one for each batch size.
const GRAPHS_MAX: usize = 1 << 12;
/// Nodes of a graph that are remembered. Whole training steps have some ten thousand.
const NODES_MAX: usize = 1 << 16;
/// Nodes of all launchable graphs of a process, each of which takes some tens of bytes again: two hundred graphs of
/// ten thousand nodes.
const INSTANCE_NODES_MAX: usize = 1 << 21;

/// Numbers of nodes that are remembered: those of the graphs themselves, and of each launchable instance.
const NUMBERS_MAX: usize = 1 << 18;
/// Contexts of such nodes below the launches of their graphs.
const BELOW_MAX: usize = 1 << 18;
/// Launch contexts of a graph below which the contexts of its nodes are remembered.
const PLACES_MAX: usize = 64;

/// One node of a graph, as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedNode {
    /// Its context when it was recorded, itself included.
    pub(super) node: NodeId,
    /// What it is, as a frame.
    pub(super) frame: FrameId,
    /// Its kind.
    pub(super) what: NodeKind,
    /// Bytes that it copies or fills.
    pub(super) bytes: u64,
    /// Its number in recording order ([`super::graph_order`]); 0 for none.
    pub(super) order: u64,
}

/// Kind of a recorded node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// A kernel.
    Kernel,
    /// A kernel that no call named.
    KernelUnnamed,
    /// A copy or a fill.
    Transfer,
}

impl NodeKind {
    /// Whether it is a node of this kind: [`activity::node`].
    fn is(self, kind: u64) -> bool {
        match self {
            Self::Kernel | Self::KernelUnnamed => kind == activity::node::KERNEL,
            Self::Transfer => kind == activity::node::COPY || kind == activity::node::FILL,
        }
    }
}

type Nodes = Arc<Vec<RecordedNode>>;

/// A launchable graph.
#[derive(Debug, Default)]
pub(super) struct LaunchableGraph {
    nodes: Nodes,
    /// Reported numbers and the names that came with them, while there are too few to decide.
    learning: BTreeMap<u64, FrameId>,
    /// Indices into `nodes` by number.
    places: FxHashMap<u64, usize>,
    /// Indices into `nodes` by name, and how many of them have a number.
    named: FxHashMap<FrameId, (Vec<usize>, usize)>,
    /// It runs another graph than it was made from: its nodes have the numbers of the first.
    pub(super) updated: bool,
    /// All numbers are known: they came in recording order, and the names agreed.
    learned: bool,
    /// Contexts of the nodes below each context that launched it.
    contexts: FxHashMap<NodeId, Arc<Vec<NodeId>>>,
}

/// The graphs of one process.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    recording: FxHashMap<u64, Vec<RecordedNode>>,
    graphs: FxHashMap<u64, Nodes>,
    launchable: FxHashMap<u64, LaunchableGraph>,
    /// Nodes of all launchable graphs.
    instance_nodes: usize,
    /// The latest recorded node of each thread, until its number is known.
    latest: FxHashMap<u32, RecordedNode>,
    /// Nodes by reported number.
    numbered: FxHashMap<u64, RecordedNode>,
    /// Contexts by the launch of the graph and the context that recorded the node.
    below: FxHashMap<(NodeId, NodeId), NodeId>,
    left_out: u64,
}

impl Graphs {
    /// A thread records something: the next node that it makes is this one.
    pub(super) fn recording_by(&mut self, tid: u32, node: RecordedNode) {
        // One per thread; those of ended threads are dropped with all others.
        if self.latest.len() >= GRAPHS_MAX {
            self.latest.clear();
        }
        self.latest.insert(tid, node);
    }

    /// A thread makes another call.
    pub(super) fn next_call_of(&mut self, tid: u32) {
        if !self.latest.is_empty() {
            self.latest.remove(&tid);
        }
    }

    /// A thread made a node of this kind, with this number.
    pub(super) fn made(&mut self, tid: u32, number: u64, kind: u64) {
        if let Some(node) = self.latest.remove(&tid)
            && node.what.is(kind)
        {
            self.number(number, node);
        }
    }

    /// A node was cloned.
    pub(super) fn cloned_node(&mut self, number: u64, of: u64) {
        if let Some(node) = self.numbered.get(&of).copied() {
            self.number(number, node);
        }
    }

    fn number(&mut self, number: u64, node: RecordedNode) {
        if self.numbered.len() < NUMBERS_MAX || self.numbered.contains_key(&number) {
            self.numbered.insert(number, node);
        } else {
            self.left_out += 1;
        }
    }

    /// The context of a node by its number, when its graph is launched from a context; `make` makes it. `None` if its
    /// number was not reported.
    pub(super) fn numbered(
        &mut self,
        launch: NodeId,
        number: u64,
        make: impl FnOnce(&RecordedNode) -> NodeId,
    ) -> Option<NodeId> {
        let recorded = self.numbered.get(&number)?;
        // Not by number: it may have been given to another node since.
        let key = (launch, recorded.node);
        if let Some(node) = self.below.get(&key) {
            return Some(*node);
        }
        let node = make(recorded);
        if self.below.len() >= BELOW_MAX {
            self.below.clear();
        }
        self.below.insert(key, node);
        Some(node)
    }

    /// A node was added to a recording.
    pub(super) fn record(&mut self, recording: u64, node: RecordedNode) {
        if self.recording.len() >= GRAPHS_MAX && !self.recording.contains_key(&recording) {
            self.left_out += 1;
            return;
        }
        let nodes = self.recording.entry(recording).or_default();
        if nodes.len() < NODES_MAX { nodes.push(node) } else { self.left_out += 1 }
    }

    /// A recording became a graph; 0 if nobody reported which.
    pub(super) fn recorded(&mut self, recording: u64, graph: u64) {
        let nodes = self.recording.remove(&recording).unwrap_or_default();
        if graph != 0 {
            self.put(graph, Arc::new(nodes));
        }
    }

    fn put(&mut self, graph: u64, nodes: Nodes) {
        if self.graphs.len() >= GRAPHS_MAX && !self.graphs.contains_key(&graph) {
            self.left_out += self.graphs.len() as u64;
            self.graphs.clear();
        }
        self.graphs.insert(graph, nodes);
    }

    /// A node was added to a graph by hand.
    pub(super) fn add(&mut self, graph: u64, node: RecordedNode) {
        if !self.graphs.contains_key(&graph) {
            self.put(graph, Nodes::default());
        }
        match self.graphs.get_mut(&graph) {
            Some(nodes) if nodes.len() < NODES_MAX => Arc::make_mut(nodes).push(node),
            _ => self.left_out += 1,
        }
    }

    /// The numbers of the nodes of a graph, in recording order.
    pub(super) fn orders(&self, graph: u64) -> Vec<u64> {
        let nodes = self.graphs.get(&graph).map_or(&[][..], |nodes| nodes);
        nodes.iter().map(|node| node.order).collect()
    }

    /// A graph is a copy of another.
    pub(super) fn cloned(&mut self, graph: u64, of: u64) {
        if let Some(nodes) = self.graphs.get(&of).cloned() {
            self.put(graph, nodes);
        }
    }

    /// A graph was made launchable.
    pub(super) fn instantiated(&mut self, launchable: u64, graph: u64) {
        self.released(launchable);
        let Some(nodes) = self.graphs.get(&graph).cloned() else { return };
        let instance_nodes = self.instance_nodes + nodes.len();
        if self.launchable.len() >= GRAPHS_MAX || instance_nodes > INSTANCE_NODES_MAX {
            self.left_out += 1;
            return;
        }
        self.instance_nodes = instance_nodes;
        let mut named: FxHashMap<FrameId, (Vec<usize>, usize)> = FxHashMap::default();
        for (place, node) in nodes.iter().enumerate() {
            named.entry(node.frame).or_default().0.push(place);
        }
        self.launchable.insert(launchable, LaunchableGraph { nodes, named, ..LaunchableGraph::default() });
    }

    /// A launchable graph was updated to run another graph.
    pub(super) fn updated(&mut self, launchable: u64, graph: u64) {
        self.instantiated(launchable, graph);
        if let Some(launchable) = self.launchable.get_mut(&launchable) {
            launchable.updated = true;
        }
    }

    /// A graph is gone; launchable ones that were made of it stay.
    pub(super) fn destroyed(&mut self, graph: u64) {
        self.graphs.remove(&graph);
    }

    /// A launchable graph is gone.
    pub(super) fn released(&mut self, launchable: u64) {
        if let Some(gone) = self.launchable.remove(&launchable) {
            self.instance_nodes -= gone.nodes.len();
        }
    }

    /// A launchable graph.
    pub(super) fn launchable(&mut self, launchable: u64) -> Option<&mut LaunchableGraph> {
        self.launchable.get_mut(&launchable)
    }

    /// The number in recording order of a launchable graph's node; `None` while it is not certain which node a number
    /// means.
    pub(super) fn order(&self, launchable: u64, number: u64) -> Option<u64> {
        let graph = self.launchable.get(&launchable);
        let reported = self.numbered.get(&number).filter(|_| graph.is_none_or(|graph| !graph.updated));
        let learned = || {
            let graph = graph.filter(|graph| graph.learned)?;
            graph.nodes.get(*graph.places.get(&number)?)
        };
        reported.or_else(learned).map(|node| node.order).filter(|order| *order != 0)
    }

    /// Nodes and graphs for which there was no room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl LaunchableGraph {
    /// Its nodes, in recording order.
    pub(super) fn nodes(&self) -> &[RecordedNode] {
        &self.nodes
    }

    /// The contexts of its nodes when launched from a context, in their order. `make` makes one.
    pub(super) fn contexts(
        &mut self,
        launch: NodeId,
        mut make: impl FnMut(&RecordedNode) -> NodeId,
    ) -> Arc<Vec<NodeId>> {
        let Self { nodes, contexts, .. } = self;
        if contexts.len() >= PLACES_MAX && !contexts.contains_key(&launch) {
            contexts.clear();
        }
        let made = contexts.entry(launch).or_insert_with(|| Arc::new(nodes.iter().map(&mut make).collect()));
        Arc::clone(made)
    }

    /// The index of the node that an activity belongs to, by the number that the profiling interface gave the node, and
    /// by the activity's frame.
    pub(super) fn place(&mut self, number: u64, frame: FrameId) -> Option<usize> {
        if let Some(place) = self.places.get(&number) {
            return Some(*place);
        }
        if self.learning.len() < self.nodes.len() {
            self.learning.insert(number, frame);
            if self.learning.len() == self.nodes.len() {
                self.learn();
                if let Some(place) = self.places.get(&number) {
                    return Some(*place);
                }
            }
        }
        let (places, taken) = self.named.get_mut(&frame)?;
        let place = places.get(*taken).or(places.last()).copied()?;
        if *taken < places.len() {
            *taken += 1;
            self.places.insert(number, place);
        }
        Some(place)
    }

    fn learn(&mut self) {
        let same = |(node, frame): (&RecordedNode, &FrameId)| match node.what {
            NodeKind::Kernel => node.frame == *frame,
            // The activity may word a transfer's direction, or a name that was unknown, differently.
            NodeKind::KernelUnnamed | NodeKind::Transfer => true,
        };
        if self.nodes.iter().zip(self.learning.values()).all(same) {
            self.places = self.learning.keys().copied().zip(0..).collect();
            self.learned = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u32) -> FrameId {
        FrameId::from_number(number)
    }

    fn recorded(name: u32) -> RecordedNode {
        let what = if name == 0 { NodeKind::KernelUnnamed } else { NodeKind::Kernel };
        RecordedNode {
            node: NodeId::from_number(name),
            frame: frame(name),
            what,
            bytes: 0,
            order: u64::from(name),
        }
    }

    fn launchable(names: &[u32]) -> Graphs {
        let mut graphs = Graphs::default();
        names.iter().for_each(|name| graphs.record(1, recorded(*name)));
        graphs.recorded(1, 0x100);
        graphs.instantiated(0x200, 0x100);
        graphs
    }

    fn names(graphs: &mut Graphs, launchable: u64) -> Option<Vec<u32>> {
        let graph = graphs.launchable(launchable)?;
        Some(graph.nodes().iter().map(|node| node.frame.number()).collect())
    }

    #[test]
    fn nodes_of_equal_name_are_separate_once_all_numbers_arrived() {
        let mut graphs = launchable(&[5, 6, 5]);
        let graph = graphs.launchable(0x200).unwrap();
        // The first round comes out of order; the last one completes it.
        assert_eq!(graph.place(92, frame(5)), Some(0));
        assert_eq!(graph.place(91, frame(6)), Some(1));
        assert_eq!(graph.place(90, frame(5)), Some(0));
        // From then on by number.
        assert_eq!([90, 91, 92].map(|number| graph.place(number, frame(5))), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn numbers_whose_names_do_not_agree_tell_nothing() {
        let mut graphs = launchable(&[5, 6]);
        let graph = graphs.launchable(0x200).unwrap();
        assert_eq!(graph.place(1, frame(6)), Some(1));
        assert_eq!(graph.place(2, frame(5)), Some(0));
        assert_eq!(graph.place(3, frame(9)), None);
        let mut graphs = launchable(&[5, 0]);
        let graph = graphs.launchable(0x200).unwrap();
        assert_eq!(
            [(1, 5), (2, 8), (2, 8)].map(|(n, f)| graph.place(n, frame(f))),
            [Some(0), Some(1), Some(1)]
        );
    }

    #[test]
    fn node_with_a_reported_number_is_known_in_any_order() {
        let mut graphs = Graphs::default();
        let context = |recorded: &RecordedNode| recorded.node;
        let place = NodeId::from_number(1);
        // Two threads record the same kernel from two contexts.
        graphs.recording_by(1, recorded(5));
        graphs.recording_by(2, recorded(6));
        graphs.made(2, 200, activity::node::KERNEL);
        graphs.made(1, 100, activity::node::KERNEL);
        graphs.cloned_node(9, 200);
        graphs.cloned_node(10, 100);
        graphs.cloned_node(11, 77);
        let found =
            [9, 10, 100, 11, 0].map(|number| graphs.numbered(place, number, context).map(NodeId::number));
        assert_eq!(found, [Some(6), Some(5), Some(5), None, None]);
        // Nodes without a recording: of another kind, after another call, a second one.
        graphs.recording_by(1, recorded(5));
        graphs.made(1, 300, 3);
        graphs.recording_by(1, recorded(5));
        graphs.next_call_of(1);
        graphs.made(1, 301, activity::node::KERNEL);
        graphs.recording_by(1, recorded(5));
        graphs.made(1, 302, activity::node::KERNEL);
        graphs.made(1, 303, activity::node::KERNEL);
        let found = [300, 301, 302, 303].map(|number| graphs.numbered(place, number, context).is_some());
        assert_eq!(found, [false, false, true, false]);
    }

    #[test]
    fn a_number_means_the_node_that_got_it_last() {
        let mut graphs = Graphs::default();
        for name in [5, 6] {
            graphs.recording_by(1, recorded(name));
            graphs.made(1, 100, activity::node::KERNEL);
            let found = graphs.numbered(NodeId::from_number(1), 100, |recorded| recorded.node);
            assert_eq!(found.map(NodeId::number), Some(name));
        }
    }

    #[test]
    fn instances_of_large_graphs_have_a_bound() {
        let mut graphs = Graphs::default();
        graphs.put(0x100, Arc::new(vec![recorded(5); NODES_MAX]));
        let most = (INSTANCE_NODES_MAX / NODES_MAX) as u64;
        (0..=most).for_each(|launchable| graphs.instantiated(launchable, 0x100));
        assert!(graphs.launchable(most - 1).is_some() && graphs.launchable(most).is_none());
        assert_eq!(graphs.left_out(), 1);
        // One that is instantiated anew, or released, leaves room.
        graphs.instantiated(0, 0x100);
        graphs.released(1);
        graphs.instantiated(most, 0x100);
        assert!(graphs.launchable(0).is_some() && graphs.launchable(most).is_some());
        assert_eq!(graphs.left_out(), 1);
    }

    #[test]
    fn graphs_that_make_room_for_another_are_counted() {
        let mut graphs = Graphs::default();
        (1..=GRAPHS_MAX as u64).for_each(|graph| graphs.add(graph, recorded(5)));
        assert_eq!(graphs.left_out(), 0);
        graphs.add(GRAPHS_MAX as u64 + 1, recorded(5));
        assert_eq!(graphs.left_out(), GRAPHS_MAX as u64);
    }

    #[test]
    fn a_reused_handle_begins_empty() {
        let mut graphs = launchable(&[5]);
        graphs.destroyed(0x100);
        graphs.add(0x100, recorded(7));
        graphs.instantiated(0x201, 0x100);
        assert_eq!(names(&mut graphs, 0x201), Some(vec![7]));
        // What was made of the first stays.
        assert_eq!(names(&mut graphs, 0x200), Some(vec![5]));
    }

    #[test]
    fn a_graph_is_what_was_recorded_added_or_copied() {
        let mut graphs = launchable(&[5]);
        graphs.cloned(0x101, 0x100);
        graphs.add(0x101, recorded(7));
        graphs.instantiated(0x201, 0x101);
        assert_eq!(names(&mut graphs, 0x200), Some(vec![5]));
        assert_eq!(names(&mut graphs, 0x201), Some(vec![5, 7]));
        // Updated to run another graph; to run one that was not seen; released.
        graphs.instantiated(0x200, 0x101);
        assert_eq!(names(&mut graphs, 0x200), Some(vec![5, 7]));
        graphs.instantiated(0x200, 0x999);
        assert_eq!(names(&mut graphs, 0x200), None);
        graphs.released(0x201);
        assert_eq!(names(&mut graphs, 0x201), None);
    }
}
