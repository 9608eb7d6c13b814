//! What it costs a training loop of small operators to be watched, beside torch's own profiler.
//!
//! Owns: the figure `operator-cost`. Because: operators that take microseconds are where a microsecond for each shows. Windows
//! with and without the profiler alternate. Does not: count waiting: a step is measured in CPU time of the program, in which
//! traps are.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Options;
use super::figure::{Figure, Target};
use super::profiler::Profilers;
use crate::dialogue::Dialogue;
use crate::workloads;

/// Steps of one window: a fifth of a second.
const STEPS: u32 = 2_000;
/// Until the probes are in a library of half a gigabyte.
const PLACING: Duration = Duration::from_secs(5);

/// What is measured: context, operators whose tensors are told, and the target.
const MODES: [(&str, &str, &str, f64); 6] = [
    ("operators from stacks alone", "python,native,kernel", "", 1.01),
    ("the same without native frames", "python,operator,kernel", "", 1.01),
    ("the backward pass below its line", "python,native,kernel,backward", "", 1.10),
    ("each operator as it begins", "python,native,kernel,operator", "", 1.10),
    ("tensors of the products of matrices", "python,native,kernel", "aten::addmm,aten::mm", 1.10),
    ("all of it", "python,native,kernel,backward,operator", "aten::addmm,aten::mm", 1.10),
];

/// Nanoseconds of a step.
fn step(program: &mut Dialogue, what: &str) -> Result<f64> {
    program.ask(&format!("{what} {STEPS}"))
}

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let (mut program, _) = Dialogue::start(&mut workloads::torch_small()?)?;
    let mut ratios = [const { Vec::new() }; MODES.len()];
    let mut torch = Vec::new();
    let mut alone = step(&mut program, "run")?;
    let step_ns = alone;
    for round in 1..=options.runs {
        for ((_, context, shapes, _), ratios) in MODES.iter().zip(&mut ratios) {
            let mut how = vec!["--context", context, "--no-gpu"];
            if !shapes.is_empty() {
                how.extend(["--shapes", shapes]);
            }
            let mut attached = profilers.attach_with(program.pid(), options.freq, &how)?;
            let until = Instant::now() + PLACING;
            while Instant::now() < until {
                step(&mut program, "run")?;
                attached.alive()?;
            }
            let with = step(&mut program, "run")?;
            attached.finish()?;
            let after = step(&mut program, "run")?;
            ratios.push(with / ((alone + after) / 2.0));
            alone = after;
        }
        torch.push(step(&mut program, "profile")? / alone);
        alone = step(&mut program, "run")?;
        eprintln!("    round {round} of {}", options.runs);
    }
    let watched = MODES
        .iter()
        .zip(ratios)
        .map(|((case, _, _, most), ratios)| (*case, ratios, Some(Target::AtMost(*most))));
    for (case, ratios, target) in watched.chain([("torch.profiler", torch, None)]) {
        let figure = Figure::new("operator-cost", case, "ratio", ratios).note("step_ns", step_ns.round());
        match target {
            Some(target) => figure.target(target).print(),
            None => figure.print(),
        }
    }
    Ok(())
}
