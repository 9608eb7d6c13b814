//! Pin: which function is pinned.
//!
//! Owns: pinning the selection. Because: several views have functions that can be pinned. Does not: measure; see
//! [`crate::state::pin`].

use deepctx_profile::view::snapshot::FrameKind;

use super::overview;
use crate::model::Model;
use crate::page::overview::Target;
use crate::state::pin::Pin;
use crate::tab::Tab;

/// Pins the selected function; releases a pinned one.
pub(super) fn toggle(model: &mut Model) {
    let selected = match model.tab {
        Tab::Flame | Tab::Callers => {
            let innermost = model.folded.last_of(model.selected_box());
            let node = model.tree().nodes.get(innermost as usize);
            let pin = node
                .filter(|node| node.kind != FrameKind::Root)
                .map(|node| Pin::new(&node.label, &node.detail, node.kind));
            // A pinned function leaves the trunk that ends with it, and stays selected.
            if pin.is_some() {
                model.graph_mut().selected = innermost;
            }
            pin
        }
        Tab::Table => model.selected_row().map(|row| Pin::new(&row.label, &row.detail, row.kind)),
        Tab::Overview => of_context(model),
        Tab::Timeline | Tab::Source | Tab::Health => None,
    };
    match (selected, model.pin.take()) {
        (None, None) => model.status = Some("select a function first"),
        (Some(new), old) if old.as_ref().is_none_or(|old| !old.is_same_as(&new)) => {
            model.pin = Some(new);
            measure(model);
        }
        _ => {}
    }
    model.fold();
}

/// The frame that names the selected context of the overview.
fn of_context(model: &Model) -> Option<Pin> {
    let Target::Node(node) = overview::chosen(model)? else { return None };
    let node = model.flame_tree().nodes.get(node as usize)?;
    Some(Pin::new(&node.label, &node.detail, node.kind))
}

/// Finds the figures of the pinned function in the flame graph.
pub(super) fn measure(model: &mut Model) {
    if let Some(mut pin) = model.pin.take() {
        pin.measure(model.flame_tree());
        model.pin = Some(pin);
    }
}
