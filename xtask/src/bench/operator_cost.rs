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
    let (mut stacks, mut backward, mut torch) = (Vec::new(), Vec::new(), Vec::new());
    let mut alone = program.step("run")?;
    let step_ns = alone;
    for round in 1..=options.runs {
        for (context, ratios) in
            [("python,native,kernel", &mut stacks), ("python,native,kernel,backward", &mut backward)]
        {
            let mut attached = profilers.attach_with(
                program.child.id(),
                options.freq,
                &["--context", context, "--no-gpu"],
            )?;
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
    for (case, ratios, target) in [
        ("operators from stacks alone", stacks, Some(Target::AtMost(1.01))),
        ("the backward pass below its line", backward, Some(Target::AtMost(1.10))),
        ("torch.profiler", torch, None),
    ] {
        let figure = Figure::new("operator-cost", case, "ratio", ratios).note("step_ns", step_ns.round());
        match target {
            Some(target) => figure.target(target).print(),
            None => figure.print(),
        }
    }
    Ok(())
}
