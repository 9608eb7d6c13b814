//! Actions: what each action of the key table does.
//!
//! Owns: the dispatch of actions; each view moves its own state. Because: one list shows what the program can do.
//! Does not: know keys.

use deepctx_profile::context::selection::{GroupBy, View};
use deepctx_profile::view::snapshot::SourcePlace;

use super::bounds::keep_in_range;
use super::{copy, events, graph, matches, metrics, overview, pin, prompt, source, table, timeline};
use crate::keys::Action;
use crate::message::Effects;
use crate::model::{Mode, Model};
use crate::tab::Tab;
use crate::tree::children;

pub(super) fn act(model: &mut Model, action: Action) -> Effects {
    match action {
        Action::Suspend => return Effects::Suspend,
        Action::WriteKept => return write_kept(model),
        Action::Quit if model.setup.can_save => model.mode = Mode::ConfirmQuit,
        Action::Quit | Action::QuitDropping => return Effects::Quit { save: false },
        Action::QuitSaving => return Effects::Quit { save: true },
        Action::Help => {
            model.mode = if matches!(model.mode, Mode::Help(_)) { Mode::Browse } else { Mode::Help(0) };
        }
        Action::Pause => pause(model),
        Action::NextTab => model.tab = model.tab.step(1),
        Action::PreviousTab => model.tab = model.tab.step(Tab::ALL.len() - 1),
        Action::ShowOverview => model.tab = Tab::Overview,
        Action::ShowFlame => model.tab = Tab::Flame,
        Action::ShowCallers => model.tab = Tab::Callers,
        Action::ShowTable => model.tab = Tab::Table,
        Action::ShowTimeline => model.tab = Tab::Timeline,
        Action::ShowSource => model.tab = Tab::Source,
        Action::ShowHealth => model.tab = Tab::Health,
        Action::OpenSource => open_source(model),
        Action::NextView
        | Action::NextGroup
        | Action::ToggleInterpreter
        | Action::ToggleLines
        | Action::ToggleRecursion
        | Action::ToggleBackward => change_selection(model, action),
        Action::ToggleEvents => toggle_events(model),
        Action::ChooseMetric => metrics::open(model),
        Action::ToggleTrunk => {
            model.folds = !model.folds;
            model.fold();
            graph::keep_visible(model);
        }
        Action::SetMark | Action::ToggleDifference | Action::DropMark => change_mark(model, action),
        Action::Pin => pin::toggle(model),
        Action::Copy => return copy::copy(model),
        Action::Search
        | Action::Filter
        | Action::DropFilter
        | Action::Erase
        | Action::EraseAll
        | Action::Accept => change_prompt(model, action),
        Action::NextMatch => matches::next(model, true),
        Action::PreviousMatch => matches::next(model, false),
        Action::Sort => table::sort_by_next(model),
        Action::Reverse => table::reverse(model),
        Action::Escape => escape(model),
        // All other actions move within a tab.
        _ => navigate(model, action),
    }
    keep_in_range(model);
    Effects::Redraw
}

/// Requests a profile of the capture so far.
fn write_kept(model: &mut Model) -> Effects {
    let (status, effects) = if model.setup.can_write_kept {
        ("writing the profile: a notice names it", Effects::WriteKept)
    } else if model.setup.can_save {
        ("cannot write here: this folder takes no profile", Effects::Redraw)
    } else {
        ("nothing to write: this profile is stored already", Effects::Redraw)
    };
    model.status = Some(status);
    effects
}

/// Pauses or resumes updates. A complete profile has none.
fn pause(model: &mut Model) {
    if model.live || model.paused {
        model.paused = !model.paused;
    } else {
        model.status = Some("nothing to pause: the profile is complete");
    }
}

/// Starts or ends a search or a filter.
fn change_prompt(model: &mut Model, action: Action) {
    match action {
        Action::Search => prompt::begin_search(model),
        Action::Filter => prompt::begin_filter(model),
        Action::DropFilter if model.request.filter.is_none() => {
            model.status = Some("no filter is set: f sets one");
        }
        Action::DropFilter => model.request.filter = None,
        Action::Erase => prompt::erase(model),
        Action::EraseAll => prompt::erase_all(model),
        _ => match model.mode {
            Mode::Metrics(at) => metrics::accept(model, at),
            _ => prompt::accept(model),
        },
    }
}

/// Changes the requested part of the profile.
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
        Action::ToggleBackward => model.request.backward_in_place = !model.request.backward_in_place,
        _ => {}
    }
}

/// Switches between individual events and totals in the time tab.
fn toggle_events(model: &mut Model) {
    model.sums_by_time = !model.sums_by_time;
    model.status = Some(match model.sums_by_time {
        true => "sums by time",
        false => "single events, where the file has some (`record --trace`)",
    });
}

/// Sets or clears the mark, or toggles the comparison with it.
fn change_mark(model: &mut Model, action: Action) {
    match action {
        Action::SetMark if !model.live => {
            model.status = Some("cannot set a mark: the profile is complete");
        }
        Action::SetMark => {
            model.request.mark = model.request.mark.checked_add(1).unwrap_or(1);
            model.request.since_mark = true;
        }
        Action::ToggleDifference | Action::DropMark if model.request.mark == 0 => {
            model.status = Some("no mark is set: M sets one");
        }
        Action::ToggleDifference => model.request.since_mark = !model.request.since_mark,
        Action::DropMark => (model.request.mark, model.request.since_mark) = (0, false),
        _ => {}
    }
}

fn escape(model: &mut Model) {
    match std::mem::take(&mut model.mode) {
        Mode::Typing(prompt) => prompt::cancel(model, prompt),
        Mode::Help(_) | Mode::Metrics(_) | Mode::ConfirmQuit => {}
        Mode::Browse => clear(model),
    }
}

/// Clears the last restriction: the search, otherwise the zoom, otherwise the filter.
fn clear(model: &mut Model) {
    if model.search.take().is_some() {
        model.fold();
    } else if events::is_shown(model) && events::clear(model) {
        events::keep_in_range(model);
    } else if is_zoomed(model) {
        navigate(model, Action::ZoomReset);
    } else {
        model.request.filter = None;
    }
}

fn is_zoomed(model: &Model) -> bool {
    match model.tab {
        Tab::Flame | Tab::Callers => model.zoomed_box() != 0 || model.graph().listed != 0,
        Tab::Timeline => model.timeline.zoom > 0 || model.timeline.at.is_some(),
        Tab::Overview | Tab::Table | Tab::Source | Tab::Health => false,
    }
}

/// Opens the source of the selection.
fn open_source(model: &mut Model) {
    let found: Option<(SourcePlace, bool)> = match model.tab {
        Tab::Flame | Tab::Callers => source_of(model, model.folded.last_of(model.selected_box())),
        Tab::Table => model.selected_row().and_then(|row| match &row.source {
            Some(place) => Some((place.clone(), true)),
            None => graph::hottest_source(model, &row.label),
        }),
        Tab::Overview => overview::source(model),
        Tab::Source => {
            model.status = Some(match model.source.place {
                Some(_) => "this is the source already",
                None => "no source is open: select a function in another tab",
            });
            return;
        }
        Tab::Timeline | Tab::Health => {
            model.status = Some("select a function in the flame graph or the table first");
            return;
        }
    };
    match found {
        Some((place, own)) => {
            model.status = (!own).then_some("no line is known of this: its nearest caller with one");
            source::open(model, place);
            model.tab = Tab::Source;
        }
        None => model.status = Some("no source line is known for this or its callers"),
    }
}

/// The source of a node of this tab's tree, or of its nearest caller. In the bottom-up tree, callers are below a node.
fn source_of(model: &Model, node: u32) -> Option<(SourcePlace, bool)> {
    if model.tab != Tab::Callers {
        return graph::nearest_source(model.tree(), node);
    }
    let mut at = Some(node);
    while let Some(place) = at {
        if let Some(source) = model.tree().nodes.get(place as usize)?.source.clone() {
            return Some((source, place == node));
        }
        let callers = children(model.tree(), place);
        at = callers.max_by_key(|(_, caller)| caller.inclusive).map(|(caller, _)| caller);
    }
    None
}

fn navigate(model: &mut Model, action: Action) {
    if let Mode::Help(line) = &mut model.mode {
        scroll(line, action, usize::from(model.screen.height));
        return;
    }
    if let Mode::Metrics(_) = model.mode {
        return metrics::navigate(model, action);
    }
    if model.mode != Mode::Browse {
        return;
    }
    match model.tab {
        Tab::Overview => overview::navigate(model, action),
        Tab::Flame | Tab::Callers => graph::navigate(model, action),
        Tab::Table => table::navigate(model, action),
        Tab::Timeline if events::is_shown(model) => events::navigate(model, action),
        Tab::Timeline => timeline::navigate(model, action),
        Tab::Source => source::navigate(model, action),
        Tab::Health => {
            let page = usize::from(model.areas().body.height);
            scroll(&mut model.health_scroll, action, page);
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
