//! Programs that keep every CPU busy do not delay the end of a capture.
//!
//! Owns: dozens of processes that compute while a recording ends. Because: the end is promised within 5 s, whatever its
//! share of the CPUs was before. Does not: judge how much is sampled on such a machine.

use std::time::{Duration, Instant};

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::{can_capture, sample_count};
use super::{OtherUserProcess, compiled_workload, computing, open_folder};

/// Without a higher priority, the end would have a fortieth of the CPUs.
const COMPUTING: usize = 80;
/// Promised maximum time for a recording to end.
const END: Duration = Duration::from_secs(5);

#[test]
fn a_busy_machine_does_not_delay_the_end() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let program = compiled_workload(folder.path(), "innocent");
    let target = computing(&program);
    let mut recording = Recording::start(&target.pid(), &[]);
    recording.wait_until(|file| sample_count(file) > 0);
    let others: Vec<OtherUserProcess> = (0..COMPUTING).map(|_| computing(&program)).collect();
    let began = Instant::now();
    recording.signal("INT");
    let RecordingOutcome { status, said } = recording.ended();
    let end = began.elapsed();
    drop(others);
    println!("the end beside {COMPUTING} computing processes took {end:?}");
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(end <= END, "the end took {end:?}: {said}");
}
