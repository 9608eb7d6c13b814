//! More processes than the kernel's table holds affect only their own user.
//!
//! Owns: thousands of children that only sleep, and a program that starts after them. Because: a child can be walked
//! from its first instruction, so it is in the table before anybody scans it. Does not: fill tables with mappings
//! (`full_tables`).

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::victim::VICTIM;
use super::cli_support::{can_capture, folded, program};
use super::{OtherUserProcess, compiled_workload, open_folder};

/// More than the table's 8192 processes.
const CHILDREN: &str = "8300";
/// Programs that start after them. The first one may find the entry of a process that has just ended.
const LATE: usize = 3;

#[test]
fn thousands_of_sleeping_children_harm_nobody() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let (parent, late) =
        (compiled_workload(folder.path(), "sleeping_children"), compiled_workload(folder.path(), "innocent"));
    let mut command = Command::new(parent);
    command.arg(CHILDREN).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut theirs = OtherUserProcess::start(&mut command);
    let mut recording = Recording::by(&mut program(), &["--all", "-F", "499"]);
    recording.wait_for_probes();
    // They are forked during the recording.
    theirs.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    theirs.wait_for_line("ready");

    let late: Vec<String> = (0..LATE).map(|_| computed(&late)).collect();
    let file = recording.file();
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");

    let (mut all, mut whole) = (0, 0);
    for line in folded(&file, "samples", &[]).lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let count: u64 = count.parse().unwrap();
        let process = stack.split(';').next().and_then(|first| first.rsplit('-').next());
        if process.is_some_and(|pid| late.iter().any(|late| late == pid)) {
            all += count;
            whole += if stack.contains(";main;") { count } else { 0 };
        }
    }
    assert!(
        all > 500 && whole * 100 >= all * 95,
        "{whole} of {all} stacks of who came late are whole: {said}"
    );
}

/// The pid of a process that began, and has computed for a second.
fn computed(program: &Path) -> String {
    let mut command = Command::new(program);
    command.arg("1").uid(VICTIM).gid(VICTIM).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = OtherUserProcess::root(&mut command);
    process.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    process.wait_for_line("done");
    process.pid()
}
