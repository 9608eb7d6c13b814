//! Fold: a tree of boxes without the uninformative ones.
//!
//! Owns: [`FoldedTree`]: the boxes to draw, and which box represents which node of the original tree. Because: the
//! path from the start of a thread to the code that matters is dozens of rows of equal width, and the terminal, the
//! picture and the page must leave out the same rows. Does not: change the value of a box, or a total: the value of
//! an omitted box counts as its caller's.
//!
//! | what | becomes |
//! |---|---|
//! | trunk: frames that hand on at least 98 % of the first of them, and the last of them, where ways part or time is spent | one box, `… 21 frames: a → b → c`: no row has the share of the one above it |
//! | wrappers ([`is_wrapper`]), unless most of their time is their own | nothing: what they call is called by their caller |
//! | boxes with the same name that meet so | one box |
//! | layers and ranges that differ by a number | one box, `h.{0..11} ×12`, with the smallest and the largest value; apart where they are listed |

mod siblings;
mod wrapper;

use std::collections::BTreeMap;

use super::snapshot::{FlameNode, FlameTree, FrameKind};
use crate::frame::{BACKWARD, short_labels};

pub use siblings::may_be_joined;
pub use wrapper::is_wrapper;

/// A frame with at least this share of the first of its chain belongs to the chain, percent. On most screens the rest
/// is less than a column.
pub const SAME_PERCENT: u64 = 98;

/// Frames that are worth a fold.
pub const LEAST: usize = 2;

/// Frames named by a folded box.
pub const NAMED: usize = 3;

/// Direction in which a tree grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// Callees below callers.
    TopDown,
    /// Callers below functions: the functions themselves stay boxes, and the nearest callers are most informative.
    BottomUp,
}

/// What to fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Which way the tree grows.
    pub growth: Orientation,
    /// Whether trunks become one box each.
    pub trunks: bool,
    /// Whether a trunk may begin with the root: false if the root is drawn without a name.
    pub from_root: bool,
    /// The callees of this node's box, unless it is the root, are listed and not joined.
    pub listed: u32,
}

impl Default for Fold {
    fn default() -> Self {
        Self { growth: Orientation::TopDown, trunks: true, from_root: true, listed: 0 }
    }
}

/// A folded tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoldedTree {
    /// The drawn boxes.
    pub tree: FlameTree,
    /// By node of the original tree: its box.
    box_of: Vec<u32>,
    /// By box: its first node and its last; equal if no chain is folded.
    nodes_of: Vec<(u32, u32)>,
    /// By box: whether it represents siblings that differ by a number.
    joins: Vec<bool>,
}

impl FoldedTree {
    /// Folds a tree. Frames for which `keep` holds stay separate boxes.
    pub fn of(tree: &FlameTree, fold: Fold, keep: impl Fn(&FlameNode) -> bool) -> Self {
        let is_function = |node: &FlameNode| fold.growth == Orientation::BottomUp && node.parent == 0;
        let keep = |node: &FlameNode| keep(node) || is_function(node);
        FoldRun { tree, fold, keep }.run()
    }

    /// The original tree: every node is a box.
    pub fn nothing(tree: &FlameTree) -> Self {
        Self::of(tree, Fold::default(), |_| true)
    }

    /// The box of a node of the original tree.
    pub fn box_of(&self, node: u32) -> u32 {
        self.box_of.get(node as usize).copied().unwrap_or(0)
    }

    /// The first node of a box: its callers are those of the box.
    pub fn first_of(&self, place: u32) -> u32 {
        self.nodes_of.get(place as usize).map_or(0, |(first, _)| *first)
    }

    /// The last node of a box.
    pub fn last_of(&self, place: u32) -> u32 {
        self.nodes_of.get(place as usize).map_or(0, |(_, last)| *last)
    }

    /// Whether a box represents a trunk.
    pub fn is_trunk(&self, place: u32) -> bool {
        self.first_of(place) != self.last_of(place)
    }

    /// Whether a box represents siblings that differ by a number.
    pub fn joins(&self, place: u32) -> bool {
        self.joins.get(place as usize).copied().unwrap_or(false)
    }
}

/// Nodes represented by one box, all called from one box.
#[derive(Clone, Debug, Default)]
struct NodeGroup {
    nodes: Vec<u32>,
    /// Whether their names differ by a number.
    joined: bool,
}

impl NodeGroup {
    fn first(&self) -> u32 {
        self.nodes.first().copied().unwrap_or(0)
    }
}

/// The callees of a box.
#[derive(Debug, Default)]
struct Callees {
    boxes: Vec<NodeGroup>,
    /// Wrappers on the way to them.
    wrappers: Vec<u32>,
}

/// A box of a chain, with its callees other than the next one.
struct Link {
    of: NodeGroup,
    callees: Callees,
}

struct FoldRun<'t, K> {
    tree: &'t FlameTree,
    fold: Fold,
    keep: K,
}

impl<K: Fn(&FlameNode) -> bool> FoldRun<'_, K> {
    fn run(&self) -> FoldedTree {
        let count = self.tree.nodes.len();
        let mut folded = FoldedTree { box_of: vec![0; count], ..FoldedTree::default() };
        let root = NodeGroup { nodes: vec![0], joined: false };
        let mut open: Vec<(NodeGroup, u32)> = (count > 0).then_some((root, 0)).into_iter().collect();
        while let Some((of, parent)) = open.pop() {
            let place = folded.tree.nodes.len() as u32;
            let trunk = self.trunk(of);
            let mut node = if trunk.len() < LEAST { self.merged(&trunk[0].of) } else { self.chain(&trunk) };
            let first = trunk.first().map_or(0, |link| link.of.first());
            let last = trunk.last().map_or(0, |link| link.of.first());
            let mut below = Vec::new();
            let joins = trunk.iter().any(|link| link.of.joined);
            for Link { of, callees } in trunk {
                for &at in of.nodes.iter().chain(&callees.wrappers) {
                    folded.box_of[at as usize] = place;
                }
                let own = callees.wrappers.iter().map(|&at| self.node(at).exclusive);
                node.exclusive = own.fold(node.exclusive, u64::saturating_add);
                below.extend(callees.boxes);
            }
            (node.parent, node.children) = (parent, Vec::new());
            if place > 0 {
                folded.tree.nodes[parent as usize].children.push(place);
            }
            folded.tree.nodes.push(node);
            folded.nodes_of.push((first, last));
            folded.joins.push(joins);
            open.extend(below.into_iter().rev().map(|of| (of, place)));
        }
        folded
    }

    fn node(&self, at: u32) -> &FlameNode {
        &self.tree.nodes[at as usize]
    }

    fn value(&self, of: &NodeGroup) -> u64 {
        of.nodes.iter().fold(0, |sum, &at| sum.saturating_add(self.node(at).inclusive))
    }

    /// Whether a node has no box: it only passes calls on, and has little time of its own.
    fn is_left_out(&self, at: u32) -> bool {
        let node = self.node(at);
        let hands_on = self.fold.growth == Orientation::BottomUp || node.exclusive <= node.inclusive / 2;
        hands_on && is_wrapper(node.kind, &node.label) && !(self.keep)(node)
    }

    /// The callees of nodes, without wrappers: equal names merged, and names that differ by a number joined.
    fn callees(&self, of: &[u32]) -> Callees {
        let mut callees = Callees::default();
        let mut open: Vec<u32> = of.iter().rev().copied().collect();
        let mut found: Vec<u32> = Vec::new();
        // Depth first, so that the callees of a wrapper take its place.
        while let Some(at) = open.pop() {
            let is_box = of.binary_search(&at).is_err();
            if is_box && !self.is_left_out(at) {
                found.push(at);
                continue;
            }
            if is_box {
                callees.wrappers.push(at);
            }
            let below: Vec<u32> = self.tree.own_children(at).collect();
            open.extend(below.into_iter().rev());
        }
        // Siblings of one node have different names already.
        callees.boxes = if of.len() == 1 && callees.wrappers.is_empty() {
            found.into_iter().map(|at| NodeGroup { nodes: vec![at], joined: false }).collect()
        } else {
            self.by_name(&found)
        };
        if self.fold.listed == 0 || of.binary_search(&self.fold.listed).is_err() {
            callees.boxes = self.by_number(callees.boxes);
        }
        callees
    }

    /// Merges nodes with the same name, in the order of the tree.
    fn by_name(&self, nodes: &[u32]) -> Vec<NodeGroup> {
        let mut named: BTreeMap<(&str, &str, FrameKind), NodeGroup> = BTreeMap::new();
        for &at in nodes {
            let FlameNode { label, detail, kind, .. } = self.node(at);
            named.entry((label, detail, *kind)).or_default().nodes.push(at);
        }
        let mut boxes: Vec<NodeGroup> = named.into_values().collect();
        for of in &mut boxes {
            of.nodes.sort_unstable();
        }
        if self.fold.growth == Orientation::BottomUp {
            boxes.sort_by_key(|of| (std::cmp::Reverse(self.value(of)), of.first()));
        }
        boxes
    }

    /// Joins boxes whose names differ by a number, at the place of the first.
    fn by_number(&self, boxes: Vec<NodeGroup>) -> Vec<NodeGroup> {
        let pattern = |of: &NodeGroup| {
            let node = self.node(of.first());
            let may = may_be_joined(node.kind, &node.label) && !(self.keep)(node);
            may.then(|| siblings::pattern(&node.label)).flatten().map(|pattern| (pattern, node.kind))
        };
        let mut places: BTreeMap<(String, FrameKind), usize> = BTreeMap::new();
        let mut out: Vec<NodeGroup> = Vec::with_capacity(boxes.len());
        for of in boxes {
            match pattern(&of).map(|pattern| *places.entry(pattern).or_insert(out.len())) {
                Some(place) if place < out.len() => {
                    out[place].nodes.extend(of.nodes);
                    out[place].joined = true;
                }
                _ => out.push(of),
            }
        }
        for of in &mut out {
            of.nodes.sort_unstable();
        }
        out
    }

    /// `first`, and the boxes below it with its value, as far as they may be merged with it. Never empty.
    fn trunk(&self, first: NodeGroup) -> Vec<Link> {
        let whole = self.value(&first);
        let mut trunk = vec![Link { callees: self.callees(&first.nodes), of: first }];
        while let Some(last) = trunk.last_mut().filter(|last| self.may_be_in_trunk(&last.of)) {
            let boxes = &mut last.callees.boxes;
            let is_next = |of: &NodeGroup| is_same(self.value(of), whole) && self.may_be_in_trunk(of);
            let Some(next) = boxes.iter().position(is_next) else { break };
            let of = boxes.remove(next);
            trunk.push(Link { callees: self.callees(&of.nodes), of });
        }
        trunk
    }

    fn may_be_in_trunk(&self, of: &NodeGroup) -> bool {
        let at_root = of.first() == 0 && !(self.fold.from_root && self.fold.growth == Orientation::TopDown);
        self.fold.trunks && !of.joined && !at_root && !(self.keep)(self.node(of.first()))
    }

    /// One box of nodes that have the same name, or names that differ by a number.
    fn merged(&self, of: &NodeGroup) -> FlameNode {
        let mut node = self.node(of.first()).clone();
        let all = || of.nodes.iter().map(|&at| self.node(at));
        let sum = |value: fn(&FlameNode) -> u64| all().map(value).fold(0, u64::saturating_add);
        node.exclusive = sum(|node| node.exclusive);
        node.inclusive = sum(|node| node.inclusive);
        node.before = sum(|node| node.before);
        if of.joined {
            let mut values: BTreeMap<&str, u64> = BTreeMap::new();
            for node in all() {
                let value = values.entry(&node.label).or_default();
                *value = value.saturating_add(node.inclusive);
            }
            node.label = siblings::joined(&values.keys().copied().collect::<Vec<_>>());
            node.each = values.values().min().copied().zip(values.values().max().copied());
            if all().any(|other| other.detail != node.detail) {
                node.detail.clear();
            }
        }
        node
    }

    /// One box of a chain. Its kind is that of its last frame; among callers, of the nearest one.
    fn chain(&self, chain: &[Link]) -> FlameNode {
        let frames: Vec<FlameNode> = chain.iter().map(|link| self.merged(&link.of)).collect();
        let mut node = frames[0].clone();
        node.exclusive = frames.iter().fold(0, |sum, frame| sum.saturating_add(frame.exclusive));
        // The width of the root shows that it is everything.
        let named = &frames[usize::from(frames[0].kind == FrameKind::Root)..];
        node.label = names(named, self.fold.growth);
        node.detail = named.iter().map(|frame| frame.label.as_str()).collect::<Vec<_>>().join(" → ");
        if node.detail == node.label {
            node.detail.clear();
        }
        if let Some(last) = frames.last().filter(|_| self.fold.growth == Orientation::TopDown) {
            (node.kind, node.source) = (last.kind, last.source.clone());
        }
        node.workers = frames.iter().rev().find_map(|frame| frame.workers);
        node
    }
}

/// Whether a value is nearly all of `whole`.
fn is_same(value: u64, whole: u64) -> bool {
    value > 0 && u128::from(value) * 100 >= u128::from(whole) * u128::from(SAME_PERCENT)
}

/// Whether a frame shows what the program does.
pub fn names_work(frame: &FlameNode) -> bool {
    let by_kind = matches!(
        frame.kind,
        FrameKind::Python | FrameKind::Operator | FrameKind::Layer | FrameKind::GpuKernel
    );
    by_kind && !is_wrapper(frame.kind, &frame.label)
}

/// Whether a frame is a heading for those below it: a process, a thread, the backward pass.
pub fn is_heading(kind: FrameKind, label: &str) -> bool {
    matches!(kind, FrameKind::Process | FrameKind::Thread) || kind == FrameKind::Operator && label == BACKWARD
}

/// The headings of a chain, the most informative names nearest to its end, code of the program before native code, and
/// the last one, if calls branch or time is spent there; and the number of frames if some are not named.
fn names(frames: &[FlameNode], growth: Orientation) -> String {
    let headings = frames.iter().take_while(|frame| is_heading(frame.kind, &frame.label)).count();
    let (headings, frames) = frames.split_at(headings);
    let telling: Vec<&FlameNode> = (0..)
        .zip(frames)
        .filter(|(at, frame)| names_work(frame) || at + 1 == frames.len() && growth == Orientation::TopDown)
        .map(|(_, frame)| frame)
        .collect();
    let says_work = telling.iter().any(|frame| names_work(frame));
    let shown = if says_work { telling } else { frames.iter().collect() };
    let (from, to) = match growth {
        Orientation::TopDown => (shown.len().saturating_sub(NAMED), shown.len()),
        Orientation::BottomUp => (0, shown.len().min(NAMED)),
    };
    let mut parts: Vec<String> = headings.iter().map(|frame| frame.label.clone()).collect();
    let named =
        short_labels(shown[from..to].iter().map(|frame| (frame.kind, frame.label.as_str()))).join(" → ");
    match frames.len() {
        0 => {}
        all if to - from == all => parts.push(named),
        all => parts.push(format!("… {all} frames: {named}")),
    }
    parts.join(" → ")
}

#[cfg(test)]
mod tests;
