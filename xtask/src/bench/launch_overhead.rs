//! Slowdown of a loop that launches ten thousand kernels a second, every launch with its whole stack.
//!
//! Owns: the figure `launch-overhead`. Because: the cost of one launch means little without the work between launches.
//! Windows with and without the profiler alternate, so that a busy machine disturbs both alike. Does not: count
//! waiting.

use super::Options;
use super::figure::{Figure, Target};
use super::launch_cost::probed;
use super::profiler::Profilers;
use crate::workloads::{self, Launcher};
use anyhow::Result;

/// Target time between launches, in nanoseconds.
const PERIOD_NS: f64 = 100_000.0;

/// Work rounds before each launch that give this launch rate.
fn calibrated(launcher: &mut Launcher) -> Result<u32> {
    const TRIED: u32 = 100_000;
    let empty = launcher.python(1_000, 0)?;
    let worked = launcher.python(1_000, TRIED)?;
    let per_round = ((worked - empty) / f64::from(TRIED)).max(1e-3);
    Ok(((PERIOD_NS - empty) / per_round).max(0.0) as u32)
}

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let mut launcher = workloads::launch_bound(20, 16)?;
    let rounds = calibrated(&mut launcher)?;
    let launches =
        u32::try_from(options.seconds).unwrap_or(u32::MAX).saturating_mul(1_000_000_000 / PERIOD_NS as u32);
    for (case, stacks, target) in [
        ("10 000 launches/s, every stack of 60 frames", "all", Target::AtMost(1.03)),
        ("10 000 launches/s, 500 stacks/s", "500/s", Target::AtMost(1.03)),
    ] {
        let mut ratios = Vec::new();
        let mut before = launcher.python(launches, rounds)?;
        let period = before;
        for round in 1..=options.runs {
            let mut attached =
                profilers.attach_with(launcher.pid(), options.freq, &["--launch-stacks", stacks])?;
            probed(&mut launcher, || attached.alive())?;
            let with = launcher.python(launches, rounds)?;
            attached.alive()?;
            attached.finish()?;
            let after = launcher.python(launches, rounds)?;
            ratios.push(with / ((before + after) / 2.0));
            before = after;
            eprintln!("    round {round} of {}", options.runs);
        }
        Figure::new("launch-overhead", case, "ratio", ratios)
            .target(target)
            .note("launch_to_launch_ns", period.round())
            .print();
    }
    Ok(())
}
