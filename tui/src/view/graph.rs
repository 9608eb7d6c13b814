//! Graph: a tree as boxes, root at the top: the flame graph, and the tree of callers.
//!
//! Owns: what is written in a box. Because: its position is computed in `layout`, for keys and mouse too. Does not:
//! read nodes that have no box.

use std::collections::BTreeMap;

use deepctx_profile::frame::{self, short_labels};
use deepctx_profile::view::snapshot::{FlameNode, FrameKind};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::{Pen, put};
use crate::difference::change;
use crate::layout::boxes::{Content, FlameBox};
use crate::model::Model;
use crate::state::search::Search;
use crate::tab::Tab;
use crate::text;
use crate::theme::{Emphasis, Theme, letter};
use crate::tree::path;

/// Left end of a box.
const EDGE: &str = "▏";

/// Fills a box after its name if there is no colour.
const LINE: &str = "─";

/// Fills the area of hidden frames, of the backward pass, of threads that spin and of probes.
const HATCH: &str = "╱";

/// Between the frames of a trunk.
const ARROW: &str = " → ";

/// Before the name of a pinned function.
const PIN: &str = "◆";

/// Columns of a screen on which a corner note has room for text.
const CORNER_WORDS: usize = 60;

/// Columns that a name must have beside a percentage.
const NAME_BESIDE_SHARE: usize = 12;

pub(crate) fn draw(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let layout = model.flame_layout();
    if model.whole() == 0 {
        put(buffer, area, 0, model.empty_reason(), theme.quiet());
        return;
    }
    let names = names(model, layout.rows.iter().take(usize::from(area.height)).flatten());
    for (y, boxes) in (area.y..area.bottom()).zip(&layout.rows) {
        let row = layout.first_row + usize::from(y - area.y);
        for it in boxes {
            let place = Rect { x: area.x + it.x, y, width: it.width, height: 1 };
            let above = row < layout.zoom_row;
            draw_box(model, theme, it, &names, above, place, buffer);
        }
    }
    if layout.first_row > 0 {
        corner("↑", &format!(" {} more", layout.first_row), area.y, area, theme, buffer);
    }
    if layout.more_below && area.height > 1 {
        corner("↓", " more", area.bottom() - 1, area, theme, buffer);
    }
}

/// A note at the right end of a row; with little room, only its sign.
fn corner(sign: &str, words: &str, y: u16, area: Rect, theme: &Theme, buffer: &mut Buffer) {
    let words = if usize::from(area.width) >= CORNER_WORDS { words } else { "" };
    let text = format!(" {sign}{words} ");
    let mut pen = Pen::new(buffer, Rect { y, height: 1, ..area }, 0);
    pen.align_right(text::width(&text));
    pen.write(&text, theme.chosen());
}

/// Short names of the nodes in these boxes: all names on screen together differ.
fn names<'b>(model: &Model, boxes: impl Iterator<Item = &'b FlameBox>) -> BTreeMap<u32, String> {
    let nodes = &model.drawn().nodes;
    let shown: Vec<(u32, &FlameNode)> = boxes
        .filter_map(|it| match it.content {
            // The names of a trunk are short already.
            Content::Node(index) if model.folded.is_trunk(index) => None,
            Content::Node(index) => Some((index, nodes.get(index as usize)?)),
            Content::Rest { .. } | Content::Hidden { .. } => None,
        })
        .collect();
    let short = short_labels(shown.iter().map(|(_, node)| (node.kind, node.label.as_str())));
    shown.into_iter().map(|(index, _)| index).zip(short).collect()
}

fn draw_box(
    model: &Model,
    theme: &Theme,
    it: &FlameBox,
    names: &BTreeMap<u32, String>,
    above: bool,
    place: Rect,
    buffer: &mut Buffer,
) {
    match it.content {
        Content::Node(index) => draw_node(model, theme, index, names, above, place, buffer),
        Content::Rest { count, value, selected, .. } => {
            let emphasis = if searched(model).is_some() { Emphasis::Faded } else { Emphasis::None };
            let style = theme.frame(FrameKind::Root, "", emphasis, selected && model.interactive);
            let share = text::percent(value, model.whole());
            fill(&format!("{count} smaller"), &share, style, theme, place, buffer);
        }
        Content::Hidden { of, value } => {
            let workers = model.drawn().nodes.get(of as usize).and_then(|node| node.workers);
            let share = |value| text::percent(value, model.whole());
            let workers = workers.map(|(kind, part)| (kind.name(), share(part)));
            hatch(&hidden(&share(value), workers.as_ref()), theme, place, buffer);
        }
    }
}

/// The search to highlight.
fn searched(model: &Model) -> Option<&Search> {
    model.search.as_ref().filter(|search| !search.is_empty())
}

fn draw_node(
    model: &Model,
    theme: &Theme,
    index: u32,
    names: &BTreeMap<u32, String>,
    above: bool,
    place: Rect,
    buffer: &mut Buffer,
) {
    let Some(node) = model.drawn().nodes.get(index as usize) else { return };
    let emphasis = match searched(model) {
        Some(search) if search.matches(&node.label) => Emphasis::Match,
        Some(_) => Emphasis::Faded,
        None if above => Emphasis::Faded,
        None => Emphasis::None,
    };
    let selected = model.interactive && index == model.selected_box();
    let mut share = text::percent(node.inclusive, model.whole());
    let since = model.shown().and_then(|snapshot| snapshot.since);
    let style = match since {
        Some(since) => {
            let change = change(node.inclusive, node.before, model.whole(), &since);
            share = format!("{share} {}", change.text());
            theme.difference(change.trend, emphasis, selected)
        }
        None => {
            if let Some((least, most)) = node.each {
                let [least, most] = [least, most].map(|value| text::percent(value, model.whole()));
                share = format!("{share}, each {least} to {most}");
            }
            theme.frame(node.kind, &node.label, emphasis, selected)
        }
    };
    let pinned = model.pin.as_ref().is_some_and(|pin| pin.is(&node.label, &node.detail, node.kind));
    let is_apart = node.label.starts_with(frame::BACKWARD) || node.label == frame::PROBES;
    let hatched = is_apart || spins(model, index);
    let before = if hatched { format!("{HATCH}{HATCH} ") } else { String::new() };
    let name = match model.folded.is_trunk(index) {
        true => {
            let around = text::width(&label(&before, node.kind, theme, emphasis, pinned));
            trunk(model, &node.label, name_room(&share, place).0.saturating_sub(around))
        }
        false => {
            let room = usize::from(place.width).saturating_sub(2);
            let short = || names.get(&index).unwrap_or(&node.label).clone();
            layer_within(model, index, room).unwrap_or_else(short)
        }
    };
    let name = label(&(before + &name), node.kind, theme, emphasis, pinned);
    fill(&name, &share, style, theme, place, buffer);
    if hatched {
        hatch_free(place, buffer);
    }
}

/// Whether a box is of threads that spin: alone, or in a trunk, as of a thread that does nothing else.
fn spins(model: &Model, index: u32) -> bool {
    let (first, last) = (model.folded.first_of(index), model.folded.last_of(index));
    let chain = path(model.tree(), last).into_iter().skip_while(|&node| node != first);
    let mut labels = chain.filter_map(|node| model.tree().nodes.get(node as usize));
    labels.any(|node| node.label == frame::SPINNING)
}

/// Texts for frames hidden in this view, the longest first: the kind of threads with most of the time, if known.
fn hidden(share: &str, workers: Option<&(&str, String)>) -> Vec<String> {
    let mut labels = Vec::new();
    if let Some((name, part)) = workers {
        let all = if part == share { String::new() } else { format!(", of {share}") };
        labels.push(format!(" no Python: {name} {part}{all}; v shows native code "));
        labels.push(format!(" no Python: {name} {part}{all} "));
        labels.push(format!(" {name} {part} "));
    } else {
        labels.push(format!(" no Python frames {share}: v shows native code "));
    }
    labels.push(format!(" no Python {share} "));
    labels
}

/// Fills the area of hidden frames, with a text if there is room.
fn hatch(labels: &[String], theme: &Theme, place: Rect, buffer: &mut Buffer) {
    let mut pen = Pen::new(buffer, place, 0);
    let label = labels.iter().find(|label| text::width(label) <= pen.room()).map_or("", String::as_str);
    let room = pen.room() - text::width(label);
    pen.write(&HATCH.repeat(room / 2), theme.quiet());
    pen.write(label, theme.quiet());
    pen.write(&HATCH.repeat(room - room / 2), theme.quiet());
}

/// Hatches the free area within a box: it differs from boxes of work, whatever the colours.
pub(super) fn hatch_free(place: Rect, buffer: &mut Buffer) {
    let free = |buffer: &Buffer, x: u16| {
        !(place.x..place.right()).contains(&x)
            || buffer.cell((x, place.y)).is_some_and(|cell| [" ", LINE, HATCH].contains(&cell.symbol()))
    };
    for x in place.x + 1..place.right() {
        // One column beside a word stays free.
        if free(buffer, x)
            && free(buffer, x + 1)
            && (x == place.x + 1 || free(buffer, x - 1))
            && let Some(cell) = buffer.cell_mut((x, place.y))
        {
            cell.set_symbol(HATCH);
        }
    }
}

/// Name with its letter if there is no colour, and then also with a star if it matches. A pinned function has a sign in
/// every palette.
fn label(text: &str, kind: FrameKind, theme: &Theme, emphasis: Emphasis, pinned: bool) -> String {
    let mut name = String::from(if pinned { PIN } else { "" });
    name.extend(text.chars().take(usize::from(u16::MAX)));
    if !theme.uses_letters() || kind == FrameKind::Root {
        return name;
    }
    let star = if emphasis == Emphasis::Match { "*" } else { "" };
    format!("{}{star} {name}", letter(kind))
}

/// The name of a trunk: its most important part is at the end, or at the beginning in the callers tab.
fn trunk(model: &Model, name: &str, room: usize) -> String {
    if model.tab == Tab::Callers || text::width(name) <= room {
        return text::cut(name, room);
    }
    if let Some(rest) = name.strip_prefix(frame::BACKWARD).and_then(|rest| rest.strip_prefix(ARROW)) {
        let half = format!("{}{ARROW}", frame::BACKWARD);
        return match room.saturating_sub(text::width(&half)) {
            0..=3 => text::cut(frame::BACKWARD, room),
            room => half + &trunk(model, rest, room),
        };
    }
    let mut rest = name;
    while let Some((_, inner)) = rest.split_once(ARROW) {
        rest = inner;
        let shorter = format!("…{ARROW}{rest}");
        if text::width(&shorter) <= room {
            return shorter;
        }
    }
    text::cut(rest.split_once(" frames: ").map_or(rest, |(_, named)| named), room)
}

/// The name of a layer that has too little room, without the prefix of its enclosing layer.
fn layer_within(model: &Model, place: u32, room: usize) -> Option<String> {
    let nodes = &model.drawn().nodes;
    let node = nodes.get(place as usize).filter(|node| node.kind == FrameKind::Layer)?;
    if text::width(&node.label) <= room {
        return None;
    }
    let around = path(model.drawn(), place);
    let mut layers = around.iter().rev().skip(1).filter_map(|&at| nodes.get(at as usize));
    let outer = layers.find(|node| node.kind == FrameKind::Layer)?;
    frame::layer_within(&node.label, &outer.label)
}

/// Fills a box: edge, name, and its share of the whole if there is room for both.
pub(super) fn fill(name: &str, share: &str, style: Style, theme: &Theme, place: Rect, buffer: &mut Buffer) {
    buffer.set_style(place, style);
    buffer.set_string(place.x, place.y, EDGE, theme.edge(style));
    let mut pen = Pen::new(buffer, Rect { x: place.x + 1, width: place.width - 1, ..place }, 0);
    let (for_name, beside) = name_room(share, place);
    let share_width = text::width(share) + 2;
    // One column of a name is useless, and an ellipsis there looks like a name.
    if for_name >= 2 {
        pen.write(&text::cut(name, for_name), style);
    }
    // Without a background, only a line shows how far the box extends.
    if theme.uses_letters() {
        let end = if beside { share_width } else { 0 };
        let line = pen.room().saturating_sub(end + 1);
        if line > 0 && for_name >= 2 {
            pen.skip(1);
            pen.write(&LINE.repeat(line), style);
        }
    }
    if beside {
        pen.align_right(share_width - 1);
        pen.write(share, style);
    }
}

/// Columns of a box for its name, and whether its share is shown beside it.
fn name_room(share: &str, place: Rect) -> (usize, bool) {
    let room = usize::from(place.width).saturating_sub(1);
    let share_width = text::width(share) + 2;
    let beside = !share.is_empty() && room >= share_width + NAME_BESIDE_SHARE;
    (if beside { room - share_width } else { room }, beside)
}

/// Boxes from the root to the selected node, for the footer: nearest first.
pub(crate) fn above(model: &Model) -> String {
    let tree = model.drawn();
    let mut ancestors = path(tree, model.selected_box());
    ancestors.pop();
    let names = ancestors.iter().rev().take(8).filter_map(|&node| tree.nodes.get(node as usize));
    names.map(|node| node.label.as_str()).collect::<Vec<_>>().join(" ← ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::Palette;

    fn drawn(width: u16, draw: impl Fn(Rect, &mut Buffer)) -> String {
        let place = Rect { x: 0, y: 0, width, height: 1 };
        let mut buffer = Buffer::empty(place);
        draw(place, &mut buffer);
        (0..width).map(|x| buffer[(x, 0)].symbol()).collect()
    }

    #[test]
    fn hidden_time_names_the_threads_it_is_of() {
        let theme = Theme::new(Palette::Plain);
        let check = |width, workers: Option<(&str, &str)>, expect: &str| {
            let workers = workers.map(|(name, part)| (name, part.to_owned()));
            let labels = hidden("50.1%", workers.as_ref());
            assert_eq!(drawn(width, |place, buffer| hatch(&labels, &theme, place, buffer)), expect);
        };
        let openmp = Some(("OpenMP workers", "46.6%"));
        check(70, openmp, "╱╱╱ no Python: OpenMP workers 46.6%, of 50.1%; v shows native code ╱╱╱");
        check(50, openmp, "╱╱╱ no Python: OpenMP workers 46.6%, of 50.1% ╱╱╱╱");
        check(26, openmp, "╱╱ OpenMP workers 46.6% ╱╱");
        check(20, openmp, "╱ no Python 50.1% ╱╱");
        check(8, openmp, "╱╱╱╱╱╱╱╱");
        check(50, Some(("OpenMP workers", "50.1%")), "╱╱╱╱╱╱╱╱ no Python: OpenMP workers 50.1% ╱╱╱╱╱╱╱╱╱");
        check(50, None, "╱╱ no Python frames 50.1%: v shows native code ╱╱╱");
    }

    #[test]
    fn the_backward_pass_is_hatched_beside_its_words() {
        for palette in [Palette::Plain, Palette::True] {
            let theme = Theme::new(palette);
            let style = theme.frame(FrameKind::Operator, frame::BACKWARD, Emphasis::None, false);
            let text = drawn(40, |place, buffer| {
                let name = label(frame::BACKWARD, FrameKind::Operator, &theme, Emphasis::None, false);
                fill(&name, "46.0%", style, &theme, place, buffer);
                hatch_free(place, buffer);
            });
            let around = text.split("[backward]").nth(1).unwrap();
            assert!(around.starts_with(" ╱") && around.trim_end().ends_with("╱ 46.0%"), "{text}");
            assert!(!text.contains(LINE), "{text}");
        }
    }
}
