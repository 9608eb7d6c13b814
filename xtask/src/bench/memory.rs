//! Memory of the profiler, resident and locked in the kernel, with a torch process attached, its growth, and the cost
//! of each further process of the same libraries.
//!
//! Owns: the figures `memory`. Because: a profiler that is left on must not grow, and a machine has many processes.
//! Does not: measure for an hour by default; `--seconds` sets the length of each of the runs, between which the
//! profiler stays attached.

use super::Options;
use super::figure::{Figure, Target};
use super::profiler::{Kind, Profilers, RunningProfiler, locked_bytes};
use crate::workloads;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

const MIB: f64 = 1024.0 * 1024.0;

/// Number of additional processes with the same libraries.
const FURTHER: usize = 4;
/// Readings per attachment, one after each window.
const READINGS: usize = 3;

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let workload = workloads::torch()?.start()?;
    of_one(profilers, options, workload.pid())?;
    of_further(profilers, options, workload.pid())
}

fn of_one(profilers: &Profilers, options: &Options, pid: u32) -> Result<()> {
    let mut attached = profilers.attach(Kind::Ours, pid, options.freq)?;
    attached.sampling(1)?;
    let (begin, mut readings) = (Instant::now(), Vec::new());
    for _ in 0..options.runs.max(2) {
        std::thread::sleep(Duration::from_secs(options.seconds));
        attached.alive()?;
        readings.push((
            begin.elapsed().as_secs_f64(),
            in_status(&attached, "VmRSS:")?,
            locked_bytes(attached.pid()) as f64,
        ));
    }
    let totals = readings.iter().map(|(_, resident, locked)| (resident + locked) / MIB).collect();
    // The first reading includes the cost of start-up.
    let (from, to) = (readings[readings.len() / 2 - 1], readings[readings.len() - 1]);
    let growth = (to.1 + to.2 - from.1 - from.2) / MIB / (to.0 - from.0) * 3600.0;
    Figure::new("memory", "torch attached, resident and locked", "MiB", totals)
        .target(Target::AtMost(120.0))
        .note("resident_mib", to.1 / MIB)
        .note("resident_of_files_mib", in_status(&attached, "RssFile:")? / MIB)
        .note("locked_mib", to.2 / MIB)
        .note("growth_mib_per_hour", growth)
        .note("seconds", to.0)
        .print();
    Ok(())
}

/// The difference between one process and several, attached in the same way. Without kernel frames: kernel symbols, 5
/// MiB once per machine, stay in memory for a minute after the last new kernel stack.
fn of_further(profilers: &Profilers, options: &Options, pid: u32) -> Result<()> {
    let further: Vec<_> = (0..FURTHER).map(|_| workloads::torch()?.start()).collect::<Result<_>>()?;
    let more: Vec<_> =
        further.iter().flat_map(|process| ["--pid".to_owned(), process.pid().to_string()]).collect();
    let user_only = ["--context", "python,native"];
    let more: Vec<_> = user_only.into_iter().chain(more.iter().map(String::as_str)).collect();
    let (mut each, mut of_one, mut of_all) = (Vec::new(), 0.0, 0.0);
    for _ in 0..options.runs {
        of_one = held(profilers.attach_with(pid, options.freq, &user_only)?, options)?;
        of_all = held(profilers.attach_with(pid, options.freq, &more)?, options)?;
        each.push((of_all - of_one) / FURTHER as f64 / MIB);
    }
    Figure::new("memory", "each further torch process, resident and locked", "MiB", each)
        .target(Target::AtMost(1.0))
        .note("further_processes", FURTHER)
        .note("with_one_mib", of_one / MIB)
        .note("with_all_mib", of_all / MIB)
        .print();
    Ok(())
}

/// The minimum that a profiler held at the end of a window: temporary needs do not depend on the process.
fn held(mut attached: RunningProfiler, options: &Options) -> Result<f64> {
    attached.sampling(1)?;
    let mut least = f64::INFINITY;
    for _ in 0..READINGS {
        std::thread::sleep(Duration::from_secs(options.seconds));
        attached.alive()?;
        least = least.min(in_status(&attached, "VmRSS:")? + locked_bytes(attached.pid()) as f64);
    }
    Ok(least)
}

/// A line of the profiler's status in bytes. `VmRSS` is all resident memory; `RssFile` is its file-backed part,
/// including the program itself: the kernel holds those pages once, however many processes map them.
fn in_status(attached: &RunningProfiler, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", attached.pid()))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .with_context(|| format!("no {name} in the status"))?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024.0)
}
