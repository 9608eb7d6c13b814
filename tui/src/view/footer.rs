//! Footer: the selection, and key hints.
//!
//! Owns: up to two lines at the bottom. Because: a box is too narrow for its figures. Does not: repeat the header.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::Pen;
use super::{events, graph, overview, prompt, source, timeline};
use crate::keys::{BINDINGS, Binding, Key, Scope};
use crate::model::{Mode, Model};
use crate::state::prompt::Purpose;
use crate::tab::Tab;
use crate::text;
use crate::theme::Theme;

pub(crate) fn draw(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    if area.height > 1 {
        selection(model, theme, area, buffer);
    }
    let last = area.height - 1;
    let mut pen = Pen::new(buffer, area, last);
    pen.skip(1);
    let searched = model.search.as_ref().filter(|search| model.is_searching() || !search.is_empty());
    match (&model.mode, searched, model.status) {
        (Mode::ConfirmQuit, ..) => {
            // The keys matter more than the words.
            let question = if pen.room() < 37 { "Save?" } else { "Save this capture?" };
            pen.write(question, theme.strong());
            pen.skip(2);
            hints(model, theme, &mut pen);
        }
        (Mode::Typing(typed), ..) if typed.purpose == Purpose::Filter => {
            prompt::draw_filter(typed, theme, &mut pen);
            pen.skip(3);
            hints(model, theme, &mut pen);
        }
        (_, _, Some(status)) => pen.write(status, theme.notice()),
        (_, Some(searched), None) => {
            prompt::draw_search(model, searched, theme, &mut pen);
            pen.skip(3);
            hints(model, theme, &mut pen);
        }
        (_, None, None) if area.height == 1 => selection(model, theme, area, buffer),
        (_, None, None) => hints(model, theme, &mut pen),
    }
}

/// Relevant keys, as many as fit.
fn hints(model: &Model, theme: &Theme, pen: &mut Pen<'_>) {
    let scopes = model.scopes();
    let is_hinted = |scope: &Scope, it: &Binding| it.scope == *scope && !it.hint.is_empty();
    // A key with a special meaning here does not have its usual one.
    let is_shadowed = |place: usize, key: &Key| {
        let mut before = BINDINGS.iter().filter(|it| scopes[..place].contains(&it.scope));
        before.any(|it| it.keys.contains(key))
    };
    let hinted = scopes.iter().enumerate().flat_map(|(place, scope)| {
        let of_scope = BINDINGS.iter().filter(move |it| is_hinted(scope, it));
        of_scope.filter(move |it| !it.keys.first().is_some_and(|key| is_shadowed(place, key)))
    });
    for binding in hinted {
        let Some(key) = binding.keys.first().map(|key| key.name()) else { continue };
        if pen.room() < text::width(&key) + 1 + text::width(binding.hint) {
            return;
        }
        pen.write(&key, theme.strong());
        pen.skip(1);
        pen.write(binding.hint, theme.quiet());
        pen.skip(2);
    }
}

/// The selection, for display.
struct SelectionText<'a> {
    label: &'a str,
    detail: &'a str,
    exclusive: u64,
    inclusive: u64,
}

/// The selected box, row, line or time: name, values, place, boxes above.
fn selection(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    match model.tab {
        Tab::Flame | Tab::Callers => {
            if let Some(node) = model.drawn().nodes.get(model.selected_box() as usize) {
                let (label, detail) = (node.label.as_str(), node.detail.as_str());
                let (exclusive, inclusive) = (node.exclusive, node.inclusive);
                figures(model, &SelectionText { label, detail, exclusive, inclusive }, theme, area, buffer);
            }
        }
        Tab::Table => {
            if let Some(row) = model.selected_row() {
                let (label, detail) = (row.label.as_str(), row.detail.as_str());
                let (exclusive, inclusive) = (row.exclusive, row.inclusive);
                figures(model, &SelectionText { label, detail, exclusive, inclusive }, theme, area, buffer);
            }
        }
        Tab::Source => {
            if let Some((label, row)) = source::selection(model) {
                let (exclusive, inclusive) = row.map_or((0, 0), |row| (row.exclusive, row.inclusive));
                let selected = SelectionText { label: &label, detail: "", exclusive, inclusive };
                figures(model, &selected, theme, area, buffer);
            }
        }
        Tab::Overview => {
            if let Some(text) = overview::selection(model) {
                let mut pen = Pen::new(buffer, area, 0);
                pen.skip(1);
                pen.write(&text, theme.strong());
            }
        }
        Tab::Timeline => {
            if let Some((label, what)) = timeline::selection(model).or_else(|| events::selection(model)) {
                let mut pen = Pen::new(buffer, area, 0);
                pen.skip(1);
                pen.write(&label, theme.strong());
                pen.skip(2);
                pen.write(&what, Style::new());
            }
        }
        Tab::Health => {}
    }
}

fn figures(model: &Model, selected: &SelectionText<'_>, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let unit = model.unit();
    let &SelectionText { label, detail, exclusive, inclusive } = selected;
    let share = |value| text::percent(value, model.whole());
    let figures = format!(
        "total {} {} · self {} {}",
        text::value(unit, inclusive),
        share(inclusive),
        text::value(unit, exclusive),
        share(exclusive)
    );
    let mut pen = Pen::new(buffer, area, 0);
    pen.skip(1);
    let for_name = pen.room().saturating_sub(text::width(&figures) + 3);
    if for_name >= 8 {
        pen.write(&text::cut(label, for_name), theme.strong());
        pen.skip(2);
        pen.write(&figures, Style::new());
    } else {
        pen.write(&share(inclusive), theme.strong());
        pen.skip(1);
        pen.write(label, theme.strong());
    }
    pen.skip(2);
    if !detail.is_empty() && pen.room() >= 8 {
        pen.write(detail, theme.quiet());
        pen.skip(2);
    }
    if matches!(model.tab, Tab::Flame | Tab::Callers) && pen.room() >= 16 {
        let above = graph::above(model);
        // A box of the flame graph is followed by its callers, one of the callers tab by its callees.
        let arrow = if model.tab == Tab::Flame { '←' } else { '→' };
        if !above.is_empty() {
            pen.write(&format!("{arrow} {above}"), theme.quiet());
        }
    }
}
