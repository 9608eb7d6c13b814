//! Text: tables for people.
//!
//! Owns: [`write_all`], the order of the tables, and the widths of texts in them; [`write()`] is the short form.
//! Because: a report must fit a terminal and a mail. Does not: guarantee its layout to programs; JSON is for them.

pub(crate) mod accelerators;
mod comparison;
mod counters;
mod critical_path;
mod event_difference;
mod experiment;
mod extremes;
mod figures;
mod findings;
mod model;
mod names;
mod not_measured;
mod operator_comparison;
mod operators;
mod over_time;
mod parallelism;
mod pipeline;
mod ranks;
mod short;
mod training;
mod work;

use std::io::{self, Write};

use deepctx_profile::frame::{FrameKind, SPINNING, SpinPart, SpinState};
use deepctx_profile::profile::KeptWindow;
use deepctx_profile::units::{Nanos, counted};
use deepctx_profile::view::fold::is_wrapper;
use deepctx_profile::view::{Level, complete_percent};

use crate::Report;
use crate::tables::contexts::Context;
use crate::tables::losses::Losses;
use crate::tables::system::{SystemMetric, SystemMetrics};

pub use comparison::write as write_comparison;
pub(super) use critical_path::{
    bound_in_words, guessed_links_in_words, path_in_words, within_clocks_in_words,
};
pub use event_difference::write as write_event_difference;
pub use experiment::write as write_experiment;
pub(super) use extremes::{extreme_in_words, without_stream};
pub(super) use figures::scaled;
pub use findings::write as write_findings;
pub use model::write as write_model;
pub(super) use model::{FIGURES, figure_cells};
pub use names::Names;
use names::cut_names;
pub(super) use names::{ShortNames, short_column, short_kernels};
pub(super) use not_measured::not_measured_in_words;
pub use operator_comparison::write as write_operator_comparison;
pub(super) use operators::{by_no_operator, sequence_in_words};
pub use over_time::write as write_over_time;
pub(super) use parallelism::{kinds_in_words, operations_in_words};
pub(super) use pipeline::{communicators_in_words, inferred_in_words};
pub(super) use ranks::{clock_in_words, slowest_path_in_words};
pub use short::write;
pub(super) use work::{paced_in_words, together_in_words};

/// Widest function name in a table; longer ones are cut.
const NAME_WIDTH: usize = 56;
/// Widest place in a table; longer ones lose their beginning.
const PLACE_WIDTH: usize = 44;
/// Maximum number of frames of one context, counted from the leaf; the outermost one is always shown.
const DEPTH: usize = 8;

/// Writes a report with every table.
///
/// # Errors
/// Those of `out`.
pub fn write_all(report: &Report, names: Names, out: &mut dyn Write) -> io::Result<()> {
    write_to_depth(report, DEPTH, names, out)
}

fn write_to_depth(report: &Report, depth: usize, names: Names, out: &mut dyn Write) -> io::Result<()> {
    head(report, out)?;
    findings::top(&report.findings, names, out)?;
    functions(report, names, out)?;
    contexts(&report.contexts.rows, depth, names, out)?;
    training::phases(&report.phases, out)?;
    training::training_steps(&report.training_steps, out)?;
    training::ranges(&report.ranges, out)?;
    training::layers(&report.layers, out)?;
    training::compiled_code(&report.compiled_code, out)?;
    training::compilations(&report.compilations, out)?;
    accelerators::devices(&report.devices, out)?;
    accelerators::kernels(&report.kernels, names, out)?;
    accelerators::instructions(&report.instructions, names, out)?;
    accelerators::memory(&report.memory, out)?;
    system(&report.system, out)?;
    losses(&report.losses, out)?;
    out.flush()
}

/// Machine metrics: percentiles are over time windows.
fn system(table: &SystemMetrics, out: &mut dyn Write) -> io::Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    // Figures that are always 0 take no line.
    let rows: Vec<&SystemMetric> = table.rows.iter().filter(|row| row.mean > 0.0).collect();
    let name = |row: &SystemMetric| format!("{} {}", row.resource, row.figure);
    let width = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0);
    writeln!(
        out,
        "\nMachine\n  {:width$} {:>11} {:>11} {:>11} {:>11}",
        "", "mean", "median", "95 %", "most"
    )?;
    for row in rows {
        let [mean, p50, p95, max] =
            [row.mean, row.p50, row.p95, row.max].map(|value| row.unit.written(value));
        writeln!(out, "  {:width$} {mean:>11} {p50:>11} {p95:>11} {max:>11}", name(row))?;
    }
    match table.left_out {
        0 => Ok(()),
        more => writeln!(out, "  … {more} more"),
    }
}

fn head(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let of = &report.overview;
    let target = if of.target.is_empty() { "an unnamed target" } else { &of.target };
    write!(out, "{} of {target}", of.metric)?;
    if !of.host.is_empty() {
        write!(out, " on {}", of.host)?;
    }
    write!(out, "\n{} in {}", of.total, counted(of.values, "value"))?;
    if of.frequency_hz > 0 {
        write!(out, ", {} Hz per CPU", of.frequency_hz)?;
    }
    writeln!(out, ", {}", counted(of.calling_contexts, "calling context"))?;
    if let Some(KeptWindow { before, before_records, because }) = &of.kept {
        write!(out, "the last {}, kept by a flight recorder ({because})", Nanos(of.elapsed_ns))?;
        match before.0 {
            0 => writeln!(out)?,
            _ => writeln!(
                out,
                "; {} of the {before} before are not in it",
                counted(*before_records, "record")
            )?,
        }
    }
    match &of.probe_note {
        Some(sentence) => writeln!(out, "{sentence}"),
        None => Ok(()),
    }
}

fn functions(report: &Report, names: Names, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nHottest functions")?;
    let rows = &report.functions.rows;
    if rows.is_empty() {
        return writeln!(out, "  there are no values of {}", report.overview.metric);
    }
    let width = names.width(NAME_WIDTH);
    let names = short_column(rows.iter().map(|row| (row.kind, row.function.as_str())), width);
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("function".len());
    writeln!(out, "    self   total  {:width$}  where", "function")?;
    for (row, name) in rows.iter().zip(&names) {
        let [own, all] = [row.exclusive_percent, row.inclusive_percent].map(share);
        let line = format!("  {own}  {all}  {name:width$}  {}", without_start(&row.at, PLACE_WIDTH));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn contexts(contexts: &[Context], depth: usize, names: Names, out: &mut dyn Write) -> io::Result<()> {
    if contexts.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nHottest contexts, innermost call first")?;
    let stacks: Vec<Vec<(FrameKind, &str)>> = contexts.iter().map(telling).collect();
    let names = ShortNames::of(stacks.iter().flatten().copied(), names.width(2 * NAME_WIDTH));
    for (context, stack) in contexts.iter().zip(&stacks) {
        let mut frames = stack.iter().rev().map(|(_, label)| names.get(label));
        let leaf = frames.next().unwrap_or("all");
        let (share, value) = (share(context.exclusive_percent), context.exclusive.to_string());
        writeln!(out, "  {share}  {value:>7}  {leaf}")?;
        callers(&frames.collect::<Vec<_>>(), depth.max(1), out)?;
    }
    Ok(())
}

/// The frames of a context without those that only forward a call, unless the time is spent there.
fn telling(context: &Context) -> Vec<(FrameKind, &str)> {
    let frames = context.kinds.iter().copied().zip(context.frames.iter().map(String::as_str));
    let frames = if context.has_callers { spinning_apart(frames.collect()) } else { frames.collect() };
    let last = frames.len().saturating_sub(1);
    let frames = frames.into_iter().enumerate();
    let telling = frames.filter(|(at, (kind, label))| *at == last || !is_wrapper(*kind, label));
    telling.map(|(_, frame)| frame).collect()
}

/// The frames of a thread that waits for no call: in place of those that led there, the box that views set apart.
fn spinning_apart(frames: Vec<(FrameKind, &str)>) -> Vec<(FrameKind, &str)> {
    let (mut state, mut begin) = (SpinState::default(), None);
    for (at, (kind, label)) in frames.iter().enumerate() {
        state = state.then(SpinPart::of_label(*kind, label));
        begin = if state.is_apart() { begin.or(Some(at)) } else { None };
    }
    let Some(begin) = begin else { return frames };
    let is_target = |(kind, _): &(FrameKind, &str)| matches!(kind, FrameKind::Process | FrameKind::Thread);
    let targets = frames.iter().copied().take_while(is_target);
    targets.chain([(FrameKind::Kernel, SPINNING)]).chain(frames[begin..].iter().copied()).collect()
}

/// The callers of a leaf, innermost first: `depth` of them, and the outermost one.
fn callers(callers: &[&str], depth: usize, out: &mut dyn Write) -> io::Result<()> {
    // A line for "one more frame" has room for that frame.
    let hidden = match callers.len().saturating_sub(depth) {
        1 => 0,
        hidden => hidden,
    };
    for (place, caller) in callers.iter().enumerate() {
        // The last one is the outermost: the process.
        if hidden > 0 && place + 1 < callers.len() && place + 1 >= callers.len() - hidden {
            if place + 1 == callers.len() - hidden {
                writeln!(out, "{:21}… {}", "", counted(hidden as u64, "more frame"))?;
            }
            continue;
        }
        writeln!(out, "{:21}{caller}", "")?;
    }
    Ok(())
}

fn losses(losses: &Losses, out: &mut dyn Write) -> io::Result<()> {
    use deepctx_profile::frame::clean;

    writeln!(out, "\nLosses and gaps")?;
    match losses.lost_percent {
        None => writeln!(out, "  no records were counted")?,
        Some(percent) => {
            let received = counted(losses.received, "record");
            writeln!(out, "  {} of {received} lost ({percent:.2}%)", losses.lost)?;
        }
    }
    if let Some(percent) = losses.complete_percent {
        writeln!(out, "  {}% of stacks complete", complete_percent(percent / 100.0))?;
    }
    for level in Level::ALL {
        let mut rows = losses.losses.iter().filter(|row| row.level == level).peekable();
        if rows.peek().is_some() {
            writeln!(out, "  {}", level.title())?;
        }
        for row in rows {
            let what = if row.lost { "lost" } else { "gap" };
            let (reason, sentence) = (clean(&row.reason), clean(&row.sentence));
            writeln!(out, "    {:10} {reason:22} {:>9}  {what:4}  {sentence}", row.stage, row.count)?;
            if let Some(advice) = row.advice {
                writeln!(out, "{:15}→ {advice}", "")?;
            }
        }
    }
    match &losses.imbalance {
        Some(imbalance) => writeln!(out, "  THE LEDGER DOES NOT ADD UP: {imbalance}"),
        None => Ok(()),
    }
}

/// Whether training steps have several names, so that their numbers alone do not distinguish them.
pub(super) fn have_several_names<'n>(mut names: impl Iterator<Item = &'n String>) -> bool {
    let first = names.next();
    names.any(|name| Some(name) != first)
}

/// Prints the number of hidden rows of a table.
fn more(all: usize, rows: usize, thing: &str, out: &mut dyn Write) -> io::Result<()> {
    figures::more(all.saturating_sub(rows), thing, out)
}

/// A share, six columns wide.
fn share(percent: f64) -> String {
    format!("{percent:5.1}%")
}

/// A part of a whole as a share, six columns wide.
fn share_of(part: u64, whole: u64) -> String {
    share(part as f64 * 100.0 / whole.max(1) as f64)
}

fn without_middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let (head, tail) = ((width - 1) / 2, width - 1 - (width - 1) / 2);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

fn without_start(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    ['…'].into_iter().chain(text.chars().skip(length + 1 - width)).collect()
}

#[cfg(test)]
mod tests;
