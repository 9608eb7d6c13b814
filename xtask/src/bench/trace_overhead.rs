//! Overhead of a trace of single events on the traced program, and whether the trace is complete.
//!
//! Owns: the figure `trace-overhead`. Because: a program that launches fifty thousand kernels a second sends as many
//! records of calls, returns, ids and kernels, and all losses must be counted. Does not: need a device: the program
//! runs on the simulated one, which counts itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use super::Options;
use super::figure::{Figure, Target, median};
use crate::{sh, sim, workloads};

/// Launches per second of the traced program.
const RATE: &str = "50000";
/// Modes of the profiler, with their options. Not with operators (`--trace-level context`): the program has none.
const CASES: [(&str, &[&str]); 5] = [
    ("without a trace", &[]),
    ("launches", &["--trace", "10m", "--trace-level", "launches"]),
    ("launches, 100 stacks/s", &["--trace", "10m", "--trace-level", "launches", "--launch-stacks", "100/s"]),
    ("calls", &["--trace", "10m", "--trace-level", "calls"]),
    ("calls, 100 stacks/s", &["--trace", "10m", "--trace-level", "calls", "--launch-stacks", "100/s"]),
];

/// Slowdown of a program with fifty thousand launches per second on the simulated device. Runs of all modes alternate,
/// so that other load affects all equally.
pub(super) fn run(profiler: &Path, options: &Options) -> Result<()> {
    sim::run()?;
    let bench = Bench {
        profiler,
        program: workloads::gpu_launch()?,
        output: sh::target_dir().join("bench/trace/run.dctx"),
        seconds: options.seconds + 2,
    };
    std::fs::create_dir_all(bench.output.with_file_name(""))?;
    let mut alone = Vec::new();
    let mut traced: [Vec<Run>; CASES.len()] = Default::default();
    for round in 1..=options.runs {
        alone.push(bench.alone()?);
        for (runs, (_, words)) in traced.iter_mut().zip(CASES) {
            runs.push(bench.traced(words)?);
        }
        eprintln!("    round {round} of {}", options.runs);
    }
    for (runs, (case, words)) in traced.iter().zip(CASES) {
        let each = |of: &dyn Fn(&Run) -> f64| runs.iter().map(of).collect::<Vec<f64>>();
        let ratios = |of: fn(&Run) -> f64| -> Vec<f64> {
            runs.iter().zip(&alone).map(|(with, without)| of(with) / of(without)).collect()
        };
        let case = format!("50 000 launches/s on the simulated device, {case}");
        Figure::new("trace-overhead", case.as_str(), "ratio", ratios(|run| run.wall_ns))
            .target(Target::AtMost(1.10))
            .note("launches_per_second", median(&each(&|run| 1e9 / run.wall_ns)).round())
            .print();
        Figure::new("trace-overhead", format!("{case}: CPU time"), "ratio", ratios(|run| run.cpu_ns)).print();
        if words.is_empty() {
            continue;
        }
        // Below zero, losses were counted twice, or were of more than kernels: either must be looked at.
        let difference = |run: &Run| run.launched - run.kernels - run.lost;
        let unaccounted = each(&|run| difference(run).abs());
        Figure::new(
            "trace-overhead",
            format!("{case}: neither recorded nor counted as lost"),
            "launches",
            unaccounted,
        )
        .target(Target::AtMost(0.0))
        .note("lost_more_than_missing", each(&difference).iter().any(|launches| *launches < 0.0))
        .note("launched", median(&each(&|run| run.launched)))
        .note("lost_and_counted", median(&each(&|run| run.lost)))
        .note("bytes_per_launch", median(&each(&|run| run.bytes / run.launched)))
        .print();
    }
    Ok(())
}

struct Bench<'b> {
    profiler: &'b Path,
    program: PathBuf,
    output: PathBuf,
    seconds: u64,
}

/// One run of the program.
#[derive(Default)]
struct Run {
    /// Wall time per launch.
    wall_ns: f64,
    cpu_ns: f64,
    /// Kernels launched, by the program's own count.
    launched: f64,
    /// Kernels in the trace.
    kernels: f64,
    /// Kernel records counted as lost, for any reason.
    lost: f64,
    /// Size of the trace on disk in bytes.
    bytes: f64,
}

impl Bench<'_> {
    fn alone(&self) -> Result<Run> {
        self.launched(Command::new("env"), &[])
    }

    fn traced(&self, words: &[&str]) -> Result<Run> {
        sh::remove(&self.output)?;
        let mut command = Command::new(self.profiler);
        command.args(["record", "-o"]).arg(&self.output).args(words).args(["--", "env"]);
        command.arg(format!("CUDA_INJECTION64_PATH={}", sim::collector().display()));
        let run = self.launched(command, &["--attended"])?;
        if words.is_empty() {
            return Ok(run);
        }
        let tables = self.said(&["timeline"])?;
        let trace = &tables["traces"][0];
        let sums = trace["sums"].as_array().map_or(&[][..], Vec::as_slice);
        let kernels = sums.iter().find(|row| row["kind"] == "kernel").map_or(0, |row| number(&row["count"]));
        let gaps = trace["gaps"].as_array().map_or(&[][..], Vec::as_slice);
        let is_lost = |row: &&Value| row["reason"].as_str().is_some_and(|key| LOST.contains(&key));
        let of_trace: u64 = gaps.iter().filter(is_lost).map(|row| number(&row["count"])).sum();
        let report = self.said(&["report"])?;
        let bytes = sh::files_below(&self.output, ".parquet")
            .into_iter()
            .filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("trace-")));
        let size = |file: PathBuf| file.metadata().map_or(0, |data| data.len());
        Ok(Run {
            kernels: kernels as f64,
            lost: (of_trace + lost_before_the_trace(&report)) as f64,
            bytes: bytes.map(size).sum::<u64>() as f64,
            ..run
        })
    }

    /// A command's JSON output for the profile.
    fn said(&self, words: &[&str]) -> Result<Value> {
        let mut command = Command::new(self.profiler);
        command.args(words).arg(&self.output).args(["--format", "json"]);
        Ok(serde_json::from_str(&sh::output(&mut command)?)?)
    }

    /// Runs the program, under a profiler or alone.
    fn launched(&self, mut command: Command, words: &[&str]) -> Result<Run> {
        let libraries = sim::folder().join("cuda13");
        command.arg(format!("LD_LIBRARY_PATH={}", libraries.display())).arg(&self.program);
        command.args(["--threads", "2", "--rate", RATE, "--seconds", &self.seconds.to_string()]).args(words);
        let text = sh::output(&mut command)?;
        let numbers =
            |line: &str| line.split(' ').map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
        let ticks: Vec<Vec<f64>> =
            text.lines().filter_map(|line| numbers(line.strip_prefix("tick ")?)).collect();
        let (Some(first), Some(last)) = (ticks.first(), ticks.last()) else { bail!("no tick in {text:?}") };
        let launches = last[0] - first[0];
        if launches <= 0.0 {
            bail!("it launched nothing between its ticks: {text:?}");
        }
        let of_kernel =
            |line: &str| line.strip_prefix("launched kernel")?.rsplit(' ').next()?.parse::<f64>().ok();
        Ok(Run {
            wall_ns: (last[2] - first[2]) / launches,
            cpu_ns: (last[1] - first[1]) / launches,
            launched: text.lines().filter_map(of_kernel).sum(),
            ..Run::default()
        })
    }
}

/// Reasons why recorded events are missing in a trace.
const LOST: [&str; 5] = [
    "trace-queue-full",
    "trace-writer-behind",
    "trace-without-times",
    "trace-unreadable",
    "trace-lost-unfinished",
];

/// Kernels that never reached the trace, by the ledger: received launches without an activity, and lost calls except
/// those whose kernel arrived without them. Lost calls may include some that launch nothing.
fn lost_before_the_trace(report: &Value) -> u64 {
    let stages = report["ledger"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |key: &str| -> u64 { stages.iter().map(|stage| number(&stage["gaps"][key])).sum() };
    let calls = of("call-lost").saturating_sub(of("activity-without-launch"));
    calls + of("launch-without-activity") + of("expired")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
