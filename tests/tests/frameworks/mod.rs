//! Programs with PyTorch or JAX, or with a look-alike library, and their captures.
//!
//! Owns: starting, capturing and reading back. Because: each test compares the capture with the program's own output.
//! Does not: test anything.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::{can_capture, expect_code, folded, program};

/// A program that is killed when the test ends in any way.
pub(crate) struct Target {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Target {
    /// Starts it and waits for its `ready` line.
    pub(crate) fn start(command: &mut Command) -> Self {
        // A separate process group: a fork server and its workers outlive the trainer that started them.
        let mut child = command.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut target = Self { child, lines };
        target.wait_for("ready");
        target
    }

    /// Waits for a line that starts with this word.
    pub(crate) fn wait_for(&mut self, word: &str) {
        let said = self.lines.by_ref().map_while(Result::ok).any(|line| line.starts_with(word));
        assert!(said, "the program ended before it said {word}");
    }

    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Sends the line that it waits for.
    pub(crate) fn go(&mut self) {
        self.send("\n");
    }

    /// Sends this text.
    pub(crate) fn send(&mut self, text: &str) {
        // The input stays open, because some programs end with it.
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Closes its input and waits for its end, which must be a success.
    pub(crate) fn finish(mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "the program ended before it was left alone");
        // Waiting closes its input, which some programs take as the end.
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn workload(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(name)
}

/// Whether native function arguments can be captured here. Prints why not.
pub(crate) fn can_capture_arguments() -> bool {
    if cfg!(not(target_arch = "x86_64")) {
        println!("skipped: where arguments of native functions are is known on x86-64 only");
        return false;
    }
    can_capture()
}

/// Line number of a mark in a Python program.
pub(crate) fn line(program: &str, mark: &str) -> usize {
    let text = std::fs::read_to_string(workload(program)).unwrap();
    text.lines().position(|line| line.ends_with(&format!("# line: {mark}"))).unwrap() + 1
}

/// Starts a program that waits for a line, and sends that line once its probes are attached.
#[track_caller]
pub(crate) fn record_from_go(command: &mut Command, options: &[&str]) -> (Target, Recording) {
    let mut target = Target::start(command.stdin(Stdio::piped()));
    let recording = Recording::start(&target.pid(), options);
    recording.wait_for_probes();
    target.go();
    (target, recording)
}

/// Records such a program until it prints `done`. Returns the file with its folder.
#[track_caller]
pub(crate) fn record_through(command: &mut Command, options: &[&str]) -> (tempfile::TempDir, String) {
    let (mut target, recording) = record_from_go(command, options);
    target.wait_for("done");
    recording.end()
}

/// Records a program from its first instruction until the report's table of compilers meets the condition. Returns the
/// table.
pub(crate) fn compiling(of: &Command, frequency: &str, holds: impl Fn(&str) -> bool) -> String {
    let words: Vec<&str> =
        [of.get_program()].into_iter().chain(of.get_args()).map(|word| word.to_str().unwrap()).collect();
    let mut record = program();
    record.envs(of.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut recording = Recording::by(&mut record, &[&["-F", frequency, "--"], &words[..]].concat());
    let table = |file: &str| {
        let report = expect_code(0, &["report", file, "--all"]);
        let table = report.split_once("Time spent compiling, by the line that began it");
        table.map(|(_, table)| table.to_owned())
    };
    recording.wait_until(|file| table(file).is_some_and(|table| holds(&table)));
    // Also ends the program, whose exit code is passed on.
    recording.signal("TERM");
    let RecordingOutcome { status, said } = recording.ended();
    assert_eq!(status.code(), Some(143), "{said}");
    let table = table(&recording.file()).unwrap();
    assert!(holds(&table), "{table}");
    table
}

/// Compiles a PyTorch stub library and a program that uses it from one source. Returns the program.
pub(crate) fn look_alike(source: &str, folder: &Path) -> PathBuf {
    look_alike_of("torch_cpu", source, "-fomit-frame-pointer", folder)
}

/// The same for another library by name, with or without frame pointers.
pub(crate) fn look_alike_of(name: &str, source: &str, frames: &str, folder: &Path) -> PathBuf {
    let (library, program) = (folder.join(format!("lib{name}.so")), folder.join("program"));
    let compile = |arguments: &[&str], to: &Path| {
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-O2", "-o"]).arg(to).arg(workload(source)).args(arguments);
        assert!(compiler.status().unwrap().success());
    };
    let of_library = if name == "torch_cpu" { "-fPIC" } else { frames };
    compile(&["-fPIC", "-shared", "-DLIBRARY", of_library], &library);
    let search = format!("-L{}", folder.display());
    let link = format!("-l{name}");
    compile(&[frames, "-pthread", &search, &link, "-Wl,-rpath,$ORIGIN"], &program);
    program
}

/// Stacks of a capture without the process: Python frames and operators, each with a metric's sum.
pub(crate) fn stacks(file: &str, metric: &str) -> BTreeMap<String, u64> {
    let folded = folded(file, metric, &["--view", "python", "--lines"]);
    let mut stacks = BTreeMap::new();
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let stack = stack.split_once(';').map_or("", |(_, stack)| stack);
        *stacks.entry(stack.to_owned()).or_insert(0) += count.parse::<u64>().unwrap();
    }
    stacks
}

/// Samples of a capture by stack, with Python lines.
pub(crate) struct Samples(Vec<(String, u64)>);

impl Samples {
    pub(crate) fn of(file: &str) -> Self {
        Self::of_metric(file, "samples")
    }

    /// The same for another metric.
    pub(crate) fn of_metric(file: &str, metric: &str) -> Self {
        let folded = folded(file, metric, &["--lines"]);
        let stacks = folded.lines().map(|line| {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            (stack.to_owned(), count.parse().unwrap())
        });
        Self(stacks.collect())
    }

    /// Each stack with its samples.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(stack, count)| (stack.as_str(), *count))
    }

    /// Number of samples whose stack contains all of these.
    pub(crate) fn with(&self, parts: &[&str]) -> u64 {
        let all = self.0.iter().filter(|(stack, _)| parts.iter().all(|part| stack.contains(part)));
        all.map(|(_, count)| count).sum()
    }
}

impl std::fmt::Display for Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(stack, count)| writeln!(f, "{stack} {count}"))
    }
}

/// A Python program with torch, if available.
pub(crate) fn with_torch(program: &str) -> Option<Command> {
    let mut command = in_python("torch", "TEST_TORCH_PYTHON", program)?;
    command.env("LD_LIBRARY_PATH", std::env::var_os("TEST_TORCH_LIBRARIES").unwrap_or_default());
    Some(command)
}

/// A Python program with Triton, if available.
pub(crate) fn with_triton(program: &str) -> Option<Command> {
    in_python("torch", "TEST_TRITON_PYTHON", program)
}

/// A Python program with jax on the CPU, if available.
pub(crate) fn with_jax(program: &str) -> Option<Command> {
    let mut command = in_python("jax", "TEST_JAX_PYTHON", program)?;
    command.env("JAX_PLATFORMS", "cpu");
    Some(command)
}

/// A program in the interpreter named by a variable, whose framework is too large to fetch each time.
fn in_python(framework: &str, variable: &str, program: &str) -> Option<Command> {
    let Some(python) = std::env::var_os(variable).filter(|python| Path::new(python).exists()) else {
        println!("skipped: no Python with {framework} (cargo xtask test {framework} installs one)");
        return None;
    };
    if !can_capture() {
        return None;
    }
    let mut command = Command::new(python);
    command.args(["-W", "ignore"]).arg(workload(program)).stderr(Stdio::null());
    Some(command)
}
