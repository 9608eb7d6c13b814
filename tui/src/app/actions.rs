//! Actions: what each action of the key table does.
//!
//! Owns: the dispatch of actions; each view moves its own state. Because: one list shows what the program can do.
//! Does not: know keys.

use deepctx_profile::metric::Metric;
use deepctx_profile::selection::{GroupBy, View};
use deepctx_profile::snapshot::SourcePlace;

use super::bounds::keep_in_range;
use super::{graph, matches, pin, prompt, source, table, timeline};
use crate::keys::Action;
use crate::message::Effects;
use crate::model::{Mode, Model};
use crate::tab::Tab;

pub(super) fn act(model: &mut Model, action: Action) -> Effects {
    match action {
        Action::Quit if model.setup.can_save => model.mode = Mode::ConfirmQuit,
        Action::Quit | Action::QuitDropping => return Effects::Quit { save: false },
        Action::QuitSaving => return Effects::Quit { save: true },
        Action::Help => {
            model.mode = if matches!(model.mode, Mode::Help(_)) { Mode::Browse } else { Mode::Help(0) };
        }
        Action::Pause => model.paused = !model.paused,
        Action::NextTab => model.tab = model.tab.step(1),
        Action::PreviousTab => model.tab = model.tab.step(Tab::ALL.len() - 1),
        Action::ShowFlame => model.tab = Tab::Flame,
        Action::ShowCallers => model.tab = Tab::Callers,
        Action::ShowTable => model.tab = Tab::Table,
        Action::ShowTimeline => model.tab = Tab::Timeline,
        Action::ShowSource => model.tab = Tab::Source,
        Action::ShowLosses => model.tab = Tab::Losses,
        Action::OpenSource => open_source(model),
        Action::NextView
        | Action::NextGroup
        | Action::ToggleInterpreter
        | Action::ToggleLines
        | Action::ToggleRecursion
        | Action::NextMetric => change_selection(model, action),
        Action::SetMark | Action::ToggleDifference | Action::DropMark => change_mark(model, action),
        Action::Pin => pin::toggle(model),
        Action::Search => prompt::begin_search(model),
        Action::Filter => prompt::begin_filter(model),
        Action::DropFilter => model.request.filter = None,
        Action::Erase => prompt::erase(model),
        Action::EraseAll => prompt::erase_all(model),
        Action::Accept => prompt::accept(model),
        Action::NextMatch => matches::next(model, true),
        Action::PreviousMatch => matches::next(model, false),
        Action::Sort => table::sort_by_next(model),
        Action::Reverse => table::reverse(model),
        Action::Escape => escape(model),
        Action::Up
        | Action::Down
        | Action::Left
        | Action::Right
        | Action::PageUp
        | Action::PageDown
        | Action::First
        | Action::Last
        | Action::Enter
        | Action::ZoomOut
        | Action::ZoomReset => navigate(model, action),
    }
    keep_in_range(model);
    Effects::Redraw
}

/// Changes which part of the profile is requested.
fn change_selection(model: &mut Model, action: Action) {
    let devices = model.snapshot.as_ref().is_some_and(|snapshot| !snapshot.devices.is_empty());
    let selection = &mut model.request.selection;
    match action {
        Action::NextView => {
            let at = View::ALL.iter().position(|view| *view == selection.view).map_or(0, |at| at + 1);
            selection.view = View::ALL[at % View::ALL.len()];
        }
        Action::NextGroup => {
            selection.group_by = match selection.group_by {
                GroupBy::Process => GroupBy::Thread,
                GroupBy::Thread if devices => GroupBy::Device,
                GroupBy::Device => GroupBy::Stream,
                GroupBy::Thread | GroupBy::Stream => GroupBy::Process,
            };
        }
        Action::ToggleInterpreter => selection.interpreter = !selection.interpreter,
        Action::ToggleLines => selection.lines = !selection.lines,
        Action::ToggleRecursion => model.request.fold_recursion = !model.request.fold_recursion,
        Action::NextMetric => next_metric(model),
        _ => {}
    }
}

/// Sets, drops or compares with the mark.
fn change_mark(model: &mut Model, action: Action) {
    match action {
        Action::SetMark if !model.live => {
            model.status = Some("cannot set a mark: the profile is complete");
        }
        Action::SetMark => {
            model.request.mark = model.request.mark.checked_add(1).unwrap_or(1);
            model.request.since_mark = true;
        }
        Action::ToggleDifference if model.request.mark == 0 => {
            model.status = Some("no mark is set: M sets one");
        }
        Action::ToggleDifference => model.request.since_mark = !model.request.since_mark,
        Action::DropMark => (model.request.mark, model.request.since_mark) = (0, false),
        _ => {}
    }
}

fn next_metric(model: &mut Model) {
    let known = model.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.metrics);
    let metrics: Vec<Metric> = known.iter().filter_map(|name| name.parse().ok()).collect();
    let at = metrics.iter().position(|metric| *metric == model.request.selection.metric);
    let next = at.map_or(0, |at| at + 1) % metrics.len().max(1);
    match metrics.get(next) {
        Some(&metric) if metric != model.request.selection.metric => model.request.selection.metric = metric,
        _ => model.status = Some("this profile has one metric"),
    }
}

fn escape(model: &mut Model) {
    match std::mem::take(&mut model.mode) {
        Mode::Typing(prompt) => prompt::cancel(model, prompt),
        Mode::Help(_) | Mode::ConfirmQuit => {}
        Mode::Browse => {
            if model.search.take().is_none() {
                graph::navigate(model, Action::ZoomReset);
            }
        }
    }
}

/// Opens the source of the selection.
fn open_source(model: &mut Model) {
    let place: Option<SourcePlace> = match model.tab {
        Tab::Flame | Tab::Callers => {
            model.tree().nodes.get(model.graph().selected as usize).and_then(|node| node.source.clone())
        }
        Tab::Table => model.selected_row().and_then(|row| row.source.clone()),
        Tab::Source => return,
        Tab::Timeline | Tab::Losses => {
            model.status = Some("select a function in the flame graph or the table first");
            return;
        }
    };
    match place {
        Some(place) => {
            source::open(model, place);
            model.tab = Tab::Source;
        }
        None => model.status = Some("no source line is known for this"),
    }
}

fn navigate(model: &mut Model, action: Action) {
    if let Mode::Help(line) = &mut model.mode {
        scroll(line, action, usize::from(model.screen.height));
        return;
    }
    if model.mode != Mode::Browse {
        return;
    }
    match model.tab {
        Tab::Flame | Tab::Callers => graph::navigate(model, action),
        Tab::Table => table::navigate(model, action),
        Tab::Timeline => timeline::navigate(model, action),
        Tab::Source => source::navigate(model, action),
        Tab::Losses => {
            let page = usize::from(model.areas().body.height);
            scroll(&mut model.losses_scroll, action, page);
        }
    }
}

/// Moves the first visible line of a text; the end is found by `keep_in_range`.
fn scroll(line: &mut usize, action: Action, page: usize) {
    let page = page.saturating_sub(1).max(1);
    *line = match action {
        Action::Up => line.saturating_sub(1),
        Action::Down => line.saturating_add(1),
        Action::PageUp => line.saturating_sub(page),
        Action::PageDown => line.saturating_add(page),
        Action::First => 0,
        Action::Last => usize::MAX,
        _ => *line,
    };
}
