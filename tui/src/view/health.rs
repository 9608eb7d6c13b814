//! Health: what is missing or has a gap, why, and what profiling costs.
//!
//! Owns: the columns of the page. Because: counts of losses must line up to be compared. Does not: choose the lines;
//! see [`crate::page::health`].

use deepctx_profile::view::Level;
use deepctx_profile::view::snapshot::{LossRow, Snapshot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::Pen;
use crate::model::Model;
use crate::page::health::{HealthLine, Tone, lines};
use crate::text;
use crate::theme::Theme;

/// Columns of a number of records.
const STAGE: usize = 13;

pub(crate) fn draw(model: &Model, snapshot: &Snapshot, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let lines = lines(snapshot, usize::from(area.width));
    let widest = |of: fn(&LossRow) -> &str, most: usize| {
        snapshot.losses.iter().map(|row| text::width(&text::cut(of(row), most))).max().unwrap_or(0)
    };
    let (stage, reason) = (widest(|row| &row.stage, 12), widest(|row| &row.reason, 24));
    for (line, content) in (0..area.height).zip(lines.iter().skip(model.health_scroll)) {
        let mut pen = Pen::new(buffer, area, line);
        pen.skip(1);
        match content {
            HealthLine::Blank => {}
            HealthLine::Title(title) => pen.write(title, theme.strong()),
            HealthLine::Text(text, tone) => {
                pen.skip(1);
                pen.write(text, style_of(*tone, theme));
            }
            HealthLine::Stages => {
                let titles = ["received", "kept", "merged", "lost", "in flight"]
                    .map(|title| format!("{title:>STAGE$}"));
                pen.skip(1);
                pen.write(&format!("{:10}{}", "", titles.concat()), theme.quiet());
            }
            HealthLine::Stage(row) => {
                let style = if row.dropped > 0 { theme.alarm() } else { Style::new() };
                pen.skip(1);
                pen.write(&format!("{:10}", row.stage), theme.quiet());
                for number in [row.received, row.kept, row.merged] {
                    pen.write(&format!("{:>STAGE$}", text::count(number)), Style::new());
                }
                pen.write(&format!("{:>STAGE$}", text::count(row.dropped)), style);
                let done = row.kept.saturating_add(row.merged).saturating_add(row.dropped);
                let in_flight = row.received.saturating_sub(done);
                pen.write(&format!("{:>STAGE$}", text::count(in_flight)), Style::new());
            }
            HealthLine::Row(row) => {
                let style = match row.level() {
                    Level::Act if row.lost => theme.alarm(),
                    _ if row.lost => theme.notice(),
                    _ => Style::new(),
                };
                pen.write(&format!("{:>11}", text::count(row.count)), style);
                pen.skip(2);
                column(&mut pen, &row.stage, stage, theme.quiet());
                column(&mut pen, &row.reason, reason, Style::new());
                pen.write(&row.sentence, theme.quiet());
            }
        }
    }
}

fn style_of(tone: Tone, theme: &Theme) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Quiet => theme.quiet(),
        Tone::Alarm => theme.alarm(),
    }
}

/// A text in its own column, followed by a gap.
fn column(pen: &mut Pen<'_>, text: &str, width: usize, style: Style) {
    let text = text::cut(text, width);
    pen.write(&text, style);
    pen.skip(width - text::width(&text) + 2);
}
