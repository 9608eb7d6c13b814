//! Mappings without a pause do not take the room that samples of others need.
//!
//! Owns: threads that map and unmap executable pages. Because: all events of the machine pass through one ring buffer,
//! and a process that fills it would blind the capture. Does not: flood with calls (`gpu_live::gaps`).

use std::process::{Command, Stdio};

use deepctx_profile::metric::Metric;

use super::cli_support::can_capture;
use super::cli_support::victim::harms_nobody;
use super::{OtherUserProcess, compiled_workload, open_folder};

#[test]
fn a_flood_of_mappings_harms_nobody() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let program = compiled_workload(folder.path(), "event_flood");
    let mut command = Command::new(&program);
    let mut theirs = OtherUserProcess::start(command.arg(&program).stdout(Stdio::piped()));
    theirs.wait_for_line("ready");
    harms_nobody("mappings without a pause", &["--pid", &theirs.pid()], |file| {
        deepctx_storage::open(file).unwrap().profile.tree.total(Metric::Samples).count > 100
    });
}
