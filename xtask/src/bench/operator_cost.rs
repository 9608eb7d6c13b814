//! Overhead of operator probes on a training loop of small operators, beside torch's own profiler.
//!
//! Owns: the figure `operator-cost`. Because: an extra microsecond matters most for operators that take microseconds.
//! Windows with and without the profiler alternate, each with the cost of its probes' traps alone. Does not: count
//! waiting: a training step is measured in CPU time of the program, which includes traps.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Options;
use super::figure::{Figure, Target, median};
use super::launch_cost::at_calls;
use super::profiler::{Profilers, ProgramStatistics, StatisticsGuard};
use crate::dialogue::Dialogue;
use crate::workloads;

/// Steps of one window: a fifth of a second.
const STEPS: u32 = 2_000;
/// Time until the probes are attached in a library of half a gigabyte.
const PLACING: Duration = Duration::from_secs(5);

/// Modes to measure: name, options, and target.
const MODES: [(&str, &[&str], f64); 11] = [
    ("operators from stacks alone", &["--context", "python,native,kernel"], 1.01),
    ("the same without native frames", &["--context", "python,kernel", "--probe", "operators"], 1.01),
    ("the same with layers", &["--probe", "modules"], 1.01),
    ("ranges and steps", &["--probe", "ranges"], 1.10),
    ("memory of tensors", &["--probe", "memory"], 1.10),
    ("the backward pass below its line", &["--probe", "backward"], 1.10),
    ("each operator as it begins", &["--probe", "operators"], 1.10),
    ("each operator, without stacks", &["--probe", "operators", "--operator-stacks", "off"], 1.10),
    (
        "tensors of the products of matrices",
        &["--context", "python,native,kernel", "--shapes", "aten::addmm,aten::mm"],
        1.10,
    ),
    (
        "all of it",
        &["--probe", "modules,ranges,memory,backward,operators", "--shapes", "aten::addmm,aten::mm"],
        1.10,
    ),
    (
        "all of it, within a budget of 10 %",
        &[
            "--probe",
            "modules,ranges,memory,backward,operators",
            "--shapes",
            "aten::addmm,aten::mm",
            BUDGET,
            "10%",
        ],
        1.10,
    ),
];

/// With a budget, probes are duty-cycled: a measurement must span several duty windows.
const BUDGET: &str = "--probe-budget";
/// Consecutive windows that form one measurement of duty-cycled probes: half a minute.
const OF_TURNS: u32 = 150;

/// Kernel counts at the probes of one step.
#[derive(Clone, Copy, Default)]
struct ProbeTotals {
    traps: f64,
    /// Time in our programs; the rest of a trap is the kernel's.
    program_ns: f64,
}

impl ProbeTotals {
    /// Measures in a separate window, because counting takes time too.
    fn of(program: &mut Dialogue, profiler: u32) -> Result<Self> {
        let _on = StatisticsGuard::new()?;
        let before = at_calls(profiler);
        step(program, "run")?;
        let after = at_calls(profiler);
        let each = |of: fn(&ProgramStatistics) -> u64| {
            let sum = |programs: &[ProgramStatistics]| programs.iter().map(of).sum::<u64>();
            sum(&after).saturating_sub(sum(&before)) as f64 / f64::from(STEPS)
        };
        Ok(Self { traps: each(|program| program.runs), program_ns: each(|program| program.run_time_ns) })
    }
}

/// Nanoseconds per step.
fn step(program: &mut Dialogue, what: &str) -> Result<f64> {
    program.ask(&format!("{what} {STEPS}"))
}

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let (mut program, _) = Dialogue::start(&mut workloads::torch_small()?)?;
    let mut modes = [const { (Vec::new(), None) }; MODES.len()];
    let mut torch = Vec::new();
    let mut alone = step(&mut program, "run")?;
    let step_ns = alone;
    for round in 1..=options.runs {
        for ((_, how, _), (ratios, at_probes)) in MODES.iter().zip(&mut modes) {
            let how = [how, &["--no-gpu"][..]].concat();
            let mut attached = profilers.attach_with(program.pid(), options.freq, &how)?;
            let until = Instant::now() + PLACING;
            while Instant::now() < until {
                step(&mut program, "run")?;
                attached.alive()?;
            }
            let in_turns = how.contains(&BUDGET);
            let windows = if in_turns { OF_TURNS } else { 1 };
            let mut with = 0.0;
            for _ in 0..windows {
                with += step(&mut program, "run")? / f64::from(windows);
            }
            if at_probes.is_none() && !in_turns {
                *at_probes = Some(ProbeTotals::of(&mut program, attached.pid())?);
            }
            attached.finish()?;
            let after = step(&mut program, "run")?;
            ratios.push(with / ((alone + after) / 2.0));
            alone = after;
        }
        torch.push(step(&mut program, "profile")? / alone);
        alone = step(&mut program, "run")?;
        eprintln!("    round {round} of {}", options.runs);
    }
    for ((case, _, most), (ratios, at_probes)) in MODES.iter().zip(modes) {
        let ProbeTotals { traps, program_ns } = at_probes.unwrap_or_default();
        // The remainder if our programs took no time: a lower bound for any such probe.
        let floor = median(&ratios) - program_ns / step_ns;
        let mut figure = Figure::new("operator-cost", *case, "ratio", ratios)
            .target(Target::AtMost(*most))
            .peer("torch.profiler", &torch)
            .note("step_ns", step_ns.round());
        if traps > 0.0 {
            figure = figure
                .note("traps_each_step", (traps * 10.0).round() / 10.0)
                .note("kernel_each_trap_ns", ((floor - 1.0) * step_ns / traps).round())
                .note("our_programs_each_trap_ns", (program_ns / traps).round())
                .note("with_traps_alone", (floor * 100.0).round() / 100.0);
        }
        figure.print();
    }
    Figure::new("operator-cost", "torch.profiler", "ratio", torch).note("step_ns", step_ns.round()).print();
    Ok(())
}
