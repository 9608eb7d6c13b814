//! What the Python tests share: the interpreters of this machine, and programs that run in them.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use deepctx_symbolizer::maps::{self, Keep};
use deepctx_symbolizer::python::{Interpreter, PythonSymbols, TargetMemory, locate_process};
use serde_json::Value;

/// An interpreter that is installed here.
#[derive(Clone, Debug)]
pub(crate) struct Python {
    pub(crate) path: PathBuf,
    pub(crate) minor: u8,
}

/// Every CPython 3.8+ of this machine: those of pyenv, those in `/usr/bin`, and those in `DEEPCTX_PYTHONS`
/// (separated by colons). There is always at least one: without, the test fails.
pub(crate) fn pythons() -> Vec<Python> {
    let mut paths = Vec::new();
    let home = std::env::var_os("HOME").unwrap_or_default();
    let pyenv = std::env::var_os("PYENV_ROOT").map_or_else(|| Path::new(&home).join(".pyenv"), PathBuf::from);
    for entry in std::fs::read_dir(pyenv.join("versions")).into_iter().flatten().flatten() {
        paths.push(entry.path().join("bin/python3"));
    }
    paths.extend((8..=15).map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}"))));
    paths.extend(std::env::split_paths(&std::env::var_os("DEEPCTX_PYTHONS").unwrap_or_default()));

    let mut pythons: Vec<Python> = paths
        .into_iter()
        .filter_map(|path| {
            let version =
                Command::new(&path).args(["-c", "import sys; print(sys.version_info[1])"]).output().ok()?;
            let minor = String::from_utf8(version.stdout).ok()?.trim().parse().ok()?;
            (minor >= 8).then_some(Python { path, minor })
        })
        .collect();
    pythons.sort_by_key(|python| python.minor);
    assert!(!pythons.is_empty(), "no CPython 3.8 or later: install python3, or name one in DEEPCTX_PYTHONS");
    pythons
}

/// The program with known chains, and what each of its threads said of itself.
pub(crate) fn chains(python: &Python) -> (Target, Vec<Value>) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/python_chains.py");
    let mut target = Target::start(python, &[program.to_str().unwrap()]);
    let lines = target.lines_until_ready();
    assert!(lines.len() >= 20);
    (target, lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// A running program, killed when dropped.
pub(crate) struct Target {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Target {
    pub(crate) fn start(python: &Python, arguments: &[&str]) -> Self {
        let mut child = Command::new(&python.path)
            .args(arguments)
            .env("PYTHONUTF8", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Output up to the line that says `{"ready": true, …}`, without it.
    pub(crate) fn lines_until_ready(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for line in (&mut self.output).lines() {
            let line = line.unwrap();
            if line.starts_with("{\"ready\"") {
                return lines;
            }
            lines.push(line);
        }
        panic!("the program ended early: {:?}", self.child.wait());
    }

    /// Stops every thread, as a debugger would.
    pub(crate) fn stop(&self) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
        let stopped = || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            tasks.flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't']))
            })
        };
        while !stopped() {
            std::thread::yield_now();
        }
    }

    /// The interpreter in the program, and what names its frames.
    pub(crate) fn attach(&self) -> (Interpreter, Box<dyn TargetMemory>, PythonSymbols) {
        let mappings = maps::read(self.pid(), Keep::Executable).unwrap().mappings;
        let (interpreter, memory) = locate_process(self.pid(), &mappings).unwrap();
        let (_, again) = locate_process(self.pid(), &mappings).unwrap();
        let mut symbols = PythonSymbols::default();
        assert!(symbols.attach(self.pid(), &interpreter, Box::new(memory)));
        (interpreter, Box::new(again), symbols)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
