//! Behavior under overload: deep stacks, every CPU, and a stopped reader.
//!
//! Owns: the figure `overload`. Because: even many losses must be counted exactly. Does not: require that nothing is
//! lost.

use super::Options;
use super::figure::{Figure, Target};
use super::profiler::{Kind, Profilers};
use super::report::Report;
use crate::workloads;
use anyhow::Result;
use serde_json::json;
use std::time::Duration;

/// Stack depth in frames.
const DEPTH: u32 = 200;
const FREQUENCY: u32 = 999;
/// How long the reader is stopped.
const STILL: Duration = Duration::from_secs(2);

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let cpus = u32::try_from(std::thread::available_parallelism()?.get())?;
    let workload = workloads::deep_native(DEPTH, cpus)?.start()?;
    let mut attached = profilers.attach(Kind::Ours, workload.pid(), FREQUENCY)?;
    attached.sampling(1)?;
    std::thread::sleep(Duration::from_secs(1));
    attached.signal("STOP")?;
    std::thread::sleep(STILL);
    attached.signal("CONT")?;
    std::thread::sleep(Duration::from_secs(options.seconds));
    attached.alive()?;
    let code = attached.finish()?;
    let report = Report::of(&profilers.ours, &profilers.file("run.dctx"))?;
    let imbalances = report.imbalances();
    let kernel = report.stage("kernel")?;
    let lost: u64 = report.stages.iter().flat_map(|stage| stage.dropped.values()).sum();
    Figure::new(
        "overload",
        "places where the ledger does not add up",
        "places",
        vec![imbalances.len() as f64],
    )
    .target(Target::AtMost(0.0))
    .note("received", kernel.received)
    .note("lost", lost)
    .note(
        "dropped",
        json!(report.stages.iter().map(|stage| (&stage.name, &stage.dropped)).collect::<Vec<_>>()),
    )
    .note("imbalances", json!(imbalances))
    .note("exit_code", json!(code))
    .print();
    Ok(())
}
