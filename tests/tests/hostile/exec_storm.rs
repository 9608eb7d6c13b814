//! Programs that start and end faster than they can be scanned.
//!
//! Owns: hundreds of new files a second, each run for a millisecond with many mappings, beside processes that compute.
//! Because: new programs are scanned first, and a scan costs more than a start. Does not: test eviction from a full
//! table (`full_tables`).

use std::process::{Command, Stdio};

use super::cli_support::victim::harms_nobody;
use super::cli_support::{can_capture, folded};
use super::{OtherUserProcess, compiled_workload, open_folder, others_folder};

#[test]
fn a_storm_of_new_programs_harms_nobody() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let storm = compiled_workload(folder.path(), "exec_storm");
    let theirs = others_folder(folder.path());
    let mut command = Command::new(storm);
    let mut storm = OtherUserProcess::start(command.args(["150", "500"]).arg(theirs).stdout(Stdio::piped()));
    storm.wait_for_line("ready");
    harms_nobody("150 new programs a second", &["--pid", &storm.pid()], |file| {
        // A hundred processes were recorded.
        let stacks = folded(file, "samples", &[]);
        let mut processes: Vec<&str> = stacks.lines().filter_map(|line| line.split(';').next()).collect();
        processes.dedup();
        processes.len() > 100
    });
}
