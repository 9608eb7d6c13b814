//! Text of extremes: launches of kernels, extreme kernels with their stacks, memory curves.
//!
//! Owns: the columns of these tables, and how a curve is drawn in one line. Because: their figures differ from those of
//! the tables of layers. Does not: compute.

use std::io::{self, Write};

use deepctx_profile::units::{Bytes, Nanos};

use super::figures::{more, none, scaled};
use super::{NAME_WIDTH, Names, share, short_kernels, without_middle};
use crate::model::{ExtremeKernel, MemoryCurve, ModelTables};

/// Widest curve.
const CURVE_WIDTH: usize = 60;
/// Widest frame of a stack.
const STACK_WIDTH: usize = 100;
/// Heights of a curve.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn frequency(
    tables: &ModelTables,
    steps: f64,
    names: Names,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "\nKernels by launches")?;
    if tables.kernel_frequency.is_empty() {
        return writeln!(out, "  the profile has no kernels");
    }
    writeln!(out, "  launches     share       mean  contexts  kernel")?;
    let rows = &tables.kernel_frequency.rows;
    let names = short_kernels(rows.iter().map(|row| &row.kernel), names.width(NAME_WIDTH));
    for (row, name) in rows.iter().zip(names) {
        let launches = scaled(row.launches as f64 / steps);
        let mean = row.mean_ns.map_or_else(none, |ns| Nanos(ns as u64).to_string());
        let share = share(row.launches_percent);
        writeln!(out, "  {launches:>8}  {share:>8}  {mean:>9}  {:>8}  {name}", row.contexts)?;
    }
    more(tables.kernel_frequency.left_out, "kernel", out)
}

pub(super) fn kernels(tables: &ModelTables, names: Names, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nKernels with most of something, each with its stack, innermost call first")?;
    if tables.extreme_kernels.is_empty() {
        return writeln!(out, "  the profile has no kernels");
    }
    let mut shown: Vec<(Vec<&str>, &str)> = Vec::new();
    let kernels = tables.extreme_kernels.iter().map(|row| &row.kernel);
    let names = short_kernels(kernels, names.width(NAME_WIDTH));
    for (row, name) in tables.extreme_kernels.iter().zip(&names) {
        extreme(row, name, out)?;
        let stack = without_stream(row);
        match shown.iter().find(|(of, _)| *of == stack) {
            Some((_, most)) => writeln!(out, "      the stack with most {most}")?,
            None => {
                let mut frames = stack.iter().rev();
                frames.try_for_each(|frame| writeln!(out, "      {}", without_middle(frame, STACK_WIDTH)))?;
                shown.push((stack, row.most));
            }
        }
    }
    Ok(())
}

/// The stack of the launch: in the tree, launches are siblings of the streams that have the times.
pub(in crate::render) fn without_stream(row: &ExtremeKernel) -> Vec<&str> {
    row.stack.iter().map(String::as_str).filter(|frame| !frame.starts_with("[device ")).collect()
}

fn extreme(row: &ExtremeKernel, kernel: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  most {}: {kernel}, {}", row.most, extreme_in_words(row))
}

/// Its value, with the unit.
pub(in crate::render) fn extreme_in_words(row: &ExtremeKernel) -> String {
    match row.unit {
        "ns" => Nanos(row.value).to_string(),
        "bytes" => Bytes(row.value).to_string(),
        _ => row.value.to_string(),
    }
}

pub(super) fn memory(tables: &ModelTables, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nMemory of tensors over time, by device; all to one scale")?;
    let of = &tables.memory_curves;
    let Some(most) = of.curves.iter().map(|curve| curve.most_bytes).max() else {
        return writeln!(out, "  allocations were not recorded (--probe memory)");
    };
    let windows = of.curves.iter().map(|curve| curve.live_bytes.len()).max().unwrap_or(0);
    let joined = windows.div_ceil(CURVE_WIDTH).max(1);
    writeln!(out, "  a column is {}", Nanos(of.window_ns.saturating_mul(joined as u64)))?;
    for curve in &of.curves {
        let last = curve.live_bytes.last().copied().unwrap_or(0);
        let [most_here, last] = [curve.most_bytes, last].map(|bytes| Bytes(bytes).to_string());
        writeln!(out, "  {}, {}: most {most_here}, last {last}", curve.process, curve.device)?;
        writeln!(out, "    {}", drawn(curve, joined, most))?;
    }
    Ok(())
}

fn drawn(curve: &MemoryCurve, joined: usize, most: u64) -> String {
    let column = |windows: &[u64]| {
        let value = windows.iter().copied().max().unwrap_or(0);
        let step = value as u128 * (HEIGHTS.len() as u128 - 1) / u128::from(most.max(1));
        if value == 0 { ' ' } else { HEIGHTS[(step as usize).min(HEIGHTS.len() - 1)] }
    };
    curve.live_bytes.chunks(joined).map(column).collect()
}
