//! Text of the tables over time.
//!
//! Owns: their columns, and which rows a screen has room for. Because: a trace of eight ranks has hundreds of rows, and
//! users read twenty. Does not: compute; JSON has every row.

use deepctx_profile::order::SortRows as _;
use std::io::{self, Write};

use deepctx_profile::units::{Bytes, Nanos};

use super::{
    counted, counters, critical_path, cut_names, have_several_names, more, not_measured_in_words, operators,
    parallelism, pipeline, ranks, share_of, without_middle, work,
};
use crate::over_time::{
    ClockAccuracy, Confidence, EarlyLoss, Launches, Measurement, OverTime, StepSplit, TraceSummary, WhatIf,
};

/// Widest name of a kernel.
const NAME_WIDTH: usize = 60;

/// Rows of tables with many rows per rank, if there are several ranks: a screen should show which rank is late.
const ROWS_OF_JOB: usize = 3;
/// Maximum number of named ranks without a trace.
const RANKS: usize = 16;

/// Writes every table that has rows, cut to `rows` each.
///
/// # Errors
/// Those of `out`.
pub fn write(tables: &OverTime, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    head(tables, rows, out)?;
    devices(tables, rows, out)?;
    ranks::write(tables, rows, out)?;
    parallelism::write(&tables.parallelism, rows, out)?;
    pipeline::write(&tables.pipeline, rows, out)?;
    pipeline::messages(&tables.messages, rows, out)?;
    critical_path::write(&tables.critical_paths, rows, out)?;
    what_if(&tables.what_if, rows, out)?;
    let few = if tables.traces.len() > 1 { rows.min(ROWS_OF_JOB) } else { rows };
    idle(tables, few, out)?;
    launches(tables, few, out)?;
    operators::write(&tables.operators, few, out)?;
    operators::sequences(&tables.sequences, few, out)?;
    work::write(tables, few, out)?;
    copies(tables, few, out)?;
    bandwidth(tables, few, out)?;
    counters::write(&tables.counters, few, out)?;
    steps(&tables.steps, few, out)?;
    out.flush()
}

fn head(tables: &OverTime, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    for of in tables.traces.iter().take(rows) {
        let guessed = if of.rank_is_recorded { "" } else { " (not in the trace)" };
        writeln!(
            out,
            "rank {}{guessed}  {}  {} in {}, times to {}",
            of.rank,
            of.file,
            counted((of.host_events + of.device_events) as u64, "event"),
            Nanos(of.span_ns),
            Nanos(of.resolution_ns),
        )?;
        if let Some(clock) = of.device_clock {
            writeln!(
                out,
                "        device clock: ± {} of the threads', by {}, moved by {}",
                clock.uncertainty,
                counted(clock.readings, "reading"),
                Nanos(clock.drift_ns.unsigned_abs()),
            )?;
        } else if let Some(because) = unknown_clock(of) {
            writeln!(out, "        device clock: unknown, because {because}")?;
        }
        if tables.traces.len() > 1 && of.gaps.is_empty() && of.lost_before.is_empty() {
            continue;
        }
        notes(of, out)?;
    }
    more(tables.traces.len(), rows, "rank", out)?;
    if let [_, _, ..] = tables.traces[..] {
        let waits = |count: fn(&TraceSummary) -> u64| tables.traces.iter().map(count).sum::<u64>();
        let certain = waits(|of| (of.exact_waits + of.waits_by_order) as u64);
        let (guessed, unlinked) = (waits(|of| of.inferred_waits as u64), waits(|of| of.unlinked_waits));
        writeln!(
            out,
            "waits of all ranks: {certain} certain, {guessed} guessed, {unlinked} for nothing known"
        )?;
    }
    left_out(tables, out)
}

/// Why the accuracy of device times relative to the clock of threads is unknown.
fn unknown_clock(of: &TraceSummary) -> Option<&'static str> {
    of.lane_clocks.iter().find_map(|lane| match lane.accuracy {
        ClockAccuracy::Unknown { because } => Some(because.sentence),
        ClockAccuracy::Exact | ClockAccuracy::Bounded { .. } => None,
    })
}

/// Basis of waits, and missing input.
fn notes(of: &TraceSummary, out: &mut dyn Write) -> io::Result<()> {
    let waits = (of.exact_waits + of.waits_by_order, of.inferred_waits, of.unlinked_waits);
    if waits != (0, 0, 0) {
        writeln!(
            out,
            "        waits: {} certain, {} guessed, {} for nothing known",
            waits.0, waits.1, waits.2
        )?;
    }
    for gap in &of.gaps {
        writeln!(out, "        {} {}: {}", gap.count, gap.reason, gap.sentence)?;
    }
    for EarlyLoss { stage, lost } in &of.lost_before {
        let (count, reason) = (lost.count, &lost.reason);
        writeln!(
            out,
            "        {count} {reason}, before the recorder ({stage}, whole capture): {}",
            lost.sentence
        )?;
    }
    Ok(())
}

/// Ranks that are in no table.
fn left_out(tables: &OverTime, out: &mut dyn Write) -> io::Result<()> {
    for step in &tables.refused {
        let because = not_measured_in_words(&step.because);
        writeln!(out, "step {} of rank {} {because}; no table has this rank", step.step, step.rank)?;
    }
    match tables.missing_ranks.as_slice() {
        [] => Ok(()),
        missing => {
            let named: Vec<String> = missing.iter().take(RANKS).map(u32::to_string).collect();
            let rest = if missing.len() > RANKS { ", …" } else { "" };
            writeln!(out, "no trace of {}: {}{rest}", counted(missing.len() as u64, "rank"), named.join(", "))
        }
    }
}

fn devices(tables: &OverTime, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if tables.devices.is_empty() && !tables.refused.is_empty() {
        return Ok(());
    }
    if tables.devices.is_empty() {
        return writeln!(out, "\nDevices\n  the trace has no work of a device");
    }
    writeln!(
        out,
        "\nDevices\n  rank device     span   idle  compute   comm  memory  comm overlapped  kernels"
    )?;
    for row in tables.devices.iter().take(rows) {
        let share = |part: u64| share_of(part, row.span_ns);
        let overlap = row.overlap_percent.map_or_else(|| "–".to_owned(), |percent| format!("{percent:.1}%"));
        writeln!(
            out,
            "  {:>4} {:>6} {:>8} {}   {} {}  {} {overlap:>16} {:>8}",
            row.rank,
            row.device,
            Nanos(row.span_ns).to_string(),
            share(row.idle_ns),
            share(row.compute_ns),
            share(row.communication_ns),
            share(row.memory_ns),
            row.kernels,
        )?;
    }
    more(tables.devices.len(), rows, "device", out)
}

fn what_if(found: &[WhatIf], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWhat if: length of the window by a model, with these edits and nothing else changed")?;
    for row in found.iter().take(rows) {
        let measured = Nanos(row.measured_ns).to_string();
        let figure = match (row.modelled_ns, row.gain_percent, row.trust) {
            (Some(modelled), Some(gain), _) => {
                let direction = if gain < 0.0 { "more" } else { "less" };
                format!("{measured} → {} (modelled), {:.1}% {direction}", Nanos(modelled), gain.abs())
            }
            (_, _, Confidence::NothingEdited) => format!("{measured}: nothing in the window has such a name"),
            _ => format!(
                "{measured}: no figure, since {:.1}% of the window is lateness that the model does not explain",
                row.unexplained_percent
            ),
        };
        writeln!(out, "  rank {:<3} {}  {figure}", row.rank, row.edits.join(", "))?;
        if row.trust == Confidence::Doubtful {
            writeln!(
                out,
                "           doubtful: {:.1}% of the window is not explained",
                row.unexplained_percent
            )?;
        }
        if row.if_independent && row.modelled_ns.is_some() {
            writeln!(out, "           only if nothing behind the wait needs what it waits for")?;
        }
        if row.guessed_handoffs > 0 && row.modelled_ns.is_some() {
            let handoffs = counted(row.guessed_handoffs, "handoff");
            let verb = if row.guessed_handoffs == 1 { "is" } else { "are" };
            writeln!(out, "           {handoffs} between threads {verb} guessed")?;
        }
    }
    more(found.len(), rows, "row", out)
}

fn idle(tables: &OverTime, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if tables.idle.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nIdle streams, by what ended the gap")?;
    writeln!(
        out,
        "  rank device stream  late launch  kernel wait     other   unknown  operations  queue, most"
    )?;
    let mut all: Vec<_> = tables.idle.iter().collect();
    all.sort_rows_by_key(|row| (row.rank, std::cmp::Reverse(row.operations)));
    for row in all.iter().take(rows) {
        let queue = tables
            .queues
            .iter()
            .find(|queue| (queue.rank, queue.device, queue.stream) == (row.rank, row.device, row.stream));
        let queue = queue.map_or_else(String::new, |queue| format!("{:.1}, {}", queue.mean, queue.max));
        let stream = row.stream.map_or_else(|| "–".to_owned(), |stream| stream.to_string());
        let [host, kernel, other, unknown] =
            [row.host_wait_ns, row.kernel_wait_ns, row.other_ns, row.unknown_ns]
                .map(|ns| Nanos(ns).to_string());
        let (rank, device, count) = (row.rank, row.device, row.operations);
        let gaps = format!("{host:>11}  {kernel:>11} {other:>9} {unknown:>9}");
        writeln!(out, "  {rank:>4} {device:>6} {stream:>6}  {gaps}  {count:>10} {queue:>12}")?;
    }
    more(tables.idle.len(), rows, "stream", out)
}

fn launches(tables: &OverTime, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if tables.launches.iter().all(|row| row.launches + row.before_trace + row.without_call == 0) {
        return Ok(());
    }
    writeln!(out, "\nLaunches")?;
    writeln!(
        out,
        "  rank     count  delay, median      most  > 100 µs  calls > 50 µs  shorter than call  no call"
    )?;
    for row in tables.launches.iter().take(rows) {
        let [median, most] = [row.delay_median_ns, row.delay_max_ns].map(|ns| Nanos(ns).to_string());
        let without = row.without_call + row.before_trace;
        writeln!(
            out,
            "  {:>4}  {:>8}  {median:>13} {most:>9}  {:>8}  {:>13}  {:>17}  {without:>7}",
            row.rank, row.launches, row.long_delays, row.long_calls, row.short_operations,
        )?;
    }
    more(tables.launches.len(), rows, "rank", out)?;
    let sum = |of: fn(&Launches) -> u64| tables.launches.iter().map(of).sum::<u64>();
    let (by_order, ambiguous) = (sum(|row| row.by_order), sum(|row| row.ambiguous));
    let (before, minute) = (sum(|row| row.begun_before_call), sum(|row| row.minute_delays));
    for (count, what) in [
        (by_order, "by the order of their streams: no ids were seen"),
        (ambiguous, "guessed: several calls have the id, and the latest before the work is taken"),
        (before, "begin before their call: the clocks of threads and devices disagree"),
        (
            minute,
            "begin more than a minute behind their call: the clocks of threads and devices may be apart",
        ),
    ] {
        if count > 0 {
            writeln!(out, "  {count} {what}")?;
        }
    }
    Ok(())
}

fn copies(tables: &OverTime, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if tables.copies.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nCopies and fills\n  rank     count      bytes      time       GB/s  what")?;
    let mut all: Vec<_> = tables.copies.iter().collect();
    all.sort_rows_by_key(|row| std::cmp::Reverse(row.time_ns));
    let shown = all.iter().take(rows);
    for (row, name) in shown.clone().zip(cut_names(shown.map(|row| &row.name), NAME_WIDTH)) {
        let speed = row.gb_per_second.map_or_else(|| "–".to_owned(), |speed| format!("{speed:.3}"));
        let (bytes, time) = (Bytes(row.bytes).to_string(), Nanos(row.time_ns).to_string());
        writeln!(out, "  {:>4}  {:>8} {bytes:>10} {time:>9} {speed:>10}  {name}", row.rank, row.count)?;
    }
    more(all.len(), rows, "row", out)
}

fn bandwidth(tables: &OverTime, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if tables.bandwidth.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nBandwidth over time, by hundredths of the window")?;
    writeln!(out, "  rank  peak GB/s  busiest part, GB/s         at  parts with copies  what")?;
    let mut all: Vec<_> = tables.bandwidth.iter().collect();
    all.sort_rows_by(|a, b| b.peak_gb_per_second.total_cmp(&a.peak_gb_per_second));
    for row in all.iter().take(rows) {
        let (at_ns, most) = row.busiest_part();
        let (peak, at) = (row.peak_gb_per_second, Nanos(at_ns).to_string());
        let used = row.bytes.iter().filter(|bytes| **bytes > 0).count();
        let name = without_middle(&row.name, NAME_WIDTH);
        writeln!(out, "  {:>4}  {peak:>9.3}  {most:>18.3} {at:>10}  {used:>17}  {name}", row.rank)?;
    }
    more(all.len(), rows, "row", out)
}

fn steps(steps: &[StepSplit], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nSteps, by what was going on")?;
    writeln!(out, "  rank   step    length  kernel    copy    comm   calls  loader  operators  nothing")?;
    let have_names = have_several_names(steps.iter().map(|row| &row.name));
    for row in steps.iter().take(rows) {
        let name = match have_names {
            true => format!("  {}", without_middle(&row.name, NAME_WIDTH)),
            false => String::new(),
        };
        let parts = match &row.split {
            Measurement::Yes(parts) => parts,
            Measurement::No { not_measured } => {
                let because = not_measured_in_words(not_measured);
                writeln!(out, "  {:>4} {:>6}  {:>8}  {because}{name}", row.rank, row.step, "–")?;
                continue;
            }
        };
        let share = |part: u64| share_of(part, parts.length_ns);
        writeln!(
            out,
            "  {:>4} {:>6}  {:>8}  {}  {}  {}  {}  {}     {}   {}{name}",
            row.rank,
            row.step,
            Nanos(parts.length_ns).to_string(),
            share(parts.kernel_ns),
            share(parts.copy_ns + parts.fill_ns),
            share(parts.communication_ns),
            share(parts.api_call_ns),
            share(parts.data_loader_ns),
            share(parts.operator_ns),
            share(parts.other_ns),
        )?;
    }
    more(steps.len(), rows, "step", out)
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{Job, text};

    use super::*;
    use crate::over_time::Steps;

    #[test]
    fn a_list_of_ranks_or_communicators_says_where_it_stops() {
        // Ranks 1 and 2 of 20, with one more collective of three communicators on rank 2.
        let streams = |times: &[u64]| -> String {
            let line = |stream: u64| {
                let at = move |begin: &u64| format!("kernel 0/{stream} {begin}..{} ncclKernel\n", begin + 5);
                times.iter().map(at).collect::<String>()
            };
            (1..4).map(line).collect()
        };
        let rank = |number: u64, times: &[u64]| {
            let trace = text::parse(&format!("rank {number} of 20\n{}", streams(times))).unwrap();
            (format!("{number}.json"), trace)
        };
        let job = Job::new(vec![rank(1, &[0]), rank(2, &[0, 10])]).unwrap();
        let mut out = Vec::new();
        write(&OverTime::compute(&job, Steps::default()), 2, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.contains("no trace of 18 ranks: 0, 3,") && shown.contains(", 17, …\n"), "{shown}");
        assert!(shown.contains("… 1 communicator more\n"), "{shown}");
    }

    #[test]
    fn bandwidth_has_its_peak_and_its_busiest_part() {
        let trace = text::parse("kernel 0/7 0..1000 a\ncopy 0/7 100..200 Memcpy HtoD 1000000B").unwrap();
        let tables =
            OverTime::compute(&Job::new(vec![("a.json".to_owned(), trace)]).unwrap(), Steps::default());
        let mut out = Vec::new();
        bandwidth(&tables, 9, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        let at = Nanos(100_000).to_string();
        let expect =
            format!("     0     10.000              10.000 {at:>10}                 10  Memcpy HtoD");
        assert_eq!(shown.lines().last(), Some(expect.as_str()));
    }
}
