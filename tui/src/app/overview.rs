//! Overview: how the chosen row moves, and where Enter leads.
//!
//! Owns: navigation and clicks among findings and contexts. Because: a finding is of use only where it can be looked
//! at. Does not: decide which rows there are; see [`crate::page::overview`].

use std::sync::Arc;

use deepctx_profile::view::conclusions::FindingRow;
use deepctx_profile::view::snapshot::{Overview, Snapshot, SourcePlace};

use super::graph;
use crate::keys::Action;
use crate::model::Model;
use crate::page::overview::{Target, page};
use crate::tab::Tab;

pub(crate) fn navigate(model: &mut Model, action: Action) {
    let last = page(model).targets.len().saturating_sub(1);
    let chosen = model.overview.chosen;
    let page_rows = usize::from(model.areas().body.height / 2).max(1);
    model.overview.chosen = match action {
        Action::Up => chosen.saturating_sub(1),
        Action::Down => chosen.saturating_add(1),
        Action::PageUp => chosen.saturating_sub(page_rows),
        Action::PageDown => chosen.saturating_add(page_rows),
        Action::First => 0,
        Action::Last => last,
        Action::Enter => return show(model),
        _ => chosen,
    };
    keep_in_range(model);
}

/// Shows the selected row's location in the flame graph.
fn show(model: &mut Model) {
    match chosen(model) {
        Some(Target::Finding(at)) => {
            let Some(finding) = finding(model, at).cloned() else { return };
            show_finding(model, &finding);
        }
        Some(Target::Node(node)) => {
            model.tab = Tab::Flame;
            graph::zoom_to(model, node);
        }
        None => model.status = Some("there is nothing to show yet"),
    }
}

/// Searches for the place with the largest share, by the finding's own metric.
fn show_finding(model: &mut Model, finding: &FindingRow) {
    let Some(place) = finding.places.first() else {
        model.status = Some("this finding is about the whole profile");
        return;
    };
    model.tab = Tab::Flame;
    let known = |metric| model.metrics().iter().any(|it| it.metric == metric);
    let other = finding.metric.filter(|&metric| metric != model.request.selection.metric && known(metric));
    match other {
        Some(metric) => {
            model.request.selection.metric = metric;
            model.set_search(&place.label);
            model.overview.sought = Some(place.label.clone());
        }
        None => graph::seek(model, &place.label),
    }
}

/// The selected row.
pub(crate) fn chosen(model: &Model) -> Option<Target> {
    page(model).targets.get(model.overview.chosen).cloned()
}

/// A finding by its number.
pub(crate) fn finding(model: &Model, at: usize) -> Option<&FindingRow> {
    model.overview_data().and_then(|overview| overview.conclusions.as_deref())?.findings.get(at)
}

/// The source of the selected context, or of the finding's first place with one; or of the nearest caller that has one.
/// And whether it is its own.
pub(crate) fn source(model: &Model) -> Option<(SourcePlace, bool)> {
    match chosen(model)? {
        Target::Node(node) => graph::nearest_source(model.flame_tree(), node),
        Target::Finding(at) => {
            let mut places = finding(model, at)?.places.iter();
            places.find_map(|place| graph::hottest_source(model, &place.label))
        }
    }
}

pub(crate) fn click(model: &mut Model, x: u16, y: usize) {
    let width = model.areas().body.width;
    let Some(target) = page(model).target_at(x, y, width) else { return };
    if model.overview.chosen == target { show(model) } else { model.overview.chosen = target }
}

/// Adopts a newer overview: the selection stays on its finding.
pub(crate) fn take(model: &mut Model, snapshot: &Arc<Snapshot>, after: &Overview) {
    let of = |overview: &Overview| overview.conclusions.clone().unwrap_or_default();
    let before = model.overview_data().map(of).unwrap_or_default();
    model.overview.carry_over(&before.findings, &of(after).findings);
    model.parts.overview = Some(Arc::clone(snapshot));
}

pub(crate) fn keep_in_range(model: &mut Model) {
    let last = page(model).targets.len().saturating_sub(1);
    model.overview.chosen = model.overview.chosen.min(last);
}
