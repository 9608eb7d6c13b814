//! Many processes that use accelerators: which have a row of their own, and that all figures add up.
//!
//! Owns: pages of short jobs, and of one user's many processes. Because: a capture that lasts for weeks meets more
//! processes than are kept, and one user's must not take the room of all others. Does not: test what calls mean.

use crate::pipeline_support::{PIDS_OF_USER, run};
use deepctx_profile::device::activity::GpuProcess;
use deepctx_profile::ledger::{CheckTime, Stage};
use deepctx_profile::profile::Profile;

/// A process that launches so many kernels from `time` on.
fn job(time: u64, pid: u32, launches: u64) -> String {
    let launch = |n| {
        let (at, call) = (time + n, time * 10 + n);
        format!("{at} call {call} cuLaunchKernel {pid}/{pid} app function=0x100 : ! main\n")
    };
    (0..launches).map(launch).collect()
}

fn sum(profile: &Profile, of: fn(&GpuProcess) -> u64) -> u64 {
    profile.gpu.processes.iter().map(of).sum()
}

fn unremembered(profile: &Profile) -> u64 {
    profile.ledger.stage(Stage::Correlate).gaps.count("device-state-full")
}

/// The row of a process; `None` when it has none of its own.
fn row(profile: &Profile, pid: u32) -> Option<&GpuProcess> {
    profile.gpu.processes.iter().find(|process| process.pid == pid)
}

#[test]
fn a_process_after_thousands_of_others_is_known() {
    let ended = (1..=3000).map(|n| format!("{}{} exit {n}\n", job(n * 10, n as u32, 2), n * 10 + 5));
    let mut pipeline = run(&format!("{}{}", ended.collect::<String>(), job(40_000, 3001, 3)));
    let profile = pipeline.profile();
    profile.ledger.check(CheckTime::Finished).unwrap();
    let last = row(profile, 3001).expect("it has a row");
    assert_eq!((last.launches, unremembered(profile)), (3, 0));
    assert_eq!(sum(profile, |process| process.launches), 3000 * 2 + 3);
    let labels: Vec<String> = profile.gpu.processes.iter().take(3).map(GpuProcess::label).collect();
    assert_eq!(labels, ["process 3001", "2760 other processes", "process 3000"]);
}

#[test]
fn one_user_leaves_room_for_the_process_of_another() {
    let theirs: String = (1..=1000).map(|n| job(n * 10, PIDS_OF_USER + n as u32, 2)).collect();
    let others = 2 * PIDS_OF_USER;
    let mut pipeline = run(&format!("{theirs}{}", job(20_000, others, 3)));
    let profile = pipeline.profile();
    profile.ledger.check(CheckTime::Finished).unwrap();
    assert_eq!(row(profile, others).map(|process| process.launches), Some(3));
    let followed = profile.gpu.processes.len() as u64 - 1;
    assert_eq!((followed, unremembered(profile)), (614, (1000 - 614) * 2), "each record counts");
}

#[test]
fn processes_whose_end_was_lost_give_way_after_a_minute() {
    let lost: String = (1..=800).map(|n| job(n * 10, n as u32, 1)).collect();
    let mut pipeline = run(&format!("{lost}{}", job(61_000_000_000, 801, 3)));
    let profile = pipeline.profile();
    profile.ledger.check(CheckTime::Finished).unwrap();
    assert_eq!(row(profile, 801).map(|process| process.launches), Some(3));
    assert_eq!(sum(profile, |process| process.launches), 768 + 3);
    assert_eq!(unremembered(profile), 800 - 768 + 1, "those refused, and the one that gave way");
}
