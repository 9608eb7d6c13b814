//! Our own program and its peers, started on a process and stopped; the kernel's figures on the cost of our programs.
//!
//! Owns: command lines of the profilers, BPF statistics. Because: each figure starts and stops them in the same way.
//! Does not: know what is measured.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Attaching to a large process on a busy machine may take this long; longer times are failures.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(60);

/// A profiler that samples another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// deepctx-bpf.
    Ours,
    /// py-spy with native frames.
    PySpy,
    /// py-spy in its most common use: Python frames only.
    PySpyPython,
    /// perf with user stacks copied and unwound later.
    PerfDwarf,
    /// perf with frame pointers only.
    PerfFramePointer,
}

impl Kind {
    pub(super) const PEERS: [Self; 4] =
        [Self::PySpyPython, Self::PySpy, Self::PerfFramePointer, Self::PerfDwarf];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "deepctx-bpf",
            Self::PySpy => "py-spy --native",
            Self::PySpyPython => "py-spy",
            Self::PerfDwarf => "perf --call-graph dwarf",
            Self::PerfFramePointer => "perf --call-graph fp",
        }
    }
}

/// Paths of the profilers.
pub(super) struct Profilers {
    pub(super) ours: PathBuf,
    py_spy: Option<PathBuf>,
    folder: PathBuf,
}

impl Profilers {
    pub(super) fn new(ours: &Path) -> Result<Self> {
        let folder = sh::target_dir().join("bench");
        std::fs::create_dir_all(&folder)?;
        let py_spy =
            crate::workloads::venv("py-spy", &["py-spy"]).map(|python| python.with_file_name("py-spy"));
        if let Err(error) = &py_spy {
            eprintln!("    note: no py-spy here, so it is not compared with: {error:#}");
        }
        Ok(Self { ours: ours.to_owned(), py_spy: py_spy.ok(), folder })
    }

    pub(super) fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Ours => true,
            Kind::PySpy | Kind::PySpyPython => self.py_spy.is_some(),
            Kind::PerfDwarf | Kind::PerfFramePointer => sh::which("perf").is_some(),
        }
    }

    /// A file of this run.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts a profiler on a process; it runs until dropped.
    pub(super) fn attach(&self, kind: Kind, pid: u32, frequency: u32) -> Result<RunningProfiler> {
        self.start(kind, self.command(kind, pid, frequency)?)
    }

    /// Starts our own profiler with additional options.
    pub(super) fn attach_with(&self, pid: u32, frequency: u32, more: &[&str]) -> Result<RunningProfiler> {
        let mut command = self.command(Kind::Ours, pid, frequency)?;
        command.args(more);
        self.start(Kind::Ours, command)
    }

    /// Starts our own profiler on the whole machine, with segments at the usual interval.
    pub(super) fn attach_to_machine(&self, profile: &Path, frequency: u32) -> Result<RunningProfiler> {
        let mut command = Command::new(&self.ours);
        command
            .args(["record", "-v", "--force", "--all", "--freq", &frequency.to_string(), "-o"])
            .arg(profile);
        self.start(Kind::Ours, command)
    }

    /// Starts our own profiler in verbose mode.
    pub(super) fn attach_verbose(&self, pid: u32, frequency: u32) -> Result<RunningProfiler> {
        let mut command = self.command(Kind::Ours, pid, frequency)?;
        command.arg("-v");
        self.start(Kind::Ours, command)
    }

    fn command(&self, kind: Kind, pid: u32, frequency: u32) -> Result<Command> {
        let (pid, frequency) = (pid.to_string(), frequency.to_string());
        Ok(match kind {
            Kind::Ours => {
                let mut command = Command::new(&self.ours);
                command.args(["record", "--force", "--pid", &pid, "--freq", &frequency, "-o"]);
                command.arg(self.file("run.dctx"));
                command
            }
            Kind::PySpy | Kind::PySpyPython => {
                let mut command = Command::new(self.py_spy.as_ref().context("py-spy is not installed")?);
                command.args(["record", "--pid", &pid, "--rate", &frequency, "--format", "raw"]);
                command.args(["--duration", "3600", "--output"]).arg(self.file("py-spy.txt"));
                if kind == Kind::PySpy {
                    command.arg("--native");
                }
                command
            }
            Kind::PerfDwarf | Kind::PerfFramePointer => {
                let graph = if kind == Kind::PerfDwarf { "dwarf" } else { "fp" };
                let mut command = Command::new("perf");
                command.args(["record", "-q", "-e", "cpu-clock", "-F", &frequency, "--call-graph", graph]);
                command.args(["-p", &pid, "-o"]).arg(self.file("perf.data"));
                command
            }
        })
    }

    fn start(&self, kind: Kind, mut command: Command) -> Result<RunningProfiler> {
        let quiet = |name: &str| std::fs::File::create(self.file(name)).map(Stdio::from);
        let child = command
            .stdin(Stdio::null())
            .stdout(quiet("profiler.out")?)
            .stderr(quiet("profiler.err")?)
            .spawn()
            .with_context(|| format!("cannot start `{}`", sh::words(&command)))?;
        Ok(RunningProfiler { child, kind, log: self.file("profiler.err") })
    }
}

/// A running profiler; dropping it sends the signal that a user would.
pub(super) struct RunningProfiler {
    child: Child,
    kind: Kind,
    log: PathBuf,
}

impl RunningProfiler {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails with the profiler's output if it has ended.
    pub(super) fn alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                bail!("{} ended early ({status}): {}", self.kind.name(), said.trim())
            }
        }
    }

    /// Waits until our sampler has run at least `count` times.
    pub(super) fn sampling(&mut self, count: u64) -> Result<()> {
        let begin = Instant::now();
        // The kernel counts runs only while statistics are on.
        let _on = StatisticsGuard::new()?;
        while sampler(self.pid()).is_none_or(|sampler| sampler.runs < count) {
            self.alive()?;
            if begin.elapsed() > ATTACH_TIMEOUT {
                bail!("no sample after {ATTACH_TIMEOUT:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub(super) fn signal(&self, name: &str) -> Result<()> {
        sh::output(Command::new("kill").args(["-s", name, &self.pid().to_string()])).map(drop)
    }

    /// Path of its output.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Ends it as Ctrl-C would and waits; returns its exit code.
    pub(super) fn finish(mut self) -> Result<Option<i32>> {
        self.signal("INT")?;
        Ok(self.child.wait()?.code())
    }
}

impl Drop for RunningProfiler {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) && self.signal("INT").is_ok() {
            let _ = self.child.wait();
        }
    }
}

/// The kernel's statistics of one loaded program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProgramStatistics {
    pub(super) id: u32,
    pub(super) kind: u32,
    pub(super) runs: u64,
    pub(super) run_time_ns: u64,
    pub(super) verified_instructions: u64,
}

/// The kernel's number of program type `perf_event`.
const PERF_EVENT: u32 = 7;

/// All programs that a process has open.
pub(super) fn programs(pid: u32) -> Vec<ProgramStatistics> {
    let Ok(folder) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return Vec::new() };
    let texts = folder.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    texts.filter_map(|text| parse(&text)).collect()
}

/// The timer's program: the one of its type that runs most.
pub(super) fn sampler(pid: u32) -> Option<ProgramStatistics> {
    programs(pid).into_iter().filter(|program| program.kind == PERF_EVENT).max_by_key(|program| program.runs)
}

fn parse(text: &str) -> Option<ProgramStatistics> {
    let number = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse().ok()
    };
    Some(ProgramStatistics {
        id: u32::try_from(number("prog_id")?).ok()?,
        kind: u32::try_from(number("prog_type")?).ok()?,
        runs: number("run_cnt").unwrap_or(0),
        run_time_ns: number("run_time_ns").unwrap_or(0),
        verified_instructions: number("verified_insns").unwrap_or(0),
    })
}

/// Locked memory of all maps and programs that a process has open, in bytes.
pub(super) fn locked_bytes(pid: u32) -> u64 {
    let Ok(folder) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return 0 };
    let texts = folder.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let locked = |text: String| -> Option<(String, u64)> {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let id = value("map_id:")
            .map(|id| format!("map {id}"))
            .or_else(|| value("prog_id:").map(|id| format!("program {id}")))?;
        Some((id, value("memlock:")?.parse().ok()?))
    };
    // A map may be open more than once.
    texts.filter_map(locked).collect::<std::collections::BTreeMap<_, _>>().values().sum()
}

/// Keeps the kernel's BPF run time statistics on.
pub(super) struct StatisticsGuard {
    before: String,
}

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl StatisticsGuard {
    pub(super) fn new() -> Result<Self> {
        let before = std::fs::read_to_string(SWITCH).with_context(|| format!("cannot read {SWITCH}"))?;
        std::fs::write(SWITCH, "1").with_context(|| format!("cannot write {SWITCH}"))?;
        Ok(Self { before })
    }
}

impl Drop for StatisticsGuard {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(SWITCH, self.before.trim()) {
            eprintln!("    note: {SWITCH} stays on: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_from_what_the_kernel_prints() {
        let text = "pos:\t0\nflags:\t02000000\nprog_type:\t7\nprog_jited:\t1\nmemlock:\t4096\nprog_id:\t12\n\
            run_time_ns:\t5000\nrun_cnt:\t10\nrecursion_misses:\t0\nverified_insns:\t3667\n";
        let expect =
            ProgramStatistics { id: 12, kind: 7, runs: 10, run_time_ns: 5000, verified_instructions: 3667 };
        assert_eq!(parse(text), Some(expect));
        assert_eq!(parse("pos:\t0\nmap_type:\t1\n"), None);
    }
}
