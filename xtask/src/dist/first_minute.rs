//! The first minute: the time from a bare system to a flame graph of a running training, with each package and with
//! other profilers.
//!
//! Owns: the bare machine (a fresh Debian without Rust), the commands that its user types, and their times. Because:
//! users who compare profilers stop at the first that shows something. Does not: judge the pictures, or the times of
//! others; the figures are in docs/packages.md.

use super::Packages;
use super::chroot::Release;
use crate::workloads;
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

/// Debian release used for the test.
const SUITE: &str = "bookworm";
/// Preinstalled on a training machine: Python with pip, and trusted certificates for package downloads.
const GIVEN: &str = "python3-venv ca-certificates";
/// Recording time of each tool.
const SECONDS: u32 = 10;
/// Name of our own rows, which must have their picture within a minute.
const OURS: &str = "deepctx-bpf";
const PROMISED: Duration = Duration::from_secs(60);
/// Maximum time of each tool to its first picture.
const LONGEST: Duration = Duration::from_secs(120);

/// A profiler, and how it is installed.
struct Tool {
    name: &'static str,
    /// Commands to type; `PID` is the process, `FILE` the package.
    commands: Vec<String>,
    /// Path of the resulting picture.
    picture: &'static str,
}

impl Tool {
    fn ours(name: &'static str, install: &[&str], program: &str) -> Self {
        let record = format!("{program} record --pid PID --duration {SECONDS}s -o /tmp/run.dctx");
        let export = format!("{program} export /tmp/run.dctx --format svg -o /tmp/run.svg");
        let install = install.iter().map(|&command| command.to_owned());
        Self { name, commands: install.chain([record, export]).collect(), picture: "/tmp/run.svg" }
    }

    fn all() -> [Self; 4] {
        let seconds = SECONDS.to_string();
        let own = |commands: &[&str]| commands.iter().map(|text| text.replace("SECONDS", &seconds)).collect();
        [
            Self::ours("deepctx-bpf, by deb", &["dpkg -i FILE"], "deepctx-bpf"),
            Self::ours(
                "deepctx-bpf, by wheel",
                &["python3 -m venv /tmp/v", "/tmp/v/bin/pip install -q FILE"],
                "/tmp/v/bin/deepctx-bpf",
            ),
            Self {
                name: "py-spy, by wheel",
                commands: own(&[
                    "python3 -m venv /tmp/p",
                    "/tmp/p/bin/pip install -q py-spy",
                    "/tmp/p/bin/py-spy record --pid PID --duration SECONDS --native -o /tmp/spy.svg",
                ]),
                picture: "/tmp/spy.svg",
            },
            Self {
                name: "perf, by deb",
                commands: own(&[
                    "apt-get update -qq",
                    "apt-get install -y -qq linux-perf",
                    "perf record -q -g --pid PID -o /tmp/perf.data -- sleep SECONDS",
                    "perf report -i /tmp/perf.data --stdio > /tmp/perf.txt",
                ]),
                // It draws none; this is its first output.
                picture: "/tmp/perf.txt",
            },
        ]
    }
}

/// Times of one tool.
struct Times {
    whole: Duration,
    install: Duration,
    /// Size of its picture in bytes.
    picture: u64,
}

/// Times all tools next to a PyTorch training on this machine's CPUs.
pub(super) fn time(packages: &Packages) -> Result<()> {
    let release = Release::made(SUITE, GIVEN)?;
    release.trust()?;
    let workload = workloads::torch()?.start()?;
    println!("| by | commands | seconds | of them to install | first picture |\n|---|---|---|---|---|");
    for tool in Tool::all() {
        let times = one(&tool, &release, packages, workload.pid())?;
        println!("{}", row(&tool, times.as_ref()));
        let is_late = times.is_none_or(|times| times.whole > PROMISED);
        ensure!(!(is_late && tool.name.starts_with(OURS)), "{}: no picture within a minute", tool.name);
    }
    Ok(())
}

/// Times one tool; `None` when it had no picture within [`LONGEST`].
fn one(tool: &Tool, release: &Release, packages: &Packages, pid: u32) -> Result<Option<Times>> {
    // No tool must find another one's files.
    let release = release.fresh()?;
    let file = match tool.name {
        "deepctx-bpf, by deb" => packages.deb.as_deref(),
        "deepctx-bpf, by wheel" => Some(packages.wheel.as_path()),
        _ => None,
    };
    let inside = file.map(|path| release.copy(path)).transpose()?.unwrap_or_default();
    let (mut whole, mut install) = (Duration::ZERO, Duration::ZERO);
    for command in &tool.commands {
        let is_install =
            !command.contains("PID") && !command.contains("export") && !command.contains("report");
        let typed = command.replace("PID", &pid.to_string()).replace("FILE", &inside);
        // 0 would mean no limit for `timeout`.
        let left = LONGEST.saturating_sub(whole).max(Duration::from_secs(1));
        let began = Instant::now();
        let ended = release.run_within(left, &typed).with_context(|| format!("{}: {command}", tool.name))?;
        if ended.is_none() {
            return Ok(None);
        }
        whole += began.elapsed();
        install += if is_install { began.elapsed() } else { Duration::ZERO };
    }
    let picture = std::fs::metadata(release.path(tool.picture)).with_context(|| tool.picture)?.len();
    ensure!(picture > 0, "{}: {} is empty", tool.name, tool.picture);
    Ok(Some(Times { whole, install, picture }))
}

/// A line of the table.
fn row(tool: &Tool, times: Option<&Times>) -> String {
    let (name, count) = (tool.name, tool.commands.len());
    match times {
        Some(Times { whole, install, picture }) => {
            let (whole, install) = (whole.as_secs_f64(), install.as_secs_f64());
            format!("| {name} | {count} | {whole:.1} | {install:.1} | {} KiB |", picture / 1024)
        }
        None => format!("| {name} | {count} | nothing in {} | | |", LONGEST.as_secs()),
    }
}
