//! Built graphs: the dependencies of nodes that were added to a graph by hand.
//!
//! Owns: nodes by the handles that the program received, and the edges that it named. Because: building a graph names
//! its edges explicitly, in arrays of handles; nothing has to be derived from the order of calls. Does not: see nodes
//! that were captured from streams ([`super::graph_order`]) or copied with their graph: their handles are not
//! reported, so that their successors have no order.
//!
//! A node without device work (empty, host function, memory) is transparent: its successors depend on its
//! predecessors.

use rustc_hash::{FxHashMap, FxHashSet};

/// Graphs whose handles are remembered; beyond it all are dropped, and nodes added to them have no order.
const GRAPHS_MAX: usize = 1 << 12;
/// Nodes whose edges are remembered.
const NODES_MAX: usize = 1 << 18;
/// Predecessors of a node, including nodes without work on the way to them.
const AFTER_MAX: usize = 256;

/// A node that was added.
#[derive(Debug)]
pub(super) struct AddedNode {
    /// Its number in the order of what is recorded ([`super::graphs::RecordedNode::order`]).
    pub(super) order: u64,
    /// It gives the device work.
    pub(super) works: bool,
    /// Handles of its predecessors; `None` if they were not all read.
    pub(super) after: Option<Vec<u64>>,
}

/// The predecessors of a node, by number; `None` if not all are known.
#[derive(Debug)]
struct BuiltNode {
    works: bool,
    after: Option<Vec<u64>>,
}

/// The nodes of one graph.
#[derive(Debug, Default)]
struct BuiltGraph {
    /// Numbers by handle.
    nodes: FxHashMap<u64, u64>,
    /// Launchable or other graphs were made of it: they keep the edges of that time.
    is_copied: bool,
}

/// The graphs of one process.
#[derive(Debug, Default)]
pub(super) struct BuiltGraphs {
    graphs: FxHashMap<u64, BuiltGraph>,
    nodes: FxHashMap<u64, BuiltNode>,
    left_out: u64,
}

impl BuiltGraphs {
    /// A node with this handle was added to a graph.
    pub(super) fn add(&mut self, graph: u64, handle: u64, node: AddedNode) {
        if self.graphs.len() >= GRAPHS_MAX && !self.graphs.contains_key(&graph) {
            self.left_out += self.graphs.len() as u64;
            self.graphs.clear();
        }
        let of = self.graphs.entry(graph).or_default();
        if self.nodes.len() >= NODES_MAX {
            self.left_out += 1;
            // A reused handle no longer means the earlier node.
            of.nodes.remove(&handle);
            return;
        }
        let number = |handle: &u64| of.nodes.get(handle).copied();
        let after = node.after.and_then(|handles| handles.iter().map(number).collect());
        self.nodes.insert(node.order, BuiltNode { works: node.works, after });
        of.nodes.insert(handle, node.order);
    }

    /// A handle now means a new graph.
    pub(super) fn replaced(&mut self, graph: u64) {
        self.graphs.remove(&graph);
    }

    /// Another graph was made of this one, with its edges.
    pub(super) fn copied(&mut self, graph: u64) {
        if let Some(graph) = self.graphs.get_mut(&graph) {
            graph.is_copied = true;
        }
    }

    /// Edges between nodes of a graph were added, as pairs of handles. False if it is not known which nodes of the
    /// graph these are.
    pub(super) fn connect(&mut self, graph: u64, edges: impl Iterator<Item = (u64, u64)>) -> bool {
        let Some(graph) = self.graphs.get(&graph) else { return false };
        for (before, after) in edges {
            let node = graph.nodes.get(&after).and_then(|number| self.nodes.get_mut(number));
            let Some(node) = node else { return false };
            let before = graph.nodes.get(&before).filter(|_| !graph.is_copied);
            match (&mut node.after, before) {
                // Behind more of them, its order would not be found anyway.
                (Some(known), Some(before)) if known.len() < AFTER_MAX => known.push(*before),
                (known, _) => *known = None,
            }
        }
        true
    }

    /// Nodes of a graph, by handle, lost some predecessors. False if it is not known which nodes these are.
    pub(super) fn disconnect(&mut self, graph: u64, nodes: &[u64]) -> bool {
        let Some(graph) = self.graphs.get(&graph) else { return false };
        let numbers: Option<Vec<u64>> = nodes.iter().map(|node| graph.nodes.get(node).copied()).collect();
        numbers.iter().flatten().for_each(|number| self.forget(*number));
        numbers.is_some()
    }

    /// The edges of all nodes of a graph are unknown from now on.
    pub(super) fn disconnect_all(&mut self, graph: u64) {
        let numbers = self.graphs.remove(&graph).into_iter().flat_map(|graph| graph.nodes.into_values());
        numbers.for_each(|number| self.forget(number));
    }

    /// The predecessors of a node are unknown from now on.
    fn forget(&mut self, number: u64) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.after = None;
        }
    }

    /// The numbers of a node's nearest predecessors with work; `None` if not all are known, or if the node was not
    /// added by hand.
    pub(super) fn after(&self, number: u64) -> Option<Vec<u64>> {
        let mut open = self.nodes.get(&number)?.after.clone()?;
        let (mut seen, mut found) = (FxHashSet::default(), Vec::new());
        while let Some(before) = open.pop() {
            if !seen.insert(before) {
                continue;
            }
            let node = self.nodes.get(&before).filter(|_| seen.len() <= AFTER_MAX)?;
            match node.works {
                true => found.push(before),
                false => open.extend(node.after.as_ref()?),
            }
        }
        found.sort_unstable();
        Some(found)
    }

    /// Graphs and nodes for which there was no room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: u64 = 0x70;

    /// Changes of a graph: `kernel 1 2` adds node 3 after 1 and 2, `empty 1` one without work, `unread` one whose array
    /// was not read, `edge 1 2` adds an edge from 1 to 2, `cut 2` removes predecessors of 2, `copy` makes another graph
    /// of it. Handles are the numbers plus a hundred. `expect`: predecessors of each node with work; `?` where unknown.
    fn check(steps: &str, expect: &[&str]) {
        let mut graphs = BuiltGraphs::default();
        let mut works = Vec::new();
        for step in steps.split(", ") {
            let mut words = step.split(' ');
            let what = words.next().unwrap();
            let handles: Vec<u64> = words.map(|word| 100 + word.parse::<u64>().unwrap()).collect();
            match what {
                "kernel" | "empty" | "unread" => {
                    works.push(what != "empty");
                    let order = works.len() as u64;
                    let after = (what != "unread").then_some(handles);
                    graphs.add(GRAPH, 100 + order, AddedNode { order, works: what != "empty", after });
                }
                "edge" if graphs.connect(GRAPH, std::iter::once((handles[0], handles[1]))) => {}
                "cut" if graphs.disconnect(GRAPH, &handles) => {}
                "edge" | "cut" => graphs.disconnect_all(GRAPH),
                "copy" => graphs.copied(GRAPH),
                "replace" => graphs.replaced(GRAPH),
                _ => panic!("{step}"),
            }
        }
        let shown = |after: Vec<u64>| after.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let numbers = (1..).zip(works).filter(|(_, works)| *works);
        let found = numbers.map(|(number, _)| graphs.after(number).map_or("?".to_owned(), shown));
        assert_eq!(found.collect::<Vec<String>>(), expect, "{steps}");
    }

    #[test]
    fn nodes_come_after_those_of_their_arrays() {
        check("kernel, kernel 1, kernel 1, kernel 2 3", &["", "1", "1", "2 3"]);
        // Nodes without work are skipped, also several, and on two paths.
        check("kernel, empty 1, empty 2, kernel 1, kernel 3 4 1", &["", "1", "1 4"]);
        check("empty, kernel 1", &[""]);
        // Edges that are added later, also through nodes without work.
        check("kernel, empty, kernel 2, edge 1 2", &["", "1"]);
        check("kernel, kernel, edge 1 2, kernel 2", &["", "1", "2"]);
    }

    #[test]
    fn nodes_behind_what_is_not_known_have_no_order() {
        // An array that was not read; a node that was not seen being added; both after a node without work.
        check("kernel, unread, kernel 2", &["", "?", "2"]);
        check("kernel 9, kernel 1", &["?", "1"]);
        check("empty 9, kernel 1", &["?"]);
        // Edges that were removed, or that are of unknown nodes.
        check("kernel, kernel 1, kernel 2, cut 2", &["", "?", "2"]);
        check("kernel, kernel 1, edge 1 9", &["?", "?"]);
        check("kernel, kernel 1, cut 9", &["?", "?"]);
        check("kernel, kernel, edge 9 2", &["", "?"]);
        // Copies keep the edges of their time; later edges belong only to later copies.
        check("kernel, kernel, copy, edge 1 2, kernel 2", &["", "?", "2"]);
        // A new graph at the same place has none of the nodes.
        check("kernel, replace, kernel 1", &["", "?"]);
        // A cycle is not a graph; the search still ends.
        check("empty, empty 1, edge 2 1, kernel 2", &[""]);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let node = |order| AddedNode { order, works: true, after: Some(Vec::new()) };
        let mut graphs = BuiltGraphs::default();
        let most = GRAPHS_MAX as u64;
        (1..=most + 1).for_each(|graph| graphs.add(graph, 1, node(graph)));
        assert_eq!(graphs.left_out(), most);
        (most + 2..=NODES_MAX as u64).for_each(|order| graphs.add(GRAPH, order, node(order)));
        assert_eq!(graphs.left_out(), most);
        graphs.add(GRAPH, 0, node(0));
        assert_eq!(graphs.left_out(), most + 1);
    }

    #[test]
    fn a_node_behind_too_many_has_no_order() {
        let mut graphs = BuiltGraphs::default();
        let count = AFTER_MAX as u64 + 1;
        for order in 1..=count {
            graphs.add(GRAPH, order, AddedNode { order, works: true, after: Some(Vec::new()) });
        }
        for (order, before) in [(count + 1, count), (count + 2, count - 1)] {
            let after = Some((1..=before).collect());
            graphs.add(GRAPH, order, AddedNode { order, works: true, after });
        }
        assert_eq!(graphs.after(count + 1), None);
        assert_eq!(graphs.after(count + 2).map(|after| after.len()), Some(AFTER_MAX));
        // With one more edge, none is kept.
        assert!(graphs.connect(GRAPH, [(1, count + 2), (2, count + 2)].into_iter()));
        assert!(graphs.nodes[&(count + 2)].after.is_none());
    }
}
