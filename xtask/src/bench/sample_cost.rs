//! Cost of one sample in the kernel, and of each further native and Python frame.
//!
//! Owns: the figure `sample-cost`. Because: it decides the frequency of an always-on profiler. Raw figures of machines
//! differ by a factor of seven: an empty program and an immediate second walk separate our share and the cost of cold
//! caches. Does not: count the timer interrupt itself, which every sampler pays.

use super::Options;
use super::figure::{Figure, Target, median};
use super::profiler::{Kind, Profilers, StatisticsGuard, programs, sampler};
use crate::workloads::{self, Companion, Functions, RunningProgram, beside};
use anyhow::{Context, Result};
use std::time::Duration;

/// Length of one window.
const WINDOW: Duration = Duration::from_secs(2);
/// Frequency of our own events. The measured events are additional ones, of the workload's thread alone: the cost of
/// other processes' samples could not be subtracted on a machine where they outnumber the workload's.
const OWN_HZ: u32 = 1;

/// Nanoseconds until a sample of another process is rejected.
fn turned_away(profilers: &Profilers, options: &Options) -> Result<f64> {
    let mut workload = workloads::cpu_bound(1, 1, Functions::Recursive)?.start()?;
    // We are the target, without our child, the workload.
    let mut attached = profilers.attach_with(std::process::id(), OWN_HZ, &["--no-children"])?;
    attached.sampling(1)?;
    let program = sampler(attached.pid()).context("our sampler is not loaded")?.id;
    let beside = Companion::Loaded { pid: workload.pid(), frequency: options.freq, program, times: 1 };
    mean_ns(&mut workload, beside, attached.pid())
}

/// A shape of stack.
#[derive(Clone, Copy)]
struct Stack {
    python: u32,
    native: u32,
    functions: Functions,
    /// Frames to record.
    context: &'static [&'static str],
}

const WHOLE: &[&str] = &["--context", "python,native,kernel"];
const WITHOUT_NATIVE: &[&str] = &["--context", "python,kernel", "--probe", "operators"];

/// Nanoseconds per sample of a stack: one value per window.
fn cost(profilers: &Profilers, options: &Options, stack: Stack) -> Result<Vec<f64>> {
    let mut workload = workloads::cpu_bound(stack.python, stack.native, stack.functions)?.start()?;
    let mut attached = profilers.attach_with(workload.pid(), OWN_HZ, stack.context)?;
    attached.sampling(1)?;
    let program = sampler(attached.pid()).context("our sampler is not loaded")?.id;
    let beside = Companion::Loaded { pid: workload.pid(), frequency: options.freq, program, times: 1 };
    // The first samples arrive while tables are still being loaded.
    mean_ns(&mut workload, beside, attached.pid())?;
    let costs = (0..options.runs).map(|_| mean_ns(&mut workload, beside, attached.pid())).collect();
    attached.alive()?;
    costs
}

/// The parts of a sample's cost, in consecutive windows.
#[derive(Default)]
struct Parts {
    raw: Vec<f64>,
    /// An empty program on the same event of the same thread.
    empty: Vec<f64>,
    /// The same walk repeated immediately, with warm caches.
    again: Vec<f64>,
}

impl Parts {
    fn measure(profilers: &Profilers, frequency: u32, runs: usize) -> Result<Self> {
        let mut workload = workloads::cpu_bound(20, 16, Functions::Distinct)?.start()?;
        let pid = workload.pid();
        let mut attached = profilers.attach_with(pid, OWN_HZ, WHOLE)?;
        attached.sampling(1)?;
        let program = sampler(attached.pid()).context("our sampler is not loaded")?.id;
        let ours = |times| Companion::Loaded { pid, frequency, program, times };
        let mut parts = Self::default();
        // The first samples arrive while tables are still being loaded.
        mean_ns(&mut workload, ours(1), attached.pid())?;
        for _ in 0..runs {
            let raw = mean_ns(&mut workload, ours(1), attached.pid())?;
            let both = mean_ns(&mut workload, ours(2), attached.pid())?;
            parts.raw.push(raw);
            parts.again.push(2.0 * both - raw);
            let empty = beside(Companion::EmptySample { pid, frequency })?;
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

/// Run time of a profiler's sampler while a companion runs.
fn mean_ns(workload: &mut RunningProgram, what: Companion<'_>, profiler: u32) -> Result<f64> {
    let before = sampler(profiler).context("our sampler is not loaded")?;
    let _beside = beside(what)?;
    workload.window(WINDOW)?;
    let after = sampler(profiler).context("our sampler is not loaded any more")?;
    let runs = (after.runs - before.runs).max(1);
    Ok((after.run_time_ns - before.run_time_ns) as f64 / runs as f64)
}

/// Frequencies of the measurement of parts, with the limit of a sample's cost above an empty program.
const ABOVE_EMPTY: [(u32, f64); 2] = [(99, 8000.0), (999, 4500.0)];

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let _on = StatisticsGuard::new()?;
    for (frequency, target) in ABOVE_EMPTY {
        Parts::measure(profilers, frequency, options.runs)?.print(frequency, target);
    }
    let other = turned_away(profilers, options)?;
    let cost_of = |python, native, functions, context| {
        cost(profilers, options, Stack { python, native, functions, context })
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

/// The kernel verifier's work per program.
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
