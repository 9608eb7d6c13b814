//! Cost of the analysis of a profile with a million contexts: by the command and in Python; and of a growing profile.
//!
//! Owns: the figures `analyze`. Because: users who wait for an answer ask fewer questions. Does not: check the rules'
//! answers; tests do.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::figure::{Figure, Target, in_seconds};
use super::{Options, rates};
use crate::{module, sh};

/// Contexts of the profile.
const NODES: u32 = 1_000_000;
/// Seconds of a recording with live rules.
const LIVE_SECONDS: u64 = 30;
/// Runs a command, and prints its wall time and CPU time in seconds, and its peak memory.
const RUN: &str = "
import json, os, resource, subprocess, sys, time
begin = time.monotonic()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
took = time.monotonic() - begin
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({'wall': took, 'cpu': used.ru_utime + used.ru_stime, 'kib': used.ru_maxrss}))
";
/// Opens a profile, builds a table of its contexts and walks them; prints the seconds of each.
const IN_PYTHON: &str = "
import json, sys, time
import deepctx
begin = time.monotonic()
profile = deepctx.open(sys.argv[1])
opened = time.monotonic()
table = profile.table('nodes')
tabled = time.monotonic()
total = sum(node.exclusive() for node in profile.walk())
walked = time.monotonic()
assert total == profile.root.inclusive() and len(table) == len(profile)
print(json.dumps({'open': opened - begin, 'table': tabled - opened, 'walk': walked - tabled}))
";

/// Measures stored and live analysis.
pub(super) fn run(program: &Path, options: &Options) -> Result<()> {
    let maker = rates::example("deepctx-storage", "training_profile")?;
    let profile = sh::target_dir().join("bench/training.dctx");
    sh::remove(&profile)?;
    std::fs::create_dir_all(profile.parent().unwrap_or(Path::new(".")))?;
    sh::run(Command::new(maker).arg(NODES.to_string()).arg(&profile))?;
    by_the_command(program, &profile, options)?;
    in_python(&profile, options)?;
    sh::remove(&profile)?;
    live(program, options)
}

/// Rules during a capture, as measured by the program itself: they share a thread with the pipeline.
fn live(program: &Path, options: &Options) -> Result<()> {
    let profile = sh::target_dir().join("bench/findings.dctx");
    // Rules first run after ten seconds.
    let seconds = options.seconds.max(LIVE_SECONDS);
    let (mut shares, mut times, mut contexts) = (Vec::new(), 0, 0);
    for _ in 0..options.runs {
        sh::remove(&profile)?;
        let mut command = Command::new(program);
        command
            .args(["record", "-vv", "--off-cpu", "--duration", &format!("{seconds}s"), "-o"])
            .arg(&profile);
        // A finding that never occurs keeps the rules running until the end.
        command.args(["--on-finding", "lost-events:high=stop", "--", "python3"]);
        command.arg(sh::root().join("tests/workloads/stdlib_mix.py")).arg((seconds + 1).to_string());
        let said = command.output().context("the recording cannot be started")?.stderr;
        let said = String::from_utf8_lossy(&said);
        let runs: Vec<RuleRun> = said.lines().filter_map(RuleRun::of_line).collect();
        anyhow::ensure!(!runs.is_empty(), "no rule ran: {said}");
        times += runs.len();
        contexts = contexts.max(runs.iter().map(|run| run.contexts).max().unwrap_or(0));
        shares.push(runs.iter().map(|run| run.seconds).sum::<f64>() / seconds as f64 * 100.0);
    }
    sh::remove(&profile)?;
    let figure = Figure::new("analyze", "live findings, of one CPU", "%", shares).target(Target::AtMost(1.0));
    figure.note("contexts", contexts).note("times", times).print();
    Ok(())
}

/// One run of the rules over a growing profile.
#[derive(Debug, PartialEq)]
struct RuleRun {
    seconds: f64,
    contexts: u64,
}

impl RuleRun {
    /// Parses a log line: `rules looked for findings cost=1.5ms pause=2s contexts=700`.
    fn of_line(line: &str) -> Option<Self> {
        let (_, fields) = line.split_once("rules looked for findings")?;
        let field = |name: &str| {
            fields.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        Some(RuleRun { seconds: in_seconds(field("cost")?)?, contexts: field("contexts")?.parse().ok()? })
    }
}

fn by_the_command(program: &Path, profile: &Path, options: &Options) -> Result<()> {
    for (case, words, seconds) in [("analyze", "analyze", Some(2.0)), ("report", "report", None)] {
        let mut command = Command::new("python3");
        command.args(["-c", RUN]).arg(program).arg(words).arg(profile).args(["--format", "json"]);
        let runs = lines(&mut command, options.runs)?;
        let each = |field: &str| runs.iter().filter_map(|run| run[field].as_f64()).collect::<Vec<_>>();
        let memory = each("kib").into_iter().map(|kib| kib / 1024.0).collect();
        let mut figures = [
            Figure::new("analyze", format!("{case}, wall time"), "s", each("wall")),
            Figure::new("analyze", format!("{case}, most memory"), "MiB", memory),
        ];
        if let Some(seconds) = seconds {
            let [wall, memory] = figures;
            figures = [wall.target(Target::AtMost(seconds)), memory.target(Target::AtMost(500.0))];
        }
        figures.into_iter().for_each(|figure| figure.note("contexts", NODES).print());
        Figure::new("analyze", format!("{case}, CPU time"), "s", each("cpu")).print();
    }
    Ok(())
}

fn in_python(profile: &Path, options: &Options) -> Result<()> {
    let package = module::build("dist")?;
    let mut python = Command::new("python3");
    python.args(["-c", IN_PYTHON]).arg(profile).env("PYTHONPATH", package.parent().unwrap_or(Path::new(".")));
    let runs = lines(&mut python, options.runs)?;
    for (field, most) in [("open", 0.5), ("table", 0.2), ("walk", 1.0)] {
        let seconds = runs.iter().filter_map(|run| run[field].as_f64()).collect();
        let figure = Figure::new("analyze", format!("Python, {field}"), "s", seconds);
        figure.target(Target::AtMost(most)).note("contexts", NODES).print();
    }
    Ok(())
}

/// The JSON output of several runs.
fn lines(command: &mut Command, runs: usize) -> Result<Vec<Value>> {
    (0..runs).map(|_| serde_json::from_str(&sh::output(command)?).context("a run printed no JSON")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_from_the_log() {
        let check = |cost: &str, seconds: f64| {
            let line = format!("DEBUG rules looked for findings cost={cost} pause=2s contexts=700");
            assert_eq!(RuleRun::of_line(&line), Some(RuleRun { seconds, contexts: 700 }));
        };
        check("250ns", 250.0 * 1e-9);
        check("1.5µs", 1.5 * 1e-6);
        check("12.25ms", 12.25 * 1e-3);
        check("2s", 2.0);
        assert_eq!(RuleRun::of_line("DEBUG conclusions drawn cost=1ms pause=2s contexts=7"), None);
        assert_eq!(RuleRun::of_line("rules looked for findings cost=much contexts=7"), None);
    }
}
