//! Flames: one box of a merged tree as the plain data that is drawn.
//!
//! Owns: [`flame_node`], [`source_place`]. Because: the tree from the root and the tree of callers draw the same boxes. Does not: decide
//! which boxes there are.

use std::sync::Arc;

use super::merged::{LabelId, Merged};
use crate::snapshot::{FlameNode, SourcePlace};

/// A box of the merged tree, without its place among others.
pub(super) fn flame_node(merged: &Merged, node: u32) -> FlameNode {
    let at = node as usize;
    let label = merged.label(node);
    FlameNode {
        label: label.text.clone(),
        detail: label.detail.clone(),
        kind: label.kind,
        exclusive: merged.exclusive[at],
        inclusive: merged.inclusive[at],
        before: merged.before.as_ref().map_or(0, |before| before.inclusive[at]),
        source: source_place(merged, merged.label_id(node), merged.pid(node)),
        ..FlameNode::default()
    }
}

/// Where the source of a label is.
pub(super) fn source_place(merged: &Merged, label: LabelId, pid: u32) -> Option<SourcePlace> {
    merged.source(label).map(|(file, line)| SourcePlace { file: Arc::clone(file), line: *line, pid })
}
