//! Cost of a launch probe for the launching thread.
//!
//! Owns: the figure `launch-cost`. Because: a training loop launches thousands of times a second, and each probe takes
//! time of its thread. Does not: know devices; the driver does nothing, so only the probe is measured.

use super::Options;
use super::figure::{Figure, Target};
use super::profiler::{Profilers, ProgramStatistics, StatisticsGuard, programs};
use crate::sh;
use crate::workloads::{self, Companion, Launcher, beside};
use anyhow::{Context, Result, bail};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The probed function.
const LAUNCH: &str = "cuLaunchKernel";
/// Offset of our probe (`tests/workloads/accelerator.c`): after a comparison of ten bytes, on a jump, which the kernel
/// emulates.
const PROBED_AT: u64 = 10;
/// Launches of one window: a tenth of a second.
const LAUNCHES: u32 = 20_000;
/// Nanoseconds that separate launches without a probe from those with one.
const PROBED_NS: f64 = 100.0;
/// Maximum wait for a probe.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for tables and caches to fill.
const SETTLE: Duration = Duration::from_secs(1);

/// Number of frames of each kind in a launching stack.
#[derive(Clone, Copy)]
struct StackDepth {
    python: u32,
    native: u32,
}

const SIXTY: StackDepth = StackDepth { python: 20, native: 16 };
const THIRTY: StackDepth = StackDepth { python: 6, native: 6 };

/// Waits until launches are probed.
pub(super) fn probed(launcher: &mut Launcher, mut alive: impl FnMut() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    while launcher.native(100, 0)? < PROBED_NS {
        alive()?;
        if begin.elapsed() > ATTACH_TIMEOUT {
            bail!("no probe on launches after {ATTACH_TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(SETTLE);
    Ok(())
}

/// Nanoseconds per launch above the unprobed cost, by window, and the run time of our program in it.
fn ours(
    profilers: &Profilers,
    options: &Options,
    depth: StackDepth,
    how: &[&str],
) -> Result<(Vec<f64>, f64)> {
    let mut launcher = workloads::launch_bound(depth.python, depth.native)?;
    let without = launcher.native(LAUNCHES, 0)?;
    let mut attached = profilers.attach_with(launcher.pid(), options.freq, how)?;
    probed(&mut launcher, || attached.alive())?;
    let mut costs = Vec::new();
    for _ in 0..options.runs {
        costs.push(launcher.native(LAUNCHES, 0)? - without);
    }
    let _on = StatisticsGuard::new()?;
    let busiest = || at_calls(attached.pid()).into_iter().max_by_key(|program| program.runs);
    let before = busiest().context("our probe is not loaded")?;
    launcher.native(LAUNCHES, 0)?;
    let after = busiest().context("our probe is not loaded any more")?;
    attached.alive()?;
    let runs = (after.runs - before.runs).max(1) as f64;
    Ok((costs, (after.run_time_ns - before.run_time_ns) as f64 / runs))
}

/// The profiler's programs that run at calls.
pub(super) fn at_calls(profiler: u32) -> Vec<ProgramStatistics> {
    /// The kernel's number of program type `kprobe`, which includes uprobes.
    const KPROBE: u32 = 2;
    let mut programs = programs(profiler);
    programs.retain(|program| program.kind == KPROBE);
    // A program may be open more than once.
    programs.sort_unstable_by_key(|program| program.id);
    programs.dedup_by_key(|program| program.id);
    programs
}

/// The cost of an empty program at the same probe.
fn empty(options: &Options) -> Result<Vec<f64>> {
    let mut launcher = workloads::launch_bound(1, 1)?;
    let without = launcher.native(LAUNCHES, 0)?;
    let file = launcher.driver().to_owned();
    let offset = offset_in(&file, LAUNCH)? + PROBED_AT;
    let _probe = beside(Companion::EmptyCall { file: &file, offset })?;
    probed(&mut launcher, || Ok(()))?;
    (0..options.runs).map(|_| Ok(launcher.native(LAUNCHES, 0)? - without)).collect()
}

/// File offset of a library's function.
fn offset_in(file: &Path, function: &str) -> Result<u64> {
    let bytes = std::fs::read(file)?;
    let library = object::File::parse(&*bytes)?;
    let symbol = library.dynamic_symbols().find(|symbol| symbol.name() == Ok(function));
    let address = symbol.with_context(|| format!("no {function} in {}", file.display()))?.address();
    let segment = library.segments().find(|of| (of.address()..of.address() + of.size()).contains(&address));
    let segment = segment.context("a function lies in a segment")?;
    Ok(address - segment.address() + segment.file_range().0)
}

/// The cost of a peer that only counts, at the function's entry, which is its default.
fn counted(options: &Options, bpftrace: &Path) -> Result<Vec<f64>> {
    let mut launcher = workloads::launch_bound(1, 1)?;
    let without = launcher.native(LAUNCHES, 0)?;
    let mut peer = Peer::start(bpftrace, launcher.driver())?;
    probed(&mut launcher, || peer.alive())?;
    (0..options.runs).map(|_| Ok(launcher.native(LAUNCHES, 0)? - without)).collect()
}

struct Peer(Child);

impl Peer {
    fn start(bpftrace: &Path, driver: &Path) -> Result<Self> {
        let program = format!("uprobe:{}:{LAUNCH} {{ @launches = count(); }}", driver.display());
        let mut command = Command::new(bpftrace);
        command.args(["-e", &program]).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot start bpftrace")?))
    }

    fn alive(&mut self) -> Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("bpftrace ended early ({status})"),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let peer = match sh::which("bpftrace").map(|bpftrace| counted(options, &bpftrace)) {
        Some(Ok(costs)) => Some(costs),
        Some(Err(error)) => {
            eprintln!("    note: bpftrace: {error:#}");
            None
        }
        None => {
            eprintln!("    note: no bpftrace here, so it is not compared with");
            None
        }
    };
    let empty = empty(options)?;
    let cases = [
        ("60 frames, Python and native", SIXTY, &[][..], 3000.0),
        ("30 frames, Python and native", THIRTY, &[], 2500.0),
        (
            "60 frames, without native ones",
            SIXTY,
            &["--context", "python,kernel", "--probe", "operators"],
            2500.0,
        ),
        (
            "30 frames, without native ones",
            THIRTY,
            &["--context", "python,kernel", "--probe", "operators"],
            2500.0,
        ),
        ("without a stack", SIXTY, &["--launch-stacks", "off"], 800.0),
    ];
    for (case, depth, how, target) in cases {
        let (costs, program_ns) = ours(profilers, options, depth, how)?;
        let mut figure = Figure::new("launch-cost", case, "ns", costs)
            .target(Target::AtMost(target))
            .note("of_that_in_our_program_ns", program_ns.round())
            .peer("empty uprobe", &empty);
        if let Some(costs) = &peer {
            figure = figure.peer("bpftrace count()", costs);
        }
        figure.print();
    }
    Ok(())
}
