//! Slowdown of a launch-bound loop.
//!
//! Owns: the part `slowdown`. Because: such figures compare only within the same process and minute. Does not: judge
//! them, except against the project's target.

use super::row::Row;
use super::stage::{RunningProgram, Stage};
use anyhow::{Context, Result};

const PART: &str = "slowdown";
/// Rounds; the figure is their median.
const ROUNDS: usize = 5;

/// Nanoseconds of a window.
fn window(running: &mut RunningProgram, launches: u32) -> Result<f64> {
    let said = running.tell(&format!("loop {launches}"))?;
    said["ns"].as_f64().context("the loop printed no time")
}

/// The same with our program attached.
fn watched(stage: &Stage, running: &mut RunningProgram, launches: u32, words: &[&str]) -> Result<f64> {
    let attached = stage.attach("slowdown", running, words)?;
    // Fills tables and caches.
    window(running, launches / 4)?;
    let took = window(running, launches)?;
    stage.detach(attached)?;
    Ok(took)
}

/// The same with a profiler within the program; `None` without one.
fn profiled(stage: &Stage, running: &mut RunningProgram, launches: u32) -> Result<f64> {
    let trace = stage.file("slowdown.trace.json");
    let said = running.tell(&format!("profiled {} loop {launches}", trace.display()))?;
    said["ns"].as_f64().context("the loop printed no time")
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

pub(super) fn run(stage: &Stage) -> Result<Vec<Row>> {
    let bare = stage.no_torch.is_some();
    let launches = if stage.simulated { 2_000 } else { 50_000 };
    let rounds = if stage.simulated { 1 } else { ROUNDS };
    let mut plain = stage.start(bare, false)?;
    let mut injected = stage.start(bare, true)?;
    let mut of = [const { Vec::new() }; 6];
    // The first windows load, compile and warm up.
    window(&mut plain, launches)?;
    window(&mut injected, launches)?;
    for _ in 0..rounds {
        let before = window(&mut plain, launches)?;
        let measured = [
            watched(stage, &mut plain, launches, &[])?,
            watched(stage, &mut plain, launches, &["--launch-stacks", "off"])?,
            profiled(stage, &mut plain, launches)?,
        ];
        let base = (before + window(&mut plain, launches)?) / 2.0;
        of[0].push(base / f64::from(launches));
        measured.into_iter().zip(&mut of[1..4]).for_each(|(took, of)| of.push(took / base));
        let before = window(&mut injected, launches)?;
        let took = watched(stage, &mut injected, launches, &[])?;
        let idle = (before + window(&mut injected, launches)?) / 2.0;
        of[4].push(took / idle);
        of[5].push(idle / base);
    }
    let [each, stacks, counted, within, collected, idle] = of.map(median);
    let added = |ratio: f64| format!("{ratio:.2}×, {:+.2} µs a launch", (ratio - 1.0) * each / 1000.0);
    let program = if bare { "driver" } else { "PyTorch" };
    let profiler = if bare { "a client of CUPTI within" } else { "torch.profiler" };
    let figure = |what: &str, got: String| Row::figure(PART, format!("{program}: {what}"), got);
    Ok(vec![
        figure("bare", format!("{:.2} µs a launch, {rounds} × {launches}", each / 1000.0)),
        figure("T0, every stack", added(stacks)),
        figure("T0, no stacks", added(counted)),
        figure("T2, every stack", added(collected)),
        figure("collector loaded, nobody listens", added(idle)),
        figure(profiler, added(within)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 9.0]), 3.0);
        assert_eq!(median(vec![3.0, 1.0]), 2.0);
        assert!(median(Vec::new()).is_nan());
    }
}
