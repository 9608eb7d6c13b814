//! Text of the tables about training: phases, training steps, ranges, layers, compiled code.
//!
//! Owns: their columns. Because: users read them together. Does not: compute.

use std::io::{self, Write};

use deepctx_profile::units::Nanos;

use super::figures::none;
use super::{NAME_WIDTH, PLACE_WIDTH, counted, share, without_middle, without_start};
use crate::tables::compilation::Compilations;
use crate::tables::compiled::CompiledCode;
use crate::tables::layers::Layers;
use crate::tables::phases::Phases;
use crate::tables::ranges::Ranges;

/// Cost of each part of training.
pub(super) fn phases(phases: &Phases, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = phases.rows.first() else { return Ok(()) };
    write!(out, "\nPhases")?;
    match phases.training_steps {
        Some(steps) => writeln!(out, ", over {}", counted(steps, "training step"))?,
        None => writeln!(out)?,
    }
    for value in &first.values {
        write!(out, "  {:>22}", value.metric)?;
    }
    writeln!(out, "  phase")?;
    for row in &phases.rows {
        for value in &row.values {
            write!(out, "  {:>14}  {}", value.value.to_string(), share(value.share_percent))?;
        }
        writeln!(out, "  {}", row.phase)?;
    }
    Ok(())
}

/// Times of training steps.
pub(super) fn training_steps(steps: &Ranges, out: &mut dyn Write) -> io::Result<()> {
    durations(steps, "Training steps, from the end of one to the end of the next", "steps", out)
}

/// Times of named ranges.
pub(super) fn ranges(ranges: &Ranges, out: &mut dyn Write) -> io::Result<()> {
    durations(ranges, "Ranges that the program names, without those within them", "times", out)
}

fn durations(ranges: &Ranges, title: &str, unit: &str, out: &mut dyn Write) -> io::Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let has_percentiles = ranges.rows.iter().any(|row| row.p50_ns.is_some());
    let titles = if has_percentiles { "         p50         p95" } else { "" };
    writeln!(out, "\n{title}")?;
    writeln!(
        out,
        "  {unit:>8}      mean   deviation{titles}       least        most  name and where it is entered"
    )?;
    for row in &ranges.rows {
        let [mean, deviation] = [row.mean_ns, row.deviation_ns].map(|ns| Nanos(ns as u64).to_string());
        let [least, most] = [row.min_ns, row.max_ns].map(|ns| Nanos(ns).to_string());
        let name = without_middle(&row.name, NAME_WIDTH);
        let place = without_start(&row.entered_at, PLACE_WIDTH);
        let count = row.count;
        write!(out, "  {count:>8} {mean:>9}   {deviation:>9}")?;
        if has_percentiles {
            let [p50, p95] =
                [row.p50_ns, row.p95_ns].map(|ns| ns.map_or_else(none, |ns| Nanos(ns).to_string()));
            write!(out, "   {p50:>9}   {p95:>9}")?;
        }
        writeln!(out, "   {least:>9}   {most:>9}  {name}  {place}")?;
    }
    match ranges.left_out {
        0 => Ok(()),
        more => writeln!(out, "  … {}", counted(more as u64, "more place")),
    }
}

/// Cost of each layer of a model.
pub(super) fn layers(layers: &Layers, out: &mut dyn Write) -> io::Result<()> {
    if layers.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nLayers")?;
    write!(out, "    self   total")?;
    for other in layers.rows.iter().take(1).flat_map(|row| &row.others) {
        write!(out, "  {:>12}", other.metric)?;
    }
    writeln!(out, "  layer")?;
    for row in &layers.rows {
        write!(out, "  {}  {}", share(row.exclusive_percent), share(row.inclusive_percent))?;
        for other in &row.others {
            write!(out, "  {:>12}", other.value.to_string())?;
        }
        writeln!(out, "  {}", without_middle(&row.layer, NAME_WIDTH))?;
    }
    match layers.left_out {
        0 => Ok(()),
        more => writeln!(out, "  … {more} more"),
    }
}

/// Time in compiled code by its origin.
pub(super) fn compiled_code(code: &CompiledCode, out: &mut dyn Write) -> io::Result<()> {
    if code.rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nCompiled code, by what it was compiled from")?;
    for row in &code.rows.rows {
        let of = &row.origin;
        let name = if of.unit.is_empty() { "[no module]" } else { &of.unit };
        let (function, place) =
            (without_middle(&of.function, NAME_WIDTH), without_start(&of.line, PLACE_WIDTH));
        let line = format!("  {}  {name}  {function}  {place}", share(row.exclusive_percent));
        writeln!(out, "{}", line.trim_end())?;
        // A fusion may have many operators: all of them are listed.
        for part in wrapped(&of.operators, 2 * NAME_WIDTH) {
            writeln!(out, "          {part}")?;
        }
    }
    if code.left_out.value > 0 {
        writeln!(out, "  {}  … {} more", share(code.left_out_percent), code.rows.left_out)?;
    }
    Ok(())
}

/// Compile time by the line that triggered it.
pub(super) fn compilations(compilations: &Compilations, out: &mut dyn Write) -> io::Result<()> {
    if compilations.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nTime spent compiling, by the line that began it")?;
    for row in &compilations.rows {
        let stages: Vec<_> = row.stages.iter().map(|of| format!("{} {}", of.stage, of.value)).collect();
        let (all, line) = (row.total.to_string(), without_middle(&row.line, NAME_WIDTH));
        writeln!(out, "  {}  {all:>7}  {line}", share(row.total_percent))?;
        writeln!(out, "                   {}", stages.join(", "))?;
    }
    Ok(())
}

/// A text in lines of about this width, broken after commas and within longer words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split_inclusive(", ") {
        match lines.last_mut().filter(|line| line.chars().count() + part.trim_end().chars().count() <= width)
        {
            Some(line) => line.push_str(part),
            None => lines.push(without_middle(part, width)),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn long_lists_are_broken_behind_commas() {
        assert_eq!(wrapped("aa, bb, cc", 7), ["aa, bb,", "cc"]);
        assert_eq!(wrapped("abcdefghij", 7), ["abc…hij"]);
    }
}
