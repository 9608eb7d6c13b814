//! Interpreters that end, replace each other, or run side by side in one process tree.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use crate::cli_support::can_capture;
use crate::cli_support::recording::Recording;
use crate::moving::{Calls, calls, wrong};
use crate::support::{
    Python, Stacks, Target, broken, captured, for_each, labelled, row, stacks, total, versions, workload,
};

/// Records an interpreter that is killed once sampled; returns the compared stacks of its workload, the correct ones,
/// and gaps.
fn killed(python: &Python, calls: &Calls) -> (u64, u64, u64) {
    let mut target = Target::start(python, &[&workload("python_moving.py")]);
    target.lines_until_ready();
    let of_workload = |file: &str| -> Stacks {
        let is_of_workload = |frame: &String| frame.starts_with("python_moving.py:");
        let all = stacks(file, "full").into_iter();
        all.filter(|(frames, _)| frames.iter().any(is_of_workload)).collect()
    };
    let mut recording = Recording::start(&target.pid().to_string(), &["--freq", "999"]);
    recording.wait_until(|file| {
        let whole = of_workload(file).into_iter().filter(|(frames, _)| !broken(frames)).collect();
        total(&whole) > 100
    });
    drop(target);
    // No process is left to capture, so it ends by itself.
    let ended = recording.ended();
    assert!(ended.status.success(), "{}: {}\n{}", python.name, ended.status, ended.said);
    let (mut compared, mut equal, mut gaps) = (0, 0, 0);
    for (frames, count) in of_workload(&recording.file()) {
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
    if !can_capture() {
        return;
    }
    let calls = calls(&std::fs::read_to_string(workload("python_moving.py")).unwrap());
    let extended: Vec<_> = versions().into_iter().filter(|python| python.extension.is_some()).collect();
    for_each(&extended, |python| {
        let (compared, equal, gaps) = killed(python, &calls);
        row(&python.name, "killed", 1, compared, equal, gaps);
        assert!(equal > 20, "{}: {equal} equal of {compared}", python.name);
    });
}

/// The `n` of each sampled `stay_n`; panics when one is misplaced.
fn stayed(stacks: &Stacks) -> BTreeSet<u8> {
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
    if !can_capture() {
        return;
    }
    let versions = versions();
    let of = |minor: u8| versions.iter().find(|python| python.minor == minor);
    for (before, after) in [(9, 13), (13, 9), (11, 15), (14, 11)] {
        let (Some(before), Some(after)) = (of(before), of(after)) else { continue };
        let program = after.path.to_str().unwrap();
        let go = tempfile::NamedTempFile::new().unwrap();
        let mut file = go.as_file();
        file.write_all(&[0]).unwrap();
        let arguments = [&workload("python_versions.py"), "--exec", program, go.path().to_str().unwrap()];
        let mut target = Target::start(before, &arguments);
        target.lines_until_ready();
        let recording = Recording::start(&target.pid().to_string(), &["--freq", "1999"]);
        let seen = |file: &str| stayed(&stacks(file, "python"));
        recording.wait_until(|file| seen(file).contains(&before.minor));
        file.write_all_at(&[1], 0).unwrap();
        recording.wait_until(|file| seen(file).contains(&after.minor));
        let (_folder, recorded) = recording.end();
        let stacks = stacks(&recorded, "python");
        let seen = stayed(&stacks);
        let all = total(&stacks);
        let gaps = stacks.iter().filter(|(frames, _)| labelled(frames)).map(|(_, count)| count).sum();
        row(&format!("{} to 3.{}", before.name, after.minor), "exec", 2, all, all - gaps, gaps);
        assert_eq!(seen, BTreeSet::from([before.minor, after.minor]), "{} to {}", before.name, after.name);
    }
}

#[test]
fn each_interpreter_version_in_a_process_tree_is_read_correctly() {
    if !can_capture() {
        return;
    }
    let versions = versions();
    let Some(parent) = versions.first() else { return };
    let children: Vec<_> = versions.iter().skip(1).map(|python| python.path.to_str().unwrap()).collect();
    let program = workload("python_versions.py");
    let mut target = Target::start(parent, &[&[&*program, "--spawn"], &children[..]].concat());
    target.lines_until_ready();
    let expect: BTreeSet<u8> = versions.iter().map(|python| python.minor).collect();
    let is_enough = |stacks: &Stacks| stayed(stacks) == expect && total(stacks) > 500;
    let stacks = captured(target.pid(), 1999, ("python", &[]), is_enough);
    let all = total(&stacks);
    let gaps = stacks.iter().filter(|(frames, _)| labelled(frames)).map(|(_, count)| count).sum();
    row(&parent.name, "one tree of processes", expect.len(), all, all - gaps, gaps);
    assert_eq!(stayed(&stacks), expect);
}
