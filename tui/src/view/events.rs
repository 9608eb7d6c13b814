//! Events: the threads and streams of a trace over time, and the tables of a selected part or of an analysis.
//!
//! Owns: how thousands of events become one column, and which events have room for their name. Because: drawing must
//! cost in proportion to the screen, however many events there are. Does not: move anything, or add up more than the
//! lanes did.
//!
//! A column is a bar for the share of its time covered by events, in the color of the class that covers most. If a
//! lane has fewer visible events than columns, those at least four columns wide show their name. Counters follow the
//! lanes (`counters`).

use std::borrow::Cow;

use deepctx_profile::frame::{FrameKind, short_labels};
use deepctx_profile::trace::{
    EventClass, EventFacts, EventLane, EventLanes, RangeRow, RangeTables, Segment, busy,
};
use deepctx_profile::units::Nanos;
use deepctx_profile::view::conclusions::{Conclusions, RuleCoverage};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::{Pen, put};
use super::timeline::{BARS, edge, moment, times};
use super::{counters, event_tables};
use crate::layout::events::EventAreas;
use crate::layout::timeline::{TimeSpan, name_columns, time_columns};
use crate::model::Model;
use crate::text;
use crate::theme::Theme;

/// Minimum columns of an event with a name.
const NAMED: u16 = 4;
/// Minimum columns of a table with shares.
const SHARES_FROM: u16 = 60;
/// One in this many lines of the tables is for findings.
const FINDINGS: u16 = 3;
/// Columns of the share at the right of a lane's name.
const SHARE: usize = 6;

pub(crate) fn draw(model: &Model, lanes: &EventLanes, theme: &Theme, body: Rect, buffer: &mut Buffer) {
    let areas = EventAreas::of(body, model.events.below());
    if lanes.row_count() == 0 {
        return put(buffer, areas.lanes, 0, "the trace has no events of threads or devices", theme.quiet());
    }
    let span = model.events.span(lanes.length());
    if areas.axis.height > 0 {
        axis(model, span, theme, areas.axis, buffer);
    }
    let columns = time_columns(body.width);
    let cursor = span.column_of(model.events.at, columns).filter(|_| model.interactive);
    for line in 0..areas.lanes.height {
        let place = model.events.scroll + usize::from(line);
        let row = Rect { y: areas.lanes.y + line, height: 1, ..areas.lanes };
        let name = Rect { width: name_columns(row.width), ..row };
        let time = Rect { x: name.right(), width: columns, ..row };
        match (lanes.lanes().get(place), lanes.counter_of_row(place)) {
            (Some(lane), _) => {
                title(lane, span, theme, name, buffer);
                bars(lane, span, theme, time, buffer);
                names(lanes, lane, span, theme, time, buffer);
            }
            (None, Some(counter)) => {
                counters::title(counter, span, theme, name, buffer);
                counters::bars(counter, span, theme, time, buffer);
            }
            (None, None) => break,
        }
        if model.interactive && place == model.events.lane {
            buffer.set_style(name, theme.chosen());
        }
        if let Some(cursor) = cursor {
            buffer.set_style(Rect { x: time.x + cursor, width: 1, ..time }, theme.chosen());
        }
    }
    below(model, theme, areas.tables, buffer);
}

/// What is below the lanes, if that has room.
fn below(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    match (model.events.analysis, &model.events.range) {
        _ if area.height == 0 => {}
        (Some(number), _) => event_tables::draw(model.event_tables(), number, theme, area, buffer),
        (None, Some(range)) => {
            let found = model.range_conclusions().map_or_else(Vec::new, |found| findings(found, area.height));
            tables(range, &found, theme, area, buffer);
        }
        (None, None) => {}
    }
}

/// A lane's name, and the share of the visible time that has events.
fn title(lane: &EventLane, span: TimeSpan, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let busy = busy(&lane.times(span.from, span.from.saturating_add(span.length)));
    let mut pen = Pen::new(buffer, area, 0);
    pen.skip(1);
    let for_name = pen.room().saturating_sub(SHARE + 1);
    let style = if lane.is_stream { theme.strong() } else { Style::new() };
    pen.write(&text::cut(&label(lane, for_name), for_name), style);
    let share = text::percent(busy, span.length.0);
    pen.align_right(text::width(&share) + 1);
    pen.write(&share, theme.quiet());
}

/// A lane's label: the number of a stream must stay visible beside a rank and its clock.
fn label(lane: &EventLane, columns: usize) -> Cow<'_, str> {
    if lane.is_stream && text::width(&lane.label) > columns {
        return lane.label.replacen(" stream ", " s", 1).into();
    }
    lane.label.as_str().into()
}

fn bars(lane: &EventLane, span: TimeSpan, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    for column in 0..area.width {
        let (from, to) = (edge(span, column, area.width), edge(span, column + 1, area.width));
        // Less than a nanosecond wide: an event there counts.
        let to = to.max(from.saturating_add(Nanos(1)));
        let times = lane.times(from, to);
        let covered: u64 = times.iter().sum();
        let longest = EventClass::ALL.into_iter().zip(times).max_by_key(|(_, time)| *time);
        let Some((class, _)) = longest.filter(|_| covered > 0) else { continue };
        let eighths = u128::from(covered) * 8 / u128::from((to.saturating_sub(from)).0.max(1));
        // A nonzero share is always visible.
        let step = usize::try_from(eighths).unwrap_or(8).clamp(1, 8);
        buffer.set_string(area.x + column, area.y, BARS[step], theme.event(class));
    }
}

/// Names of events that are wide enough.
fn names(
    lanes: &EventLanes,
    lane: &EventLane,
    span: TimeSpan,
    theme: &Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    let end = span.from.saturating_add(span.length);
    let seen = lane.between(span.from, end);
    if seen.len() > usize::from(area.width) {
        return;
    }
    let place = |segment: &Segment| {
        let first = span.column_of(segment.from.max(span.from), area.width).unwrap_or(0);
        let last = span.column_of(segment.to, area.width).unwrap_or(area.width);
        let is_wide = last.saturating_sub(first) >= NAMED;
        is_wide.then(|| Rect { x: area.x + first, width: last - first, ..area })
    };
    let named: Vec<(Segment, Rect)> =
        seen.iter().filter_map(|segment| Some((*segment, place(segment)?))).collect();
    let full = named.iter().map(|(segment, _)| (kind(segment.class), lanes.name(lane, *segment)));
    for (short, (segment, place)) in short_labels(full).iter().zip(&named) {
        name(short, *segment, theme, *place, buffer);
    }
}

/// Kernels have names with parts to leave out; others are shown as they are.
fn kind(class: EventClass) -> FrameKind {
    match class {
        EventClass::Compute | EventClass::Communication => FrameKind::GpuKernel,
        _ => FrameKind::Operator,
    }
}

fn name(name: &str, segment: Segment, theme: &Theme, place: Rect, buffer: &mut Buffer) {
    let style = theme.event(segment.class);
    let shown = deepctx_profile::frame::clean(name);
    let mut pen = Pen::new(buffer, place, 0);
    pen.write("▏", style);
    pen.write(&text::cut(&shown, usize::from(place.width - 1)), style);
    while pen.room() > 0 {
        pen.write("─", style);
    }
}

/// Times at their columns, and the selection as a thick line.
fn axis(model: &Model, span: TimeSpan, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let (names, columns) = (name_columns(area.width), time_columns(area.width));
    if columns == 0 {
        return;
    }
    let mut pen = Pen::new(buffer, Rect { width: names, ..area }, 0);
    pen.skip(1);
    pen.write(&format!("{} in sight", text::duration(span.length)), theme.quiet());
    times(span, moment, theme, area, buffer);
    if let Some((from, to)) = model.events.selected().filter(|(_, to)| *to >= span.from) {
        let first = span.column_of(from.max(span.from), columns);
        let last = span.column_of(to, columns).unwrap_or(columns - 1);
        for column in first.unwrap_or(columns)..=last {
            buffer.set_string(area.x + names + column, area.y, "━", theme.strong());
        }
    }
}

/// Findings of the rules in the selected part: as many as have room, the largest gain first, and how many rules had
/// their input.
fn findings(found: &Conclusions, height: u16) -> Vec<String> {
    let RuleCoverage { checked, unchecked, .. } = found.rules;
    let room = usize::from(height / FINDINGS).saturating_sub(1);
    let shown = found.findings.iter().take(room).map(|finding| format!("   {}", finding.title));
    let findings = match found.findings.len() {
        0 => "no finding".to_owned(),
        some => text::counted(some as u64, "finding"),
    };
    let rules = text::counted(checked as u64, "rule");
    let (run, need) =
        (if checked == 1 { "runs" } else { "run" }, if unchecked == 1 { "needs" } else { "need" });
    let head =
        format!(" {findings} in this part: {rules} {run} on its events, {unchecked} {need} more than these");
    std::iter::once(head).chain(shown).collect()
}

fn tables(range: &RangeTables, found: &[String], theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let length = range.to.saturating_sub(range.from);
    let exact = length.0.min(999_999);
    let (from, to) = (moment(range.from.0, exact), moment(range.to.0, exact));
    let title = format!(" selected: {} from {from} to {to}", text::duration(length));
    put(buffer, area, 0, &title, theme.strong());
    for (line, text) in (1..area.height).zip(found) {
        put(buffer, area, line, text, if line == 1 { theme.strong() } else { Style::new() });
    }
    let used = (1 + found.len() as u16).min(area.height);
    let below = Rect { y: area.y + used, height: area.height - used, ..area };
    let half = below.width / 2;
    let left = Rect { width: half.saturating_sub(1), ..below };
    let right = Rect { x: below.x + half, width: below.width - half, ..below };
    let of_device = RangeRows { title: "work of devices", rows: &range.device, kind: FrameKind::GpuKernel };
    let of_host = RangeRows { title: "threads, innermost", rows: &range.host, kind: FrameKind::Operator };
    table(of_device, length, theme, left, buffer);
    table(of_host, length, theme, right, buffer);
}

/// A table of names.
struct RangeRows<'r> {
    title: &'static str,
    rows: &'r [RangeRow],
    /// What the names are of.
    kind: FrameKind,
}

fn table(of: RangeRows<'_>, length: Nanos, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let RangeRows { title, rows, kind } = of;
    // On a narrow screen, names matter more than shares.
    let share = |text: &str| if area.width < SHARES_FROM { String::new() } else { format!("  {text:>8}") };
    put(buffer, area, 0, &format!("     time{}   count  {title}", share("of range")), theme.quiet());
    let room = area.height.saturating_sub(1);
    let left_out = rows.len().saturating_sub(usize::from(room));
    let shown = rows.iter().take(usize::from(room));
    let short = short_labels(shown.clone().map(|row| (kind, row.name.as_str())));
    for (line, (row, name)) in (1..=room).zip(shown.zip(short)) {
        if line == room && left_out > 0 {
            let text = format!("  … {} more names", text::count(left_out as u64 + 1));
            return put(buffer, area, line, &text, theme.quiet());
        }
        let (time, count) = (text::duration(row.time), text::count(row.count));
        let share = share(&text::percent(row.time.0, length.0));
        put(buffer, area, line, &format!(" {time:>8}{share}  {count:>6}  {name}"), Style::new());
    }
    if rows.is_empty() {
        put(buffer, area, 1, "  nothing", theme.quiet());
    }
}

/// The event at the cursor, or the nearest one of the lane, for display: its name, and its facts.
pub(crate) fn selection(model: &Model) -> Option<(String, String)> {
    let lanes = model.events_data()?;
    if let Some(counter) = lanes.counter_of_row(model.events.lane) {
        return Some((counter.label.clone(), counters::describe(counter, model.events.at)));
    }
    let lane = lanes.lanes().get(model.events.lane)?;
    let segment = lane.nearest(model.events.at)?;
    let facts = lanes.facts(lane, segment)?;
    let is_there = segment.from <= model.events.at && model.events.at < segment.to;
    Some((facts.name.clone(), describe(&facts, lane, is_there)))
}

fn describe(facts: &EventFacts, lane: &EventLane, is_there: bool) -> String {
    let mut parts = vec![format!("{} at {}", text::duration(facts.duration), moment(facts.begin.0, 1_000))];
    if facts.bytes.0 > 0 {
        parts.push(text::bytes(facts.bytes));
    }
    parts.push(lane.label.clone());
    if !is_there {
        parts.push("nearest".to_owned());
    }
    match &facts.launch {
        Some(launch) => parts.push(format!(
            "by {} on {}, {} earlier",
            launch.call,
            launch.thread,
            text::duration(launch.delay)
        )),
        None if lane.is_stream => parts.push("its launch is not known".to_owned()),
        None => {}
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use deepctx_profile::view::conclusions::FindingRow;

    use super::*;
    use crate::theme::Palette;

    #[test]
    fn kernels_that_differ_late_do_not_read_the_same() {
        let row = |of: &str| RangeRow {
            name: format!("void at::native::fill<at::Fill<{of}>, 4>(int)"),
            count: 1,
            time: Nanos(1),
        };
        let rows = ["float", "double"].map(row);
        let of = RangeRows { title: "work of devices", rows: &rows, kind: FrameKind::GpuKernel };
        let area = Rect::new(0, 0, 59, 3);
        let mut buffer = Buffer::empty(area);
        table(of, Nanos(2), &Theme::new(Palette::Plain), area, &mut buffer);
        let drawn: String = buffer.content().iter().map(|cell| cell.symbol()).collect();
        for of in ["float", "double"] {
            assert!(drawn.contains(&format!("at::native::fill<at::Fill, 4, … {of}>")), "{drawn}");
        }
    }

    #[test]
    fn one_finding_and_one_rule_are_singular() {
        let rules = RuleCoverage { checked: 1, unchecked: 1, most_helpful: None };
        let found = Conclusions { findings: vec![FindingRow::default()], rules, ..Conclusions::default() };
        let expect = " 1 finding in this part: 1 rule runs on its events, 1 needs more than these";
        assert_eq!(findings(&found, 40)[0], expect);
    }

    #[test]
    fn moments_are_as_exact_as_their_distance() {
        let check = |at, distance, expect: &str| assert_eq!(moment(at, distance), expect);
        check(1_234_567, 100, "1.234567 ms");
        check(1_234_567, 1_000, "1.235 ms");
        check(1_234_567, 1_000_000, "0.001 s");
        check(61_000_000_000, 1_000_000_000, "1:01");
    }
}
