//! Interpreters that die, take each other's place, or run beside each other in one tree of processes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::moving::{Calls, calls, wrong};
use crate::support::{
    Python, Target, broken, captured, for_each, labelled, profiler, pythons, row, stacks, workload,
};

/// One interpreter of each version.
fn versions() -> Vec<Python> {
    let mut versions = pythons();
    versions.dedup_by_key(|python| python.minor);
    versions
}

/// Records an interpreter that is killed so long after the profiler was started; stacks of its workload that were
/// compared, those that were right, and gaps.
fn killed(profiler: &Path, python: &Python, calls: &Calls, after: Duration) -> (u64, u64, u64) {
    let mut target = Target::start(python, &[&workload("python_moving.py")]);
    target.lines_until_ready();
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("run.dctx");
    let profile = profile.to_str().unwrap();
    let pid = target.pid().to_string();
    let mut record = Command::new(profiler)
        .args(["record", "--pid", &pid, "--duration", "60s", "--freq", "999", "-o", profile])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(after);
    drop(target);
    // Nobody is left to be captured, so it ends by itself.
    let status = record.wait().unwrap();
    let (mut compared, mut equal, mut gaps) = (0, 0, 0);
    if status.code() == Some(2) {
        // It was dead before it was found.
        return (compared, equal, gaps);
    }
    assert!(status.success(), "{}: {status}", python.name);
    for (frames, count) in stacks(profiler, profile, "full") {
        if !frames.iter().any(|frame| frame.starts_with("python_moving.py:")) {
            continue;
        }
        compared += count;
        if broken(&frames) {
            gaps += count;
            continue;
        }
        if let Some(complaint) = wrong(&frames, calls) {
            panic!("{}: {complaint}: {}", python.name, frames.join(";"));
        }
        equal += count;
    }
    (compared, equal, gaps)
}

#[test]
fn interpreter_killed_during_a_walk_leaves_no_wrong_frames() {
    let Some(profiler) = profiler() else { return };
    let calls = calls(&std::fs::read_to_string(workload("python_moving.py")).unwrap());
    let extended: Vec<_> = versions().into_iter().filter(|python| python.extension.is_some()).collect();
    for_each(&extended, |python| {
        // When exactly it dies does not matter; that it was walked before does, and how long that takes nobody knows.
        let mut after = Duration::from_secs(1);
        let (compared, equal, gaps) = loop {
            let seen = killed(&profiler, python, &calls, after);
            if seen.1 > 20 || after > Duration::from_secs(10) {
                break seen;
            }
            after *= 3;
        };
        row(&python.name, "killed", 1, compared, equal, gaps);
        assert!(equal > 20, "{}: {equal} equal of {compared}", python.name);
    });
}

/// `n` of each `stay_n` that was seen; panics when one is not where it belongs.
fn stayed(stacks: &[(Vec<String>, u64)]) -> BTreeSet<u8> {
    let mut seen = BTreeSet::new();
    for (frames, _) in stacks.iter().filter(|(frames, _)| !labelled(frames)) {
        let own: Vec<_> =
            frames.iter().filter_map(|frame| frame.strip_prefix("python_versions.py:")).collect();
        let stays: Vec<_> = own.iter().filter_map(|frame| frame.strip_prefix("stay_")).collect();
        let [stay] = stays[..] else {
            assert!(stays.is_empty(), "{frames:?}");
            continue;
        };
        let (minor, line) = stay.split_once(':').unwrap();
        assert!(["3", "4"].contains(&line), "{frames:?}");
        let [module, main, _] = own[..] else { panic!("{frames:?}") };
        assert!(module.starts_with("<module>:") && main.starts_with("main:"), "{frames:?}");
        assert_eq!(frames.len(), 3, "{frames:?}");
        seen.insert(minor.parse().unwrap());
    }
    seen
}

#[test]
fn exec_into_another_interpreter_shows_the_frames_of_each() {
    let Some(profiler) = profiler() else { return };
    let versions = versions();
    let of = |minor: u8| versions.iter().find(|python| python.minor == minor);
    for (before, after) in [(9, 13), (13, 9), (11, 15), (14, 11)] {
        let (Some(before), Some(after)) = (of(before), of(after)) else { continue };
        let program = after.path.to_str().unwrap();
        let mut target = Target::start(before, &[&workload("python_versions.py"), "--exec", program]);
        target.lines_until_ready();
        let stacks = captured(&profiler, target.pid(), [5, 199], "python");
        let seen = stayed(&stacks);
        let all: u64 = stacks.iter().map(|(_, count)| count).sum();
        let gaps = stacks.iter().filter(|(frames, _)| labelled(frames)).map(|(_, count)| count).sum();
        row(&format!("{} to 3.{}", before.name, after.minor), "exec", 2, all, all - gaps, gaps);
        assert_eq!(seen, BTreeSet::from([before.minor, after.minor]), "{} to {}", before.name, after.name);
    }
}

#[test]
fn each_interpreter_version_in_a_process_tree_is_read_correctly() {
    let Some(profiler) = profiler() else { return };
    let versions = versions();
    let Some(parent) = versions.first() else { return };
    let children: Vec<_> = versions.iter().skip(1).map(|python| python.path.to_str().unwrap()).collect();
    let program = workload("python_versions.py");
    let mut target = Target::start(parent, &[&[&*program, "--spawn"], &children[..]].concat());
    target.lines_until_ready();
    let stacks = captured(&profiler, target.pid(), [4, 199], "python");
    let expect: BTreeSet<u8> = versions.iter().map(|python| python.minor).collect();
    let all: u64 = stacks.iter().map(|(_, count)| count).sum();
    let gaps = stacks.iter().filter(|(frames, _)| labelled(frames)).map(|(_, count)| count).sum();
    row(&parent.name, "one tree of processes", expect.len(), all, all - gaps, gaps);
    assert_eq!(stayed(&stacks), expect);
}
