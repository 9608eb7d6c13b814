//! Fold: chains of boxes that have nearly the same value, as one box each.
//!
//! Owns: [`Folded`]: the tree that is drawn, and which of its boxes stands for which node of the snapshot. Because: the
//! way from the start of a thread to the code that matters is dozens of rows of the same width, and says nothing. Does
//! not: change what is selected, or any value: a folded box has the value of its first frame, and below it is
//! everything that was below any of its frames.

use deepctx_profile::frame::short_labels;
use deepctx_profile::view::snapshot::{FlameNode, FlameTree, FrameKind};

use crate::tree::children;

/// A frame with at least this share of the first of its chain belongs to the chain, percent. Less than a column of
/// most screens is lost from sight beside it.
const SAME_PERCENT: u128 = 98;

/// Frames that are worth a fold: two rows become one at a loss of both names.
const LEAST: usize = 3;

/// Frames that a folded box names.
const NAMED: usize = 3;

/// Which way a tree grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orientation {
    /// Callees below callers.
    TopDown,
    /// Callers below functions: the functions themselves stay boxes, and the nearest callers say most.
    BottomUp,
}

/// A tree with its chains folded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Folded {
    /// The boxes that are drawn.
    pub(crate) tree: FlameTree,
    /// By node of the snapshot: its box.
    box_of: Vec<u32>,
    /// By box: its first node and its last; the same where nothing is folded.
    nodes_of: Vec<(u32, u32)>,
}

impl Folded {
    /// Folds the chains of a tree; frames for which `keep` holds stay boxes of their own.
    pub(crate) fn of(tree: &FlameTree, growth: Orientation, keep: impl Fn(&FlameNode) -> bool) -> Self {
        let is_function = |node: &FlameNode| growth == Orientation::BottomUp && node.parent == 0;
        let keep = |node: &FlameNode| keep(node) || is_function(node);
        let mut folded = Self { box_of: vec![0; tree.nodes.len()], ..Self::default() };
        let mut open: Vec<(u32, u32)> = (!tree.nodes.is_empty()).then_some((0, 0)).into_iter().collect();
        while let Some((first, parent)) = open.pop() {
            let place = folded.tree.nodes.len() as u32;
            let chain = foldable(tree, first, &keep);
            let last = chain.last().copied().unwrap_or(first);
            let mut node = tree.nodes[first as usize].clone();
            let mut below: Vec<u32> = Vec::new();
            if chain.len() > 1 {
                fold_into(tree, growth, &chain, &mut node);
                // What leaves the chain on the way hangs below it. A chain may be as long as its profile is.
                let mut within = chain.clone();
                within.sort_unstable();
                let leaves = |child: &u32| within.binary_search(child).is_err();
                below.extend(chain.iter().flat_map(|&at| own_children(tree, at)).filter(leaves));
            } else {
                below.extend(own_children(tree, first));
            }
            for at in chain.iter().copied().chain([first]) {
                folded.box_of[at as usize] = place;
            }
            (node.parent, node.children) = (parent, Vec::new());
            if place > 0 {
                folded.tree.nodes[parent as usize].children.push(place);
            }
            folded.tree.nodes.push(node);
            folded.nodes_of.push((first, last));
            open.extend(below.into_iter().rev().map(|child| (child, place)));
        }
        folded
    }

    /// The tree as it is: every node is a box.
    pub(crate) fn nothing(tree: &FlameTree) -> Self {
        Self::of(tree, Orientation::TopDown, |_| true)
    }

    /// The box of a node of the snapshot.
    pub(crate) fn box_of(&self, node: u32) -> u32 {
        self.box_of.get(node as usize).copied().unwrap_or(0)
    }

    /// The first node of a box: its callers are those of the box.
    pub(crate) fn first_of(&self, place: u32) -> u32 {
        self.nodes_of.get(place as usize).map_or(0, |(first, _)| *first)
    }

    /// The last node of a box.
    pub(crate) fn last_of(&self, place: u32) -> u32 {
        self.nodes_of.get(place as usize).map_or(0, |(_, last)| *last)
    }
}

/// The frames from `first` on that have its value, as far as they may be folded. The last of them stays out: it is
/// where the ways part.
fn foldable(tree: &FlameTree, first: u32, keep: &impl Fn(&FlameNode) -> bool) -> Vec<u32> {
    let whole = tree.nodes[first as usize].inclusive;
    let mut chain = Vec::new();
    let mut at = first;
    loop {
        let node = &tree.nodes[at as usize];
        if at == 0
            || keep(node)
            || matches!(node.kind, FrameKind::Root | FrameKind::Process | FrameKind::Thread)
        {
            break;
        }
        let Some(next) = same(tree, at, whole) else { break };
        chain.push(at);
        at = next;
    }
    if chain.len() < LEAST { Vec::new() } else { chain }
}

/// The child that has the value of its chain.
pub(crate) fn same(tree: &FlameTree, node: u32, whole: u64) -> Option<u32> {
    let is_same =
        |inclusive: u64| u128::from(inclusive) * 100 >= u128::from(whole) * SAME_PERCENT && inclusive > 0;
    own_children(tree, node).find(|&child| is_same(tree.nodes[child as usize].inclusive))
}

/// Children that name this node as their parent. In a damaged tree others have several parents.
pub(crate) fn own_children(tree: &FlameTree, node: u32) -> impl Iterator<Item = u32> {
    children(tree, node).filter(move |(_, child)| child.parent == node).map(|(child, _)| child)
}

fn fold_into(tree: &FlameTree, growth: Orientation, chain: &[u32], node: &mut FlameNode) {
    let frames: Vec<&FlameNode> = chain.iter().map(|&at| &tree.nodes[at as usize]).collect();
    node.exclusive = frames.iter().fold(0, |sum, frame| sum.saturating_add(frame.exclusive));
    node.label = format!("… {} frames: {}", frames.len(), names(&frames, growth));
    node.detail = frames.iter().map(|frame| frame.label.as_str()).collect::<Vec<_>>().join(" → ");
    node.kind = FrameKind::Root;
    node.source = None;
}

/// Whether a frame says what the program does.
pub(crate) fn names_work(frame: &&FlameNode) -> bool {
    matches!(frame.kind, FrameKind::Python | FrameKind::Operator | FrameKind::Layer | FrameKind::GpuKernel)
}

/// The innermost names of a chain that say most: code of the program before native code.
fn names(frames: &[&FlameNode], growth: Orientation) -> String {
    let telling: Vec<&FlameNode> = frames.iter().copied().filter(names_work).collect();
    let shown = if telling.is_empty() { frames } else { &telling };
    let (from, to) = match growth {
        Orientation::TopDown => (shown.len().saturating_sub(NAMED), shown.len()),
        Orientation::BottomUp => (0, shown.len().min(NAMED)),
    };
    short_labels(shown[from..to].iter().map(|frame| (frame.kind, frame.label.as_str()))).join(" → ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A tree from lines: depth by indentation, then kind, label and inclusive value.
    fn tree(lines: &str) -> FlameTree {
        let mut tree = FlameTree::default();
        let mut path: Vec<u32> = Vec::new();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let depth = (line.len() - line.trim_start().len()) / 2;
            let (label, value) = line.trim().rsplit_once(' ').unwrap();
            let kind = match label.chars().next() {
                _ if depth == 0 => FrameKind::Root,
                Some('#') => FrameKind::Process,
                _ if label.contains(".py") => FrameKind::Python,
                _ => FrameKind::Native,
            };
            path.truncate(depth);
            let place = tree.nodes.len() as u32;
            let parent = path.last().copied().unwrap_or(0);
            path.push(place);
            let inclusive = value.parse().unwrap();
            tree.nodes.push(FlameNode {
                label: label.into(),
                kind,
                inclusive,
                parent,
                ..FlameNode::default()
            });
            if place > 0 {
                tree.nodes[parent as usize].children.push(place);
            }
        }
        tree
    }

    fn show(tree: &FlameTree, node: u32, depth: usize, out: &mut String) {
        let FlameNode { label, inclusive, .. } = &tree.nodes[node as usize];
        *out += &format!("{:width$}{label} {inclusive}\n", "", width = depth * 2);
        for (child, _) in children(tree, node) {
            show(tree, child, depth + 1, out);
        }
    }

    #[track_caller]
    fn check(lines: &str, keep: &str, expect: &str) {
        let mut out = String::new();
        let kept = |node: &FlameNode| !keep.is_empty() && node.label.contains(keep);
        show(&Folded::of(&tree(lines), Orientation::TopDown, kept).tree, 0, 0, &mut out);
        assert_eq!(out.trim_end(), expect.trim_matches('\n'));
    }

    const TRUNK: &str = "
all 1000
  #python 1000
    _start 1000
      main 1000
        other 10
        Py_RunMain 990
          t.py:<module> 988
            t.py:main 985
              step 500
              load 485";

    #[test]
    fn a_trunk_is_one_box_up_to_where_ways_part() {
        let expect = "
all 1000
  #python 1000
    … 4 frames: t.py:<module> 1000
      other 10
      t.py:main 985
        step 500
        load 485";
        check(TRUNK, "", expect);
    }

    #[test]
    fn frames_that_are_searched_for_stay_boxes() {
        let expect = "
all 1000
  #python 1000
    _start 1000
      main 1000
        other 10
        Py_RunMain 990
          t.py:<module> 988
            t.py:main 985
              step 500
              load 485";
        check(TRUNK, "Py_Run", expect);
    }

    #[test]
    fn functions_stay_above_their_folded_callers() {
        let callers = tree("all 10\n  f 10\n    a 10\n      b.py 10\n        c.py 10\n          d 10");
        let mut out = String::new();
        show(&Folded::of(&callers, Orientation::BottomUp, |_| false).tree, 0, 0, &mut out);
        assert_eq!(out, "all 10\n  f 10\n    … 3 frames: b.py → c.py 10\n      d 10\n");
    }

    #[test]
    fn short_chains_and_real_branches_stay() {
        let short = "all 10\n  a 10\n    b 10\n      c 6\n      d 4";
        check(short, "", short);
        let branches = "all 100\n  a 100\n    b 97\n      c 94\n        d 91\n          e 88";
        check(branches, "", branches);
    }

    #[test]
    fn each_node_has_a_box_that_covers_it() {
        let folded = Folded::of(&tree(TRUNK), Orientation::TopDown, |_| false);
        let boxes: Vec<u32> = (0..10).map(|node| folded.box_of(node)).collect();
        assert_eq!(boxes, [0, 1, 2, 2, 3, 2, 2, 4, 5, 6]);
        assert_eq!((folded.first_of(2), folded.last_of(2), folded.first_of(4)), (2, 6, 7));
    }

    proptest! {
        #[test]
        fn folding_keeps_every_value(nodes in prop::collection::vec((any::<u32>(), 0u64..50), 1..60)) {
            let mut tree = FlameTree { nodes: vec![FlameNode::default()] };
            for (parent, value) in nodes {
                let (index, parent) = (tree.nodes.len() as u32, parent % tree.nodes.len() as u32);
                let (exclusive, inclusive) = (value, value);
                tree.nodes.push(FlameNode { parent, exclusive, inclusive, ..FlameNode::default() });
                tree.nodes[parent as usize].children.push(index);
            }
            for index in (1..tree.nodes.len()).rev() {
                let FlameNode { parent, inclusive, .. } = tree.nodes[index];
                tree.nodes[parent as usize].inclusive += inclusive;
            }
            let own = |tree: &FlameTree| tree.nodes.iter().map(|node| node.exclusive).sum::<u64>();
            let folded = Folded::of(&tree, Orientation::TopDown, |_| false);
            prop_assert_eq!(own(&folded.tree), own(&tree));
            for (place, node) in (0u32..).zip(&folded.tree.nodes) {
                let below: u64 = children(&folded.tree, place).map(|(_, child)| child.inclusive).sum();
                prop_assert_eq!(node.inclusive, node.exclusive + below);
                prop_assert_eq!(folded.box_of(folded.first_of(place)), place);
                prop_assert_eq!(folded.box_of(folded.last_of(place)), place);
            }
            prop_assert_eq!(Folded::nothing(&tree).tree.nodes.len(), tree.nodes.len());
        }
    }
}
