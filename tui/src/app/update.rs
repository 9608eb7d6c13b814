//! Update: how each message changes the model.
//!
//! Owns: the one function that does, and the taking in of snapshots. Because: that it is pure but for the model makes
//! the program testable. Does not: know what keys do; see `act`.

use std::sync::Arc;

use deepctx_profile::snapshot::{Extra, Snapshot};
use deepctx_profile::view::Part;
use ratatui::layout::Rect;

use super::{Effects, Message, Mode, Model, Tab, act, graph, lines, mouse, pin, prompt, table, timeline};
use crate::view;

/// Changes the model by one message; pure but for the model itself.
pub fn update(model: &mut Model, message: Message) -> Effects {
    // What is selected and what is asked for can change in many places; what follows from it is decided here.
    let (request, tab) = (model.request.clone(), model.tab);
    let effects = apply(model, message);
    ask_for_tab(model);
    if model.tab != tab {
        prompt::search_again(model);
        keep_visible(model);
    }
    match effects {
        Effects::Quit { .. } => effects,
        _ if model.request != request => {
            model.awaiting = true;
            Effects::Fetch
        }
        // The text of the file may be there already.
        _ if model.tab != tab => Effects::Fetch,
        _ => effects,
    }
}

fn apply(model: &mut Model, message: Message) -> Effects {
    match message {
        Message::Snapshot(snapshot) => take_snapshot(model, snapshot),
        Message::Text(text) => {
            lines::take_text(model, text);
            Effects::Redraw
        }
        Message::Live(live) => {
            let changed = model.live != live;
            model.live = live;
            if changed { Effects::Redraw } else { Effects::None }
        }
        Message::Resize(width, height) => {
            model.screen = Rect::new(0, 0, width, height);
            keep_visible(model);
            Effects::Redraw
        }
        Message::Act(action) => {
            model.status = None;
            act::act(model, action)
        }
        Message::Type(character) => prompt::add(model, character),
        Message::Click(column, row) => mouse::click(model, column, row),
        Message::RightClick => mouse::right_click(model),
        Message::Wheel(up) => mouse::wheel(model, up),
    }
}

/// Asks for what the tab shows.
pub(super) fn ask_for_tab(model: &mut Model) {
    model.request.part = match model.tab {
        Tab::Flame | Tab::Losses => Part::Flame,
        Tab::Callers => Part::Callers,
        Tab::Table => Part::Table,
        Tab::Timeline => Part::Timeline,
        Tab::Source => {
            model.lines.place.as_ref().map_or(Part::Flame, |place| Part::Source(Arc::clone(&place.file)))
        }
    };
}

fn take_snapshot(model: &mut Model, snapshot: Arc<Snapshot>) -> Effects {
    if !model.wants_snapshot() {
        return Effects::None;
    }
    model.awaiting = false;
    model.flame = model.flame.carried_over(model.flame_tree(), &snapshot.flame);
    match &snapshot.extra {
        Extra::None => {}
        Extra::Callers(tree) => {
            model.callers = model.callers.carried_over(model.callers_tree(), tree);
            model.parts.callers = Some(Arc::clone(&snapshot));
        }
        Extra::Table(after) => {
            let state = std::mem::take(&mut model.table);
            model.table = state.carried_over(model.rows(), after);
            model.parts.table = Some(Arc::clone(&snapshot));
        }
        Extra::Timeline(after) => {
            model.timeline.carry_over(model.parts.timeline.as_deref(), after);
            model.parts.timeline = Some(Arc::clone(&snapshot));
        }
        Extra::Source(_) => {
            model.parts.source = Some(Arc::clone(&snapshot));
            lines::start(model);
        }
    }
    model.snapshot = Some(snapshot);
    prompt::search_again(model);
    pin::measure(model);
    keep_in_range(model);
    Effects::Redraw
}

/// Clamps what may point past its end after the content or the screen changed.
pub(super) fn keep_in_range(model: &mut Model) {
    graph::keep_in_range(model);
    table::keep_in_range(model);
    timeline::keep_in_range(model);
    lines::keep_in_range(model);
    let lines = view::losses::line_count(model);
    model.losses_scroll =
        model.losses_scroll.min(lines.saturating_sub(usize::from(model.areas().body.height)));
    let lines = view::help::line_count();
    let height = usize::from(view::help::area(model.screen).height);
    if let Mode::Help(line) = &mut model.mode {
        *line = (*line).min(lines.saturating_sub(height));
    }
}

/// Scrolls so that what is selected can be seen, after the screen changed.
pub(super) fn keep_visible(model: &mut Model) {
    graph::keep_visible(model);
    table::keep_visible(model);
    timeline::keep_visible(model);
    lines::keep_visible(model);
    keep_in_range(model);
}
