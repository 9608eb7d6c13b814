//! A capture under limits of whoever started it, and stopped for a while. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cli_support::{Busy, can_capture, expect_code, program, program_under, run, stderr};
use deepctx_profile::ledger::When;

/// Runs the program with a limit, as `ulimit` sets it.
fn limited(limit: &str, arguments: &[&str]) -> Output {
    program_under(Command::new("prlimit").arg(limit)).args(arguments).output().unwrap()
}

/// A folder, and the name of a profile in it.
fn place() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.dctx").to_str().unwrap().to_owned();
    (folder, path)
}

fn spinning() -> Busy {
    Busy::of(Command::new("python3").args(["-c", "def hot():\n while True: pass\nhot()"]))
}

#[test]
fn a_file_that_may_not_grow_ends_a_recording() {
    if !can_capture() {
        return;
    }
    let (busy, (_folder, path)) = (spinning(), place());
    let record = ["record", "--pid", &busy.pid(), "-d", "3s", "--flush", "1s", "-o", &path];
    let recorded = limited("--fsize=2048", &record);
    let said = stderr(&recorded);
    assert_eq!(recorded.status.code(), Some(2), "{said}");
    assert!(said.contains("File too large") && said.contains("hint: "), "{said}");
    assert!(busy.lives());
    let report = run(&["report", &path]);
    assert!(!stderr(&report).contains("panicked"), "{}", stderr(&report));
}

#[test]
fn too_few_open_files_are_reported() {
    if !can_capture() {
        return;
    }
    let (busy, (_folder, path)) = (spinning(), place());
    // With some more, samples would be possible and their probes would not: a capture is whole or says why not.
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
    let (busy, (_folder, path)) = (spinning(), place());
    // The error names the number.
    let refused = stderr(&limited("--nofile=40", &["record", "--pid", &busy.pid(), "-d", "2s", "-o", &path]));
    let least = refused.split("takes ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or(&refused);
    let recorded =
        limited(&format!("--nofile={least}"), &["record", "--pid", &busy.pid(), "-d", "2s", "-o", &path]);
    let said = stderr(&recorded);
    assert_eq!(recorded.status.code(), Some(0), "{said}");
    let complete = said.split(" % of stacks complete").next().and_then(|before| before.rsplit(' ').next());
    let complete_percent: f64 = complete.and_then(|percent| percent.parse().ok()).unwrap_or_default();
    assert!(!said.contains("nothing can be probed") && complete_percent > 99.0, "{said}");
}

#[test]
fn too_little_address_space_is_reported() {
    if !can_capture() {
        return;
    }
    let (busy, (_folder, path)) = (spinning(), place());
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
    let (busy, (_folder, path)) = (spinning(), place());
    // Less than a symbol reader sets itself, and far more than it takes.
    let limit = "--as=100000000000";
    let recorded =
        limited(limit, &["record", "--pid", &busy.pid(), "--freq", "499", "-d", "3s", "-o", &path]);
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    let report = expect_code(0, &["report", &path, "--all"]);
    assert!(!report.contains("symbol-no-reader"), "{report}");
    assert!(report.contains("_Py") || report.contains("pymain_"), "{report}");
}

#[test]
fn a_profiler_that_stood_still_goes_on() {
    if !can_capture() {
        return;
    }
    let (busy, (_folder, path)) = (spinning(), place());
    let mut command = program();
    command.args(["record", "--pid", &busy.pid(), "-d", "8s", "-o", &path]).stderr(Stdio::piped());
    let recorder = command.spawn().unwrap();
    let signal = |name: &str| {
        let sent = Command::new("kill").args(["-s", name, &recorder.id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    sleep(Duration::from_secs(3));
    signal("STOP");
    sleep(Duration::from_secs(3));
    signal("CONT");
    let ended = recorder.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    deepctx_storage::open(&path).unwrap().profile.ledger.check(When::Finished).unwrap();
    assert!(busy.lives());
}

/// A cgroup with one program; gone when dropped.
struct Group {
    folder: PathBuf,
    child: Child,
}

impl Group {
    /// `None` where there is no cgroup v2 that can be written.
    fn start(name: &str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists())?;
        let folder = root.join(name);
        fs::create_dir(&folder).ok()?;
        let script = "echo $$ > \"$0\"; while :; do :; done";
        let mut shell = Command::new("sh");
        let child = shell.args(["-c", script]).arg(folder.join("cgroup.procs")).spawn().unwrap();
        let group = Self { folder, child };
        let start = Instant::now();
        while fs::read_to_string(group.folder.join("cgroup.procs")).is_ok_and(|procs| procs.is_empty()) {
            assert!(start.elapsed() < Duration::from_secs(10), "the program did not enter its cgroup");
            sleep(Duration::from_millis(20));
        }
        Some(group)
    }

    /// Ends the program and removes the cgroup; whether it is gone.
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
    let (_folder, path) = place();
    let mut command = program();
    command.args(["record", "--cgroup", &name, "--freq", "499", "-d", "5s", "-o", &path]);
    let recorder = command.stderr(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_secs(3));
    assert!(group.remove(), "the cgroup is still there");
    let ended = recorder.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    let report = expect_code(0, &["report", &path]);
    assert!(!stderr(&ended).contains(" 0 samples"), "{}\n{report}", stderr(&ended));
}
