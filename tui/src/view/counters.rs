//! Counters: the rows of values over time below the lanes of a trace.
//!
//! Owns: how thousands of values become one column. Because: a peak that is shorter than a column must still be
//! visible. Does not: know lanes of events.
//!
//! A column is a bar for the highest value in it, scaled to the highest value that the counter ever had; for shares,
//! to the whole.

use deepctx_profile::trace::{CounterLane, CounterUnit};
use deepctx_profile::units::Nanos;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::Pen;
use super::timeline::{BARS, edge, moment};
use crate::layout::timeline::TimeSpan;
use crate::text;
use crate::theme::Theme;

/// A counter's name, and its highest visible value.
pub(super) fn title(counter: &CounterLane, span: TimeSpan, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let end = span.from.saturating_add(span.length);
    let most = counter.highest(span.from, end).map_or_else(|| "–".to_owned(), |most| counter.written(most));
    let mut pen = Pen::new(buffer, area, 0);
    pen.skip(1);
    let for_name = pen.room().saturating_sub(text::width(&most) + 2);
    pen.write(&text::cut(&counter.label, for_name), Style::new());
    pen.align_right(text::width(&most) + 1);
    pen.write(&most, theme.quiet());
}

pub(super) fn bars(counter: &CounterLane, span: TimeSpan, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let whole = if counter.unit == Some(CounterUnit::Share) { 1.0 } else { counter.most() };
    for column in 0..area.width {
        let (from, to) = (edge(span, column, area.width), edge(span, column + 1, area.width));
        let to = to.max(from.saturating_add(Nanos(1)));
        let Some(highest) = counter.highest(from, to).filter(|highest| *highest > 0.0) else { continue };
        // A nonzero value is always visible.
        let step = ((highest / whole * 8.0).round() as usize).clamp(1, 8);
        buffer.set_string(area.x + column, area.y, BARS[step], theme.quiet());
    }
}

/// The value at a time, and the highest of all.
pub(super) fn describe(counter: &CounterLane, at: Nanos) -> String {
    let value = counter.value(at).map_or_else(|| "not known yet".to_owned(), |value| counter.written(value));
    format!("{value} at {} · most {}", moment(at.0, 1_000), counter.written(counter.most()))
}
