//! Whole captures of programs on the simulated device, compared with the programs' and the device's own account.
//!
//! Owns: the tests from a launch to the stored profile, by the program as a user runs it. Because: exact counts,
//! correct lines and correct times are promises about all stages together. Does not: test a single stage. Needs root
//! and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;
mod frameworks;
#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
mod simulated;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use cli_support::can_capture;
use cli_support::recording::record_until;
use deepctx_profile::device::Device;
use deepctx_profile::device::activity::Tier;
use deepctx_profile::metric::Metric;
use frameworks::Target;
use simulated::{Capture, Line, Setting};

const KERNELS: [&str; 4] = ["kernel_0_2us", "kernel_1_3us", "kernel_2_4us", "kernel_3_5us"];

/// Attaches to a running command, and records it until the condition holds.
fn record_late(
    setting: Setting,
    command: &[String],
    arguments: &[&str],
    enough: impl Fn(&Capture) -> bool,
) -> Option<Capture> {
    if !can_capture() || !simulated::is_built() {
        return None;
    }
    let _alone = simulated::alone();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("device.tsv");
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).args(arguments).envs(setting.variables(&log)).stdin(Stdio::piped());
    let target = Target::start(&mut program);
    let is_used = |capture: &Capture| capture.profile.gpu.processes.iter().any(|process| process.is_used());
    let (_folder, file) = record_until(&target.pid(), &[], |file| {
        let capture = Capture::so_far(file.as_ref());
        is_used(&capture) && enough(&capture)
    });
    target.finish();
    Some(Capture::of(file.as_ref(), &log))
}

/// Kernels by name, from the device's log.
fn done(account: &[Line]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in account.iter().filter(|line| line.what == "kernel") {
        *counts.entry(line.name.clone()).or_default() += 1;
    }
    counts
}

/// Nanoseconds of one kind of device work.
fn time(account: &[Line], what: &[&str]) -> u64 {
    let lines = account.iter().filter(|line| what.contains(&line.what.as_str()));
    lines.map(|line| line.end - line.start).sum()
}

/// Each reported activity has the device's times, and none is missing.
fn compare_times(capture: &Capture) {
    let key = |correlation: u32, start: u64, end: u64| (correlation, end - start);
    let mut reported: Vec<_> = capture
        .profile
        .gpu
        .activities
        .iter()
        .filter(|activity| activity.correlation != 0)
        .map(|activity| key(activity.correlation, activity.start.0, activity.end.0))
        .collect();
    let mut done: Vec<_> = capture
        .account
        .iter()
        .filter(|line| ["kernel", "copy", "fill"].contains(&line.what.as_str()))
        .map(|line| key(line.correlation, line.start, line.end))
        .collect();
    reported.sort_unstable();
    done.sort_unstable();
    assert_eq!(reported.len(), done.len());
    assert_eq!(reported, done);
}

/// A program of four threads with ten thousand launches per second, graphs and copies.
fn launcher(setting: Setting) -> Option<Capture> {
    let words = "--threads 4 --rate 10000 --launches 2500 --graphs --copies --attended";
    simulated::record(setting, &simulated::launcher()?, &words.split(' ').collect::<Vec<_>>())
}

#[test]
fn ten_thousand_launches_per_second_are_counted_and_timed_exactly() {
    let Some(capture) = launcher(Setting { libraries: "cuda12", collector: true, ..Setting::default() })
    else {
        return;
    };
    let process = capture.process();
    assert_eq!(process.tier, Tier::Collected, "{process:?}");
    assert_eq!((process.launches, process.launches_collected, process.kernels), (10_000, 10_000, 10_000));
    assert_eq!(process.graph_kernels, 200 * 3);
    let devices: Vec<String> = process.devices.iter().map(Device::line).collect();
    let known = "deepctx simulated device, sm_90, 108 multiprocessors, 16.0 GiB, \
                 GPU-64656570-6374-782d-7369-6d2d64657630";
    assert_eq!(devices, [format!("device 0: {known}")]);
    assert_eq!(capture.streams(), ["[device 0 deepctx simulated device GPU-64656570"]);
    assert_eq!((process.difference(), process.joined), (0, 10_600));
    let done = done(&capture.account);
    for name in KERNELS {
        assert_eq!(capture.kernels(name), 2500, "{name}");
        assert_eq!(done[name], 2500);
        // The launching function is above it, and below `step`.
        let number = &name[7..8];
        for stack in capture.stacks_of(name) {
            let at = stack.iter().position(|frame| frame.contains(&format!("launch_{number}")));
            let at = at.unwrap_or_else(|| panic!("{stack:?}"));
            assert!(stack[at - 1].contains("step<"), "{stack:?}");
            assert_eq!(stack.iter().filter(|frame| frame.contains("step<")).count(), 13, "{stack:?}");
        }
    }
    // One kernel was captured from two places, with one block and with two.
    let blocks = capture.blocks_below("captured_a_2us", &["capture_first", "capture_second"]);
    assert_eq!(blocks, [("capture_first", 200, [1, 1]), ("capture_second", 200, [2, 2])]);
    assert_eq!(capture.total(Metric::GpuTime), time(&capture.account, &["kernel"]));
    assert_eq!(capture.total(Metric::CopyTime), time(&capture.account, &["copy", "fill"]));
    compare_times(&capture);
    capture.adds_up();
}

#[test]
fn training_loop_kernels_appear_below_the_lines_that_launched_them() {
    let setting = Setting { libraries: "cuda13", collector: true, ..Setting::default() };
    let log = tempfile::NamedTempFile::new().unwrap();
    let words = ["--threads", "2", "--steps", "25", "--attended", "--log", log.path().to_str().unwrap()];
    let Some(capture) = simulated::record(setting, &simulated::python("gpu_train.py"), &words) else {
        return;
    };
    assert_eq!(capture.process().tier, Tier::Collected);
    assert_eq!(capture.process().difference(), 0, "{:?}", capture.process());
    let account: serde_json::Value = serde_json::from_reader(log.reopen().unwrap()).unwrap();
    let mut compared = 0;
    for row in account["launches"].as_array().unwrap() {
        let what = row["what"].as_str().unwrap();
        if what.starts_with('[') || what.starts_with("optimizer") {
            // Captured launches run with their graph.
            continue;
        }
        let expect: Vec<String> = row["stack"]
            .as_array()
            .unwrap()
            .iter()
            .map(|frame| format!("{}:{}", frame["function"].as_str().unwrap(), frame["line"]))
            .collect();
        let count = row["count"].as_u64().unwrap();
        let below = capture.kernels_below(what, "gpu_train.py", &expect);
        assert_eq!(below, count, "{what} below {expect:?}; it is below {:#?}", capture.stacks_of(what));
        compared += count;
    }
    assert!(compared > 2000, "{compared}");
    for (name, count) in done(&capture.account) {
        assert_eq!(capture.kernels(&name), count, "{name}");
    }
    assert_eq!(capture.total(Metric::GpuTime), time(&capture.account, &["kernel"]));
    compare_times(&capture);
    capture.adds_up();
}

#[test]
fn late_attach_records_later_work_and_leaves_the_program_unchanged() {
    let Some(program) = simulated::launcher() else { return };
    let words = "--threads 4 --rate 10000 --until-input-ends --copies";
    let setting = Setting { libraries: "cuda13", collector: true, ..Setting::default() };
    let words: Vec<_> = words.split(' ').collect();
    let Some(capture) = record_late(setting, &program, &words, |capture| {
        capture.process().launches > 1000 && capture.process().kernels > 1000
    }) else {
        return;
    };
    let process = capture.process();
    assert_eq!(process.tier, Tier::Collected, "{process:?}");
    assert!(process.launches > 1000 && process.kernels > 1000, "{process:?}");
    // Work pending when the collection began appears on one side only: at most a queue's length. Work at the end is
    // awaited.
    let untimed = capture.gap("launch-without-activity");
    assert!(untimed < 100, "{untimed} launches have no device time of {process:?}");
    assert!(process.difference().unsigned_abs() < 4096, "{process:?}");
    assert!(process.joined <= process.kernels, "{process:?}");
    let done: BTreeMap<u32, u64> =
        capture.account.iter().map(|line| (line.correlation, line.end - line.start)).collect();
    let reported = capture.profile.gpu.activities.iter().filter(|activity| activity.correlation != 0);
    for activity in reported {
        assert_eq!(
            done.get(&activity.correlation),
            Some(&(activity.end.0 - activity.start.0)),
            "{activity:?}"
        );
    }
    capture.adds_up();
}

#[test]
fn late_attach_recovers_kernel_names_and_never_a_wrong_one() {
    let Some(program) = simulated::latecomer() else { return };
    for (libraries, words, by_handle) in [("bare", &[][..], true), ("hip", &["--hip"], false)] {
        let setting = Setting { libraries, ..Setting::default() };
        let cast = if by_handle { "cast(float*) [recovered]" } else { "relu(float*) [recovered]" };
        let Some(capture) = record_late(setting, &program, words, |capture| capture.kernels(cast) > 0) else {
            return;
        };
        let process = capture.process();
        assert_eq!(process.tier, Tier::Observed, "{process:?}");
        let mut expect = vec![
            ("gemm(float*, int) [recovered]", "launch_gemm"),
            ("relu(float*) [recovered]", "launch_relu"),
        ];
        if by_handle {
            expect.push(("fuse(float*, int) [recovered]", "launch_fuse"));
            expect.push(("cast(float*) [recovered]", "launch_cast"));
        }
        let mut named = 0;
        for (kernel, function) in &expect {
            assert!(capture.kernels(kernel) > 0, "{libraries}: no {kernel}: {:?}", capture.kernel_names());
            named += capture.kernels(kernel);
            for stack in capture.stacks_of(kernel) {
                assert!(stack.iter().any(|frame| frame == function), "{libraries}: {kernel}: {stack:?}");
            }
        }
        // Launches before the handles were found, and unknown handles, have no name; nothing else is unnamed.
        let unnamed = capture.kernels("[unknown: handle-not-named]");
        assert_eq!(named + unnamed, process.launches, "{:?}", capture.kernel_names());
        let other = capture.stacks_of("[unknown: handle-not-named]");
        let is_other = |stack: &Vec<String>| stack.iter().any(|frame| frame == "launch_other");
        assert_eq!(other.iter().any(is_other), by_handle, "{other:?}");
        capture.adds_up();
    }
}

#[test]
fn what_another_tool_collects_is_read_along() {
    let Some(program) = simulated::launcher() else { return };
    let words = "--threads 2 --rate 5000 --launches 2000 --copies --borrow --attended";
    let setting = Setting { libraries: "cuda13", ..Setting::default() };
    let Some(capture) = simulated::record(setting, &program, &words.split(' ').collect::<Vec<_>>()) else {
        return;
    };
    let process = capture.process();
    assert_eq!(process.tier, Tier::Borrowed, "{process:?}");
    assert_eq!((process.launches, process.kernels), (4000, 4000));
    assert_eq!(capture.total(Metric::GpuTime), time(&capture.account, &["kernel"]));
    capture.adds_up();
}

#[test]
fn without_a_collector_launches_are_counted_without_device_time() {
    let Some(capture) = launcher(Setting { libraries: "bare", ..Setting::default() }) else { return };
    let process = capture.process();
    assert_eq!((process.tier, process.launches, process.graph_launches), (Tier::Observed, 10_000, 200));
    assert_eq!(capture.total(Metric::GpuTime), 0);
    assert!(process.busy_at_most.0 > 0);
    for name in KERNELS {
        assert_eq!(capture.kernels(name), 2500, "{name}");
    }
    capture.adds_up();
}

#[test]
fn mig_instances_are_named_and_unreported_devices_have_their_number() {
    let Some(program) = simulated::launcher() else { return };
    let arguments = ["--threads", "1", "--rate", "5000", "--launches", "200", "--attended"];
    for (variables, misbehaves, devices, stream) in [
        (
            &[("DEEPCTX_SIM_MIG", "1")][..],
            "",
            &["device 0: deepctx simulated device MIG 1g.10gb, sm_90, 108 multiprocessors, 16.0 GiB, \
               GPU-64656570-6374-782d-7369-6d2d64657630, \
               instance 7/0 MIG-64656570-6374-782d-7369-6d2d6d696730"][..],
            "[device 0 deepctx simulated device MIG 1g.10gb MIG-64656570",
        ),
        (&[], "no-devices", &[], "[device 0"),
    ] {
        let setting =
            Setting { libraries: "cuda13", collector: true, variables, misbehaves, ..Setting::default() };
        let Some(capture) = simulated::record(setting, &program, &arguments) else { return };
        let reported: Vec<String> = capture.process().devices.iter().map(Device::line).collect();
        assert_eq!(reported, devices);
        assert_eq!(capture.streams(), [stream]);
        assert_eq!(capture.process().difference(), 0);
        capture.adds_up();
    }
}

#[test]
fn cupti_misbehaviour_becomes_a_labelled_gap_and_the_program_continues() {
    for (words, tier) in [
        ("busy", Tier::Observed),
        ("denied", Tier::Observed),
        ("lose=7", Tier::Collected),
        ("garbage=3", Tier::Collected),
        ("wild=5", Tier::Collected),
        ("skew", Tier::Collected),
    ] {
        let setting =
            Setting { libraries: "cuda12", collector: true, misbehaves: words, ..Setting::default() };
        let Some(program) = simulated::launcher() else { return };
        let arguments = "--threads 2 --rate 5000 --launches 1000 --attended";
        let arguments: Vec<_> = arguments.split(' ').collect();
        let Some(capture) = simulated::record(setting, &program, &arguments) else { return };
        let process = capture.process();
        assert_eq!((process.tier, process.launches), (tier, 2000), "{words}: {process:?}");
        let labels: Vec<String> =
            capture.profile.ledger.rows().iter().map(|row| format!("{row:?}")).collect();
        let reported = !process.note.is_empty() || !labels.is_empty();
        assert!(reported, "{words} is reported nowhere: {process:?}");
        println!("{words}: {:?} {labels:?}", process.note);
        capture.adds_up();
    }
}
