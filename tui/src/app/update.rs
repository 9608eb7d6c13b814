//! Update: how each message changes the model.
//!
//! Owns: [`update`], and how snapshots are applied. Because: a function that is pure except for the model can be
//! tested. Does not: know what keys do; see `actions`.

use std::sync::Arc;

use deepctx_profile::view::snapshot::{Snapshot, TabData};
use ratatui::layout::Rect;

use super::bounds::{keep_in_range, keep_visible};
use super::{actions, graph, metrics, mouse, overview, pin, prompt, source};
use crate::message::{Effects, Message};
use crate::model::Model;
use crate::tab::Tab;

/// Changes the model by one message; otherwise without side effects.
pub fn update(model: &mut Model, message: Message) -> Effects {
    // Selection and request change in many places; the consequences are handled here.
    let (request, tab) = (model.request.clone(), model.tab);
    let effects = apply(model, message);
    model.request_tab();
    if model.tab != Tab::Flame {
        // The user left before it was found, and must not be moved to it on coming back.
        model.overview.sought = None;
    }
    if model.tab != tab {
        model.fold();
        model.search_again();
        keep_visible(model);
    }
    match effects {
        Effects::Quit { .. } | Effects::Suspend | Effects::WriteKept => effects,
        _ if model.request != request => {
            model.pending = true;
            Effects::Fetch
        }
        // The text of the file may be available already.
        _ if model.tab != tab => Effects::Fetch,
        _ => effects,
    }
}

fn apply(model: &mut Model, message: Message) -> Effects {
    match message {
        Message::Snapshot(snapshot) => take_snapshot(model, snapshot),
        Message::Text(text) => {
            source::take_text(model, text);
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
        Message::Action(action) => {
            model.status = None;
            actions::act(model, action)
        }
        Message::Character(character) => prompt::add(model, character),
        Message::Click(column, row) => mouse::click(model, column, row),
        Message::RightClick => mouse::right_click(model),
        Message::Wheel(up, column, row) => mouse::wheel(model, up, column, row),
        Message::Drag(column, _) => mouse::drag(model, column),
        Message::Release => mouse::release(model),
    }
}

fn take_snapshot(model: &mut Model, snapshot: Arc<Snapshot>) -> Effects {
    if !model.accepts_snapshot() {
        return Effects::None;
    }
    model.pending = false;
    model.flame = model.flame.carried_over(model.flame_tree(), &snapshot.flame);
    match &snapshot.extra {
        TabData::None => {}
        TabData::Overview(after) => overview::take(model, &snapshot, after),
        TabData::Callers(tree) => {
            model.callers = model.callers.carried_over(model.callers_tree(), tree);
            model.parts.callers = Some(Arc::clone(&snapshot));
        }
        TabData::Table(after) => {
            let state = std::mem::take(&mut model.table);
            model.table = state.carried_over(model.rows(), after);
            model.parts.table = Some(Arc::clone(&snapshot));
        }
        TabData::Timeline(after) => {
            model.timeline.carry_over(model.parts.timeline.as_deref(), after);
            model.parts.timeline = Some(Arc::clone(&snapshot));
        }
        TabData::Events(_) | TabData::EventRange(..) | TabData::EventTables(..) => {
            model.parts.timeline = Some(Arc::clone(&snapshot));
        }
        TabData::Source(_) => {
            model.parts.source = Some(Arc::clone(&snapshot));
            source::start(model);
        }
    }
    model.snapshot = Some(snapshot);
    pin::measure(model);
    model.fold();
    model.search_again();
    keep_in_range(model);
    metrics::follow_device(model);
    if model.tab == Tab::Flame
        && let Some(sought) = model.overview.sought.take()
    {
        graph::seek(model, &sought);
    }
    Effects::Redraw
}
