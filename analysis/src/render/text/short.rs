//! The short report: one screen.
//!
//! Owns: [`write()`], and how much of each table it shows. Because: a reader wants to know what is slow, and reads one
//! screen: at most 45 lines for any profile. Does not: omit a table silently; a line names the top of each.

use deepctx_profile::order::SortRows as _;
use std::io::{self, Write};

use deepctx_profile::units::{Bytes, Nanos};
use deepctx_profile::view::complete_percent;

use super::{
    Names, counted, findings, head, share, short_column, short_kernels, without_middle, without_start,
};
use crate::tables::functions::Function;
use crate::tables::kernels::Kernel;
use crate::tables::losses::Losses;
use crate::tables::memory::MemoryPool;
use crate::tables::ranges::Ranges;
use crate::tables::system::{SystemMetric, SystemMetrics};
use crate::{Report, Table};

/// Rows of the tables that are shown as tables.
const ROWS: usize = 5;
/// Rows of other tables, shown in one line.
const TOP: usize = 3;
/// Widest line.
const WIDTH: usize = 118;
/// Columns of the title of a line.
const TITLE: usize = 15;

/// Writes findings, phases, the hottest functions, a line for each other table, and the losses in a line.
///
/// # Errors
/// Those of `out`.
pub fn write(report: &Report, names: Names, out: &mut dyn Write) -> io::Result<()> {
    head(report, out)?;
    findings::top(&report.findings, names, out)?;
    phases(report, out)?;
    functions(report, names, out)?;
    writeln!(out)?;
    for (title, text) in lines(report) {
        let line = format!("{title:TITLE$}{text}");
        writeln!(out, "{}", without_middle(line.trim_end(), WIDTH))?;
    }
    match &report.losses.imbalance {
        // Then nothing else is reliable, so it is never cut.
        Some(imbalance) => writeln!(out, "THE LEDGER DOES NOT ADD UP: {imbalance}")?,
        None => {
            writeln!(out, "{}", last_line(&report.losses))?;
        }
    }
    out.flush()
}

/// The largest phases, in their order, with the share of each metric.
fn phases(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let rows = &report.phases.rows;
    let Some(first) = rows.first() else { return Ok(()) };
    let steps = report.phases.training_steps;
    let over = steps.map_or_else(String::new, |steps| format!(", over {}", counted(steps, "training step")));
    writeln!(out, "\nPhases{over}")?;
    let metrics: Vec<&str> = first.values.iter().map(|value| value.metric).take(4).collect();
    for metric in &metrics {
        write!(out, "  {metric:>22}")?;
    }
    writeln!(out, "  phase")?;
    let largest = |row: &crate::tables::phases::PhaseRow| {
        row.values.iter().map(|of| of.share_percent).fold(0.0, f64::max)
    };
    let mut sizes: Vec<f64> = rows.iter().map(largest).collect();
    sizes.sort_rows_by(|a, b| b.total_cmp(a));
    let least = sizes.get(ROWS - 1).copied().unwrap_or(0.0);
    for row in rows.iter().filter(|row| largest(row) >= least).take(ROWS) {
        for value in row.values.iter().take(metrics.len()) {
            write!(out, "  {:>14}  {}", value.value.to_string(), share(value.share_percent))?;
        }
        writeln!(out, "  {}", row.phase)?;
    }
    Ok(())
}

fn functions(report: &Report, names: Names, out: &mut dyn Write) -> io::Result<()> {
    let rows = &report.functions.rows;
    if rows.is_empty() {
        return writeln!(out, "\nThere are no values of {}", report.overview.metric);
    }
    writeln!(out, "\nHottest functions")?;
    writeln!(out, "    self   total  function")?;
    let full = rows.iter().take(ROWS).map(|row| (row.kind, row.function.as_str()));
    let short = short_column(full, names.width(56));
    for (row, name) in rows.iter().zip(&short) {
        let Function { at, exclusive_percent, inclusive_percent, .. } = row;
        let at = without_start(at, 40);
        let line = format!("  {}  {}  {name}  {at}", share(*exclusive_percent), share(*inclusive_percent));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The top of every other table that has rows.
fn lines(report: &Report) -> Vec<(&'static str, String)> {
    let percent =
        |name: &str, percent: f64| format!("{} {}", without_middle(name, 40), share(percent).trim_start());
    let kernel = |(of, name): (&Kernel, String)| format!("{name} ×{}", of.launches);
    let kernels = report.kernels.rows.iter().take(TOP);
    let names = short_kernels(kernels.clone().map(|of| &of.kernel), 40);
    let kernels = fitting(kernels.zip(names).map(kernel));
    let sampled = report.instructions.rows.iter().take(TOP);
    let names = short_kernels(sampled.clone().map(|of| &of.kernel), 40);
    let sampled = fitting(sampled.zip(names).map(|(of, name)| percent(&name, of.samples_percent)));
    let peak = |of: &MemoryPool| format!("{} {}", of.pool.device, Bytes(of.pool.peak_bytes));
    let texts = [
        ("Steps", durations(&report.training_steps, "")),
        ("Ranges", durations(&report.ranges, "own time: ")),
        ("Layers", top(&report.layers, |of| percent(&of.layer, of.inclusive_percent))),
        (
            "Compiled code",
            top(&report.compiled_code.rows, |of| percent(of.origin.name(), of.exclusive_percent)),
        ),
        ("Compiling", top(&report.compilations, |of| percent(&of.line, of.total_percent))),
        ("Devices", top(&report.devices, |of| format!("{}: {}", of.label(), of.tier))),
        ("Kernels", kernels),
        ("Instructions", sampled),
        ("Peak memory", top(&report.memory, peak)),
        ("Machine", machine(&report.system)),
    ];
    texts.into_iter().filter(|(_, text)| !text.is_empty()).collect()
}

/// How busy CPUs and GPUs were, and the first other figures if there is room.
fn machine(table: &SystemMetrics) -> String {
    let happened = table.rows.iter().filter(|row| row.mean > 0.0);
    let is_use = |row: &&SystemMetric| {
        ["cpu-busy-time", "gpu-busy-time"].contains(&row.figure) && !row.resource.starts_with("cpu ")
    };
    let (uses, others): (Vec<_>, Vec<_>) = happened.partition(is_use);
    let text = |row: &SystemMetric| format!("{} {} {}", row.resource, row.figure, row.unit.written(row.mean));
    fitting(uses.into_iter().chain(others).take(TOP).map(text))
}

/// The first rows of a table, in a line.
fn top<R>(table: &Table<R>, text: impl Fn(&R) -> String) -> String {
    fitting(table.rows.iter().take(TOP).map(text))
}

/// As many of these as fit beside a title, but at least the first.
fn fitting(texts: impl Iterator<Item = String>) -> String {
    let mut line = String::new();
    for text in texts {
        if line.is_empty() {
            line = text;
        } else if TITLE + line.chars().count() + 2 + text.chars().count() <= WIDTH {
            line = line + ", " + &text;
        } else {
            break;
        }
    }
    line
}

/// The longest of them in total; `of` says which time it is. Names are cut so far that all figures fit.
fn durations(ranges: &Ranges, of: &str) -> String {
    ranges.rows.first().map_or_else(String::new, |row| {
        let [mean, most] = [row.mean_ns as u64, row.max_ns].map(Nanos);
        let percentiles = row
            .p50_ns
            .zip(row.p95_ns)
            .map_or_else(String::new, |(p50, p95)| format!(", p50 {}, p95 {}", Nanos(p50), Nanos(p95)));
        let figures = format!(": {}, {of}mean {mean}{percentiles}, longest {most}", row.count);
        let room = (WIDTH - TITLE).saturating_sub(figures.chars().count());
        let name = without_middle(&row.name, 40);
        // A trace has no line for the training steps that its tool marked.
        let at = match row.entered_at.as_str() {
            "" => String::new(),
            at => {
                let beside = room.saturating_sub(name.chars().count() + ", at ".len());
                format!(", at {}", without_start(at, beside.max(room / 2).clamp(1, 40)))
            }
        };
        let name = without_middle(&name, room.saturating_sub(at.chars().count()).max(1));
        format!("{name}{figures}{at}")
    })
}

/// The losses, and a pointer to details. If there is no room, the reason of most gaps is dropped first.
fn last_line(losses: &Losses) -> String {
    const MORE: &str = ". All tables: report --all";
    let gap = losses.most_common_gap.map_or_else(String::new, |gap| format!(" (most others: {gap})"));
    let quality = quality(losses);
    let whole = format!("{quality}{gap}{MORE}");
    if whole.chars().count() <= WIDTH { whole } else { without_middle(&format!("{quality}{MORE}"), WIDTH) }
}

fn quality(losses: &Losses) -> String {
    let lost = match losses.lost_percent {
        None => "no records were counted".to_owned(),
        Some(_) if losses.lost == 0 => format!("none of {} lost", counted(losses.received, "record")),
        Some(percent) => {
            let share = if percent < 0.005 { "<0.01%".to_owned() } else { format!("{percent:.2}%") };
            format!("{} of {} lost ({share})", losses.lost, counted(losses.received, "record"))
        }
    };
    let complete = |percent: f64| format!(", {}% of stacks complete", complete_percent(percent / 100.0));
    let stacks = losses.complete_percent.map_or_else(String::new, complete);
    format!("Quality: {lost}{stacks}")
}
