//! What is left in the kernel, and of a profile, when a capture or its target changes at the worst moment. Needs root
//! and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cli_support::recording::{Ended, Recording, wait_for};
use cli_support::{Busy, can_capture, expect_code, sample_count, signal, workers_of};
use deepctx_profile::ledger::CheckTime;
use libbpf_rs::query::{LinkInfoIter, ProgInfoIter};

/// Numbers of the programs and links that a process holds, as the kernel calls them (`/proc/PID/fdinfo`).
struct Held {
    programs: HashSet<u32>,
    links: HashSet<u32>,
}

impl Held {
    fn by(pid: &str) -> Self {
        let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
        let texts: Vec<String> = files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
        let numbers = |key: &str| {
            let lines = texts.iter().flat_map(|text| text.lines());
            lines.filter_map(|line| line.strip_prefix(key)?.trim().parse().ok()).collect()
        };
        Self { programs: numbers("prog_id:"), links: numbers("link_id:") }
    }

    /// Waits until the kernel has none of them: it frees them after their last user.
    fn is_gone(&self) {
        wait_for("the end of all programs and links", || {
            let programs = ProgInfoIter::default().any(|program| self.programs.contains(&program.id));
            !programs && !LinkInfoIter::default().any(|link| self.links.contains(&link.id))
        });
    }
}

#[test]
fn no_probe_is_left_however_a_recording_ends() {
    if !can_capture() {
        return;
    }
    let busy = Busy::python();
    for signal in ["INT", "TERM", "KILL", "ABRT"] {
        let mut recording = Recording::start(&busy.pid(), &["--off-cpu"]);
        recording.wait_for_probes();
        recording.wait_until(|file| sample_count(file) > 0);
        let held = Held::by(&recording.pid());
        assert!(!held.programs.is_empty() && !held.links.is_empty(), "{signal}");
        recording.signal(signal);
        recording.ended();
        held.is_gone();
        assert!(busy.lives(), "{signal}");
    }
}

/// What a program runs until it has input, and at its end.
const BEFORE: &str = "import ctypes, os, select, sys
while not select.select([sys.stdin], [], [], 0)[0]: pass
";
const AFTER: &str = "
def after():
    n = 0
    while True: n += 1
after()
";

/// A program in Python that spins until it has input, does this, and spins on; ended when dropped.
struct Target(Child);

impl Target {
    fn to(what: &str) -> Self {
        let mut command = Command::new("python3");
        command.arg("-c").arg(format!("{BEFORE}{what}{AFTER}"));
        Self(command.stdin(Stdio::piped()).spawn().unwrap())
    }

    fn goes_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records a program that does this meanwhile. What it runs behind that has names, and the profile is whole.
fn goes_on_after(what: &str) {
    goes_on_after_both(what, |_| ());
}

/// The same where something happens to the recording first.
fn goes_on_after_both(what: &str, happens: impl Fn(&Recording)) {
    if !can_capture() {
        return;
    }
    let mut target = Target::to(what);
    let mut recording = Recording::start(&target.0.id().to_string(), &["--freq", "499"]);
    recording.wait_until(|file| sample_count(file) > 100);
    happens(&recording);
    target.goes_on();
    let has_names = |file: &str| expect_code(0, &["report", file, "--all"]).contains("after");
    recording.wait_until(has_names);
    let Ended { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    let profile = deepctx_storage::open(recording.file()).unwrap().profile;
    profile.ledger.check(CheckTime::Finished).unwrap();
    assert!(target.0.try_wait().unwrap().is_none(), "the program lives: {said}");
}

#[test]
fn a_target_that_leaves_its_namespaces_keeps_its_names() {
    // CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET
    goes_on_after("assert ctypes.CDLL(None).unshare(0x6c020000) == 0\nimport decimal, sqlite3");
}

#[test]
fn a_target_that_becomes_another_user_keeps_its_names() {
    goes_on_after("os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)");
}

#[test]
fn a_target_that_becomes_another_program_keeps_its_names() {
    goes_on_after(&format!("os.execvp('python3', ['python3', '-c', {AFTER:?}])"));
}

#[test]
fn lost_memory_readers_are_replaced() {
    goes_on_after_both(&format!("os.execvp('python3', ['python3', '-c', {AFTER:?}])"), |recording| {
        let readers = workers_of(&recording.pid(), "memory-reader");
        assert!(!readers.is_empty());
        readers.iter().for_each(|reader| signal(reader.file_name().unwrap().to_str().unwrap(), "KILL"));
    });
}

#[test]
fn running_out_of_open_files_keeps_what_was_recorded() {
    if !can_capture() {
        return;
    }
    let mut target = Target::to(&format!("os.execvp('python3', ['python3', '-c', {AFTER:?}])"));
    let mut recording = Recording::start(&target.0.id().to_string(), &["--freq", "499"]);
    recording.wait_until(|file| sample_count(file) > 100);
    let pid = recording.pid();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let mut limit = Command::new("prlimit");
    limit.args(["--pid", &pid, &format!("--nofile={open}:{open}")]);
    assert!(limit.status().unwrap().success());
    // The new program's files cannot be opened: its stacks are there, and say so.
    target.goes_on();
    let executable = Path::new("/proc").join(target.0.id().to_string()).join("cmdline");
    wait_for("the new program", || {
        fs::read_to_string(&executable).is_ok_and(|line| !line.contains("select"))
    });
    let seen = sample_count(&recording.file());
    recording.wait_until(|file| sample_count(file) > seen + 500);
    let Ended { status, said } = recording.interrupted();
    // The last write may find none free; then it is reported, and what was written stays.
    assert!(status.code() == Some(0) || said.contains("Too many open files"), "{status}: {said}");
    assert!(sample_count(&recording.file()) > seen + 500, "{said}");
    assert!(target.0.try_wait().unwrap().is_none(), "{said}");
}
