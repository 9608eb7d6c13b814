//! Pin: one function that stays in sight, whatever view is open.
//!
//! Owns: which one, and its present values. Because: who changes something wants to see one number move. Does not: draw.

use deepctx_profile::snapshot::FrameKind;

use super::{Model, Tab, table};
use crate::layout::parent;

/// A pinned function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    /// Its text.
    pub(crate) label: String,
    detail: String,
    kind: FrameKind,
    /// Value of all its boxes and what is below them, every sample once.
    pub(crate) inclusive: u64,
    /// Value of its boxes alone.
    pub(crate) exclusive: u64,
}

impl Pin {
    /// Whether a box is of this function.
    pub(crate) fn is(&self, label: &str, detail: &str, kind: FrameKind) -> bool {
        self.label == label && self.detail == detail && self.kind == kind
    }
}

/// Pins what is selected; what was pinned already is let go.
pub(super) fn toggle(model: &mut Model) {
    let selected = match model.tab {
        Tab::Flame | Tab::Callers => model
            .tree()
            .nodes
            .get(model.graph().selected as usize)
            .filter(|node| node.kind != FrameKind::Root)
            .map(|node| (node.label.clone(), node.detail.clone(), node.kind)),
        Tab::Table => table::selected(model).map(|row| (row.label.clone(), row.detail.clone(), row.kind)),
        Tab::Timeline | Tab::Source | Tab::Losses => None,
    };
    let Some((label, detail, kind)) = selected else {
        if model.pin.take().is_none() {
            model.status = Some("select a function first");
        }
        return;
    };
    let same = model.pin.as_ref().is_some_and(|pin| pin.is(&label, &detail, kind));
    model.pin = (!same).then_some(Pin { label, detail, kind, inclusive: 0, exclusive: 0 });
    measure(model);
}

/// Finds the values of the pinned function in the flame graph.
pub(super) fn measure(model: &mut Model) {
    let Some(mut pin) = model.pin.take() else { return };
    (pin.inclusive, pin.exclusive) = (0, 0);
    let tree = model.flame_tree();
    // Parents stand before their children: one pass knows of every node whether the function is above it.
    let mut covered = vec![false; tree.nodes.len()];
    for (index, node) in (0u32..).zip(&tree.nodes) {
        let above = parent(tree, index).is_some_and(|parent| covered[parent as usize]);
        let is = pin.is(&node.label, &node.detail, node.kind);
        covered[index as usize] = above || is;
        if is {
            pin.exclusive = pin.exclusive.saturating_add(node.exclusive);
            if !above {
                pin.inclusive = pin.inclusive.saturating_add(node.inclusive);
            }
        }
    }
    model.pin = Some(pin);
}
