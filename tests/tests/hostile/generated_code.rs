//! More generated code than can be scanned costs its own user's stacks, and delays no other user.
//!
//! Owns: a process with hundreds of megabytes of it beside one that computes. Does not: test the results of such a
//! scan.

use std::process::{Command, Stdio};

use super::cli_support::recording::{Recording, RecordingOutcome, wait_for};
use super::cli_support::victim::harms_nobody;
use super::cli_support::{Busy, TICKS, can_capture, folded, gap_count, lives, ticks};
use super::{OtherUserProcess, compiled_workload, open_folder};

/// Scanning all of it would take ten times as long.
const MAPPINGS: &str = "24";
/// Just below the maximum size of scanned mappings.
const MEBIBYTES: &str = "15";
/// Maximum CPU seconds of a recording: its start is promised within 2 s and its end within 5 s. Wall time would depend
/// on other users of the machine.
const LONGEST: u64 = 7;

/// A process with this much generated code, and the folder of its program.
fn flood() -> (tempfile::TempDir, OtherUserProcess) {
    let folder = open_folder();
    let flood = compiled_workload(folder.path(), "generated_flood");
    let mut theirs =
        OtherUserProcess::start(Command::new(flood).args([MAPPINGS, MEBIBYTES]).stdout(Stdio::piped()));
    theirs.wait_for_line("ready");
    (folder, theirs)
}

#[test]
fn a_flood_of_generated_code_holds_nobody_up() {
    if !can_capture() {
        return;
    }
    let (_folder, theirs) = flood();
    let busy = Busy::start();

    let mut recording = Recording::start(&busy.pid(), &["--pid", &theirs.pid()]);
    recording.wait_until(|file| {
        let stacks = folded(file, "samples", &[]);
        let over_budget = gap_count(&deepctx_storage::open(file).unwrap().profile, "mapping-over-budget");
        over_budget > 0 && stacks.lines().any(|line| line.starts_with("sh-"))
    });
    recording.signal("INT");
    wait_for("the end of the recording", || !lives(&recording.pid()));
    let took = ticks(&recording.pid());
    let RecordingOutcome { status, said } = recording.ended();
    assert!(status.success(), "{said}");
    println!("| {took} ticks of CPU time");
    assert!(took < LONGEST * TICKS, "{took} ticks: {said}");
}

#[test]
fn a_flood_of_generated_code_harms_nobody() {
    if !can_capture() {
        return;
    }
    // Gaps are written with samples, and sleeping processes have none.
    let ((_folder, theirs), busy) = (flood(), Busy::start());
    harms_nobody("360 MiB of generated code", &["--pid", &theirs.pid(), "--pid", &busy.pid()], |file| {
        gap_count(&deepctx_storage::open(file).unwrap().profile, "mapping-over-budget") > 0
    });
}
