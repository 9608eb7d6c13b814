//! Screen: the model as cells.
//!
//! Owns: [`draw`]: which part of the screen is drawn by what. Because: a screen that depends on nothing but the model
//! can be compared with a stored one. Does not: change the model or know the terminal.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::pen::put;
use super::{
    ascii, events, footer, graph, header, health, help, metrics, overview, source, strip, table, timeline,
};
use crate::model::{Mode, Model};
use crate::tab::Tab;
use crate::theme::Theme;

/// Draws the whole screen into a blank buffer.
///
/// The buffer may differ in size from the screen that the model knows (a resize that has not been read yet): anything
/// that does not fit is left out until the next drawing.
pub fn draw(model: &Model, theme: &Theme, buffer: &mut Buffer) {
    if buffer.area == model.screen {
        return draw_all(model, theme, buffer);
    }
    let mut whole = Buffer::empty(model.screen);
    draw_all(model, theme, &mut whole);
    for position in buffer.area.intersection(model.screen).positions() {
        buffer[position] = whole[position].clone();
    }
}

fn draw_all(model: &Model, theme: &Theme, buffer: &mut Buffer) {
    let areas = model.areas();
    header::draw(model, theme, areas, buffer);
    strip::draw(model, theme, areas.strip, buffer);
    body(model, theme, areas.body, buffer);
    footer::draw(model, theme, areas.footer, buffer);
    match model.mode {
        Mode::Help(first) => help::draw(theme, model.screen, first, buffer),
        Mode::Metrics(chosen) => metrics::draw(model, theme, chosen, buffer),
        Mode::Browse | Mode::Typing(_) | Mode::ConfirmQuit => {}
    }
    if theme.is_ascii() {
        ascii::replace(buffer);
    }
}

fn body(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let Some(snapshot) = &model.snapshot else {
        return put(buffer, area, 0, "waiting for the first samples …", theme.quiet());
    };
    match model.tab {
        Tab::Source => return source::draw(model, theme, area, buffer),
        Tab::Health => return health::draw(model, snapshot, theme, area, buffer),
        _ => {}
    }
    if model.shown().is_none() {
        return put(buffer, area, 0, "loading …", theme.quiet());
    }
    if let (Tab::Timeline, Some(lanes)) = (model.tab, model.events_data()) {
        return events::draw(model, lanes, theme, area, buffer);
    }
    match (model.tab, model.timeline_data()) {
        (Tab::Overview, _) => overview::draw(model, theme, area, buffer),
        (Tab::Table, _) => table::draw(model, theme, area, buffer),
        (Tab::Timeline, Some(timeline)) => timeline::draw(model, timeline, theme, area, buffer),
        _ => graph::draw(model, theme, area, buffer),
    }
}
