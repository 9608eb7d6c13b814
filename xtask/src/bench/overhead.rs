//! Slowdown of a CPU-bound Python and C++ program while profiled, beside other profilers.
//!
//! Owns: the figure `overhead`. Because: an always-on profiler must not be noticeable. Windows with and without a
//! profiler alternate on one running process, so that a busy machine disturbs both alike; the speed is counted per
//! second of the program's own CPU time (the timer's interrupts included) and per second of wall time.

use super::Options;
use super::figure::{Figure, Target, median};
use super::profiler::{Kind, Profilers};
use crate::workloads::{self, RunningProgram, Window};
use anyhow::Result;
use std::time::Duration;

/// Time after a profiler's start until it counts as attached.
const SETTLE: Duration = Duration::from_secs(2);

/// Work per second in a window.
#[derive(Clone, Copy)]
struct Speed {
    by_cpu: f64,
    by_wall: f64,
}

impl Speed {
    fn of(window: &Window) -> Self {
        let Window { first, last } = window;
        let work = (last.iterations - first.iterations) as f64;
        let seconds = |from: u64, to: u64| (to - from) as f64 / 1e9;
        Self {
            by_cpu: work / seconds(first.cpu_ns, last.cpu_ns),
            by_wall: work / seconds(first.wall_ns, last.wall_ns),
        }
    }
}

/// Measures a window with the profiler.
fn profiled(
    workload: &mut RunningProgram,
    profilers: &Profilers,
    kind: Kind,
    options: &Options,
) -> Result<Speed> {
    let mut attached = profilers.attach(kind, workload.pid(), options.freq)?;
    std::thread::sleep(SETTLE);
    let speed = Speed::of(&workload.window(Duration::from_secs(options.seconds))?);
    attached.alive()?;
    attached.finish()?;
    Ok(speed)
}

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let mut workload = workloads::cpu_bound(20, 16, workloads::Functions::Distinct)?.start()?;
    let kinds: Vec<Kind> =
        std::iter::once(Kind::Ours).chain(Kind::PEERS).filter(|kind| profilers.has(*kind)).collect();
    let mut ratios = vec![(Vec::new(), Vec::new()); kinds.len()];
    let alone = |workload: &mut RunningProgram| {
        Ok::<_, anyhow::Error>(Speed::of(&workload.window(Duration::from_secs(options.seconds))?))
    };
    let mut before = alone(&mut workload)?;
    for round in 1..=options.runs {
        for (kind, (by_cpu, by_wall)) in kinds.iter().zip(&mut ratios) {
            let with = profiled(&mut workload, profilers, *kind, options);
            // The machine's speed drifts, so compare with the mean of the windows before and after.
            let after = alone(&mut workload)?;
            match with {
                Ok(with) => {
                    by_cpu.push((before.by_cpu + after.by_cpu) / 2.0 / with.by_cpu);
                    by_wall.push((before.by_wall + after.by_wall) / 2.0 / with.by_wall);
                }
                // A failing peer does not invalidate our own figure.
                Err(error) if *kind != Kind::Ours => eprintln!("    note: {}: {error:#}", kind.name()),
                Err(error) => return Err(error),
            }
            before = after;
        }
        eprintln!("    round {round} of {}", options.runs);
    }
    let target = Target::AtMost(if options.freq <= 99 { 1.005 } else { 1.03 });
    let (by_cpu, by_wall) = ratios.remove(0);
    let mut figure = Figure::new("overhead", format!("{} Hz, by CPU time", options.freq), "ratio", by_cpu);
    figure = figure.target(target).note("by_wall_time", median(&by_wall));
    for (kind, (by_cpu, by_wall)) in kinds[1..].iter().zip(&ratios) {
        figure =
            figure.peer(kind.name(), by_cpu).note(&format!("{} by wall time", kind.name()), median(by_wall));
    }
    figure.print();
    Ok(())
}
