//! Graph state: selection, zoom and scroll of a tree of boxes.
//!
//! Owns: [`GraphState`], and how it finds its place again in a newer tree. Because: indices change with every
//! snapshot, the path of labels does not. Does not: move the selection; see [`crate::app`].

use deepctx_profile::view::snapshot::{FlameTree, FrameKind};

use crate::tree::{children, path};

/// The user's position in the tree: `selected` is `zoom`, below it, or one of its ancestors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GraphState {
    /// Selected node.
    pub(crate) selected: u32,
    /// Node at full width.
    pub(crate) zoom: u32,
    /// Node whose callees are listed, even those that differ only by a number; the root for none.
    pub(crate) listed: u32,
    /// First visible row.
    pub(crate) scroll: usize,
}

impl GraphState {
    /// Finds selection and zoom in a newer tree: the same path of labels, or as much of it as exists.
    pub(crate) fn carried_over(self, before: &FlameTree, after: &FlameTree) -> Self {
        let [selected, zoom, listed] =
            [self.selected, self.zoom, self.listed].map(|node| same_place(before, after, node));
        Self { selected, zoom, listed, ..self }
    }
}

fn same_place(before: &FlameTree, after: &FlameTree, node: u32) -> u32 {
    let mut place = 0;
    for &step in path(before, node).iter().skip(1) {
        let Some(old) = before.nodes.get(step as usize) else { break };
        let Some(next) = child_named(after, place, &old.label, old.kind) else { break };
        place = next;
    }
    place
}

/// Child by label, of the same kind if there are several.
fn child_named(tree: &FlameTree, parent: u32, label: &str, kind: FrameKind) -> Option<u32> {
    let mut named = children(tree, parent).filter(|(_, node)| node.label == label).peekable();
    let first = named.peek().map(|&(child, _)| child);
    named.find(|(_, node)| node.kind == kind).map(|(child, _)| child).or(first)
}
