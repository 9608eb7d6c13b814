//! Share of samples whose stack is complete to the thread's start, for programs of many compilers and runtimes.
//!
//! Owns: the figure `completeness`. Because: it is the first promise of the project; for a truncated stack, the reason
//! and the code at fault are printed. Does not: check whether the frames are right; oracles in `tests/` do.

use super::Options;
use super::figure::{Figure, Target};
use super::profiler::{Kind, Profilers};
use super::report::{Report, blamed, folded};
use crate::workloads::{self, GoProgram, Workload};
use anyhow::{Result, bail};
use serde_json::json;
use std::time::Duration;

/// Number of culprits shown.
const BLAMED: usize = 8;

/// A program's name and its builder, which runs just before the measurement.
type Program = (&'static str, fn() -> Result<Workload>);

const PROGRAMS: [Program; 13] = [
    ("python+numpy+c++", workloads::mixed),
    ("c++", || workloads::deep_native(60, 2)),
    ("rust", workloads::spinner),
    ("jax", workloads::jax),
    ("torch", workloads::torch),
    ("go", || workloads::go_program(GoProgram::Allocation)),
    ("go, clocks", || workloads::go_program(GoProgram::Clock)),
    ("go, large allocations", || workloads::go_program(GoProgram::LargeAllocation)),
    ("go+c", || workloads::go_program(GoProgram::CallsOfC)),
    ("node.js", workloads::node),
    ("greenlet", workloads::greenlets),
    ("gevent", workloads::gevent),
    ("numba", workloads::numba),
];

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let wanted = |name: &str| options.program.as_deref().is_none_or(|part| name.contains(part));
    if !PROGRAMS.iter().any(|(name, _)| wanted(name)) {
        let names: Vec<_> = PROGRAMS.iter().map(|(name, _)| *name).collect();
        bail!("no program has such a name\nhint: there are {}", names.join("; "));
    }
    for (_, program) in PROGRAMS.iter().filter(|(name, _)| wanted(name)) {
        measure(profilers, options, program()?)?;
    }
    Ok(())
}

/// Measures the share of one program.
fn measure(profilers: &Profilers, options: &Options, workload: Workload) -> Result<()> {
    let name = workload.name;
    let running = workload.start()?;
    let mut attached = profilers.attach(Kind::Ours, running.pid(), options.freq)?;
    attached.sampling(1)?;
    std::thread::sleep(Duration::from_secs(options.seconds * 2));
    attached.alive()?;
    attached.finish()?;
    let profile = profilers.file("run.dctx");
    let report = Report::of(&profilers.ours, &profile)?;
    let (walked, cut) = report.walked_and_cut()?;
    let missing: u64 = cut.values().sum();
    let share = 1.0 - missing as f64 / walked as f64;
    let culprits: Vec<_> = blamed(&folded(&profilers.ours, &profile)?).into_iter().take(BLAMED).collect();
    Figure::new("completeness", name, "share of samples", vec![share])
        .target(Target::AtLeast(0.999))
        .note("samples", walked)
        .note("incomplete", missing)
        .note("cut", json!(cut))
        .note("blamed", json!(culprits))
        .print();
    Ok(())
}
