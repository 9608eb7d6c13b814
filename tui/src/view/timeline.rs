//! Timeline: a row per process or thread and metric, a column per moment, a bar for how busy it was.
//!
//! Owns: the scale of the bars and of the time. Because: a thread that waits, or two that alternate, are visible in
//! time and in no tree. Does not: choose the lanes or their order.
//!
//! A full bar of a thread is one CPU (or waiting all the time); of a process, as many CPUs (or waiting threads) as it
//! ever had at once; for metrics other than time, the highest visible value.

use deepctx_profile::units::Nanos;
use deepctx_profile::view::snapshot::{FrameKind, Lane, Timeline, Unit};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::{Pen, put};
use crate::layout::areas::rows_area;
use crate::layout::timeline::{TimeSpan, name_columns, time_columns};
use crate::model::Model;
use crate::text;
use crate::theme::{Theme, letter};

/// Bars from empty to full, by eighths.
pub(super) const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Columns of the figure at the right of the name.
const FIGURE: u16 = 9;

/// The values of a lane to draw, one per column.
struct Bars {
    values: Vec<f64>,
    full: f64,
}

/// Converts a value to a rate; time becomes a number of CPUs.
fn rate(value: f64, unit: Unit, length_ns: f64) -> f64 {
    match unit {
        Unit::Nanoseconds if length_ns > 0.0 => value / length_ns,
        _ => value,
    }
}

/// Values of a lane by column; the part of a window within a column counts proportionally, for a level in full.
fn bars(lane: &Lane, timeline: &Timeline, span: TimeSpan, columns: u16) -> Bars {
    let (from, length) = (span.from.0 as f64, span.length.0 as f64);
    let (window, width) = (timeline.window.0.max(1) as f64, length / f64::from(columns.max(1)));
    let values: Vec<f64> = (0..columns)
        .map(|column| {
            let (start, end) = (from + f64::from(column) * width, from + f64::from(column + 1) * width);
            let first = (start / window) as usize;
            let last = (end / window).ceil() as usize;
            if lane.level {
                let seen = lane.values.get(first..last.min(lane.values.len())).unwrap_or_default();
                return seen.iter().copied().max().unwrap_or(0) as f64;
            }
            let sum: f64 = (first..last.min(lane.values.len()))
                .map(|place| {
                    let begin = place as f64 * window;
                    let seen = (end.min(begin + window) - start.max(begin)).max(0.0);
                    lane.values[place] as f64 * seen / window
                })
                .sum();
            rate(sum, lane.unit, width)
        })
        .collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    let full = match (lane.unit, lane.kind) {
        (Unit::Nanoseconds, FrameKind::Process) => (most - 0.05).ceil().max(1.0),
        (Unit::Nanoseconds, _) => 1.0,
        _ => most,
    };
    Bars { values, full }
}

/// The mean over the visible time.
fn mean(bars: &Bars) -> f64 {
    if bars.values.is_empty() { 0.0 } else { bars.values.iter().sum::<f64>() / bars.values.len() as f64 }
}

pub(crate) fn draw(model: &Model, timeline: &Timeline, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let lanes = rows_area(area);
    if timeline.lanes.is_empty() {
        let text = "no timeline: this profile has none, or no samples yet";
        put(buffer, lanes, 0, text, theme.quiet());
        return;
    }
    let span = model.timeline.span(timeline);
    let columns = time_columns(area.width);
    let cursor = model.timeline.at.filter(|_| model.interactive).and_then(|at| span.column_of(at, columns));
    if lanes.y > area.y {
        axis(span, &timeline.lanes, theme, area, buffer);
    }
    for line in 0..lanes.height {
        let place = model.timeline.scroll + usize::from(line);
        let row = Rect { y: lanes.y + line, height: 1, ..lanes };
        let Some(lane) = timeline.lanes.get(place) else {
            if place == timeline.lanes.len() && timeline.lanes_left_out > 0 {
                put(buffer, row, 0, &left_out(timeline.lanes_left_out as u64), theme.quiet());
            }
            break;
        };
        // Rows of other metrics follow the first of their process or thread; the topmost visible one names it.
        let above = place.checked_sub(1).filter(|_| line > 0).and_then(|above| timeline.lanes.get(above));
        let goes_on = above.is_some_and(|above| (&above.label, above.kind) == (&lane.label, lane.kind));
        draw_lane(lane, goes_on, &bars(lane, timeline, span, columns), theme, row, buffer);
        let name = Rect { width: name_columns(area.width), ..row };
        if model.interactive && place == model.timeline.lane {
            buffer.set_style(name, theme.chosen());
        }
        if let Some(cursor) = cursor {
            buffer.set_style(Rect { x: name.right() + cursor, width: 1, ..row }, theme.chosen());
        }
    }
}

/// The line below the lanes that says how many are not shown.
fn left_out(count: u64) -> String {
    format!("  … {} with lower values", text::counted(count, "more lane"))
}

/// Draws a lane by itself, in a part of the time.
pub(super) fn draw_in_span(
    lane: &Lane,
    timeline: &Timeline,
    span: TimeSpan,
    theme: &Theme,
    row: Rect,
    buffer: &mut Buffer,
) {
    draw_lane(lane, false, &bars(lane, timeline, span, time_columns(row.width)), theme, row, buffer);
}

fn draw_lane(lane: &Lane, goes_on: bool, bars: &Bars, theme: &Theme, row: Rect, buffer: &mut Buffer) {
    let names = name_columns(row.width);
    let mut pen = Pen::new(buffer, Rect { width: names, ..row }, 0);
    pen.skip(if lane.kind == FrameKind::Process { 0 } else { 2 });
    if goes_on {
        pen.skip(3);
    } else {
        pen.write(&letter(lane.kind).to_string(), theme.mark(lane.kind));
        pen.skip(1);
    }
    let figure = match lane.unit {
        Unit::Nanoseconds => format!("{:.2}", mean(bars)),
        unit => text::value(unit, lane.total),
    };
    let for_name = pen.room().saturating_sub(usize::from(FIGURE));
    let name = if goes_on { short(lane.metric).to_owned() } else { name(lane) };
    let strong = lane.kind == FrameKind::Process && !goes_on;
    pen.write(&text::cut(&name, for_name), if strong { theme.strong() } else { Style::new() });
    pen.align_right(text::width(&figure) + 1);
    pen.write(&figure, Style::new());
    let style = theme.bar(lane.kind, lane.metric);
    for (x, value) in (row.x + names..row.right()).zip(&bars.values) {
        let eighths = if bars.full > 0.0 { (value / bars.full * 8.0).round() } else { 0.0 };
        // A nonzero value is always visible.
        let least = if *value > 0.0 { 1 } else { 0 };
        let step = (eighths.clamp(0.0, 8.0) as usize).max(least);
        buffer.set_string(x, row.y, BARS[step], style);
    }
}

/// The owner, and the metric unless it is the main one: time on a CPU, or kernels of a stream.
fn name(lane: &Lane) -> String {
    match (lane.metric, short_stream(&lane.label)) {
        ("gpu-time", Some(stream)) => stream,
        (metric, Some(stream)) => format!("{} {stream}", short(metric)),
        ("cpu-time", None) => lane.label.clone(),
        (metric, None) if metric.starts_with(OF_MACHINE) => format!("{} {}", lane.label, short(metric)),
        (metric, None) => format!("{} {}", short(metric), lane.label),
    }
}

/// `[device 0] stream 7` in fewer columns.
fn short_stream(label: &str) -> Option<String> {
    let (device, stream) = label.strip_prefix("[device ")?.split_once("] stream ")?;
    Some(format!("gpu{device} stream {stream}"))
}

/// Prefix of the names of the machine's metrics: its lanes show that already.
const OF_MACHINE: &str = "system:";

fn short(metric: &str) -> &str {
    metric.trim_start_matches(OF_MACHINE).trim_end_matches("-time")
}

/// Meaning of the figures of these lanes: the mean of time, the maximum of levels, the sum of anything else.
fn figures(lanes: &[Lane]) -> String {
    let is = |lane: &Lane| match (lane.unit, lane.level) {
        (Unit::Nanoseconds, _) => 0,
        (_, true) => 1,
        (_, false) => 2,
    };
    let kinds = ["mean", "most", "sum"].into_iter().enumerate();
    let present = kinds.filter(|(kind, _)| lanes.iter().any(|lane| is(lane) == *kind));
    present.map(|(_, name)| name).collect::<Vec<_>>().join("/")
}

/// The axis, with the meaning of the figures.
fn axis(span: TimeSpan, lanes: &[Lane], theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let names = name_columns(area.width);
    let mut pen = Pen::new(buffer, Rect { width: names, ..area }, 0);
    pen.skip(1);
    let figures = figures(lanes);
    pen.align_right(text::width(&figures) + 1);
    pen.write(&figures, theme.quiet());
    times(span, tick, theme, area, buffer);
}

/// Times at their columns, as many as fit, at round distances; `written` gives the text of one and its distance to the
/// next, both in nanoseconds.
pub(super) fn times(
    span: TimeSpan,
    written: impl Fn(u64, u64) -> String,
    theme: &Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    let (names, columns) = (name_columns(area.width), time_columns(area.width));
    if columns == 0 {
        return;
    }
    let distance = round_distance(span.length.0, u64::from(columns));
    let mut at = span.from.0.div_ceil(distance).saturating_mul(distance);
    let mut free = 0;
    while at < span.from.saturating_add(span.length).0 {
        let column = span.column_of(Nanos(at), columns).unwrap_or(columns - 1);
        let text = format!("│{}", written(at, distance));
        let width = u16::try_from(text::width(&text)).unwrap_or(u16::MAX);
        if column >= free && width <= columns - column {
            let place = Rect { x: area.x + names + column, width: columns - column, height: 1, y: area.y };
            put(buffer, place, 0, &text, theme.quiet());
            free = column + width + 1;
        }
        at = at.saturating_add(distance);
    }
}

/// The smallest of 1, 2 or 5 times a power of ten (of a minute beyond one) that leaves a tick twelve columns.
fn round_distance(length_ns: u64, columns: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let least = u128::from(length_ns) * 12 / u128::from(columns.max(1));
    let small = (0..11)
        .flat_map(|power| [1, 2, 5].map(|digit| digit * 10u64.pow(power)))
        .filter(|it| *it < 60 * SECOND);
    let minutes =
        [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1440, 10_080, 100_800].map(|minutes| minutes * 60 * SECOND);
    small.chain(minutes).find(|distance| u128::from(*distance) >= least).unwrap_or(u64::MAX / 4)
}

/// A time on the axis, as precise as its distance to the next.
pub(super) fn tick(at_ns: u64, distance_ns: u64) -> String {
    let seconds = at_ns / 1_000_000_000;
    match distance_ns {
        0..1_000_000_000 => {
            let digits = if distance_ns < 10_000_000 {
                3
            } else if distance_ns < 100_000_000 {
                2
            } else {
                1
            };
            format!("{:.digits$} s", at_ns as f64 / 1e9)
        }
        _ if seconds < 60 => format!("{seconds} s"),
        _ if seconds < 3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

/// The selected lane and time, for the footer: name, time, value at that time.
pub(crate) fn selection(model: &Model) -> Option<(String, String)> {
    let timeline = model.timeline_data()?;
    let lane = timeline.lanes.get(model.timeline.lane)?;
    let Some(at) = model.timeline.at else {
        return Some((
            lane.label.clone(),
            match lane.level {
                true => format!("{} at most: {}", lane.metric, text::value(lane.unit, lane.total)),
                false => format!("{} of {}", text::value(lane.unit, lane.total), lane.metric),
            },
        ));
    };
    let window = timeline.window.0.max(1);
    let number = at.0 / window;
    let value = usize::try_from(number).ok().and_then(|place| lane.values.get(place)).copied().unwrap_or(0);
    let begin = number.saturating_mul(window);
    let amount = match lane.unit {
        Unit::Nanoseconds => {
            let what = match lane.metric {
                "cpu-time" => "CPUs",
                "off-cpu-time" | "sync-time" => "threads",
                _ => "at once",
            };
            format!("{:.2} {what}", value as f64 / window as f64)
        }
        unit => text::value(unit, value),
    };
    let from = tick(begin, window);
    let to = tick(begin.saturating_add(window), window);
    Some((lane.label.clone(), format!("{from} – {to}: {amount} of {}", lane.metric)))
}

/// The start time of a column.
pub(super) fn edge(span: TimeSpan, column: u16, columns: u16) -> Nanos {
    let offset = u128::from(span.length.0) * u128::from(column) / u128::from(columns.max(1));
    span.from.saturating_add(Nanos(u64::try_from(offset).unwrap_or(u64::MAX)))
}

/// A time, as precise as its distance to the next one.
pub(super) fn moment(at_ns: u64, distance_ns: u64) -> String {
    match distance_ns {
        0..1_000 => format!("{:.6} ms", at_ns as f64 / 1e6),
        1_000..1_000_000 => format!("{:.3} ms", at_ns as f64 / 1e6),
        _ => tick(at_ns, distance_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_at_round_distances() {
        let check = |length_ns, expected| assert_eq!(round_distance(length_ns, 60), expected);
        check(1_000_000_000, 200_000_000);
        check(10_000_000_000, 2_000_000_000);
        check(60_000_000_000, 20_000_000_000);
        check(600_000_000_000, 120_000_000_000);
        check(0, 1);
        check(u64::MAX, u64::MAX / 4);
    }

    #[test]
    fn one_lane_left_out_is_singular() {
        assert_eq!(left_out(1), "  … 1 more lane with lower values");
        assert_eq!(left_out(12), "  … 12 more lanes with lower values");
    }

    #[test]
    fn the_axis_says_what_the_figures_are() {
        let check = |units: &[(Unit, bool)], expected: &str| {
            let lane = |&(unit, level): &(Unit, bool)| Lane { unit, level, ..Lane::default() };
            assert_eq!(figures(&units.iter().map(lane).collect::<Vec<_>>()), expected);
        };
        check(&[(Unit::Nanoseconds, false)], "mean");
        check(&[(Unit::Bytes, true)], "most");
        check(&[(Unit::Count, false), (Unit::Nanoseconds, false), (Unit::Bytes, true)], "mean/most/sum");
    }

    #[test]
    fn times_are_as_exact_as_their_distance() {
        let check = |at, distance, expected: &str| assert_eq!(tick(at, distance), expected);
        check(1_500_000_000, 500_000_000, "1.5 s");
        check(1_250_000_000, 50_000_000, "1.25 s");
        check(42_000_000_000, 2_000_000_000, "42 s");
        check(125_000_000_000, 5_000_000_000, "2:05");
        check(3_725_000_000_000, 60_000_000_000, "1:02:05");
    }

    #[test]
    fn a_column_shows_its_part_of_a_window() {
        let lane = Lane { unit: Unit::Nanoseconds, values: vec![100, 0, 50], ..Lane::default() };
        let timeline = Timeline { window: Nanos(100), windows: 3, ..Timeline::default() };
        let check = |from, length, columns, expected: &[f64]| {
            assert_eq!(
                bars(&lane, &timeline, TimeSpan { from: Nanos(from), length: Nanos(length) }, columns).values,
                expected
            );
        };
        check(0, 300, 3, &[1.0, 0.0, 0.5]);
        check(0, 300, 6, &[1.0, 1.0, 0.0, 0.0, 0.5, 0.5]);
        check(0, 400, 2, &[0.5, 0.25]);
        check(50, 100, 1, &[0.5]);
    }
}
