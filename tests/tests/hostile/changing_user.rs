//! A process that changes its user while it is read delays neither user's scans.
//!
//! Owns: that attack. Because: users' processes are scanned in turn, and a scan that never ends leaves all programs of
//! its user without unwind rows. Does not: test the order of users (`waiting_scans`).

use std::process::{Command, Stdio};

use super::cli_support::can_capture;
use super::cli_support::victim::{VICTIM, harms_nobody};
use super::{OTHER, OtherUserProcess, compiled_workload, open_folder};

/// Number of processes that change their user before the victim starts.
const PROCESSES: &str = "2000";

#[test]
fn whoever_changes_their_user_harms_neither() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let changing = compiled_workload(folder.path(), "changing_user");
    let script = format!("read go; exec {} {PROCESSES} {VICTIM} {OTHER}", changing.display());
    let mut theirs = OtherUserProcess::root(Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()));
    harms_nobody("2 000 changes of users", &["--pid", &theirs.pid()], |_| {
        // The capture is running: the processes start now, and end before the victims start.
        drop(theirs.0.stdin.take());
        assert!(theirs.0.wait().unwrap().success());
        true
    });
}
