//! Text of an experiment: a line for each value.
//!
//! Owns: [`write()`]. Because: a user who chooses a batch size compares lines. Does not: recommend a value.

use std::io::{self, Write};

use deepctx_profile::frame::clean;
use deepctx_profile::units::{Bytes, Nanos};

use super::figures::scaled;
use crate::experiment::{Experiment, Overhead, StepBasis, ValueRow};

/// Writes the table, the best values and the runs that failed.
///
/// # Errors
/// Those of `out`.
pub fn write(of: &Experiment, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", clean(&of.command))?;
    let names = of.placeholders.iter().map(|name| clean(name)).collect::<Vec<_>>();
    let cells: Vec<[Option<String>; COLUMNS.len()]> = of.rows.iter().map(cells).collect();
    let shown: Vec<usize> =
        (0..COLUMNS.len()).filter(|at| cells.iter().any(|row| row[*at].is_some())).collect();
    let width = |place: usize| {
        let values = of.rows.iter().filter_map(|row| row.values.get(place));
        values.map(|value| value.chars().count()).chain([names[place].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    write!(out, " ")?;
    names.iter().zip(&widths).try_for_each(|(name, width)| write!(out, "  {name:>width$}"))?;
    shown.iter().try_for_each(|at| write!(out, "  {:>10}", title(of, *at)))?;
    writeln!(out)?;
    for (row, cells) in of.rows.iter().zip(&cells) {
        write!(out, "{}", if row.optimal { "*" } else { " " })?;
        let values = row.values.iter().zip(&widths);
        values.into_iter().try_for_each(|(value, width)| write!(out, "  {:>width$}", clean(value)))?;
        for at in &shown {
            write!(out, "  {:>10}", cells[*at].as_deref().unwrap_or("–"))?;
        }
        writeln!(out)?;
    }
    notes(of, &names, out)?;
    out.flush()
}

/// Titles of the columns after the values.
const COLUMNS: [&str; 17] = [
    "runs",
    "failed",
    "step",
    "least",
    "most",
    "per second",
    "gain",
    "overhead",
    "spread",
    "of step",
    "GPU",
    "kernels",
    "flops",
    "bytes",
    "flops/B",
    "bound",
    "memory",
];

/// The first one names the counted unit.
fn title(of: &Experiment, at: usize) -> &'static str {
    match at {
        0 if of.in_process => "windows",
        at => COLUMNS[at],
    }
}

fn cells(row: &ValueRow) -> [Option<String>; COLUMNS.len()] {
    let time = |ns: Option<f64>| ns.map(|ns| Nanos(ns as u64).to_string());
    let of = &row.per_step;
    let least_and_most = row.runs > 1;
    [
        Some(row.runs.to_string()),
        (row.failed > 0).then(|| row.failed.to_string()),
        time(row.step_ns),
        time(row.step_min_ns.filter(|_| least_and_most)),
        time(row.step_max_ns.filter(|_| least_and_most)),
        row.throughput_per_second.map(scaled),
        row.gain_percent.map(|gain| format!("{gain:+.1}%")),
        row.overhead.map(|Overhead { ns, .. }| {
            format!("{}{}", if ns < 0.0 { "-" } else { "+" }, Nanos(ns.abs() as u64))
        }),
        row.overhead.and_then(|of| of.spread_ns).map(|ns| format!("±{}", Nanos(ns as u64))),
        row.overhead.map(|of| format!("{:+.1}%", of.percent)),
        time(of.gpu_ns_per_step),
        of.kernels_per_step.map(scaled),
        of.modelled_flops_per_step.map(scaled),
        of.modelled_bytes_per_step.map(|bytes| Bytes(bytes as u64).to_string()),
        of.modelled_flops_per_byte.map(|of| format!("{of:.2}")),
        of.bound.map(|bound| bound.name().to_owned()),
        of.peak_memory_bytes.map(|bytes| Bytes(bytes).to_string()),
    ]
}

/// Whether a row has sums of its median run.
fn has_sums(row: &ValueRow) -> bool {
    let of = &row.per_step;
    let sums =
        [of.gpu_ns_per_step, of.kernels_per_step, of.modelled_flops_per_step, of.modelled_bytes_per_step];
    sums.iter().any(Option::is_some)
}

/// Names the sets of probes without a visible cost, and explains the spread.
fn chance(of: &Experiment, names: &[String], out: &mut dyn Write) -> io::Result<()> {
    if of.rows.iter().any(|row| row.overhead.is_some_and(|of| of.spread_ns.is_some())) {
        writeln!(out, "spread: half of the 95 % confidence interval of the overhead, by its rounds")?;
    }
    for row in &of.rows {
        if row.overhead.and_then(|of| of.within_spread) == Some(true) {
            let values = names.iter().zip(&row.values);
            let values: Vec<String> =
                values.map(|(name, value)| format!("{name}={}", clean(value))).collect();
            writeln!(out, "{}: within the spread, no cost is shown", values.join(", "))?;
        }
    }
    Ok(())
}

fn notes(of: &Experiment, names: &[String], out: &mut dyn Write) -> io::Result<()> {
    let mut bases: Vec<StepBasis> = of.rows.iter().filter_map(|row| row.basis).collect();
    bases.sort_unstable();
    bases.dedup();
    if !bases.is_empty() {
        let named: Vec<&str> = bases.iter().rev().map(|basis| basis.name()).collect();
        write!(out, "step: {}", named.join(" or "))?;
        if of.rows.iter().any(|row| row.runs > 1) {
            let (what, percent) = (if of.in_process { "windows" } else { "runs" }, of.judgement.trim_percent);
            write!(out, ", over {what} a mean without {percent} % of them at each end")?;
        }
        writeln!(out)?;
    }
    if of.rows.iter().any(has_sums) {
        let divisor = "divided by its timed steps and up to one more, which its sums have, too";
        writeln!(out, "GPU, kernels, flops, bytes: sums of the run in the middle, {divisor}")?;
    }
    chance(of, names, out)?;
    for best in &of.optima {
        let others = names.iter().skip(1).zip(&best.others);
        let others: Vec<String> = others.map(|(name, value)| format!("{name}={}", clean(value))).collect();
        let with = if others.is_empty() { String::new() } else { format!(" with {}", others.join(", ")) };
        let value = match (&best.value, names.first()) {
            (Some(value), Some(name)) => format!("{name}={}", clean(value)),
            _ => "none".to_owned(),
        };
        writeln!(out, "optimum{with}: {value} ({})", best.because)?;
    }
    let mut said = None;
    for run in &of.runs {
        // The sets of probes of one run fail together.
        if let Some(failure) = &run.failure
            && said.replace((&run.profile, failure)) != Some((&run.profile, failure))
        {
            writeln!(out, "failed: {}: {}", clean(&run.profile), clean(failure))?;
        }
    }
    Ok(())
}
