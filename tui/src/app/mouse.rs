//! Mouse: what clicks and the wheel do.
//!
//! Owns: which part of the screen was hit. Because: everything that keys do can also be done with the mouse. Does
//! not: know where boxes and columns are; see [`crate::layout`].

use super::bounds::keep_in_range;
use super::{actions, events, graph, metrics, overview, source, table, timeline};
use crate::keys::Action;
use crate::layout::tabs::{tab_at, titles};
use crate::message::Effects;
use crate::model::{Mode, Model};
use crate::page;
use crate::tab::Tab;

/// Lines per turn of the mouse wheel.
const WHEEL_LINES: usize = 3;

pub(super) fn click(model: &mut Model, column: u16, row: u16) -> Effects {
    model.status = None;
    match model.mode {
        Mode::Browse => {}
        Mode::Help(_) => return actions::act(model, Action::Help),
        Mode::Metrics(chosen) => return click_metric(model, chosen, column, row),
        Mode::Typing(_) | Mode::ConfirmQuit => return Effects::None,
    }
    let areas = model.areas();
    if let Some(tabs) = areas.tabs().filter(|tabs| tabs.y == row) {
        let titles = titles(model.tab, model.has_losses(), tabs.width);
        let Some(tab) = tab_at(column, &titles) else { return Effects::None };
        model.tab = tab;
        keep_in_range(model);
        return Effects::Redraw;
    }
    if !areas.body.contains((column, row).into()) {
        return Effects::None;
    }
    let (x, y) = (column - areas.body.x, usize::from(row - areas.body.y));
    match model.tab {
        Tab::Overview => overview::click(model, x, y),
        Tab::Flame | Tab::Callers => graph::click(model, x, y),
        Tab::Table => table::click(model, x, y),
        Tab::Timeline if events::is_shown(model) => events::click(model, column, row),
        Tab::Timeline => timeline::click(model, x, y),
        Tab::Source => source::click(model, y),
        Tab::Health => return Effects::None,
    }
    Effects::Redraw
}

/// Shows the clicked metric; a click beside the menu closes it.
fn click_metric(model: &mut Model, chosen: usize, column: u16, row: u16) -> Effects {
    let area = page::metrics::area(page::metrics::page(model.screen, model.metrics().len()));
    if area.contains((column, row).into()) {
        metrics::accept(model, page::metrics::first(area, chosen) + usize::from(row - area.y));
    } else {
        model.mode = Mode::Browse;
    }
    keep_in_range(model);
    Effects::Redraw
}

pub(super) fn right_click(model: &mut Model) -> Effects {
    if model.mode == Mode::Browse && matches!(model.tab, Tab::Flame | Tab::Callers | Tab::Timeline) {
        return actions::act(model, Action::ZoomOut);
    }
    Effects::None
}

/// Only a trace supports dragging.
pub(super) fn drag(model: &mut Model, column: u16) -> Effects {
    if events::is_shown(model) { events::drag(model, column) } else { Effects::None }
}

pub(super) fn release(model: &mut Model) -> Effects {
    if events::is_shown(model) { events::release(model) } else { Effects::None }
}

pub(super) fn wheel(model: &mut Model, up: bool, column: u16, row: u16) -> Effects {
    if events::is_shown(model) && model.areas().body.contains((column, row).into()) {
        events::wheel(model, up, column);
        return Effects::Redraw;
    }
    let step =
        |line: usize| if up { line.saturating_sub(WHEEL_LINES) } else { line.saturating_add(WHEEL_LINES) };
    let one = if up { Action::Up } else { Action::Down };
    let line = match (&mut model.mode, model.tab) {
        (Mode::Help(line), _) => line,
        (Mode::Metrics(_), _) | (_, Tab::Overview) => return actions::act(model, one),
        (_, Tab::Flame) => &mut model.flame.scroll,
        (_, Tab::Callers) => &mut model.callers.scroll,
        (_, Tab::Table) => &mut model.table.scroll,
        (_, Tab::Timeline) => &mut model.timeline.scroll,
        (_, Tab::Source) => &mut model.source.scroll,
        (_, Tab::Health) => &mut model.health_scroll,
    };
    *line = step(*line);
    keep_in_range(model);
    Effects::Redraw
}
