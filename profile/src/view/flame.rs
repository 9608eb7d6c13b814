//! Flame graph: a merged tree as boxes, root at the top.
//!
//! Owns: [`MergedTree::flame`], and one box as plain data. Because: the tree from the root and the tree of callers
//! draw the same boxes. Does not: place boxes on a screen.

use std::sync::Arc;

use super::merged_tree::{LabelId, MergedTree};
use crate::frame::FrameKind;
use crate::view::request::Resolution;
use crate::view::snapshot::{FlameNode, FlameTree, SourcePlace};

impl MergedTree {
    /// The flame graph, as of the last refresh.
    pub fn flame(&self, resolution: Resolution) -> FlameTree {
        let merged = self;
        if merged.inclusive.is_empty() {
            return FlameTree { nodes: vec![flame_root()] };
        }
        let walk = merged.walk((self.total() as f64 * resolution.least_share).ceil() as u64);
        let mut nodes: Vec<FlameNode> = Vec::with_capacity(walk.len());
        let mut path: Vec<u32> = Vec::new();
        for (node, depth) in walk {
            let place = nodes.len() as u32;
            path.truncate(depth as usize);
            let parent = path.last().copied().unwrap_or(0);
            path.push(place);
            nodes.push(FlameNode { parent, ..flame_node(merged, node) });
            if place > 0 {
                nodes[parent as usize].children.push(place);
            }
        }
        FlameTree { nodes }
    }
}

/// A box of the merged tree, without its place among others.
pub(super) fn flame_node(merged: &MergedTree, node: u32) -> FlameNode {
    let at = node as usize;
    let label = merged.label(node);
    FlameNode {
        label: label.text.clone(),
        detail: label.detail.clone(),
        kind: label.kind,
        exclusive: merged.exclusive[at],
        inclusive: merged.inclusive[at],
        before: merged.before.as_ref().map_or(0, |before| before.inclusive[at]),
        workers: merged.workers(node),
        source: source_place(merged, merged.label_id(node), merged.pid(node)),
        ..FlameNode::default()
    }
}

/// Source location of a label.
pub(super) fn source_place(merged: &MergedTree, label: LabelId, pid: u32) -> Option<SourcePlace> {
    merged.source(label).map(|(file, line)| SourcePlace { file: Arc::clone(file), line: *line, pid })
}

/// A tree without values.
pub(super) fn flame_root() -> FlameNode {
    FlameNode { label: "all".to_owned(), kind: FrameKind::Root, ..FlameNode::default() }
}
