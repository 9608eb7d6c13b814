//! A capture under resource limits of its user, and a capture stopped for a while. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use cli_support::held_objects::HeldObjects;
use cli_support::recording::{Recording, RecordingOutcome, wait_for};
use cli_support::{
    Busy, TICKS, can_capture, expect_code, program, program_under, run, sample_count, stderr, ticks,
};
use deepctx_profile::ledger::CheckTime;

/// Runs the program with a limit, as set by `ulimit`.
fn limited(limit: &str, arguments: &[&str]) -> Output {
    program_under(Command::new("prlimit").arg(limit)).args(arguments).output().unwrap()
}

/// A folder and the path of a profile in it.
fn place() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.dctx").to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn a_file_that_may_not_grow_ends_a_recording() {
    if !can_capture() {
        return;
    }
    let (busy, (_folder, path)) = (Busy::python(), place());
    let record = ["record", "--pid", &busy.pid(), "-d", "3s", "--flush", "1s", "-o", &path];
    // Enough for the initial manifest, but not for what follows.
    let recorded = limited("--fsize=4096", &record);
    let said = stderr(&recorded);
    assert_eq!(recorded.status.code(), Some(2), "{said}");
    assert!(said.contains("File too large") && said.contains("hint: "), "{said}");
    assert!(busy.lives());
    let report = run(&["report", &path]);
    assert!(!stderr(&report).contains("panicked"), "{}", stderr(&report));
    if let Ok(opened) = deepctx_storage::open(&path) {
        opened.profile.ledger.check(CheckTime::Running).unwrap();
    }
}

#[test]
fn too_few_open_files_are_reported() {
    if !can_capture() {
        return;
    }
    let (busy, (_folder, path)) = (Busy::python(), place());
    // With a few more, samples would work without probes: a capture must be complete or fail with a reason.
    for limit in ["20", "40", "96", "100", "250"] {
        let recorded =
            limited(&format!("--nofile={limit}"), &["record", "--pid", &busy.pid(), "-d", "2s", "-o", &path]);
        let said = stderr(&recorded);
        assert_eq!(recorded.status.code(), Some(2), "{limit}: {said}");
        assert!(said.contains(&format!("may have {limit}")) && said.contains("ulimit -n"), "{limit}: {said}");
        assert!(!Path::new(&path).exists(), "{limit}");
    }
    assert!(busy.lives());
}

#[test]
fn the_least_number_of_open_files_is_enough() {
    if !can_capture() {
        return;
    }
    let (busy, (_folder, path)) = (Busy::python(), place());
    // The error contains the number.
    let refused = stderr(&limited("--nofile=40", &["record", "--pid", &busy.pid(), "-d", "2s", "-o", &path]));
    let least = refused.split("takes ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or(&refused);
    let mut command = Command::new("prlimit");
    let command = program_under(command.arg(format!("--nofile={least}")));
    let mut recording = Recording::by(command, &["--pid", &busy.pid(), "-F", "499"]);
    recording.wait_until(|file| sample_count(file) > 500);
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    let complete = said.split(" % of stacks complete").next().and_then(|before| before.rsplit(' ').next());
    let complete_percent: f64 = complete.and_then(|percent| percent.parse().ok()).unwrap_or_default();
    // On a busy machine, some samples precede the first tables.
    assert!(!said.contains("nothing can be probed") && complete_percent > 90.0, "{said}");
}

#[test]
fn too_little_address_space_is_reported() {
    if !can_capture() {
        return;
    }
    let (busy, (_folder, path)) = (Busy::python(), place());
    let recorded = limited("--as=300000000", &["record", "--pid", &busy.pid(), "-d", "2s", "-o", &path]);
    let said = stderr(&recorded);
    assert_eq!(recorded.status.code(), Some(2), "{said}");
    assert!(said.contains("may have 286 MiB") && said.contains("ulimit -v"), "{said}");
    assert!(busy.lives());
}

#[test]
fn workers_live_with_lower_limits_than_their_own() {
    if !can_capture() {
        return;
    }
    let busy = Busy::python();
    // Below a symbol reader's own limit, and far above its use.
    let mut command = Command::new("prlimit");
    let command = program_under(command.arg("--as=100000000000"));
    let recording = Recording::by(command, &["--pid", &busy.pid(), "--freq", "499"]);
    let report = |file: &str| expect_code(0, &["report", file, "--all"]);
    // Interpreters without symbols export these names.
    let native = ["--format", "folded", "--view", "native", "-o", "-"];
    let stacks = |file: &str| expect_code(0, &[&["export", file], &native[..]].concat());
    recording.wait_until(|file| stacks(file).contains(";Py_"));
    let (_folder, file) = recording.end();
    let report = report(&file);
    assert!(!report.contains("symbol-no-reader"), "{report}");
}

#[test]
fn a_profiler_that_stood_still_goes_on() {
    if !can_capture() {
        return;
    }
    let busy = Busy::python();
    let recording = Recording::start(&busy.pid(), &[]);
    recording.wait_until(|file| sample_count(file) > 0);
    recording.signal("STOP");
    // The program continues meanwhile.
    let until = ticks(&busy.pid()) + 10 * TICKS;
    wait_for("ten seconds of CPU time", || ticks(&busy.pid()) >= until);
    let before = sample_count(&recording.file());
    recording.signal("CONT");
    recording.wait_until(|file| sample_count(file) > before);
    let held = HeldObjects::by(&recording.pid());
    let (_folder, file) = recording.end();
    deepctx_storage::open(&file).unwrap().profile.ledger.check(CheckTime::Finished).unwrap();
    held.are_gone();
    assert!(busy.lives());
}

/// A cgroup with one program; removed on drop.
struct Group {
    folder: PathBuf,
    child: Child,
}

impl Group {
    /// `None` without a writable cgroup v2.
    fn start(name: &str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists())?;
        let folder = root.join(name);
        fs::create_dir(&folder).ok()?;
        let script = "echo $$ > \"$0\"; while :; do :; done";
        let mut shell = Command::new("sh");
        let child = shell.args(["-c", script]).arg(folder.join("cgroup.procs")).spawn().unwrap();
        let group = Self { folder, child };
        let procs = group.folder.join("cgroup.procs");
        wait_for("the program's entry", || fs::read_to_string(&procs).is_ok_and(|procs| !procs.is_empty()));
        Some(group)
    }

    /// Ends the program and removes the cgroup; whether that succeeded.
    fn remove(&mut self) -> bool {
        let _ = self.child.kill();
        let _ = self.child.wait();
        fs::remove_dir(&self.folder).is_ok() || !self.folder.exists()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

#[test]
fn a_cgroup_that_is_removed_leaves_a_whole_profile() {
    if !can_capture() {
        return;
    }
    let name = format!("deepctx-removed-{}", std::process::id());
    let Some(mut group) = Group::start(&name) else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no cgroup v2 can be made");
        println!("skipped: no cgroup v2 can be made");
        return;
    };
    let recording = Recording::by(&mut program(), &["--cgroup", &name, "--freq", "499"]);
    recording.wait_until(|file| sample_count(file) > 0);
    let held = HeldObjects::by(&recording.pid());
    assert!(group.remove(), "the cgroup is still there");
    let (_folder, file) = recording.end();
    deepctx_storage::open(&file).unwrap().profile.ledger.check(CheckTime::Finished).unwrap();
    held.are_gone();
    expect_code(0, &["report", &file]);
    assert!(sample_count(&file) > 0);
}
