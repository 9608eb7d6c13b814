//! Cost of a sample, in the profiler and in the program, beside py-spy on the same process.
//!
//! Owns: the figure `peer-cost`. Because: the cost of a sample limits the sampling rate, and the two profilers pay in
//! different places: one in the kernel, the other by stopping the program. Does not: compare the contents of samples
//! (the Python tests do).

use super::Options;
use super::figure::{Figure, median};
use super::profiler::{Kind, Profilers, StatisticsGuard, sampler};
use crate::workloads::{self, Functions, RunningProgram, Window};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// Time after a profiler's start until it counts as attached.
const SETTLE: Duration = Duration::from_secs(2);

/// Cost per sample in microseconds.
struct Cost {
    /// CPU time of the profiler's process.
    profiler: f64,
    /// Slowdown of the program.
    program: f64,
    /// Part of that in our kernel program, which also filters samples of other processes.
    kernel: Option<f64>,
    /// Samples in the window.
    samples: f64,
}

/// Selects one number of a cost.
type Part = fn(&Cost) -> f64;

/// Nanoseconds of wall time per iteration.
fn pace(window: &Window) -> f64 {
    let Window { first, last } = window;
    (last.wall_ns - first.wall_ns) as f64 / (last.iterations - first.iterations) as f64
}

/// CPU time of all live threads of a process, in nanoseconds.
fn cpu_ns(pid: u32) -> Result<u64> {
    let of = |task: std::fs::DirEntry| -> Option<u64> {
        std::fs::read_to_string(task.path().join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
    };
    Ok(std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten().filter_map(of).sum())
}

/// Number of samples in folded stacks.
fn folded(text: &str) -> f64 {
    text.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// One window with a profiler, between two without.
fn cost(
    workload: &mut RunningProgram,
    profilers: &Profilers,
    kind: Kind,
    options: &Options,
    before: f64,
) -> Result<(Cost, f64)> {
    let window = Duration::from_secs(options.seconds);
    let mut attached = profilers.attach(kind, workload.pid(), options.freq)?;
    if kind == Kind::Ours {
        attached.sampling(1)?;
    }
    std::thread::sleep(SETTLE);
    let (begin, since) = (cpu_ns(attached.pid())?, Instant::now());
    let ours_before = sampler(attached.pid());
    let seen = workload.window(window)?;
    let ours = ours_before.zip(sampler(attached.pid()));
    attached.alive()?;
    let (profiler, elapsed) = ((cpu_ns(attached.pid())? - begin) as f64, since.elapsed().as_secs_f64());
    attached.finish()?;
    let nominal = f64::from(options.freq);
    let rate = match kind {
        // A CPU timer takes one sample per period of the program's CPU time.
        Kind::Ours => {
            nominal * (seen.last.cpu_ns - seen.first.cpu_ns) as f64
                / (seen.last.wall_ns - seen.first.wall_ns) as f64
        }
        // It reports its number of samples at the end. Those of the first seconds count for the window, in its favor.
        _ => {
            let text = std::fs::read_to_string(profilers.file("py-spy.txt"))?;
            (folded(&text) / elapsed).min(nominal)
        }
    };
    let after = pace(&workload.window(window)?);
    let alone = (before + after) / 2.0;
    let samples = rate * elapsed;
    let lost_ns = (1.0 - alone / pace(&seen)) * elapsed * 1e9;
    let each = |ns: f64| ns / 1e3 / samples;
    let kernel = ours.map(|(first, last)| each(last.run_time_ns.saturating_sub(first.run_time_ns) as f64));
    Ok((Cost { profiler: each(profiler), program: each(lost_ns), kernel, samples }, after))
}

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let _on = StatisticsGuard::new()?;
    let kinds: Vec<Kind> = [Kind::Ours, Kind::PySpyPython, Kind::PySpy]
        .into_iter()
        .filter(|kind| profilers.has(*kind))
        .collect();
    let mut workload = workloads::cpu_bound(20, 16, Functions::Distinct)?.start()?;
    let mut costs: Vec<Vec<Cost>> = kinds.iter().map(|_| Vec::new()).collect();
    let mut before = pace(&workload.window(Duration::from_secs(options.seconds))?);
    for _ in 0..options.runs {
        for (kind, costs) in kinds.iter().zip(&mut costs) {
            match cost(&mut workload, profilers, *kind, options, before) {
                Ok((cost, after)) => {
                    costs.push(cost);
                    before = after;
                }
                // A failing peer does not invalidate our own figure.
                Err(error) if *kind != Kind::Ours => eprintln!("    note: {}: {error:#}", kind.name()),
                Err(error) => return Err(error),
            }
        }
    }
    let of = |costs: &[Cost], part: Part| -> Vec<f64> { costs.iter().map(part).collect() };
    let (ours, peers) = costs.split_first().context("our own profiler is always there")?;
    let parts: [(&str, Part); 2] = [
        ("CPU time of the profiler", |cost| cost.profiler),
        ("time that the program loses", |cost| cost.program),
    ];
    for (what, part) in parts {
        let case = format!("{} Hz, {what}, for a sample", options.freq);
        let mut figure = Figure::new("peer-cost", case, "us", of(ours, part));
        for (kind, costs) in kinds[1..].iter().zip(peers) {
            figure = figure
                .peer(kind.name(), &of(costs, part))
                .note(&format!("{} samples", kind.name()), median(&of(costs, |cost| cost.samples)).round());
        }
        let kernel: Vec<f64> = ours.iter().filter_map(|cost| cost.kernel).collect();
        figure = figure
            .note("samples", median(&of(ours, |cost| cost.samples)).round())
            .note("in_the_kernel_us", median(&kernel));
        figure.print();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_in_folded_stacks_are_added_up() {
        assert!((folded("a;b 3\na;c d 4\n\nno number\n") - 7.0).abs() < f64::EPSILON);
    }
}
