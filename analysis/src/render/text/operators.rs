//! Text of operators and what they launch.
//!
//! Owns: their columns. Because: a kernel name is wider than a screen, and the share shows what matters. Does not:
//! compute; JSON has every row.

use std::io::{self, Write};

use deepctx_profile::context::phase::Phase;
use deepctx_profile::frame::FrameKind;
use deepctx_profile::units::Nanos;

use super::figures::none;
use super::{ShortNames, more, share_of};
use crate::over_time::{CallSite, OperatorBasis, Operators, Repetition, Sequences};

/// Widest name of an operator.
const OPERATOR_WIDTH: usize = 40;
/// Widest name of a kernel.
const KERNEL_WIDTH: usize = 48;
/// Parts of a sequence on a line.
const PARTS: usize = 4;

/// Writes the operators of each rank that launched something.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(all: &[Operators], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    for of in all.iter().filter(|of| of.rows.iter().any(|row| row.launched.count > 0)) {
        let whole = of.device_ns();
        writeln!(out, "\nOperators of rank {}, by what they launched themselves", of.rank)?;
        writeln!(
            out,
            "  device              calls  per call      host  operator: most of its kernels' time"
        )?;
        let launching = of.rows.iter().filter(|row| row.launched.count > 0);
        let shown = launching.clone().take(rows);
        let operators = operator_names(shown.clone().map(|row| &row.name));
        let kernels = shown.clone().filter_map(|row| row.launched.kernels.first());
        let kernels = kernel_names(kernels.map(|kernel| &kernel.name), KERNEL_WIDTH);
        for row in shown {
            let device = Nanos(row.launched.device_ns).to_string();
            let host = row.host_ns.map_or_else(none, |ns| Nanos(ns).to_string());
            let calls = row.calls.map_or_else(none, |calls| calls.to_string());
            let per_call = row.kernels_per_call.map_or_else(none, |count| format!("{count:.1}"));
            let percent = share_of(row.launched.device_ns, whole);
            let operator = operators.get(&row.name);
            let kernel = row.launched.kernels.first().map_or_else(String::new, |kernel| {
                format!("{} × {}", kernel.count, kernels.get(&kernel.name))
            });
            writeln!(
                out,
                "  {device:>8} {percent} {calls:>9}  {per_call:>8} {host:>9}  {operator}: {kernel}"
            )?;
        }
        more(launching.count(), rows, "operator", out)?;
        if of.outside.count > 0 {
            let (device, percent) =
                (Nanos(of.outside.device_ns).to_string(), share_of(of.outside.device_ns, whole));
            let count = of.outside.count;
            writeln!(out, "  {device:>8} {percent}  {}", by_no_operator(count))?;
        }
        match of.basis {
            OperatorBasis::Intervals => {}
            OperatorBasis::StacksAndBegins => writeln!(
                out,
                "  by the stacks of launches and begins of operators: how long operators took is not recorded"
            )?,
            OperatorBasis::Stacks => writeln!(
                out,
                "  by the stacks of launches: calls of operators are counted with `--trace-level context`"
            )?,
        }
        phases(of, whole, out)?;
    }
    Ok(())
}

/// Writes the parts of training or serving that launched work, if stacks show any.
fn phases(of: &Operators, whole: u64, out: &mut dyn Write) -> io::Result<()> {
    let is_part = |row: &CallSite| Phase::ALL.iter().any(|it| it.is_part() && it.name() == row.name);
    if !of.phases.iter().any(is_part) {
        return Ok(());
    }
    let part = |row: &CallSite| format!("{} {}", row.name, share_of(row.device_ns, whole).trim());
    let parts: Vec<String> = of.phases.iter().map(part).collect();
    writeln!(out, "  device time by phase: {}", parts.join(", "))
}

/// Writes the sequences of each rank that has some more than once.
///
/// # Errors
/// Those of `out`.
pub(super) fn sequences(all: &[Sequences], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    for of in all {
        let repeated: Vec<_> = of.rows.iter().filter(|row| row.count > 1).collect();
        if repeated.is_empty() {
            continue;
        }
        writeln!(out, "\nSequences of rank {} that one call launches, more than once", of.rank)?;
        writeln!(out, "  device      calls  length  operator: kernels in order")?;
        let shown = || repeated.iter().take(rows);
        let operators = operator_names(shown().map(|row| &row.operator));
        let parts = shown().flat_map(|row| row.kernels.iter().take(PARTS));
        let names = kernel_names(parts.map(|part| &part.name), KERNEL_WIDTH / 2);
        for row in shown() {
            let device = Nanos(row.device_ns).to_string();
            let operator = operators.get(&row.operator);
            let kernels = sequence_in_words(&row.kernels, PARTS, |name| names.get(name));
            writeln!(out, "  {device:>8} {:>8}  {:>6}  {operator}: {kernels}", row.count, row.length)?;
        }
        more(repeated.len(), rows, "sequence", out)?;
        if of.basis == OperatorBasis::Stacks {
            writeln!(out, "  calls of an operator from one line, one after the other, count as one call")?;
        }
    }
    Ok(())
}

/// Names the work of a device that no operator launched.
pub(in crate::render) fn by_no_operator(operations: u64) -> String {
    format!("by no operator: {} of the device", super::counted(operations, "operation"))
}

fn operator_names<'n>(names: impl Iterator<Item = &'n String>) -> ShortNames<'n> {
    ShortNames::of(names.map(|name| (FrameKind::Operator, name.as_str())), OPERATOR_WIDTH)
}

fn kernel_names<'n>(names: impl Iterator<Item = &'n String>, width: usize) -> ShortNames<'n> {
    ShortNames::of(names.map(|name| (FrameKind::GpuKernel, name.as_str())), width)
}

/// The first parts of a sequence, by what `name` shows of their names.
pub(in crate::render) fn sequence_in_words<'n>(
    parts: &'n [Repetition],
    most: usize,
    name: impl Fn(&'n str) -> &'n str,
) -> String {
    let part = |part: &'n Repetition| match part.times {
        1 => name(&part.name).to_owned(),
        times => format!("{times} × {}", name(&part.name)),
    };
    let shown: Vec<String> = parts.iter().take(most).map(part).collect();
    let rest = if parts.len() > most { " → …" } else { "" };
    format!("{}{rest}", shown.join(" → "))
}
