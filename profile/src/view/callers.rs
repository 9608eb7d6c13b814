//! Callers: the bottom-up tree. Below the root are the functions with exclusive values, below each its callers.
//!
//! Owns: inverting a merged tree. Because: a hot function is often called from everywhere, and no single box of the
//! top-down graph shows it. Does not: choose the resolution.
//!
//! A box stands for a set of contexts that end in the same calls. Each context climbs the tree as a pair of a node
//! and its initial value. Contexts that reach the same node are joined, so a level costs no more than the merged tree
//! has nodes, and sets that are too small are not expanded.

use std::cmp::Reverse;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::flame::{flame_node, flame_root};
use super::merged_tree::{LabelId, MergedTree};
use crate::frame::FrameKind;
use crate::view::request::Resolution;
use crate::view::snapshot::{FlameNode, FlameTree};

impl MergedTree {
    /// The bottom-up tree, as of the last refresh.
    pub fn callers(&self, resolution: Resolution) -> FlameTree {
        if self.inclusive.is_empty() {
            return FlameTree { nodes: vec![flame_root()] };
        }
        callers(self, (self.total() as f64 * resolution.least_share).ceil() as u64)
    }
}

/// Most boxes: deep recursion below many functions would make as many as it is deep.
const BOXES_MAX: usize = 100_000;

/// Label of the box where the bound was reached.
const CUT: &str = "[callers not shown: too many boxes]";

/// A context on its way to the root: the node it has reached, and its values.
#[derive(Clone, Copy)]
struct Ascent {
    node: u32,
    value: u64,
    before: u64,
}

/// Contexts that end in the same calls, and their box.
struct Group {
    place: u32,
    climbers: Vec<Ascent>,
}

/// The bottom-up tree; sets whose value is below `least` are left out, their value stays in the box above.
fn callers(merged: &MergedTree, least: u64) -> FlameTree {
    let least = least.max(1);
    let before = |node: usize| merged.before.as_ref().map_or(0, |before| before.exclusive[node]);
    let mut nodes = vec![flame_node(merged, 0)];
    nodes[0].exclusive = 0;
    let start = (0..merged.exclusive.len())
        .map(|node| Ascent { node: node as u32, value: merged.exclusive[node], before: before(node) })
        .filter(|climber| climber.value > 0 || climber.before > 0);
    let mut groups = VecDeque::new();
    spread(merged, start, 0, least, &mut nodes, &mut groups);
    while let Some(group) = groups.pop_front() {
        if nodes.len() >= BOXES_MAX {
            cut_off(&mut nodes, group.place);
            continue;
        }
        let up = group.climbers.into_iter().map(|it| Ascent { node: merged.parent(it.node), ..it });
        spread(merged, up, group.place, least, &mut nodes, &mut groups);
    }
    FlameTree { nodes }
}

/// Adds a box below `below` for each label that the contexts have reached, largest first, then in the order of the
/// labels.
fn spread(
    merged: &MergedTree,
    climbers: impl Iterator<Item = Ascent>,
    below: u32,
    least: u64,
    nodes: &mut Vec<FlameNode>,
    groups: &mut VecDeque<Group>,
) {
    let mut by_label: FxHashMap<LabelId, (u64, u64, Vec<Ascent>)> = FxHashMap::default();
    let mut ended = 0u64;
    for climber in climbers {
        // A context at the root has no further caller; at the start, its value belongs to no function.
        if climber.node == 0 {
            ended = ended.saturating_add(climber.value);
            continue;
        }
        let (value, before, list) = by_label.entry(merged.label_id(climber.node)).or_default();
        *value = value.saturating_add(climber.value);
        *before = before.saturating_add(climber.before);
        list.push(climber);
    }
    nodes[below as usize].exclusive = ended;
    let mut kept: Vec<_> = by_label.into_iter().filter(|(_, (value, ..))| *value >= least).collect();
    // By whole percents of everything: boxes with about the same share keep their places while a profile grows.
    let whole = u128::from(merged.total().max(1));
    let percent = |value: u64| u128::from(value) * 100 / whole;
    kept.sort_unstable_by_key(|(label, (value, ..))| (Reverse(percent(*value)), merged.rank(*label)));
    for (_, (value, before, mut climbers)) in kept {
        let place = nodes.len() as u32;
        climbers.sort_unstable_by_key(|climber| climber.node);
        climbers.dedup_by(|next, kept| {
            let same = next.node == kept.node;
            if same {
                kept.value = kept.value.saturating_add(next.value);
                kept.before = kept.before.saturating_add(next.before);
            }
            same
        });
        let mut node = flame_node(merged, climbers[0].node);
        (node.inclusive, node.exclusive, node.before, node.parent) = (value, 0, before, below);
        nodes.push(node);
        nodes[below as usize].children.push(place);
        groups.push_back(Group { place, climbers });
    }
}

/// Marks a box whose callers are not shown.
fn cut_off(nodes: &mut Vec<FlameNode>, place: u32) {
    let FlameNode { inclusive, before, .. } = nodes[place as usize];
    let child = nodes.len() as u32;
    nodes.push(FlameNode {
        label: CUT.to_owned(),
        kind: FrameKind::Unresolved,
        exclusive: inclusive,
        inclusive,
        before,
        parent: place,
        ..FlameNode::default()
    });
    nodes[place as usize].children.push(child);
}
