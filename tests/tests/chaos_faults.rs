//! A disk that fails at one call of many. Needs root, BPF, and strace and a C compiler, which make the call fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cli_support::held_objects::HeldObjects;
use cli_support::recording::{self, Recording};
use cli_support::{Busy, can_capture, lives, program, program_under, run, sample_count, stderr};
use deepctx_profile::ledger::CheckTime;

/// Numbers of errors (asm-generic/errno-base.h).
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Records a spinning program, which must survive, while one system call fails. The fault is in strace's syntax, such
/// as `fsync:error=EIO:when=3`. Calls are counted per thread: the main thread creates the profile, another one flushes
/// it. Ends once the fault has occurred and this many samples exist.
fn recorded_with(fault: &str, samples: u64) -> FaultOutcome {
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "--seccomp-bpf", "-qq", "-e", "trace=fsync,renameat", "-o"]).arg(&calls);
    let command = program_under(strace.args(["-e", &format!("inject={fault}")]));
    let has_failed = || fs::read_to_string(&calls).is_ok_and(|calls| calls.contains("(INJECTED)"));
    recorded_until(fault, has_failed, command, samples, None, folder)
}

/// A library that makes writes fail, compiled once for all recordings of a test.
struct FailingWrites {
    folder: tempfile::TempDir,
}

impl FailingWrites {
    fn compiled() -> Self {
        let failing = Self { folder: tempfile::tempdir().unwrap() };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/failing_writes.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(failing.library()).arg(source);
        assert!(compiler.status().unwrap().success());
        failing
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("failing_writes.so")
    }

    /// As [`recorded_with`], while writes to the profile fail, counted over all threads: these many from the `first`
    /// on, with this error number.
    fn recorded(&self, first: u64, count: u64, error: i32, samples: u64) -> FaultOutcome {
        self.failing(&format!("{first} {count} {error}"), samples, false)
    }

    /// The same for all writes from the `first` on, counted once this many samples are on disk: how many writes precede
    /// them depends on the load.
    fn recorded_after(&self, samples: u64, first: u64, error: i32) -> FaultOutcome {
        self.failing(&format!("{first} {} {error}", u32::MAX), samples, true)
    }

    fn failing(&self, writes: &str, samples: u64, after_samples: bool) -> FaultOutcome {
        let folder = tempfile::tempdir().unwrap();
        let (mark, begin) = (folder.path().join("failed"), folder.path().join("begin"));
        let setting = format!("{writes} {}", folder.path().join("run.dctx").display());
        let mut command = program();
        command.env("LD_PRELOAD", self.library());
        command.env("FAILING_WRITES", &setting).env("FAILING_WRITES_MARK", &mark);
        let begin = after_samples.then_some(&*begin);
        if let Some(begin) = begin {
            command.env("FAILING_WRITES_BEGIN", begin);
        }
        recorded_until(&setting, || mark.exists(), &mut command, samples, begin, folder)
    }
}

/// Records with this program until the fault has occurred and this many samples exist. `begin`: the fault is possible
/// once this file exists, which is when they do.
fn recorded_until(
    fault: &str,
    has_failed: impl Fn() -> bool,
    command: &mut Command,
    samples: u64,
    begin: Option<&Path>,
    folder: tempfile::TempDir,
) -> FaultOutcome {
    let busy = Busy::python();
    let profile = folder.path().join("run.dctx");
    let options = ["--freq", "499", "--flush", "200ms", "--pid", &busy.pid()];
    let mut recording = Recording::of_file(&profile, command, &options);
    if let Some(begin) = begin {
        recording.wait_until(|file| sample_count(file) > samples);
        fs::write(begin, "").unwrap();
    }
    // A recording that cannot create its profile ends by itself.
    recording::wait_for(fault, has_failed);
    let mut held = None;
    if samples > 0 {
        recording.wait_until(|file| sample_count(file) > samples);
        assert!(lives(&recording.pid()), "{}", recording.said());
        held = Some(HeldObjects::by(&recording.pid()));
    }
    assert!(busy.lives());
    drop(busy);
    let recording::RecordingOutcome { status, said } = recording.ended();
    assert!(!said.contains("panicked"), "{said}");
    held.iter().for_each(HeldObjects::are_gone);
    FaultOutcome { code: status.code(), said, profile, _folder: folder }
}

struct FaultOutcome {
    code: Option<i32>,
    said: String,
    profile: PathBuf,
    _folder: tempfile::TempDir,
}

impl FaultOutcome {
    /// The error was reported, and the profile is complete.
    #[track_caller]
    fn lacks_nothing(&self, fault: &str, error: &str) {
        assert_eq!(self.code, Some(0), "{fault}: {}", self.said);
        assert!(self.said.contains(error), "{fault}: {}", self.said);
        assert!(self.samples(CheckTime::Finished) > 500, "{fault}: {}", self.said);
        assert_eq!(self.unlisted(), Vec::<String>::new(), "{fault}");
    }

    /// The recording failed, and what had been flushed opens.
    #[track_caller]
    fn has_what_was_flushed(&self, fault: &str) {
        let Self { code, said, profile, .. } = self;
        assert_eq!(*code, Some(2), "{fault}: {said}");
        assert!(said.contains("cannot write") && said.contains("hint: "), "{fault}: {said}");
        assert!(self.samples(CheckTime::Running) > 0, "{fault}: {said}");
        assert_eq!(self.left_over(), Vec::<String>::new(), "{fault}");
        let report = run(&["report", profile.to_str().unwrap()]);
        assert!(stderr(&report).contains("did not end well"), "{fault}: {}", stderr(&report));
    }

    /// Number of samples in the profile; its ledger must add up.
    fn samples(&self, when: CheckTime) -> u64 {
        let opened = deepctx_storage::open(&self.profile).unwrap();
        opened.profile.ledger.check(when).unwrap();
        opened.profile.ledger.received()
    }

    /// Files that the manifest does not list.
    fn unlisted(&self) -> Vec<String> {
        self.files().1
    }

    /// The same without files replaced by a later file of their table. Those stay after a failed `fsync`, because it is
    /// unknown whether the manifest without them is on disk.
    fn left_over(&self) -> Vec<String> {
        let (listed, mut unlisted) = self.files();
        let table = |name: &str| name.split_once('-').map(|(table, _)| table.to_owned());
        let replaces = |later: &String, name: &String| table(later) == table(name) && later > name;
        unlisted.retain(|name| !listed.iter().any(|later| replaces(later, name)));
        unlisted
    }

    /// Listed and unlisted files.
    fn files(&self) -> (Vec<String>, Vec<String>) {
        let manifest = fs::read_to_string(self.profile.join("manifest.json")).unwrap();
        let names = fs::read_dir(&self.profile).unwrap().map(|file| file.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap()).filter(|name| name != "manifest.json");
        names.partition(|name| manifest.contains(name.as_str()))
    }
}

fn has_strace() -> bool {
    let found = Command::new("strace").arg("--version").output().is_ok();
    assert!(found || std::env::var("CI").as_deref() != Ok("true"), "no strace here");
    if !found {
        println!("skipped: no strace here, which makes calls fail");
    }
    found
}

fn can_inject() -> bool {
    can_capture() && has_strace()
}

#[test]
fn a_profile_that_cannot_be_created_leaves_nothing() {
    if !can_inject() {
        return;
    }
    for (fault, error) in [
        ("fsync:error=EIO:when=1", "Input/output error"),
        ("fsync:error=EIO:when=2", "Input/output error"),
        ("renameat:error=ENOSPC:when=1", "No space left"),
    ] {
        let ended = recorded_with(fault, 0);
        assert_eq!(ended.code, Some(2), "{fault}: {}", ended.said);
        let line = format!("cannot create the profile `{}`: {error}", ended.profile.display());
        assert!(ended.said.contains(&line), "{fault}: {}", ended.said);
        assert!(!ended.said.contains("can be opened"), "{fault}: {}", ended.said);
        assert!(!ended.profile.exists(), "{fault}");
    }
}

#[test]
fn a_write_that_fails_once_is_made_good() {
    if !can_inject() {
        return;
    }
    for (fault, error) in [
        ("fsync:error=EIO:when=4", "Input/output error"),
        ("fsync:error=ENOSPC:when=9", "No space left"),
        ("renameat:error=EIO:when=2", "Input/output error"),
        ("renameat:error=EDQUOT:when=7", "quota exceeded"),
    ] {
        let ended = recorded_with(fault, 500);
        ended.lacks_nothing(fault, error);
        assert!(
            ended.said.contains("a later attempt succeeded, and nothing is missing"),
            "{fault}: {}",
            ended.said
        );
    }
}

#[test]
fn the_nth_write_that_fails_is_made_good_or_reported() {
    if !can_capture() {
        return;
    }
    let failing = FailingWrites::compiled();
    let errors = [(EIO, "Input/output error"), (ENOSPC, "No space left")];
    for (n, (error, text)) in [2, 5, 17, 40, 90].into_iter().zip(errors.into_iter().cycle()) {
        let ended = failing.recorded(n, 1, error, 500);
        let fault = format!("write {n}, {text}");
        if ended.code == Some(2) {
            // The profile could not be created.
            assert!(ended.said.contains("cannot create the profile"), "{fault}: {}", ended.said);
            assert!(!ended.profile.exists(), "{fault}");
            continue;
        }
        ended.lacks_nothing(&fault, text);
    }
}

#[test]
fn a_disk_on_which_every_write_fails_keeps_earlier_ones() {
    if !can_capture() {
        return;
    }
    let failing = FailingWrites::compiled();
    for (first, error) in [(1, EIO), (24, ENOSPC)] {
        let ended = failing.recorded_after(1, first, error);
        ended.has_what_was_flushed(&format!("from write {first} on"));
    }
}

#[test]
fn a_failing_disk_keeps_what_was_flushed() {
    if !can_inject() {
        return;
    }
    for fault in ["fsync:error=EIO:when=60+", "renameat:error=EROFS:when=60+"] {
        recorded_with(fault, 1).has_what_was_flushed(fault);
    }
}
