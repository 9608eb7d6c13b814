//! Graph: how the selection, zoom and scroll of the flame graph and of the tree of callers move.
//!
//! Owns: navigation and clicks among boxes. Because: keys must select boxes that are visible, and a folded chain is one
//! box. Does not: place boxes; see [`crate::layout::boxes`].

use deepctx_profile::view::snapshot::{FlameTree, SourcePlace};

use crate::keys::Action;
use crate::layout::boxes::{Content, FlameBox, FlameLayout};
use crate::model::Model;
use crate::state::graph::GraphState;
use crate::tree::{children, parent, path};

/// Rows of ancestors that stay visible above the box zoomed into.
const ANCESTORS_IN_SIGHT: usize = 3;

/// Minimum columns of a box to jump to it without zooming.
const RECOGNIZABLE: u16 = 4;

/// Columns that a box should have after a zooming jump, so that its name is readable.
const READABLE: u16 = 12;

/// The row of a node: its distance from the root.
fn row_of(tree: &FlameTree, node: u32) -> usize {
    path(tree, node).len() - 1
}

fn height(model: &Model) -> usize {
    usize::from(model.areas().body.height).max(1)
}

/// Row and index of the selection's box, or of the nearest ancestor with one.
fn visible_box(model: &Model) -> (usize, usize, FlameLayout, u32) {
    let mut node = model.selected_box();
    loop {
        let row = row_of(model.drawn(), node);
        let layout = model.flame_rows(row, 1);
        if let Some((row, place)) = layout.find(node) {
            return (row, place, layout, node);
        }
        match parent(model.drawn(), node) {
            Some(above) => node = above,
            None => return (0, 0, layout, 0),
        }
    }
}

pub(crate) fn navigate(model: &mut Model, action: Action) {
    if model.drawn().nodes.is_empty() {
        return;
    }
    match action {
        Action::Up => {
            if let Some(above) = parent(model.drawn(), model.selected_box()) {
                model.select_box(above);
            }
        }
        Action::Down => {
            let any = children(model.drawn(), model.selected_box()).next().is_some();
            let narrow = "callees are narrower than a cell here: Enter zooms in";
            model.status = (!descend(model)).then_some(if any { narrow } else { "no callees" });
        }
        Action::Left | Action::Right => sideways(model, action == Action::Right),
        Action::PageUp => {
            for _ in 1..height(model) {
                if let Some(above) = parent(model.drawn(), model.selected_box()) {
                    model.select_box(above);
                }
            }
        }
        Action::PageDown => {
            for _ in 1..height(model) {
                descend(model);
            }
        }
        Action::First => model.select_box(0),
        Action::Last => while descend(model) {},
        Action::Enter => {
            let selected = model.selected_box();
            // Siblings in one box are listed below their caller.
            match parent(model.drawn(), selected).filter(|_| model.folded.joins(selected)) {
                Some(caller) => model.list_box(caller),
                None => model.zoom_box(selected),
            }
            show_zoom(model);
        }
        Action::ZoomOut => {
            if let Some(above) = parent(model.drawn(), model.zoomed_box()) {
                model.zoom_box(above);
            }
        }
        Action::ZoomReset => model.zoom_box(0),
        _ => {}
    }
    keep_visible(model);
    keep_in_range(model);
}

/// Selects the hottest callee if it is wide enough to be visible; above the zoomed box, the next box towards it.
fn descend(model: &mut Model) -> bool {
    let (selected, zoom) = (model.selected_box(), model.zoomed_box());
    let tree = model.drawn();
    if selected < zoom
        && let Some(&next) = path(tree, zoom).iter().find(|&&node| node > selected)
    {
        model.select_box(next);
        return true;
    }
    let hottest = children(tree, selected).reduce(|a, b| if b.1.inclusive > a.1.inclusive { b } else { a });
    let Some((next, _)) = hottest else { return false };
    let wide = share_of_zoom(model, next) >= 1;
    if wide {
        model.select_box(next);
    }
    wide
}

/// Columns of a node below the zoomed one, without rounding and without the boxes between the two.
fn share_of_zoom(model: &Model, node: u32) -> u128 {
    columns(model, model.zoomed_box(), node)
}

fn columns(model: &Model, zoom: u32, node: u32) -> u128 {
    let value = |node: u32| model.drawn().nodes.get(node as usize).map_or(0, |it| u128::from(it.inclusive));
    let whole = value(zoom).max(1);
    value(node) * u128::from(model.areas().body.width) / whole
}

fn sideways(model: &mut Model, right: bool) {
    let (row, place, _, node) = visible_box(model);
    model.select_box(node);
    let layout = model.flame_rows(row, 1);
    let is_node = |it: &&FlameBox| matches!(it.content, Content::Node(_));
    let boxes = layout.row(row);
    let next = if right {
        boxes.iter().skip(place + 1).find(is_node)
    } else {
        boxes.iter().take(place).rev().find(is_node)
    };
    match next.map(|it| it.content) {
        Some(Content::Node(next)) => model.select_box(next),
        _ => model.status = Some(if right { "nothing further right" } else { "nothing further left" }),
    }
}

/// Scrolls so that the zoomed box is near the top, with a few ancestors above it.
fn show_zoom(model: &mut Model) {
    let row = row_of(model.drawn(), model.zoomed_box());
    model.graph_mut().scroll = row.saturating_sub(ANCESTORS_IN_SIGHT.min(height(model) / 3));
}

/// Shows a node of the snapshot at full width.
pub(crate) fn zoom_to(model: &mut Model, node: u32) {
    let graph = model.graph_mut();
    *graph = GraphState { selected: node, zoom: node, listed: 0, ..*graph };
    model.fold();
    show_zoom(model);
    keep_visible(model);
}

/// Searches for a function and selects its hottest box.
pub(crate) fn seek(model: &mut Model, label: &str) {
    model.set_search(label);
    match hottest(model, label) {
        Some(node) => reveal(model, node),
        None => model.status = Some("no box of this: v shows other frames, m other metrics"),
    }
}

/// The hottest box of a function, by its whole name, otherwise by part of it.
pub(crate) fn hottest(model: &Model, label: &str) -> Option<u32> {
    let tree = model.tree();
    let by_value = |node: &u32| (tree.nodes[*node as usize].inclusive, std::cmp::Reverse(*node));
    let all = || (0u32..).zip(&tree.nodes);
    let exact = all().filter(|(_, node)| node.label == label).map(|(at, _)| at).max_by_key(by_value);
    let part = || all().filter(|(_, node)| node.label.contains(label)).map(|(at, _)| at).max_by_key(by_value);
    exact.or_else(part).filter(|_| !label.is_empty())
}

/// The source of a function's hottest box, or of its nearest caller that has one; and whether it is its own.
pub(crate) fn hottest_source(model: &Model, label: &str) -> Option<(SourcePlace, bool)> {
    nearest_source(model.tree(), hottest(model, label)?)
}

/// The source of a node, or of its nearest caller that has one; and whether it is the node's own.
pub(crate) fn nearest_source(tree: &FlameTree, node: u32) -> Option<(SourcePlace, bool)> {
    let sources = path(tree, node).into_iter().rev();
    let mut known = sources.filter_map(|at| {
        let place = tree.nodes.get(at as usize)?.source.clone()?;
        Some((place, at == node))
    });
    known.next()
}

/// Selects any node of the snapshot, zooming to the farthest ancestor at which its name is readable.
pub(crate) fn reveal(model: &mut Model, node: u32) {
    let node = model.folded.box_of(node);
    let ancestors = path(model.drawn(), node);
    let width = model.areas().body.width;
    let in_zoom = ancestors.contains(&model.zoomed_box());
    model.select_box(node);
    if !in_zoom || columns(model, model.zoomed_box(), node) < u128::from(RECOGNIZABLE.min(width)) {
        let readable = u128::from(READABLE.min(width));
        let far = ancestors.iter().copied().find(|&zoom| columns(model, zoom, node) >= readable);
        model.zoom_box(far.unwrap_or(node));
        show_zoom(model);
    }
    keep_visible(model);
    keep_in_range(model);
}

pub(crate) fn click(model: &mut Model, x: u16, y: usize) {
    let row = model.graph().scroll + y;
    let hit = model.flame_layout().at(row, x).map(|it| it.content);
    match hit {
        Some(Content::Node(node)) if node == model.selected_box() => navigate(model, Action::Enter),
        Some(Content::Node(node)) => model.select_box(node),
        Some(Content::Rest { parent, .. }) => {
            model.select_box(parent);
            model.status = Some("these are narrower than a cell: Enter zooms in");
        }
        Some(Content::Hidden { .. }) => model.status = Some("native code: v shows it"),
        None => {}
    }
    keep_in_range(model);
}

/// Scrolls so that the selected box is visible.
pub(crate) fn keep_visible(model: &mut Model) {
    let row = row_of(model.drawn(), model.selected_box());
    let height = height(model);
    let scroll = &mut model.graph_mut().scroll;
    *scroll = (*scroll).clamp((row + 1).saturating_sub(height), row);
}

/// Keeps at least one row of boxes visible, and selection and zoom inside the tree and on one line of descent.
pub(crate) fn keep_in_range(model: &mut Model) {
    let last = u32::try_from(model.tree().nodes.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let (selected, zoom) = (model.graph().selected.min(last), model.graph().zoom.min(last));
    (model.graph_mut().selected, model.graph_mut().zoom) = (selected, zoom);
    keep_in_line(model);
    if model.graph().scroll == 0 {
        return;
    }
    let height = height(model);
    let deepest = model.flame_rows(0, model.graph().scroll.saturating_add(height)).rows.len();
    model.graph_mut().scroll = model.graph().scroll.min(deepest.saturating_sub(height));
}

/// Keeps selection and zoom on one line of descent: if they are not, zooms into the nearest common caller. A box may
/// represent several nodes: the one on the line of the other counts.
fn keep_in_line(model: &mut Model) {
    let GraphState { selected, zoom, .. } = *model.graph();
    let (above, below) = (path(model.tree(), zoom), path(model.tree(), selected));
    if above.contains(&selected) || below.contains(&zoom) {
        return;
    }
    let of_box = |place: u32, line: &[u32]| line.iter().copied().find(|&at| model.folded.box_of(at) == place);
    let common = above.iter().zip(&below).take_while(|(a, b)| a == b).map(|(a, _)| *a).last();
    let (selected, zoom) = match (of_box(model.zoomed_box(), &below), of_box(model.selected_box(), &above)) {
        (Some(zoom), _) => (selected, zoom),
        (None, Some(selected)) => (selected, zoom),
        (None, None) => (selected, common.unwrap_or(below[0])),
    };
    (model.graph_mut().selected, model.graph_mut().zoom) = (selected, zoom);
    model.fold();
}
