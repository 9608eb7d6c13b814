//! Footer: what is selected, and what can be done.
//!
//! Owns: up to two lines at the bottom. Because: a box is too narrow for what there is to say about it. Does not: repeat
//! what the header says.

use deepctx_profile::snapshot::Unit;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::{Pen, flame, search};
use crate::app::{Mode, Model, Tab};
use crate::keys::BINDINGS;
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
    let searched = model.search.as_ref().filter(|search| model.is_typing() || !search.is_empty());
    match (&model.mode, searched, model.status) {
        (Mode::Leaving, ..) => {
            pen.write("Save what was seen?", theme.strong());
            pen.skip(2);
            hints(model, theme, &mut pen);
        }
        (_, _, Some(status)) => pen.write(status, theme.notice()),
        (_, Some(searched), None) => {
            search::draw(model, searched, theme, &mut pen);
            pen.skip(3);
            hints(model, theme, &mut pen);
        }
        (_, None, None) if area.height == 1 => selection(model, theme, area, buffer),
        (_, None, None) => hints(model, theme, &mut pen),
    }
}

/// Keys that matter here, as many as fit.
fn hints(model: &Model, theme: &Theme, pen: &mut Pen<'_>) {
    let scopes = model.scopes();
    let hinted = scopes
        .iter()
        .flat_map(|scope| BINDINGS.iter().filter(move |it| it.scope == *scope && !it.hint.is_empty()));
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

/// The selected box or row: name, values, place, callers.
fn selection(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let unit = model.snapshot.as_ref().map_or(Unit::Count, |snapshot| snapshot.header.unit);
    let (label, detail, exclusive, inclusive) = match model.tab {
        Tab::Flame => {
            let Some(node) = model.tree().nodes.get(model.flame.selected as usize) else { return };
            (&node.label, &node.detail, node.exclusive, node.inclusive)
        }
        Tab::Table => {
            let row = model.table.selected.and_then(|at| model.table.order.get(at));
            let Some(row) = row.and_then(|&row| model.rows().get(row as usize)) else { return };
            (&row.label, &row.detail, row.exclusive, row.inclusive)
        }
        Tab::Losses => return,
    };
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
    if model.tab == Tab::Flame && pen.room() >= 16 {
        let callers = flame::callers(model);
        if !callers.is_empty() {
            pen.write(&format!("← {callers}"), theme.quiet());
        }
    }
}
