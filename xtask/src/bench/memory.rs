//! Memory of the profiler, resident and locked in the kernel, with a torch process attached, and how it grows.
//!
//! Owns: the figure `memory`. Because: a profiler that is left on must not grow. Does not: measure for an hour by
//! default; `--seconds` sets the length of each of the runs, between which the profiler stays attached.

use super::Options;
use super::figure::{Figure, Target};
use super::profiler::{Attached, Kind, Profilers, locked_bytes};
use crate::workloads;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

const MIB: f64 = 1024.0 * 1024.0;

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let workload = workloads::torch()?.start()?;
    let mut attached = profilers.attach(Kind::Ours, workload.pid(), options.freq)?;
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
    // The first reading still has what start-up needed.
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

/// A line of the profiler's status, bytes. `VmRSS` is all that is resident; `RssFile` the part of it that are pages of
/// files, its own program among them: the kernel has them once, whoever maps them.
fn in_status(attached: &Attached, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", attached.pid()))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .with_context(|| format!("no {name} in the status"))?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024.0)
}
