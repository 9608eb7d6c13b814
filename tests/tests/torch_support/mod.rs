//! Programs with PyTorch, or with a library that looks like it, and what a capture of them shows.
//!
//! Owns: starting, capturing and reading back. Because: what is seen from outside is compared with what programs say of
//! themselves, question by question. Does not: test anything.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::cli_support::{can_capture, expect_code};

/// A program that is killed when the test ends, however it ends.
pub(crate) struct Target(pub(crate) Child);

impl Target {
    /// Starts it and waits for its `ready`.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let target = Self(child);
        assert!(lines.map_while(Result::ok).any(|line| line.starts_with("ready")), "the program ended");
        target
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn workload(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(name)
}

/// Captures a process for some seconds with these options; `begun` runs meanwhile. Gives the file.
pub(crate) fn capture(
    target: &Target,
    seconds: u32,
    options: &[&str],
    begun: impl FnOnce(),
) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.dctx").display().to_string();
    let (pid, duration) = (target.0.id().to_string(), format!("{seconds}s"));
    std::thread::scope(|scope| {
        let record = || {
            let target = ["record", "--pid", &pid, "--duration", &duration, "-o", &file];
            expect_code(0, &[&target[..], options].concat());
        };
        let recording = scope.spawn(record);
        begun();
        recording.join().unwrap();
    });
    (folder, file)
}

/// Compiles a library that looks like PyTorch's, and a program that uses it, of one source. Gives the program.
pub(crate) fn look_alike(source: &str, folder: &Path) -> PathBuf {
    let (library, program) = (folder.join("libtorch_cpu.so"), folder.join("program"));
    let compile = |arguments: &[&str], to: &Path| {
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-O2", "-o"]).arg(to).arg(workload(source)).args(arguments);
        assert!(compiler.status().unwrap().success());
    };
    compile(&["-fPIC", "-shared", "-DLIBRARY"], &library);
    let search = format!("-L{}", folder.display());
    compile(&["-fomit-frame-pointer", "-pthread", &search, "-ltorch_cpu", "-Wl,-rpath,$ORIGIN"], &program);
    program
}

/// Stacks of a capture, without the process: frames of Python and operators, and a metric's sum for each.
pub(crate) fn stacks(file: &str, metric: &str) -> BTreeMap<String, u64> {
    let how = ["--view", "python", "--lines", "--metric", metric, "--format", "folded", "-o", "-"];
    let folded = expect_code(0, &[&["export", file][..], &how].concat());
    let mut stacks = BTreeMap::new();
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let stack = stack.split_once(';').map_or("", |(_, stack)| stack);
        *stacks.entry(stack.to_owned()).or_insert(0) += count.parse::<u64>().unwrap();
    }
    stacks
}

/// A program in Python with torch, if there is any.
pub(crate) fn with_torch(program: &str) -> Option<Command> {
    let Some(python) = std::env::var_os("TEST_TORCH_PYTHON").filter(|python| Path::new(python).exists())
    else {
        println!(
            "skipped: torch, which is large, is fetched when `cargo xtask test torch` is asked for by name"
        );
        return None;
    };
    if !can_capture() {
        return None;
    }
    let mut command = Command::new(python);
    command.args(["-W", "ignore"]).arg(workload(program)).stderr(Stdio::null());
    command.env("LD_LIBRARY_PATH", std::env::var_os("TEST_TORCH_LIBRARIES").unwrap_or_default());
    Some(command)
}
