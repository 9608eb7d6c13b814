//! What it costs a training loop of small operators to be watched, beside torch's own profiler.
//!
//! Owns: the figure `operator-cost`. Because: operators that take microseconds are where a microsecond for each shows. Windows
//! with and without the profiler alternate. Does not: count waiting: a step is measured in CPU time of the program, in which
//! traps are.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::Options;
use super::figure::{Figure, Target};
use super::profiler::Profilers;
use crate::workloads;

/// Steps of one window: a fifth of a second.
const STEPS: u32 = 2_000;
/// Until the probes are in a library of half a gigabyte.
const PLACING: Duration = Duration::from_secs(5);

/// What is measured: context, operators whose tensors are told, and the target.
const MODES: [(&str, &str, &str, f64); 5] = [
    ("operators from stacks alone", "python,native,kernel", "", 1.01),
    ("the backward pass below its line", "python,native,kernel,backward", "", 1.10),
    ("each operator as it begins", "python,native,kernel,operator", "", 1.10),
    ("tensors of the products of matrices", "python,native,kernel", "aten::addmm,aten::mm", 1.10),
    ("all of it", "python,native,kernel,backward,operator", "aten::addmm,aten::mm", 1.10),
];

/// The program.
struct Loop {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Loop {
    fn start() -> Result<Self> {
        let mut child = workloads::torch_small()?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let mut program = Self { child, output };
        program.line()?;
        Ok(program)
    }

    /// Nanoseconds of a step.
    fn step(&mut self, what: &str) -> Result<f64> {
        writeln!(self.child.stdin.as_mut().context("its input is a pipe")?, "{what} {STEPS}")?;
        let line = self.line()?;
        line.parse().with_context(|| format!("the training loop said {line:?}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // It may have ended by itself, which is just as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let mut program = Loop::start()?;
    let mut ratios = [const { Vec::new() }; MODES.len()];
    let mut torch = Vec::new();
    let mut alone = program.step("run")?;
    let step_ns = alone;
    for round in 1..=options.runs {
        for ((_, context, shapes, _), ratios) in MODES.iter().zip(&mut ratios) {
            let mut how = vec!["--context", context, "--no-gpu"];
            if !shapes.is_empty() {
                how.extend(["--shapes", shapes]);
            }
            let mut attached = profilers.attach_with(program.child.id(), options.freq, &how)?;
            let until = Instant::now() + PLACING;
            while Instant::now() < until {
                program.step("run")?;
                attached.alive()?;
            }
            let with = program.step("run")?;
            attached.finish()?;
            let after = program.step("run")?;
            ratios.push(with / ((alone + after) / 2.0));
            alone = after;
        }
        torch.push(program.step("profile")? / alone);
        alone = program.step("run")?;
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
