//! What one sample costs in the kernel, and what each native and each Python frame adds.
//!
//! Owns: the figure `sample-cost`. Because: it decides at which frequency a profiler can stay on for ever, and on a
//! virtual machine most of a raw figure is the wake-up, which an empty program pays too.
//! Does not: count the timer interrupt itself, which every sampler pays.

use super::Options;
use super::figure::{Figure, Target, median};
use super::profiler::{Attached, Kind, Profilers, StatisticsOn, programs, sampler};
use crate::workloads::{self, Beside, Functions, RunningProgram, beside};
use anyhow::{Context, Result};
use std::time::Duration;

/// Length of one window.
const WINDOW: Duration = Duration::from_secs(2);

/// What a sample of somebody else costs until it is turned away, nanoseconds.
fn turned_away(profilers: &Profilers, frequency: u32) -> Result<f64> {
    // We are the target, and we sleep: every sample is somebody else's.
    let mut attached = profilers.attach(Kind::Ours, std::process::id(), frequency)?;
    attached.sampling(1)?;
    let before = sampler(attached.pid()).context("our sampler is not loaded")?;
    std::thread::sleep(WINDOW);
    let after = sampler(attached.pid()).context("our sampler is not loaded any more")?;
    attached.alive()?;
    // On an idle machine there may have been none; then there are none to subtract either.
    let runs = (after.runs - before.runs).max(1);
    Ok((after.run_time_ns - before.run_time_ns) as f64 / runs as f64)
}

/// A shape of stack.
#[derive(Clone, Copy)]
struct Stack {
    python: u32,
    native: u32,
    functions: Functions,
    /// Frames to be recorded.
    context: &'static [&'static str],
}

const WHOLE: &[&str] = &["--context", "python,native,kernel"];
const WITHOUT_NATIVE: &[&str] = &["--context", "python,kernel", "--probe", "operators"];

/// Cost per walked sample, nanoseconds: one value per window.
fn cost(profilers: &Profilers, options: &Options, other: f64, stack: Stack) -> Result<Vec<f64>> {
    let mut workload = workloads::cpu_bound(stack.python, stack.native, stack.functions)?.start()?;
    let mut attached = profilers.attach_with(workload.pid(), options.freq, stack.context)?;
    attached.sampling(1)?;
    // The first samples come while tables are still being loaded.
    workload.window(WINDOW)?;
    let mut costs = Vec::new();
    for _ in 0..options.runs {
        costs.push(Spent::in_window(&mut workload, &attached, options.freq)?.on_walks(other, 1.0));
    }
    attached.alive()?;
    Ok(costs.iter().map(|(cost, walked)| cost / walked).collect())
}

/// What our sampler did in a window.
struct Spent {
    /// Samples of the workload by its timer, by its own CPU time.
    walked: f64,
    /// Runs on samples of all processes, on every CPU.
    runs: f64,
    ns: f64,
}

impl Spent {
    fn in_window(workload: &mut RunningProgram, attached: &Attached, frequency: u32) -> Result<Self> {
        let before = sampler(attached.pid()).context("our sampler is not loaded")?;
        let cpu = cpu_ns(workload.pid())?;
        workload.window(WINDOW)?;
        let after = sampler(attached.pid()).context("our sampler is not loaded any more")?;
        Ok(Self {
            walked: (cpu_ns(workload.pid())? - cpu) as f64 * f64::from(frequency) / 1e9,
            runs: (after.runs - before.runs) as f64,
            ns: (after.run_time_ns - before.run_time_ns) as f64,
        })
    }

    /// Nanoseconds of the workload's samples, where its timer takes this many at once, and how often it did.
    fn on_walks(&self, other: f64, at_once: f64) -> (f64, f64) {
        let others = (self.runs - at_once * self.walked).max(0.0);
        (self.ns - others * other, self.walked)
    }
}

/// What a sample is made of: each as it was in one window after the other.
#[derive(Default)]
struct Parts {
    raw: Vec<f64>,
    /// An empty program on the same event of the same thread.
    empty: Vec<f64>,
    /// The same walk at once again, when all that it reads is in the caches.
    again: Vec<f64>,
}

impl Parts {
    fn measure(profilers: &Profilers, frequency: u32, runs: usize) -> Result<Self> {
        let other = turned_away(profilers, frequency)?;
        let mut workload = workloads::cpu_bound(20, 16, Functions::Distinct)?.start()?;
        let pid = workload.pid();
        let mut attached = profilers.attach_with(pid, frequency, WHOLE)?;
        attached.sampling(1)?;
        workload.window(WINDOW)?;
        let mut parts = Self::default();
        for _ in 0..runs {
            let (cost, walked) = Spent::in_window(&mut workload, &attached, frequency)?.on_walks(other, 1.0);
            let raw = cost / walked;
            let program = sampler(attached.pid()).context("our sampler is not loaded any more")?.id;
            let twice = beside(Beside::Twice { pid, frequency, program })?;
            let spent = Spent::in_window(&mut workload, &attached, frequency)?;
            drop(twice);
            // Its own sample, one that is as cold, and one right after that.
            let (cost, walked) = spent.on_walks(other, 3.0);
            parts.again.push(cost / walked - 2.0 * raw);
            parts.raw.push(raw);
            let empty = beside(Beside::EmptySample { pid, frequency })?;
            workload.window(WINDOW)?;
            let ran = sampler(empty.pid()).context("the empty program is not loaded")?;
            parts.empty.push(ran.run_time_ns as f64 / ran.runs.max(1) as f64);
        }
        attached.alive()?;
        Ok(parts)
    }

    fn print(&self, frequency: u32, target: f64) {
        let above: Vec<f64> = self.raw.iter().zip(&self.empty).map(|(raw, empty)| raw - empty).collect();
        let cold: Vec<f64> = self.raw.iter().zip(&self.again).map(|(raw, again)| raw - again).collect();
        Figure::new(
            "sample-cost",
            format!("60 frames at {frequency} Hz, above an empty program"),
            "ns",
            above.clone(),
        )
        .target(Target::AtMost(target))
        .note("raw_ns", median(&self.raw).round())
        .note("empty_ns", median(&self.empty).round())
        .note("again_at_once_ns", median(&self.again).round())
        .note("cold_ns", median(&cold).round())
        .note("cold_share_of_raw", (median(&cold) / median(&self.raw) * 100.0).round() / 100.0)
        .print();
    }
}

/// Frequencies at which parts are measured, with what a sample may take above an empty program.
const ABOVE_EMPTY: [(u32, f64); 2] = [(99, 8000.0), (999, 4500.0)];

/// CPU time of a process so far, by the scheduler's own count.
fn cpu_ns(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    text.split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .context("schedstat begins with the CPU time")
}

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let _on = StatisticsOn::new()?;
    for (frequency, target) in ABOVE_EMPTY {
        Parts::measure(profilers, frequency, options.runs)?.print(frequency, target);
    }
    let other = turned_away(profilers, options.freq)?;
    let cost_of = |python, native, functions, context| {
        cost(profilers, options, other, Stack { python, native, functions, context })
    };
    let cost = |python, native, functions| cost_of(python, native, functions, WHOLE);
    let mixed = cost(20, 16, Functions::Distinct)?;
    Figure::new("sample-cost", "60 frames: 37 native, 23 Python", "ns", mixed)
        .note("frequency_hz", options.freq)
        .note("sample_of_others_ns", other)
        .print();
    let without_native = cost_of(20, 16, Functions::Distinct, WITHOUT_NATIVE)?;
    Figure::new("sample-cost", "60 frames, without native ones", "ns", without_native).print();
    let nested = cost_of(5, 1, Functions::Distinct, WHOLE)?;
    let nested_without = cost_of(5, 1, Functions::Distinct, WITHOUT_NATIVE)?;
    Figure::new("sample-cost", "a shallow stack", "ns", nested).print();
    Figure::new("sample-cost", "a shallow stack, without native ones", "ns", nested_without).print();
    let slope = |deep: &[f64], shallow: &[f64], frames: f64| -> Vec<f64> {
        deep.iter().zip(shallow).map(|(deep, shallow)| (deep - shallow) / frames).collect()
    };
    let shallow = cost(10, 10, Functions::Distinct)?;
    let native = cost(10, 110, Functions::Distinct)?;
    let python = cost(110, 10, Functions::Distinct)?;
    let same = cost(110, 10, Functions::Recursive)?;
    Figure::new("sample-cost", "each native frame more", "ns", slope(&native, &shallow, 100.0))
        .target(Target::AtMost(100.0))
        .note("shallow_ns", median(&shallow))
        .note("deep_ns", median(&native))
        .print();
    Figure::new(
        "sample-cost",
        "each Python frame more, of another function",
        "ns",
        slope(&python, &shallow, 100.0),
    )
    .target(Target::AtMost(120.0))
    .note("deep_ns", median(&python))
    .print();
    Figure::new(
        "sample-cost",
        "each Python frame more, of the same function",
        "ns",
        slope(&same, &shallow, 100.0),
    )
    .note("deep_ns", median(&same))
    .print();
    verified(profilers, options)
}

/// How much work the kernel's verifier had with each program.
fn verified(profilers: &Profilers, options: &Options) -> Result<()> {
    let workload = workloads::cpu_bound(1, 1, Functions::Recursive)?.start()?;
    let mut attached = profilers.attach(Kind::Ours, workload.pid(), options.freq)?;
    attached.sampling(1)?;
    let counts: Vec<u64> =
        programs(attached.pid()).iter().map(|program| program.verified_instructions).collect();
    let most = counts.iter().copied().max().unwrap_or_default() as f64;
    Figure::new("verified-instructions", "the largest program", "instructions", vec![most])
        .note("all", counts)
        .print();
    Ok(())
}
