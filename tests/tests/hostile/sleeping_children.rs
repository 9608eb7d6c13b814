//! More processes than the kernel's table holds affect only their own user.
//!
//! Owns: thousands of children that only sleep, and programs that start after them. Because: a child can be walked from
//! its first instruction, so it is in the table before anybody scans it. Does not: fill tables with mappings
//! (`full_tables`).

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::victim::{Samples, VICTIM};
use super::cli_support::{can_capture, folded, program};
use super::{OTHER, OtherUserProcess, compiled_workload, computing_as, open_folder};

/// More than the table's 8192 processes.
const CHILDREN: &str = "8300";
/// Programs that start after them. One may find the entry of a process that has just ended.
const LATE: usize = 3;

#[test]
fn thousands_of_sleeping_children_harm_nobody() {
    check(VICTIM);
}

#[test]
fn sleeping_children_leave_room_to_their_own_user() {
    // Once they have been idle for ten seconds.
    check(OTHER);
}

/// Programs of this user, which start after the children, have complete stacks.
fn check(user: u32) {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let parent = compiled_workload(folder.path(), "sleeping_children");
    let late = compiled_workload(folder.path(), "innocent");
    let mut command = Command::new(parent);
    command.arg(CHILDREN).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut theirs = OtherUserProcess::start(&mut command);
    let mut recording = Recording::by(&mut program(), &["--all", "-F", "499"]);
    recording.wait_for_probes();
    // They are forked during the recording.
    theirs.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    theirs.wait_for_line("ready");

    // Without an entry of its own, no stack of a process is ever complete.
    let late: Vec<OtherUserProcess> = (0..LATE).map(|_| computing_as(user, &late)).collect();
    recording.wait_until(|file| {
        let stacks = folded(file, "samples", &[]);
        late.iter().all(|process| Samples::of(&stacks, &process.pid()).complete >= 100)
    });
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
}
