//! Losses: what is missing or has a gap, why, and what profiling costs.
//!
//! Owns: the page of the ledger, and of where the times of devices come from. Because: a profile that hides what it lost, or
//! what it did not measure, cannot be trusted with what it shows. Does not: judge how much is too much.

use deepctx_profile::snapshot::{LossRow, Snapshot, StageRow};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::Pen;
use crate::app::Model;
use crate::text;
use crate::theme::Theme;

/// Columns of a number of records.
const STAGE: usize = 14;

/// A line of the page.
enum Line<'a> {
    Blank,
    Title(&'static str),
    Named(String),
    Text(String, Style),
    Stages,
    Stage(&'a StageRow),
    Row(&'a LossRow),
}

/// Lines of the page, for scrolling.
pub(crate) fn line_count(model: &Model) -> usize {
    model.snapshot.as_ref().map_or(0, |snapshot| lines(snapshot, &Theme::default()).len())
}

fn lines<'a>(snapshot: &'a Snapshot, theme: &Theme) -> Vec<Line<'a>> {
    let header = &snapshot.header;
    let all = header.samples.saturating_add(header.lost);
    let kept = format!(
        "{} of {} samples kept ({})",
        text::count(header.samples),
        text::count(all),
        text::percent(header.samples, all)
    );
    let style = if header.lost > 0 { theme.alarm() } else { Style::new() };
    let mut out = vec![Line::Title("Samples"), Line::Text(kept, style)];
    if let Some(share) = header.complete_share {
        let complete =
            format!("{} of native stacks are complete to the start of the thread", text::share(share));
        out.push(Line::Text(complete, Style::new()));
    }
    let share = if header.own_cpu_share.is_finite() { header.own_cpu_share.max(0.0) } else { 0.0 };
    let cost =
        format!("{:.1}% of one CPU, {} of memory", share * 100.0, text::bytes(header.own_memory_bytes));
    out.extend([Line::Blank, Line::Title("Own cost"), Line::Text(cost, Style::new())]);
    for device in &snapshot.devices {
        let title = match device.note.as_str() {
            "" => format!("Devices of {}: {}", device.process, device.tier),
            note => format!("Devices of {}: {} ({note})", device.process, device.tier),
        };
        out.extend([Line::Blank, Line::Named(title)]);
        out.extend(device.lines.iter().map(|line| Line::Text(line.clone(), Style::new())));
    }
    let parts = [("Lost", true, "nothing was lost"), ("Kept with a gap", false, "no gaps")];
    for (title, lost, none) in parts {
        out.extend([Line::Blank, Line::Title(title)]);
        let before = out.len();
        out.extend(snapshot.losses.iter().filter(|row| row.lost == lost).map(Line::Row));
        if out.len() == before {
            out.push(Line::Text(none.to_owned(), theme.quiet()));
        }
    }
    if !snapshot.stages.is_empty() {
        out.extend([
            Line::Blank,
            Line::Title("Records by stage: received = passed on + joined + lost"),
            Line::Stages,
        ]);
        out.extend(snapshot.stages.iter().map(Line::Stage));
    }
    out
}

pub(crate) fn draw(model: &Model, snapshot: &Snapshot, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let lines = lines(snapshot, theme);
    let widest = |of: fn(&LossRow) -> &str, most: usize| {
        snapshot.losses.iter().map(|row| text::width(&text::cut(of(row), most))).max().unwrap_or(0)
    };
    let (stage, reason) = (widest(|row| &row.stage, 12), widest(|row| &row.reason, 24));
    for (line, content) in (0..area.height).zip(lines.iter().skip(model.losses_scroll)) {
        let mut pen = Pen::new(buffer, area, line);
        pen.skip(1);
        match content {
            Line::Blank => {}
            Line::Title(title) => pen.write(title, theme.strong()),
            Line::Named(title) => pen.write(title, theme.strong()),
            Line::Text(text, style) => {
                pen.skip(1);
                pen.write(text, *style);
            }
            Line::Stages => {
                let titles =
                    ["received", "passed on", "joined", "lost"].map(|title| format!("{title:>STAGE$}"));
                pen.skip(1);
                pen.write(&format!("{:10}{}", "", titles.concat()), theme.quiet());
            }
            Line::Stage(row) => {
                let style = if row.dropped > 0 { theme.alarm() } else { Style::new() };
                pen.skip(1);
                pen.write(&format!("{:10}", row.stage), theme.quiet());
                for number in [row.received, row.kept, row.merged] {
                    pen.write(&format!("{:>STAGE$}", text::count(number)), Style::new());
                }
                pen.write(&format!("{:>STAGE$}", text::count(row.dropped)), style);
            }
            Line::Row(row) => {
                let style = if row.lost { theme.alarm() } else { Style::new() };
                pen.write(&format!("{:>11}", text::count(row.count)), style);
                pen.skip(2);
                column(&mut pen, &row.stage, stage, theme.quiet());
                column(&mut pen, &row.reason, reason, Style::new());
                pen.write(&row.sentence, theme.quiet());
            }
        }
    }
}

/// A text in a column of its own, with a gap behind it.
fn column(pen: &mut Pen<'_>, text: &str, width: usize, style: Style) {
    let text = text::cut(text, width);
    pen.write(&text, style);
    pen.skip(width - text::width(&text) + 2);
}
