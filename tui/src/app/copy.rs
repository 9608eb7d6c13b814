//! Copy: the text that a key gives to the user's clipboard.
//!
//! Owns: the text of the selection in each tab. Because: a stack is quoted in reports and chats, and the screen shows
//! it cut to its width and mixed with borders. Does not: reach a clipboard; the event loop asks the terminal (OSC 52).

use deepctx_profile::frame::clean;
use deepctx_profile::view::snapshot::{FlameTree, FrameKind};

use super::overview;
use crate::message::Effects;
use crate::model::Model;
use crate::page::overview::Target;
use crate::tab::Tab;
use crate::text;
use crate::tree::path;

/// Maximum copied text: terminals drop longer ones (xterm and tmux keep about 75,000 characters of base64).
const BYTES_MAX: usize = 48 << 10;

/// Copies the selection; shows that it did, or what to select first.
pub(super) fn copy(model: &mut Model) -> Effects {
    let Some(mut copied) = selection(model) else {
        model.status = Some("select a stack, a row or a line first");
        return Effects::Redraw;
    };
    if copied.len() > BYTES_MAX {
        copied.truncate(copied.floor_char_boundary(BYTES_MAX));
        copied.push_str("\n…");
    }
    model.status = Some("copied, if the terminal permits it (OSC 52)");
    model.clipboard = Some(copied);
    Effects::Copy
}

/// The selection as text.
fn selection(model: &Model) -> Option<String> {
    match model.tab {
        Tab::Flame | Tab::Callers => {
            let innermost = model.folded.last_of(model.selected_box());
            stack(model, model.tree(), innermost)
        }
        Tab::Table => model.selected_row().map(|row| name(&row.label, &row.detail)),
        Tab::Overview => match overview::chosen(model)? {
            Target::Finding(at) => {
                let finding = overview::finding(model, at)?;
                let places = finding.places.iter().map(|place| format!("\n  at {}", place.label));
                Some(finding.title.clone() + &places.collect::<String>())
            }
            Target::Node(node) => stack(model, model.flame_tree(), node),
        },
        Tab::Source => {
            let place = model.source.place.as_ref()?;
            Some(format!("{}:{}", clean(&place.file), model.source.line))
        }
        Tab::Timeline | Tab::Health => None,
    }
}

/// The frames from the outermost to `node`, one per line, and the value of the last one.
fn stack(model: &Model, tree: &FlameTree, node: u32) -> Option<String> {
    let last = tree.nodes.get(node as usize).filter(|node| node.kind != FrameKind::Root)?;
    let frames = path(tree, node);
    let frames = frames.iter().filter_map(|&at| tree.nodes.get(at as usize));
    let mut copied = String::new();
    for frame in frames.filter(|frame| frame.kind != FrameKind::Root) {
        copied.push_str(&name(&frame.label, &frame.detail));
        copied.push('\n');
    }
    let metric = model.request.selection.metric;
    let value = text::value(metric.unit(), last.inclusive);
    copied.push_str(&format!("{} {value}", text::metric(metric.name())));
    Some(copied)
}

/// A name with its location, if known.
fn name(label: &str, detail: &str) -> String {
    if detail.is_empty() { label.to_owned() } else { format!("{label}  ({detail})") }
}
