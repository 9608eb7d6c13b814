//! Pin: one function whose figures stay visible in every tab.
//!
//! Owns: [`Pin`], and its figures in a tree. Because: while optimizing a function, its number should stay visible.
//! Does not: draw.

use deepctx_profile::view::snapshot::{FlameTree, FrameKind};

use crate::tree::parent;

/// A pinned function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    /// Its text.
    pub(crate) label: String,
    detail: String,
    kind: FrameKind,
    /// Value of all its boxes and their callees, counting every sample once.
    pub(crate) inclusive: u64,
    /// Value of its boxes alone.
    pub(crate) exclusive: u64,
}

impl Pin {
    /// Whether a box is of this function.
    pub(crate) fn is(&self, label: &str, detail: &str, kind: FrameKind) -> bool {
        self.label == label && self.detail == detail && self.kind == kind
    }

    /// Whether both are the same function.
    pub(crate) fn is_same_as(&self, other: &Pin) -> bool {
        self.is(&other.label, &other.detail, other.kind)
    }

    /// A pinned function whose figures are not known yet.
    pub(crate) fn new(label: &str, detail: &str, kind: FrameKind) -> Self {
        Self { label: label.to_owned(), detail: detail.to_owned(), kind, inclusive: 0, exclusive: 0 }
    }

    /// Finds the figures in a tree.
    pub(crate) fn measure(&mut self, tree: &FlameTree) {
        (self.inclusive, self.exclusive) = (0, 0);
        // Parents precede their children: one pass determines for every node whether the function is above it.
        let mut covered = vec![false; tree.nodes.len()];
        for (index, node) in (0u32..).zip(&tree.nodes) {
            let above = parent(tree, index).is_some_and(|parent| covered[parent as usize]);
            let is = self.is(&node.label, &node.detail, node.kind);
            covered[index as usize] = above || is;
            if is {
                self.exclusive = self.exclusive.saturating_add(node.exclusive);
                if !above {
                    self.inclusive = self.inclusive.saturating_add(node.inclusive);
                }
            }
        }
    }
}
