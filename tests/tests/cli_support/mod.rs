//! The program as a user runs it.
//!
//! Owns: finding (and building) the binary, running it, recording until a condition holds, and the rule for tests that
//! need privileges. Does not: test.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod browser;
pub(crate) mod held_objects;
pub(crate) mod readers;
pub(crate) mod recording;
pub(crate) mod terminal;
pub(crate) mod victim;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use deepctx_profile::profile::Profile;

/// This checkout's program, built like the tests.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        // The build of this test may also have built the program.
        if let Some(built) = std::env::var_os("TEST_BINARY_DEEPCTX_BPF") {
            return built.into();
        }
        let test = std::env::current_exe().unwrap();
        let folder =
            test.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps").to_path_buf();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "deepctx-bpf", "--bin", "deepctx-bpf"]);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        build.env("CARGO_TARGET_DIR", folder.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(build.status().unwrap().success(), "the binary cannot be built");
        folder.join("deepctx-bpf")
    })
}

/// The program, without environment variables that could affect it.
pub(crate) fn program() -> Command {
    let mut command = Command::new(binary());
    clear_environment(&mut command);
    command
}

/// The program as the last argument of another one, such as strace, which starts it.
pub(crate) fn program_under(wrapper: &mut Command) -> &mut Command {
    clear_environment(wrapper);
    wrapper.arg(binary())
}

/// Removes variables that could affect the program.
fn clear_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DEEPCTX_") {
            command.env_remove(name);
        }
    }
    command.env_remove("COLUMNS").stdin(Stdio::null());
}

/// A process that is killed on drop, even if the test fails: a leftover one would take a CPU from all others.
pub(crate) struct Busy(Child);

impl Busy {
    /// One that computes.
    pub(crate) fn start() -> Self {
        Self::shell("while :; do :; done")
    }

    /// One that runs this script.
    pub(crate) fn shell(script: &str) -> Self {
        Self(Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap())
    }

    /// A Python program with a frame that stays.
    pub(crate) fn python() -> Self {
        Self::of(Command::new("python3").args(["-c", "def hot():\n while True: pass\nhot()"]))
    }

    /// Whether it is running.
    pub(crate) fn lives(&self) -> bool {
        lives(&self.pid())
    }

    /// A process started by this command.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process is running.
pub(crate) fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// `/proc` folders of the workers with this name that a recording has started.
pub(crate) fn workers_of(recording: &str, name: &str) -> Vec<PathBuf> {
    let is_one = |process: &PathBuf| {
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let is_child = std::fs::read_to_string(process.join("status"))
            .is_ok_and(|status| status.contains(&format!("\nPPid:\t{recording}\n")));
        // A child that is not the worker yet has its parent's command line.
        is_child && line.split(|byte| *byte == 0).any(|word| word == name.as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).filter(is_one).collect()
}

/// Waits until a worker runs as `nobody`, without other groups, capabilities, ways to get some, and most system calls.
#[track_caller]
pub(crate) fn is_without_privileges(pid: &str) {
    const LINES: [&str; 6] = [
        "\nUid:\t65534\t65534\t65534\t65534\n",
        "\nGid:\t65534\t65534\t65534\t65534\n",
        // The kernel ends the list with a space.
        "\nGroups:\t \n",
        "\nCapPrm:\t0000000000000000\n",
        "\nNoNewPrivs:\t1\n",
        "\nSeccomp:\t2\n",
    ];
    let mut status = String::new();
    let there = || {
        status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        LINES.iter().all(|line| status.contains(line))
    };
    assert!(recording::comes(recording::LONGEST, Duration::from_millis(1), there), "{status}");
}

/// Sends a signal, given by name, to a process.
#[track_caller]
pub(crate) fn signal(pid: &str, name: &str) {
    assert!(Command::new("kill").args(["-s", name, pid]).status().unwrap().success(), "SIG{name} to {pid}");
}

/// The count of a gap in a profile's ledger.
pub(crate) fn gap_count(profile: &Profile, reason: &str) -> u64 {
    profile.ledger.rows().iter().filter(|row| row.reason == reason).map(|row| row.count).sum()
}

/// Ticks per second in `/proc`.
pub(crate) const TICKS: u64 = 100;

/// CPU time of a process so far, in ticks.
pub(crate) fn ticks(pid: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_ascii_whitespace();
    // The 14th and 15th field; the state, which follows the name, is the third.
    fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Number of samples in a profile, which may be growing.
pub(crate) fn sample_count(file: &str) -> u64 {
    let stacks = folded(file, "samples", &[]);
    stacks.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the program and expects this exit code; returns standard output on success, standard error otherwise.
pub(crate) fn expect_code(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{}{}", stdout(&output), stderr(&output));
    if code == 0 { stdout(&output) } else { stderr(&output) }
}

/// Folded stacks of a stored profile by one metric; empty when it has no values of that.
pub(crate) fn folded(file: &str, metric: &str, how: &[&str]) -> String {
    let arguments = [&["export", file, "--metric", metric, "--format", "folded", "-o", "-"], how].concat();
    let output = run(&arguments);
    match output.status.code() {
        Some(2) if stderr(&output).contains("the profile has no values of this metric") => String::new(),
        code => {
            assert_eq!(code, Some(0), "{arguments:?}\n{}", stderr(&output));
            stdout(&output)
        }
    }
}

/// Whether a capture is possible here. If required (`CI=true`), its absence is a failure.
pub(crate) fn can_capture() -> bool {
    let output = run(&["doctor"]);
    if output.status.success() {
        return true;
    }
    let missing: Vec<String> =
        stdout(&output).lines().filter(|line| line.starts_with("MISSING")).map(Into::into).collect();
    assert!(std::env::var("CI").as_deref() != Ok("true"), "a capture is not possible: {missing:?}");
    println!("skipped: a capture is not possible here: {missing:?}");
    false
}
