//! Tree: walking the tree of a snapshot safely.
//!
//! Owns: children, parent and path of a node. Because: a damaged file may hold a tree whose indices form a loop. Does
//! not: place boxes.

use deepctx_profile::view::snapshot::{FlameNode, FlameTree};

/// Children of a node that are safe to follow.
pub(crate) fn children(tree: &FlameTree, parent: u32) -> impl Iterator<Item = (u32, &FlameNode)> {
    tree.children(parent)
}

/// Parent of a node; `None` for the root, for an index out of range and for a parent that does not precede it.
pub(crate) fn parent(tree: &FlameTree, node: u32) -> Option<u32> {
    let parent = tree.nodes.get(node as usize)?.parent;
    (parent < node).then_some(parent)
}

/// Nodes from the root down to `node`, both included; ascending.
pub(crate) fn path(tree: &FlameTree, node: u32) -> Vec<u32> {
    let mut path = vec![node];
    while let Some(above) = parent(tree, path[path.len() - 1]) {
        path.push(above);
    }
    path.reverse();
    path
}
