//! What it costs to conclude something from a profile with a million contexts: by the command, and in Python.
//!
//! Owns: the figures `analyze`. Because: whoever waits for an answer asks fewer questions. Does not: judge the rules'
//! answers; tests do.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::figure::{Figure, Target};
use super::{Options, rates};
use crate::{module, sh};

/// Contexts of the profile.
const NODES: u32 = 1_000_000;
/// Runs a command, and prints the seconds that it took, those that it computed, and the most memory it had.
const RUN: &str = "
import json, os, resource, subprocess, sys, time
begin = time.monotonic()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
took = time.monotonic() - begin
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({'wall': took, 'cpu': used.ru_utime + used.ru_stime, 'kib': used.ru_maxrss}))
";
/// Opens a profile, makes a table of its contexts and walks them; prints the seconds that each took.
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

/// Measures both.
pub(super) fn run(program: &Path, options: &Options) -> Result<()> {
    let maker = rates::example("deepctx-storage", "training_profile")?;
    let profile = sh::target_dir().join("bench/training.dctx");
    sh::remove(&profile)?;
    std::fs::create_dir_all(profile.parent().unwrap_or(Path::new(".")))?;
    sh::run(Command::new(maker).arg(NODES.to_string()).arg(&profile))?;
    by_the_command(program, &profile, options)?;
    in_python(&profile, options)?;
    sh::remove(&profile)
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

/// What each of several runs prints.
fn lines(command: &mut Command, runs: usize) -> Result<Vec<Value>> {
    (0..runs).map(|_| serde_json::from_str(&sh::output(command)?).context("a run printed no JSON")).collect()
}
