//! `cargo xtask demo`: from a bare machine to a flame view of a real process, in one command.
//!
//! Owns: the order of steps. Because: the first five minutes decide whether somebody uses a profiler. Does not: do
//! anything beyond the printed commands.

use crate::workloads::{Device, RunningProgram, training};
use crate::{bench, sh};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Stdio};

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Record for so many seconds and print the hottest contexts, even in a terminal.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10")]
    print: Option<u32>,
}

/// Number of printed functions and contexts.
const HOTTEST: usize = 10;

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !sh::target_dir().join(bench::Profile::Release.name()).join("deepctx-bpf").exists() {
        eprintln!(
            "the first demo installs what is missing and builds the program: some ten minutes on two CPUs"
        );
    }
    let program = bench::product(bench::Profile::Release)?;
    let device = Device::of_this_machine();
    let where_it_runs = match device {
        Device::Real => "this machine has a GPU, and a Python training loop runs on it",
        Device::Simulated => "this machine has no GPU: a Python training loop runs on the simulated device",
    };
    sh::step("start the example workload", where_it_runs);
    let workload = training(device)?.start()?;
    eprintln!("    it runs as process {}", workload.pid());
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if options.print.is_none() && terminal {
        return live(&program, &workload);
    }
    print(&program, &workload, options.print.unwrap_or(10))
}

/// Runs the live view until the user quits.
fn live(program: &Path, workload: &RunningProgram) -> Result<()> {
    sh::step(
        "attach and show where its time goes (q leaves)",
        "attaching to a running process is the main job",
    );
    sh::run(sh::as_root(program, &sh::kept(&["TERM", "COLORTERM"])).args([
        "live",
        "--pid",
        &workload.pid().to_string(),
    ]))
}

/// A short recording, its hottest contexts, and both exports.
fn print(program: &Path, workload: &RunningProgram, seconds: u32) -> Result<()> {
    sh::step(&format!("attach and record for {seconds} s"), "there is no terminal for the live view");
    let profile = sh::target_dir().join("demo.dctx");
    let (pid, time) = (workload.pid().to_string(), format!("{seconds}s"));
    let mut record = sh::as_root(program, &[]);
    record.args(["record", "--force", "--pid", &pid, "--duration", &time, "-o"]).arg(&profile);
    sh::run(&mut record)?;
    for format in ["folded", "svg"] {
        let mut export = Command::new(program);
        export.arg("export").arg(&profile).args(["--force", "--format", format, "-o"]);
        sh::run(export.arg(sh::root().join(format!("demo.{format}"))))?;
    }
    let folded =
        std::fs::read_to_string(sh::root().join("demo.folded")).context("cannot read demo.folded")?;
    if folded.trim().is_empty() {
        bail!("nothing was sampled: the workload got no CPU time in {seconds} s");
    }
    // Where the CPU time goes, then the device time.
    let mut report = Command::new(program);
    let report = sh::output(report.arg("report").arg(&profile).args(["--format", "json"]))?;
    let report: Value = serde_json::from_str(&report).context("the report is no JSON")?;
    let known = |name: &&str| {
        report["metrics"].as_array().is_some_and(|all| all.iter().any(|it| it["metric"] == *name))
    };
    for metric in ["cpu-time", "gpu-time"].iter().filter(|name| known(name)) {
        let mut report = Command::new(program);
        report.arg("report").arg(&profile).args(["--metric", metric, "--limit", &HOTTEST.to_string()]);
        sh::run(report.stdin(Stdio::null()))?;
    }
    sh::step_is_over();
    println!("\nEvery context: demo.folded. As a picture, for the browser: demo.svg");
    Ok(())
}
