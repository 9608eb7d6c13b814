//! `cargo xtask bench NAME`: the figures that the project promises, one JSON line each.
//!
//! Owns: the list of figures and their options. Because: a promise is worth only what one command can verify. Does not:
//! judge absolute times on a busy machine; costs are medians over runs, and ratios to peers of the same run.

mod analyze;
mod attach;
mod completeness;
mod figure;
mod launch_cost;
mod launch_overhead;
mod memory;
mod operator_cost;
mod overhead;
mod overload;
mod page;
mod peer_cost;
mod profiler;
mod rates;
mod recording;
mod report;
mod sample_cost;
pub(crate) mod soak;
mod trace;
mod trace_overhead;

use crate::{setup, sh};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Figures to measure.
    #[arg(required = true, value_enum)]
    figures: Vec<Name>,
    /// Samples per second and CPU, where the figure samples.
    #[arg(long, default_value_t = 99)]
    freq: u32,
    /// Runs that a figure is the median of.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Length of one window, where the figure has windows.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Of `completeness`: only programs whose name contains this.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// An already built deepctx-bpf, instead of a fresh build with the profile `dist`.
    #[arg(long, value_name = "FILE")]
    profiler: Option<PathBuf>,
}

/// The figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    /// In-kernel cost of one sample, and of each frame.
    SampleCost,
    /// Slowdown of a CPU-bound program, beside py-spy and perf.
    Overhead,
    /// What a sample costs the profiler and the program, beside py-spy.
    PeerCost,
    /// Share of samples whose stack reaches the thread's start, on programs of many compilers and runtimes.
    Completeness,
    /// Time to the first complete stack, torch and numpy loaded, cold and warm.
    Attach,
    /// Whether the ledger adds up when the reader stands still.
    Overload,
    /// Cost of a probed launch to its thread, beside bpftrace.
    LaunchCost,
    /// Slowdown of a loop that launches ten thousand times a second.
    LaunchOverhead,
    /// Slowdown of a training loop of small operators, beside torch's own profiler.
    OperatorCost,
    /// Memory of the profiler, its growth, and what each further process takes.
    Memory,
    /// Unwind rows built per second on one core.
    UnwindRows,
    /// Stacks per second through the pipeline on one core.
    Pipeline,
    /// Redraw, fold and store of a tree with a million nodes.
    Tree,
    /// Rules, a report and the Python module on a profile with a million contexts.
    Analyze,
    /// Single events per second: written, read, looked into; their bytes and memory.
    Trace,
    /// Slowdown of a program that launches fifty thousand times a second, with and without a trace; what is lost of it.
    TraceOverhead,
    /// Frames per second of a page with a million events, in Chromium.
    Page,
    /// Size of a recording, and its way to folded stacks, beside perf.
    Recording,
}

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.runs == 0 || options.seconds == 0 {
        bail!("--runs and --seconds must be at least 1");
    }
    for name in &options.figures {
        let part = match name {
            Name::UnwindRows => rates::unwind_rows(options),
            Name::Pipeline => rates::pipeline(options),
            Name::Tree => rates::tree(options),
            Name::Trace => trace::run(options),
            _ => continue,
        };
        part.with_context(|| format!("the figure {name:?} could not be measured"))?;
    }
    if options
        .figures
        .iter()
        .all(|name| matches!(name, Name::UnwindRows | Name::Pipeline | Name::Tree | Name::Trace))
    {
        return Ok(());
    }
    let ours = match &options.profiler {
        Some(file) => file.clone(),
        None => product(Profile::Dist)?,
    };
    if !sh::is_root() {
        return again_as_root(&ours);
    }
    let profilers = profiler::Profilers::new(&ours)?;
    for name in &options.figures {
        eprintln!("==> {name:?}");
        match name {
            Name::SampleCost => sample_cost::run(&profilers, options),
            Name::Overhead => overhead::run(&profilers, options),
            Name::PeerCost => peer_cost::run(&profilers, options),
            Name::Completeness => completeness::run(&profilers, options),
            Name::Attach => attach::run(&profilers, options),
            Name::Overload => overload::run(&profilers, options),
            Name::LaunchCost => launch_cost::run(&profilers, options),
            Name::LaunchOverhead => launch_overhead::run(&profilers, options),
            Name::Memory => memory::run(&profilers, options),
            Name::OperatorCost => operator_cost::run(&profilers, options),
            Name::Recording => recording::run(&profilers, options),
            Name::Analyze => analyze::run(&ours, options),
            Name::Page => page::run(&ours, options),
            Name::TraceOverhead => trace_overhead::run(&ours, options),
            Name::UnwindRows | Name::Pipeline | Name::Tree | Name::Trace => continue,
        }
        .with_context(|| format!("the figure {name:?} could not be measured"))?;
    }
    Ok(())
}

/// Optimization profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Built by the README's command.
    Release,
    /// Distributed builds, for which the figures are promised: with optimization across crates.
    Dist,
}

impl Profile {
    /// Cargo's name of the profile, and its output folder.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }
}

/// Builds the product; returns the program's path.
pub(crate) fn product(profile: Profile) -> Result<PathBuf> {
    setup::run(&setup::Options { yes: true, tests: true })?;
    sh::step(
        &format!("build deepctx-bpf ({})", profile.name()),
        "figures of an unoptimized program mean nothing",
    );
    sh::run(sh::command("cargo").args(["build", "--locked", "--profile", profile.name()]))?;
    Ok(sh::target_dir().join(profile.name()).join("deepctx-bpf"))
}

/// Runs this program again as root, for the kernel's statistics and other users' processes; building needs no root.
fn again_as_root(ours: &std::path::Path) -> Result<()> {
    sh::step("go on as root", "attaching and the kernel's statistics need it");
    let mut command = sh::own_program_as_root()?;
    command.args(std::env::args_os().skip(1)).arg("--profiler").arg(ours);
    sh::run(&mut command)
}
