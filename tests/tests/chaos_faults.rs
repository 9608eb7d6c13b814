//! A disk that fails at one call of many. Needs root, BPF and strace, which makes the call fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cli_support::{Busy, can_capture, program, run, stderr};
use deepctx_profile::ledger::When;

/// A recording of a spinning program, one of whose calls goes as strace is told.
struct Faulty {
    busy: Busy,
    folder: tempfile::TempDir,
    strace: Child,
}

impl Faulty {
    /// With a fault in strace's words, such as `fsync:error=EIO:when=3`, and with the profile flushed often. Calls are
    /// counted in each thread: the main thread creates the profile, another one flushes.
    fn start(fault: &str, duration: &str) -> Self {
        let busy = Busy::of(Command::new("python3").args(["-c", "def hot():\n while True: pass\nhot()"]));
        let folder = tempfile::tempdir().unwrap();
        let recorder = program();
        let mut command = Command::new("strace");
        command.args(["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=fsync,renameat", "-e"]);
        command.arg(format!("inject={fault}")).arg(recorder.get_program());
        for (name, value) in recorder.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args([
            "record",
            "--freq",
            "499",
            "--flush",
            "200ms",
            "-d",
            duration,
            "--pid",
            &busy.pid(),
            "-o",
        ]);
        command.arg(folder.path().join("run.dctx"));
        let strace = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Self { busy, folder, strace }
    }

    fn profile(&self) -> PathBuf {
        self.folder.path().join("run.dctx")
    }

    /// Waits for its end; gives the exit code and what was said. The target must live, and its profile be sound.
    fn end(self) -> Ended {
        let profile = self.profile();
        let ended = self.strace.wait_with_output().unwrap();
        let said = stderr(&ended);
        assert!(!said.contains("panicked"), "{said}");
        let status = fs::read_to_string(format!("/proc/{}/stat", self.busy.pid())).unwrap();
        assert!(!status.contains(") Z "), "the target has died");
        Ended { code: ended.status.code(), said, profile, _folder: self.folder }
    }
}

struct Ended {
    code: Option<i32>,
    said: String,
    profile: PathBuf,
    _folder: tempfile::TempDir,
}

impl Ended {
    /// Samples of the profile, of which the ledger must add up.
    fn samples(&self, when: When) -> u64 {
        let opened = deepctx_storage::open(&self.profile).unwrap();
        opened.profile.ledger.check(when).unwrap();
        opened.profile.ledger.received()
    }

    /// Files that the manifest does not list.
    fn unlisted(&self) -> Vec<String> {
        let manifest = fs::read_to_string(self.profile.join("manifest.json")).unwrap();
        let names =
            fs::read_dir(&self.profile).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "manifest.json" && !manifest.contains(name.as_str())).collect()
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
        let ended = Faulty::start(fault, "3s").end();
        assert_eq!(ended.code, Some(2), "{fault}: {}", ended.said);
        let line = format!("cannot create the profile `{}`: {error}", ended.profile.display());
        assert!(ended.said.contains(&line), "{fault}: {}", ended.said);
        assert!(!ended.said.contains("can be opened"), "{fault}: {}", ended.said);
        assert!(!Path::new(&ended.profile).exists(), "{fault}");
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
        let ended = Faulty::start(fault, "3s").end();
        assert_eq!(ended.code, Some(0), "{fault}: {}", ended.said);
        assert!(ended.said.contains(error), "{fault}: {}", ended.said);
        assert!(
            ended.said.contains("a later attempt succeeded, and nothing is missing"),
            "{fault}: {}",
            ended.said
        );
        assert!(ended.samples(When::Finished) > 500, "{fault}: {}", ended.said);
        assert_eq!(ended.unlisted(), Vec::<String>::new(), "{fault}");
    }
}

#[test]
fn a_failing_disk_keeps_what_was_flushed() {
    if !can_inject() {
        return;
    }
    for fault in ["fsync:error=EIO:when=20+", "renameat:error=EROFS:when=20+"] {
        let ended = Faulty::start(fault, "3s").end();
        assert_eq!(ended.code, Some(2), "{fault}: {}", ended.said);
        assert!(
            ended.said.contains("cannot write") && ended.said.contains("hint: "),
            "{fault}: {}",
            ended.said
        );
        assert!(ended.samples(When::Running) > 0, "{fault}: {}", ended.said);
        assert_eq!(ended.unlisted(), Vec::<String>::new(), "{fault}");
        let report = run(&["report", ended.profile.to_str().unwrap()]);
        assert!(stderr(&report).contains("did not end well"), "{fault}: {}", stderr(&report));
    }
}
