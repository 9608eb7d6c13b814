//! A flood of events of one process does not take the room that samples of others need.
//!
//! Owns: threads that launch or map without a pause. Because: all events of the machine pass through one ring buffer,
//! and whoever fills it would blind the capture. Does not: test that what is lost is counted (`gpu_live::gaps`).

use std::process::{Command, Stdio};

use deepctx_profile::metric::Metric;

use super::cli_support::can_capture;
use super::cli_support::victim::harms_nobody;
use super::{OtherUserProcess, compiled_workload, open_folder, probe_sites};

/// A process that floods with events of this kind, and the folder of its program.
fn flood(kind: &str) -> (tempfile::TempDir, OtherUserProcess) {
    let folder = open_folder();
    let (library, _) = probe_sites::driver(folder.path());
    let driver = folder.path().join("libcuda.so.1");
    std::fs::rename(library, &driver).unwrap();
    let program = compiled_workload(folder.path(), "event_flood");
    let mut command = Command::new(program);
    command.arg(kind).arg(driver).stdout(Stdio::piped());
    let mut theirs = OtherUserProcess::start(&mut command);
    theirs.wait_for_line("ready");
    (folder, theirs)
}

fn count(file: &str, metric: Metric) -> u64 {
    deepctx_storage::open(file).unwrap().profile.tree.total(metric).count
}

#[test]
fn a_flood_of_calls_harms_nobody() {
    if !can_capture() {
        return;
    }
    let (_folder, theirs) = flood("calls");
    harms_nobody("launches without a pause", &["--pid", &theirs.pid()], |file| {
        count(file, Metric::Kernels) > 100_000
    });
}

#[test]
fn a_flood_of_mappings_harms_nobody() {
    if !can_capture() {
        return;
    }
    let (_folder, theirs) = flood("mappings");
    harms_nobody("mappings without a pause", &["--pid", &theirs.pid()], |file| {
        count(file, Metric::Samples) > 100
    });
}
