//! `cargo xtask demo`: from a bare machine to a flame view of a real process, in one command.
//!
//! Owns: the order of steps. Because: the first five minutes decide whether somebody uses a profiler. Does not:
//! do anything that the printed commands would not do as well.

use crate::workloads::{Running, mixed};
use crate::{bench, sh};
use anyhow::{Context, Result, bail};
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

/// How many contexts are printed.
const HOTTEST: usize = 10;

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    let program = bench::release()?;
    sh::step("start the example workload", "a profiler shows its worth on Python, numpy and C++ together");
    let workload = mixed()?.start()?;
    eprintln!("    it runs as process {}", workload.pid());
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if options.print.is_none() && terminal {
        return live(&program, &workload);
    }
    print(&program, &workload, options.print.unwrap_or(10))
}

/// The live view, until the user leaves it.
fn live(program: &Path, workload: &Running) -> Result<()> {
    sh::step(
        "attach and show where its time goes (q leaves)",
        "attaching to a running process is the main job",
    );
    sh::run(sh::as_root(program, &["TERM", "COLORTERM"]).args(["live", "--pid", &workload.pid().to_string()]))
}

/// A short recording, its hottest contexts, and both exports.
fn print(program: &Path, workload: &Running, seconds: u32) -> Result<()> {
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
    println!("\nThe {HOTTEST} hottest contexts of process {pid}, root first:\n");
    let (lines, share) = hottest(&folded);
    for line in &lines {
        println!("{line}\n");
    }
    println!("{share:.0} % of the time is in these. Every context: demo.folded; as a picture: demo.svg");
    if lines.is_empty() {
        bail!("nothing was sampled")
    }
    let mut report = Command::new(program);
    report.arg("report").arg(&profile).args(["--limit", "10"]).stdin(Stdio::null());
    sh::run(&mut report)
}

/// The contexts with most time, each as its share and its frames, and the share of all of them, percent.
fn hottest(folded: &str) -> (Vec<String>, f64) {
    let parsed = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let mut contexts: Vec<(&str, f64)> =
        parsed.filter_map(|(stack, value)| Some((stack, value.parse().ok()?))).collect();
    contexts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let total: f64 = contexts.iter().map(|(_, value)| value).sum();
    contexts.truncate(HOTTEST);
    let share = |value: f64| 100.0 * value / total;
    let lines = contexts
        .iter()
        .map(|(stack, value)| format!("{:5.1} %  {}", share(*value), stack.replace(';', " > ")));
    (lines.collect(), share(contexts.iter().map(|(_, value)| value).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_contexts_come_first_and_the_rest_is_left_out() {
        let folded: String = (1..=12).map(|n| format!("main;f {n}.py;g {n}\n")).collect();
        let (lines, share) = hottest(&folded);
        assert_eq!(lines.len(), HOTTEST);
        assert_eq!(lines[0], " 15.4 %  main > f 12.py > g");
        assert!((share - 100.0 * 75.0 / 78.0).abs() < 1e-9);
    }
}
