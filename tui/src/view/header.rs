//! Header: who is profiled, how it goes, and the tabs.
//!
//! Owns: up to three lines at the top. Because: rate, loss and own cost are part of every picture, not a page of their
//! own. Does not: cut what was lost before it cuts anything else.

use deepctx_profile::snapshot::{Header, Snapshot};
use deepctx_profile::view::{GroupBy, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::Pen;
use crate::app::{Model, Tab};
use crate::layout::Areas;
use crate::text;
use crate::theme::Theme;

/// A figure and how much it matters: those with the lowest rank get the room there is.
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) style: Style,
    pub(super) rank: u8,
}

/// Between two figures.
const GAP: &str = " · ";

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
        let mut figures = figures(&snapshot.header, theme);
        figures.extend(devices(snapshot));
        line(&mut pen, fitting(figures, usize::from(area.width).saturating_sub(2)));
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
            let text = format!(" lost {} ", text::count(header.lost));
            right.push(Piece { text, style: theme.alarm(), rank: 0 });
        }
        right.push(Piece { text: header.metric.to_owned(), style: plain, rank: 3 });
        let asked = asked(model);
        if !asked.is_empty() {
            right.push(Piece { text: asked, style: plain, rank: 2 });
        }
        right.push(Piece { text: format!("{} Hz", header.frequency_hz), style: plain, rank: 4 });
        right.push(Piece { text: text::clock(header.elapsed_ns), style: plain, rank: 3 });
    }
    if model.interactive {
        let (state, style) = match (model.paused, model.live) {
            (true, _) => (" PAUSED ", theme.chosen()),
            (false, true) if model.awaiting && model.snapshot.is_some() => ("…", theme.strong()),
            (false, true) => ("live", theme.strong()),
            (false, false) => ("ended", theme.strong()),
        };
        right.push(Piece { text: state.to_owned(), style, rank: 1 });
    }
    let target = header.map_or("deepctx-bpf", |header| header.target.as_str());
    let width = usize::from(area.width).saturating_sub(2);
    let wanted = text::width(&text::cut(target, width)).min(width / 2);
    // On a screen of one line the loss may take what the name would like to have.
    let least = right.iter().filter(|piece| piece.rank == 0).map(|piece| text::width(&piece.text)).sum();
    let right = fitting(right, width.saturating_sub(wanted + 2).max(least));
    let taken = taken(&right);
    let mut pen = Pen::new(buffer, area, 0);
    pen.skip(1);
    pen.write(&text::cut(target, width.saturating_sub(taken + usize::from(taken > 0))), theme.strong());
    pen.align_right(taken + 1);
    line(&mut pen, right);
}

/// What was asked for beside the metric, as far as it is not the usual.
fn asked(model: &Model) -> String {
    let selection = &model.request.selection;
    let parts = [
        (selection.view != View::Full, selection.view.name()),
        (selection.lines, "lines"),
        (selection.group_by == GroupBy::Thread, "threads"),
        (selection.group_by == GroupBy::Device, "devices"),
        (selection.group_by == GroupBy::Stream, "streams"),
        (selection.interpreter, "interpreter"),
        (model.request.fold_recursion, "folded"),
    ];
    parts.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect::<Vec<_>>().join("+")
}

fn figures(header: &Header, theme: &Theme) -> Vec<Piece> {
    let plain = Style::new();
    let mut pieces = vec![
        Piece { text: format!("{} samples", text::count(header.samples)), style: plain, rank: 1 },
        Piece { text: format!("{:.1}/s", finite(header.samples_per_second)), style: plain, rank: 4 },
        lost(header, theme),
    ];
    if let Some(share) = header.complete_share {
        pieces.push(Piece { text: format!("complete {}", text::share(share)), style: plain, rank: 2 });
    }
    let own = format!(
        "own {:.1}% CPU {}",
        finite(header.own_cpu_share) * 100.0,
        text::bytes(header.own_memory_bytes)
    );
    pieces.push(Piece { text: own, style: plain, rank: 3 });
    pieces
}

/// From where the times of devices come: the tier of every process that used one.
fn devices(snapshot: &Snapshot) -> Option<Piece> {
    let mut tiers: Vec<_> = snapshot.devices.iter().map(|device| device.tier).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let text = format!("gpu {}", tiers.join(", "));
    (!tiers.is_empty()).then(|| Piece { text, style: Style::new(), rank: 4 })
}

fn lost(header: &Header, theme: &Theme) -> Piece {
    if header.lost == 0 {
        return Piece { text: "lost 0".to_owned(), style: Style::new(), rank: 0 };
    }
    let all = header.samples.saturating_add(header.lost);
    let text = format!(" lost {} ({}) ", text::count(header.lost), text::percent(header.lost, all));
    Piece { text, style: theme.alarm(), rank: 0 }
}

/// A figure that came from a division.
fn finite(figure: f64) -> f64 {
    if figure.is_finite() { figure.clamp(0.0, 1e9) } else { 0.0 }
}

/// Columns of the pieces with their gaps.
fn taken(pieces: &[Piece]) -> usize {
    let gaps = pieces.len().saturating_sub(1) * text::width(GAP);
    pieces.iter().map(|piece| text::width(&piece.text)).sum::<usize>() + gaps
}

/// Keeps what matters most, as much as fits, in its order.
pub(super) fn fitting(pieces: Vec<Piece>, width: usize) -> Vec<Piece> {
    let mut by_rank: Vec<usize> = (0..pieces.len()).collect();
    by_rank.sort_by_key(|&index| pieces[index].rank);
    let mut keep = vec![false; pieces.len()];
    let mut room = width + text::width(GAP);
    for index in by_rank {
        let wanted = text::width(&pieces[index].text) + text::width(GAP);
        if wanted <= room {
            room -= wanted;
            keep[index] = true;
        }
    }
    pieces.into_iter().zip(keep).filter(|(_, keep)| *keep).map(|(piece, _)| piece).collect()
}

pub(super) fn line(pen: &mut Pen<'_>, pieces: Vec<Piece>) {
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            pen.write(GAP, Style::new());
        }
        pen.write(&piece.text, piece.style);
    }
}

/// Text of a tab.
fn tab_text(tab: Tab, index: usize, snapshot: Option<&Snapshot>) -> String {
    let losses = snapshot.map_or(0, |snapshot| snapshot.losses.len());
    match tab {
        Tab::Losses if losses > 0 => format!(" {} {} ({losses}) ", index + 1, tab.title()),
        _ => format!(" {} {} ", index + 1, tab.title()),
    }
}

fn draw_tabs(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let mut pen = Pen::new(buffer, area, 0);
    for (index, tab) in Tab::ALL.into_iter().enumerate() {
        let style = if tab == model.tab { theme.chosen() } else { Style::new() };
        pen.write(&tab_text(tab, index, model.snapshot.as_deref()), style);
    }
    pen.skip(2);
    let notice = model.snapshot.as_ref().and_then(|snapshot| snapshot.header.notice.as_deref());
    let notice = text::cut(notice.unwrap_or_default(), pen.room().saturating_sub(1));
    pen.align_right(text::width(&notice) + 1);
    pen.write(&notice, theme.notice());
}

/// The tab at a column.
pub(crate) fn tab_at(model: &Model, column: u16) -> Option<Tab> {
    let mut end = 0;
    Tab::ALL.into_iter().enumerate().find_map(|(index, tab)| {
        end += text::width(&tab_text(tab, index, model.snapshot.as_deref()));
        (usize::from(column) < end).then_some(tab)
    })
}
