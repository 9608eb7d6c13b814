//! Text of operators and what they launch.
//!
//! Owns: their columns. Because: a name of a kernel is wider than a screen, and the share says what matters. Does not:
//! compute; JSON has every row.

use std::io::{self, Write};

use deepctx_profile::units::Nanos;

use super::{more, without_middle};
use crate::over_time::{Operators, Repetition, Sequences};

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
        let whole = of.rows.iter().map(|row| row.launched.device_ns).sum::<u64>() + of.outside.device_ns;
        writeln!(out, "\nOperators of rank {}, by what they launched themselves", of.rank)?;
        writeln!(
            out,
            "  device              calls  per call      host  operator: most of its kernels' time"
        )?;
        let launching = of.rows.iter().filter(|row| row.launched.count > 0);
        for row in launching.clone().take(rows) {
            let device = Nanos(row.launched.device_ns).to_string();
            let host = Nanos(row.host_ns).to_string();
            let percent = share(row.launched.device_ns, whole);
            let operator = without_middle(&row.name, OPERATOR_WIDTH);
            let kernel = row.launched.kernels.first().map_or_else(String::new, |kernel| {
                format!("{} × {}", kernel.count, without_middle(&kernel.name, KERNEL_WIDTH))
            });
            writeln!(
                out,
                "  {device:>8} {percent} {:>9}  {:>8.1} {host:>9}  {operator}: {kernel}",
                row.calls, row.kernels_per_call,
            )?;
        }
        more(launching.count(), rows, "operator", out)?;
        if of.outside.count > 0 {
            let (device, percent) =
                (Nanos(of.outside.device_ns).to_string(), share(of.outside.device_ns, whole));
            let count = of.outside.count;
            writeln!(out, "  {device:>8} {percent}  by no operator: {count} operations of the device")?;
        }
    }
    Ok(())
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
        for row in repeated.iter().take(rows) {
            let device = Nanos(row.device_ns).to_string();
            let operator = without_middle(&row.operator, OPERATOR_WIDTH);
            let kernels = sequence_in_words(&row.kernels, PARTS, KERNEL_WIDTH / 2);
            writeln!(out, "  {device:>8} {:>8}  {:>6}  {operator}: {kernels}", row.count, row.length)?;
        }
        more(repeated.len(), rows, "sequence", out)?;
    }
    Ok(())
}

/// The first parts of a sequence, with names of at most so many columns.
pub(in crate::render) fn sequence_in_words(parts: &[Repetition], most: usize, width: usize) -> String {
    let part = |part: &Repetition| match part.times {
        1 => without_middle(&part.name, width),
        times => format!("{times} × {}", without_middle(&part.name, width)),
    };
    let shown: Vec<String> = parts.iter().take(most).map(part).collect();
    let rest = if parts.len() > most { " → …" } else { "" };
    format!("{}{rest}", shown.join(" → "))
}

fn share(part: u64, whole: u64) -> String {
    format!("{:5.1}%", part as f64 * 100.0 / whole.max(1) as f64)
}
