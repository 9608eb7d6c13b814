//! Overview: findings, phases, hottest contexts and tables as cells.
//!
//! Owns: the columns of the page. Because: shares must line up to be compared. Does not: choose the lines; see
//! [`crate::page::overview`].

use deepctx_profile::context::phase::Phase;
use deepctx_profile::units::Nanos;
use deepctx_profile::view::conclusions::{FindingRow, PhaseRow, Severity, StepFigures};
use deepctx_profile::view::snapshot::{FrameKind, TableRow};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::graph::{fill, hatch_free};
use super::pen::Pen;
use super::timeline::{BARS, draw_in_span};
use crate::layout::hot_paths::HotPath;
use crate::model::Model;
use crate::page::overview::{BESIDE, INDENT, OverviewLine, WORD, page};
use crate::text;
use crate::theme::{Emphasis, Theme, letter};

/// Columns of a share.
const SHARE: usize = 7;
/// Columns of a time a step.
const STEP: usize = 8;
/// Columns of a bar.
const BAR: usize = 12;
/// Columns of a finding's place, if there is room for it.
const PLACE: usize = 36;
/// Minimum columns for a finding with its place.
const WITH_PLACE: u16 = 100;

pub(crate) fn draw(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let page = page(model);
    for (y, (line, target)) in (0..area.height).zip(&page.lines) {
        let width = page.columns(usize::from(y), area.width);
        let place = Rect { y: area.y + y, height: 1, width, ..area };
        draw_line(model, line, theme, place, buffer);
        if model.interactive && *target == Some(model.overview.chosen) {
            buffer.set_style(place, theme.chosen());
        }
    }
    let from = u16::try_from(page.beside_from).unwrap_or(u16::MAX).min(area.height);
    for (y, line) in (from..area.height).zip(&page.beside) {
        let x = area.right().saturating_sub(BESIDE).max(area.x);
        let place = Rect { x, y: area.y + y, height: 1, width: area.right() - x };
        draw_line(model, line, theme, place, buffer);
    }
}

fn draw_line(model: &Model, line: &OverviewLine<'_>, theme: &Theme, place: Rect, buffer: &mut Buffer) {
    match line {
        OverviewLine::StepsTitle(title, latest) => {
            return title_with_steps(title, latest, theme, place, buffer);
        }
        OverviewLine::Phases(phases, steps) => return bar_of_phases(phases, *steps, theme, place, buffer),
        OverviewLine::Lane(lane, of, span) => return draw_in_span(lane, of, *span, theme, place, buffer),
        _ => {}
    }
    let mut pen = Pen::new(buffer, place, 0);
    match line {
        OverviewLine::Title(title) => heading(title, theme, &mut pen),
        OverviewLine::Note(note) => {
            pen.skip(1);
            pen.write(note, theme.quiet());
        }
        OverviewLine::Finding(row) => finding(row, theme, place.width, &mut pen),
        OverviewLine::Detail(word, text) => {
            pen.skip(INDENT);
            pen.write(&format!("{word:WORD$}"), theme.quiet());
            pen.write(text, Style::new());
        }
        OverviewLine::Path(path, step) => context(model, path, *step, theme, &mut pen),
        OverviewLine::Table(title) => {
            let columns = format!("{:>SHARE$}{:>SHARE$} ", "self", "total");
            let room = pen.room().saturating_sub(columns.len());
            heading(
                &text::cut(title, room),
                theme,
                &mut Pen::new(buffer, Rect { width: room as u16, ..place }, 0),
            );
            let mut pen = Pen::new(buffer, place, 0);
            pen.align_right(columns.len());
            pen.write(&columns, theme.quiet());
        }
        OverviewLine::Row(row, name) => table_row(model, row, name, theme, &mut pen),
        OverviewLine::StepsTitle(..) | OverviewLine::Phases(..) | OverviewLine::Lane(..) => {}
    }
}

/// A title followed by a line.
fn heading(title: &str, theme: &Theme, pen: &mut Pen<'_>) {
    pen.write("─ ", theme.quiet());
    pen.write(title, theme.strong());
    pen.skip(1);
    pen.write(&"─".repeat(pen.room()), theme.quiet());
}

/// A title, and at its end a bar for each step, from 0 to the longest of them.
fn title_with_steps(title: &str, steps: &[Nanos], theme: &Theme, place: Rect, buffer: &mut Buffer) {
    let longest = steps.iter().map(|step| step.0).max().unwrap_or(0).max(1);
    let bar = |step: &Nanos| {
        let eighths = (step.0 as f64 / longest as f64 * 8.0).round();
        // A step of any length is visible.
        BARS[eighths.clamp(1.0, 8.0) as usize]
    };
    let bars: String = steps.iter().map(bar).collect();
    let columns = if steps.is_empty() { 0 } else { steps.len() + 1 };
    let columns = u16::try_from(columns).unwrap_or(u16::MAX);
    let of_title = Rect { width: place.width.saturating_sub(columns), ..place };
    heading(title, theme, &mut Pen::new(buffer, of_title, 0));
    let mut pen = Pen::new(buffer, place, 0);
    pen.align_right(steps.len());
    pen.write(&bars, theme.bar(FrameKind::Thread, "step-time"));
}

fn finding(row: &FindingRow, theme: &Theme, width: u16, pen: &mut Pen<'_>) {
    let (sign, style) = match row.severity {
        Severity::High => ('▲', theme.alarm()),
        Severity::Medium => ('▲', theme.notice()),
        Severity::Low => ('·', Style::new()),
    };
    pen.skip(1);
    pen.write(&sign.to_string(), style);
    pen.write(&format!("{:>SHARE$} ", text::share(row.share)), theme.strong());
    // A finding about one place names it in its sentence.
    let place = row.places.iter().map(|place| place.name.as_str()).find(|name| !row.title.contains(name));
    match place.filter(|_| width >= WITH_PLACE) {
        Some(place) => {
            let place = text::cut_left(place, PLACE);
            let room = pen.room().saturating_sub(text::width(&place) + 2);
            pen.write(&text::cut(&row.title, room), Style::new());
            pen.align_right(text::width(&place) + 1);
            pen.write(&place, theme.quiet());
        }
        None => pen.write(&row.title, Style::new()),
    }
}

/// Phases side by side, each as wide as its share.
fn bar_of_phases(
    phases: &[PhaseRow],
    steps: Option<StepFigures>,
    theme: &Theme,
    place: Rect,
    buffer: &mut Buffer,
) {
    let whole: f64 = phases.iter().map(|phase| phase.share).sum();
    if whole <= 0.0 {
        return;
    }
    let column = |share: f64| place.x + (share / whole * f64::from(place.width)).round() as u16;
    let mut start = 0.0;
    for phase in phases {
        let (from, to) = (column(start), column(start + phase.share).min(place.right()));
        start += phase.share;
        if from >= to {
            continue;
        }
        let figure = match steps {
            Some(steps) if steps.in_sums > 0.0 => {
                text::duration(Nanos((phase.time.0 as f64 / steps.in_sums) as u64))
            }
            _ => text::share(phase.share),
        };
        let style = theme.frame(FrameKind::Layer, phase.name, Emphasis::None, false);
        let label = format!("{} {figure}", phase.name);
        let area = Rect { x: from, width: to - from, ..place };
        fill(&label, "", style, theme, area, buffer);
        if phase.name == Phase::Spinning.name() {
            hatch_free(area, buffer);
        }
    }
}

fn context(model: &Model, path: &HotPath, step: Option<Nanos>, theme: &Theme, pen: &mut Pen<'_>) {
    let tree = model.drawn();
    let (value, whole) = (path.value(tree), model.whole());
    pen.write(&format!("{:>SHARE$} ", text::percent(value, whole)), theme.strong());
    if let Some(step) = step {
        pen.write(&format!("{:>STEP$} ", text::duration(step)), Style::new());
    }
    let share = if whole == 0 { 0.0 } else { value as f64 / whole as f64 };
    let kind = tree.nodes.get(path.named as usize).map_or(FrameKind::Root, |node| node.kind);
    pen.write(&format!("{:BAR$} ", text::bar(share, BAR)), theme.bar(FrameKind::Thread, "cpu-time"));
    pen.skip(2 * path.depth);
    pen.write(&letter(kind).to_string(), theme.mark(kind));
    pen.skip(1);
    // The end of a path is its most important part.
    pen.write(&text::cut_left(&path.label, pen.room().saturating_sub(1)), Style::new());
}

fn table_row(model: &Model, row: &TableRow, name: &str, theme: &Theme, pen: &mut Pen<'_>) {
    let shares = [row.exclusive, row.inclusive].map(|value| text::percent(value, model.whole()));
    pen.skip(1);
    pen.write(&letter(row.kind).to_string(), theme.mark(row.kind));
    pen.skip(1);
    pen.write(&text::cut(name, pen.room().saturating_sub(2 * SHARE + 2)), Style::new());
    pen.align_right(2 * SHARE + 1);
    for share in shares {
        pen.write(&format!("{share:>SHARE$}"), Style::new());
    }
}

/// The selected row, for the footer.
pub(crate) fn selection(model: &Model) -> Option<String> {
    use crate::page::overview::Target;

    let page = page(model);
    match page.targets.get(model.overview.chosen)? {
        Target::Finding(at) => {
            let conclusions = model.overview_data()?.conclusions.as_deref()?;
            conclusions.findings.get(*at).map(|finding| finding.title.clone())
        }
        Target::Node(node) => {
            let node = model.flame_tree().nodes.get(*node as usize)?;
            let figures = [node.inclusive, node.exclusive].map(|value| {
                format!("{} {}", text::value(model.unit(), value), text::percent(value, model.whole()))
            });
            Some(format!("{}  total {} · self {}  {}", node.label, figures[0], figures[1], node.detail))
        }
    }
}
