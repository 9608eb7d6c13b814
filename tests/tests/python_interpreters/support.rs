//! Shared code of the Python tests: the interpreters of this machine, and programs that run in them.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use deepctx_common::end::WalkEnd;
use deepctx_symbolizer::maps::{self, LineFilter};
use deepctx_symbolizer::memory::TargetMemory;
use deepctx_symbolizer::python::{Interpreter, PythonSymbols, locate_process};
use serde_json::Value;

use crate::cli_support::recording::{record_in_bursts, record_until};
use crate::cli_support::{folded, signal};

/// An installed interpreter.
#[derive(Clone, Debug)]
pub(crate) struct Python {
    pub(crate) path: PathBuf,
    pub(crate) minor: u8,
    /// Its origin, for people.
    pub(crate) name: String,
    /// Its own build description.
    build: String,
    /// A folder with the tests' extension built for it; `None` without headers.
    pub(crate) extension: Option<PathBuf>,
}

/// `debian-sid-3.14` for one that was fetched, `pyenv-3.12.1`, else the path.
fn name_of(path: &Path) -> String {
    let text = path.to_string_lossy();
    let parts: Vec<_> = text.split('/').collect();
    match parts[..] {
        [.., "interpreters", "bin", name] => name.to_owned(),
        [.., "versions", version, "bin", _] => format!("pyenv-{version}"),
        [.., "venvs", name, "bin", _] => format!("venv-{name}"),
        _ => text.into_owned(),
    }
}

/// Builds the extension through which the workloads call Python from C.
fn extension(path: &Path, name: &str) -> Option<PathBuf> {
    let program = "import os, sysconfig as s; print(s.get_paths()['include'], os.path.dirname(s.get_config_h_filename()), \
                   os.path.join(s.get_config_var('srcdir') or '/', 'Include'), sep='\\n')";
    let said = Command::new(path).args(["-c", program]).output().ok()?;
    let folder = std::env::temp_dir().join(format!("deepctx-tests-{}/{name}", std::process::id()));
    std::fs::create_dir_all(&folder).ok()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/python_known.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-w"]);
    for include in String::from_utf8(said.stdout).ok()?.lines().map(Path::new) {
        compiler.arg("-I").arg(include);
        // Debian's `pyconfig.h` includes the machine's one from the parent folder.
        compiler.args(include.parent().into_iter().flat_map(|above| [Path::new("-idirafter"), above]));
    }
    let built = compiler.arg("-o").arg(folder.join("python_known.so")).arg(source).output().ok()?;
    built.status.success().then_some(folder)
}

/// Every CPython 3.8+ of this machine: those of pyenv, those in `/usr/bin`, and those in `DEEPCTX_PYTHONS` (separated
/// by colons); with `DEEPCTX_PYTHONS_ALONE`, only those. The test fails if there is none.
pub(crate) fn pythons() -> Vec<Python> {
    static FOUND: std::sync::OnceLock<Vec<Python>> = std::sync::OnceLock::new();
    FOUND.get_or_init(find).clone()
}

/// [`pythons`] without embedded ones, which differ only in how they are found.
pub(crate) fn programs() -> Vec<Python> {
    pythons().into_iter().filter(|python| !python.name.ends_with("-embedded")).collect()
}

/// One interpreter of each version.
pub(crate) fn versions() -> Vec<Python> {
    let mut versions = pythons();
    versions.dedup_by_key(|python| python.minor);
    versions
}

/// Capture options for this interpreter, each with a suffix for its row. Without native frames, one build of each
/// version is enough, plus those built here, which differ in more than native code.
pub(crate) fn ways(python: &Python) -> Vec<(&'static str, &'static [&'static str])> {
    let mut ways: Vec<(&str, &[&str])> = vec![("", &[])];
    let mut first_builds = pythons();
    first_builds.dedup_by_key(|python| (python.minor, python.name.starts_with("built-")));
    if first_builds.iter().any(|first| first.name == python.name) {
        ways.push((", without native", &WITHOUT_NATIVE));
    }
    ways
}

/// Checks interpreters two at a time: most of a capture is waiting.
pub(crate) fn for_each(pythons: &[Python], check: impl Fn(&Python) + Sync) {
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some(python) = pythons.get(next.fetch_add(1, Ordering::Relaxed)) {
            check(python);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(worker);
        worker();
    });
}

/// The interpreters of pyenv and of the system.
fn installed() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let home = std::env::var_os("HOME").unwrap_or_default();
    let pyenv = std::env::var_os("PYENV_ROOT").map_or_else(|| Path::new(&home).join(".pyenv"), PathBuf::from);
    for entry in std::fs::read_dir(pyenv.join("versions")).into_iter().flatten().flatten() {
        paths.push(entry.path().join("bin/python3"));
    }
    paths.extend((8..=15).map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}"))));
    paths
}

fn find() -> Vec<Python> {
    let alone = std::env::var_os("DEEPCTX_PYTHONS_ALONE").is_some();
    let mut paths = if alone { Vec::new() } else { installed() };
    paths.extend(std::env::split_paths(&std::env::var_os("DEEPCTX_PYTHONS").unwrap_or_default()));

    let mut pythons: Vec<Python> = paths
        .into_iter()
        .filter_map(|path| {
            let program = "import sys; print(sys.version_info[1], sys.version.replace('\\n', ' '))";
            let version = Command::new(&path).args(["-c", program]).output().ok()?;
            let said = String::from_utf8(version.stdout).ok()?;
            let (minor, build) = said.trim().split_once(' ')?;
            let (minor, build) = (minor.parse().ok()?, build.to_owned());
            let name = name_of(&path);
            (minor >= 8).then(|| Python { extension: extension(&path, &name), path, minor, name, build })
        })
        .collect();
    leave_out_same_builds(&mut pythons);
    pythons.sort_by_key(|python| (python.minor, python.name.clone()));
    assert!(!pythons.is_empty(), "no CPython 3.8 or later: install python3, or name one in DEEPCTX_PYTHONS");
    pythons
}

/// Removes duplicates of a build: an environment has the most to test, and the system's is tested as users start it.
/// Builds that are started differently, as by another program, are not duplicates.
fn leave_out_same_builds(pythons: &mut Vec<Python>) {
    let kind = |python: &Python| ["-embedded", "-jit"].into_iter().find(|end| python.name.ends_with(end));
    let rank = |python: &Python| match &*python.name {
        name if name.starts_with("venv-") => 0,
        name if name.starts_with('/') => 1,
        _ => 2,
    };
    pythons.sort_by_key(rank);
    let mut seen = std::collections::HashSet::new();
    pythons.retain(|python| seen.insert((python.build.clone(), kind(python))));
}

/// The program with known chains, and each thread's own account.
pub(crate) fn chains(python: &Python) -> (Target, Vec<Value>) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/python_chains.py");
    let mut target = Target::start(python, &[program.to_str().unwrap()]);
    let lines = target.lines_until_ready();
    assert!(lines.len() >= 20);
    (target, lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Path of a workload.
pub(crate) fn workload(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(name).display().to_string()
}

/// Stacks root first, without the process, each with its count.
pub(crate) type Stacks = Vec<(Vec<String>, u64)>;

/// Number of samples.
pub(crate) fn total(stacks: &Stacks) -> u64 {
    stacks.iter().map(|(_, count)| count).sum()
}

/// Options for stacks whose native part is walked only for operators: all Python frames are recorded, however short the
/// walk.
const WITHOUT_NATIVE: [&str; 4] = ["--context", "python,kernel", "--probe", "operators"];

/// Captures a process until its stacks suffice.
#[track_caller]
pub(crate) fn captured(
    pid: u32,
    frequency: u32,
    (view, options): (&str, &[&str]),
    enough: impl Fn(&Stacks) -> bool,
) -> Stacks {
    let record =
        |options: &[&str]| record_until(&pid.to_string(), options, |file| enough(&stacks(file, view)));
    recorded(frequency, (view, options), record)
}

/// The same for a program whose threads all compute: it runs in bursts.
#[track_caller]
pub(crate) fn captured_in_bursts(
    pid: u32,
    frequency: u32,
    (view, options): (&str, &[&str]),
    enough: impl Fn(&Stacks) -> bool,
) -> Stacks {
    let record =
        |options: &[&str]| record_in_bursts(&pid.to_string(), options, |file| enough(&stacks(file, view)));
    recorded(frequency, (view, options), record)
}

/// The stacks of a recording at this frequency.
#[track_caller]
fn recorded(
    frequency: u32,
    (view, options): (&str, &[&str]),
    record: impl FnOnce(&[&str]) -> (tempfile::TempDir, String),
) -> Stacks {
    let frequency = frequency.to_string();
    let (_folder, file) = record(&[&["--freq", &frequency], options].concat());
    stacks(&file, view)
}

/// The stacks of a profile.
pub(crate) fn stacks(profile: &str, view: &str) -> Stacks {
    let stacks = folded(profile, "samples", &["--view", view, "--lines"]);
    let parse = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        (stack.split(';').skip(1).map(str::to_owned).collect(), count.parse().unwrap())
    };
    stacks.lines().map(parse).collect()
}

/// Whether the stack is marked as missing Python frames.
pub(crate) fn labelled(frames: &[String]) -> bool {
    frames.iter().any(|frame| frame.starts_with("[unknown: python-"))
}

/// Whether the stack is marked as missing frames of either kind.
pub(crate) fn broken(frames: &[String]) -> bool {
    let native = |frame: &String| {
        frame
            .strip_prefix("[unknown: ")
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|key| WalkEnd::ALL.iter().any(|end| end.key() == key))
    };
    labelled(frames) || frames.iter().any(native)
}

/// A row of the table shown by `cargo xtask test python`.
pub(crate) fn row(python: &str, what: &str, scenarios: usize, compared: u64, equal: u64, labelled: u64) {
    println!("| {python:<32} | {what:<24} | {scenarios:>3} | {compared:>6} | {equal:>6} | {labelled:>4} |");
}

/// A running program, killed on drop.
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
            .env("PYTHONPATH", python.extension.as_deref().unwrap_or(Path::new("")))
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

    /// Output up to, but excluding, the line `{"ready": true, …}`.
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
        signal(&pid, "STOP");
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

    /// The program's interpreter, and the symbols that name its frames.
    pub(crate) fn attach(&self) -> (Interpreter, Box<dyn TargetMemory>, PythonSymbols) {
        let mappings = maps::read(self.pid(), LineFilter::Executable).unwrap().mappings;
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
