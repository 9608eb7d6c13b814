//! Header: the target, the progress of the capture, and the tabs.
//!
//! Owns: up to three lines at the top. Because: sampling rate, losses and overhead belong on every screen. Does not:
//! omit losses before anything else.

use deepctx_profile::context::selection::{GroupBy, View};
use deepctx_profile::view::snapshot::{Header, Snapshot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::Pen;
use super::pieces::{GAP, Piece, fitting, line, taken};
use crate::layout::areas::Areas;
use crate::layout::tabs;
use crate::model::Model;
use crate::tab::Tab;
use crate::text;
use crate::theme::Theme;

/// Most columns of a notice.
const NOTICE: usize = 60;
/// Columns in which the beginning of a notice says what it is about.
const NOTICE_READABLE: usize = 40;
/// Fewer columns of one say nothing.
const NOTICE_LEAST: usize = 8;

pub(crate) fn draw(model: &Model, theme: &Theme, areas: Areas, buffer: &mut Buffer) {
    let area = areas.header;
    if area.height == 0 {
        return;
    }
    let short = area.height == 1;
    title(model, theme, area, short, buffer);
    if !short && let Some(snapshot) = &model.snapshot {
        let mut pen = Pen::new(buffer, area, 1);
        pen.skip(1);
        let width = usize::from(area.width).saturating_sub(2);
        let lost = lost(&snapshot.header, lost_style(model, theme));
        let mut figures = figures(&snapshot.header, lost, width, theme);
        figures.extend(probes(model, snapshot));
        figures.extend(devices(snapshot));
        figures.extend(unaligned(model, theme));
        line(&mut pen, fitting(figures, width));
    }
    if let Some(tabs) = areas.tabs() {
        draw_tabs(model, theme, tabs, buffer);
    }
}

/// Target on the left; clock and state on the right.
fn title(model: &Model, theme: &Theme, area: Rect, short: bool, buffer: &mut Buffer) {
    let plain = Style::new();
    let header = model.snapshot.as_ref().map(|snapshot| &snapshot.header);
    let mut right = Vec::new();
    if let Some(header) = header {
        if short && header.lost > 0 {
            let text = format!(" {} lost ", text::count(header.lost));
            right.push(Piece { text, style: lost_style(model, theme), rank: 0 });
        }
        right.push(Piece { text: text::metric(header.metric), style: plain, rank: 2 });
        let options = options(model);
        if !options.is_empty() {
            right.push(Piece { text: options, style: plain, rank: 3 });
        }
        right.push(Piece { text: format!("{} Hz", header.frequency_hz), style: plain, rank: 4 });
        right.push(Piece { text: text::clock(header.elapsed), style: plain, rank: 3 });
    }
    if model.interactive {
        let (state, style) = match (model.paused, model.live) {
            (true, _) => (" PAUSED ", theme.chosen()),
            (false, true) if model.pending && model.snapshot.is_some() => ("…", theme.strong()),
            (false, true) => ("live", theme.strong()),
            (false, false) => ("recorded", theme.strong()),
        };
        right.push(Piece { text: state.to_owned(), style, rank: 1 });
    }
    let target = header.map_or("deepctx-bpf", |header| header.target.as_str());
    let width = usize::from(area.width).saturating_sub(2);
    let wanted = text::width(&text::cut(target, width)).min(width / 2);
    // On a screen of one line the losses take precedence over the name.
    let least = right.iter().filter(|piece| piece.rank == 0).map(|piece| text::width(&piece.text)).sum();
    let right = fitting(right, width.saturating_sub(wanted + 2).max(least));
    let taken = taken(&right);
    let mut pen = Pen::new(buffer, area, 0);
    pen.skip(1);
    pen.write(&text::cut(target, width.saturating_sub(taken + usize::from(taken > 0))), theme.strong());
    pen.align_right(taken + 1);
    line(&mut pen, right);
}

/// Options of the request other than the metric, as far as they are not the default.
fn options(model: &Model) -> String {
    let selection = &model.request.selection;
    let parts = [
        (selection.view == View::Python, "Python + operators"),
        (selection.view == View::Native, "native"),
        (selection.lines, "by line"),
        (selection.group_by == GroupBy::Thread, "by thread"),
        (selection.group_by == GroupBy::Device, "by device"),
        (selection.group_by == GroupBy::Stream, "by stream"),
        (selection.interpreter, "interpreter"),
        (model.request.fold_recursion, "recursion collapsed"),
        (model.request.backward_in_place, "backward in place"),
    ];
    parts.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

fn figures(header: &Header, lost: Piece, width: usize, theme: &Theme) -> Vec<Piece> {
    let plain = Style::new();
    let samples = Piece { text: text::counted(header.samples, "sample"), style: plain, rank: 1 };
    let beside = |room: usize, it: &Piece| room.saturating_sub(text::width(&it.text) + text::width(GAP));
    let beside_lost = beside(width, &lost);
    let for_notice = if header.notice.is_some() { NOTICE_READABLE + text::width(GAP) } else { 0 };
    let auto = auto_probes(header, beside(beside_lost, &samples).saturating_sub(for_notice));
    // On the narrowest screens, a notice matters more.
    let auto = auto.filter(|it| for_notice == 0 || beside(beside_lost, it) >= NOTICE_LEAST);
    let beside_lost = auto.iter().fold(beside_lost, beside);
    let beside_both = beside(beside_lost, &samples);
    let mut pieces = vec![
        samples,
        Piece { text: format!("{:.1}/s", finite(header.samples_per_second)), style: plain, rank: 4 },
        lost,
    ];
    pieces.extend(auto);
    if let Some(share) = header.complete_share {
        pieces.push(Piece { text: format!("complete {}", text::share(share)), style: plain, rank: 2 });
    }
    if let Some(cost) = header.overhead {
        let cpu = finite(cost.cpu_share) * 100.0;
        let text = format!("profiler: {cpu:.1}% CPU, {}", text::bytes(cost.memory));
        pieces.push(Piece { text, style: plain, rank: 3 });
    }
    if let Some(notice) = header.notice.as_ref().filter(|_| beside_lost >= NOTICE_LEAST) {
        // It wants to be read, so figures make room for it: all but the losses and what `auto` chose, and the samples
        // unless it is cut too short beside them.
        let (room, rank) = if beside_both >= NOTICE_READABLE { (beside_both, 1) } else { (beside_lost, 0) };
        pieces.push(Piece { text: text::cut(notice, room.min(NOTICE)), style: theme.notice(), rank });
    }
    pieces
}

/// What `--probe auto` chose: without room for all features, the first one and how many more.
fn auto_probes(header: &Header, room: usize) -> Option<Piece> {
    let (first, others) = header.auto_probes.split_first()?;
    let all = format!("auto: {}", header.auto_probes.join(", "));
    let text = match others.len() {
        others @ 1.. if text::width(&all) > room => format!("auto: {first} +{others}"),
        _ => all,
    };
    Some(Piece { text, style: Style::new(), rank: 0 })
}

/// What programs pay for probes, unless it is too little to be displayed.
fn probes(model: &Model, snapshot: &Snapshot) -> Option<Piece> {
    let whole = snapshot.flame.nodes.first().map_or(0, |root| root.inclusive);
    let cost = snapshot.probes;
    let is_known = snapshot.header.metric == "cpu-time" && model.request.filter.is_none();
    let text = format!("probes: {} of CPU time", text::percent(cost, whole));
    (is_known && cost > whole / 1000).then(|| Piece { text, style: Style::new(), rank: 3 })
}

/// Source of device times: the tier of every process that used one.
fn devices(snapshot: &Snapshot) -> Option<Piece> {
    let mut tiers: Vec<_> = snapshot.devices.iter().map(|device| device.tier).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let text = format!("GPU times: {}", tiers.join(", "));
    (!tiers.is_empty()).then(|| Piece { text, style: Style::new(), rank: 4 })
}

/// Beside the lanes of ranks: those whose times cannot be compared with the first rank's.
fn unaligned(model: &Model, theme: &Theme) -> Option<Piece> {
    let lanes = model.events_data().filter(|_| model.tab == Tab::Timeline)?;
    let first = lanes.job().ranks().first()?.rank;
    let ranks = lanes.unaligned();
    // What exceeds the columns is cut.
    let named: Vec<String> = ranks.iter().take(NOTICE).map(u32::to_string).collect();
    let of = if ranks.len() == 1 { "rank" } else { "ranks" };
    let text = format!("clocks not aligned with rank {first}'s: {of} {}", named.join(", "));
    (!ranks.is_empty()).then(|| Piece { text: text::cut(&text, NOTICE), style: theme.notice(), rank: 1 })
}

/// `style` is that of losses, if there are any.
fn lost(header: &Header, style: Style) -> Piece {
    if header.lost == 0 {
        return Piece { text: "0 lost".to_owned(), style: Style::new(), rank: 0 };
    }
    let all = header.samples.saturating_add(header.lost);
    let text = format!(" {} lost ({}) ", text::count(header.lost), text::percent(header.lost, all));
    Piece { text, style, rank: 0 }
}

/// Losses alarm where they ask for action, as in the Health tab.
fn lost_style(model: &Model, theme: &Theme) -> Style {
    if model.has_losses() { theme.alarm() } else { theme.notice() }
}

/// A figure that resulted from a division.
fn finite(figure: f64) -> f64 {
    if figure.is_finite() { figure.clamp(0.0, 1e9) } else { 0.0 }
}

fn draw_tabs(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let mut pen = Pen::new(buffer, area, 0);
    for (tab, title) in tabs::titles(model.tab, model.has_losses(), area.width) {
        let style = if tab == model.tab { theme.chosen() } else { Style::new() };
        pen.write(&title, style);
    }
}
