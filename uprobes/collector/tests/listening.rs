//! The collector on the simulated device, with a listener in the test's own process.
//!
//! A breakpoint takes the place of the `nop` in each probe function, as a probe of the kernel would, and the counter of
//! listeners is raised by hand. Since a process loads the libraries once and for all, each scenario runs in a process
//! of its own: this very program, with the scenario in a variable.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod harness;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use deepctx_common::activity::{Activity, RECORDER_VARIABLE, flag, kind, probe, state};
use harness::{Harness, Messages};

/// What one scenario runs with.
struct Scenario {
    name: &'static str,
    /// Folder of the libraries.
    libraries: &'static str,
    /// What CUPTI does wrong.
    misbehaves: &'static str,
    run: fn(&mut Harness),
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "twelve", libraries: "cuda12", misbehaves: "", run: every_activity_is_reported_once },
    Scenario { name: "thirteen", libraries: "cuda13", misbehaves: "", run: every_activity_is_reported_once },
    Scenario {
        name: "late",
        libraries: "cuda13",
        misbehaves: "late=200,reorder",
        run: every_activity_is_reported_once,
    },
    Scenario { name: "again", libraries: "cuda13", misbehaves: "", run: listeners_come_and_go },
    Scenario {
        name: "unseen",
        libraries: "cuda13",
        misbehaves: "",
        run: nothing_is_requested_without_listeners,
    },
    Scenario {
        name: "busy",
        libraries: "cuda12",
        misbehaves: "busy",
        run: a_busy_cupti_is_reported_and_retried,
    },
    Scenario { name: "denied", libraries: "cuda13", misbehaves: "denied", run: a_denial_is_reported_once },
    Scenario { name: "absent", libraries: "bare", misbehaves: "", run: a_missing_cupti_is_reported },
    Scenario { name: "lose", libraries: "cuda13", misbehaves: "lose=10", run: losses_are_reported },
    Scenario { name: "garbage", libraries: "cuda13", misbehaves: "garbage=2", run: garbage_does_no_harm },
    Scenario { name: "wild", libraries: "cuda12", misbehaves: "wild=4", run: wild_records_keep_their_place },
    Scenario {
        name: "skew",
        libraries: "cuda13",
        misbehaves: "skew",
        run: what_a_later_version_adds_is_skipped,
    },
    Scenario { name: "fork", libraries: "cuda13", misbehaves: "", run: a_child_says_nothing },
    Scenario { name: "graph", libraries: "cuda13", misbehaves: "", run: nodes_of_a_graph_have_numbers },
    Scenario {
        name: RECORDED,
        libraries: "cuda13",
        misbehaves: "",
        run: nothing_comes_before_the_collection,
    },
    Scenario { name: "beside", libraries: "cuda13", misbehaves: "", run: another_tool_may_subscribe_beside },
];

/// The scenario of a program that a profiler started.
const RECORDED: &str = "recorded";
/// Names the scenario to the process.
const PLAY: &str = "DEEPCTX_TEST_SCENARIO";

/// Where the simulated libraries and the collector are.
fn built() -> Option<(PathBuf, PathBuf)> {
    let debug = std::env::current_exe().ok()?.parent()?.parent()?.to_owned();
    let libraries = debug.with_file_name("sim");
    let collector = debug.join("libdeepctx_collector.so");
    (libraries.join("cuda13/libcupti.so.13").exists() && collector.exists()).then_some((libraries, collector))
}

fn run(name: &str) {
    let Some((libraries, collector)) = built() else {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "the simulated libraries are not built"
        );
        println!("skipped: the simulated libraries are not built (cargo xtask sim)");
        return;
    };
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
    let folder = std::env::temp_dir().join(format!("deepctx-collector-{}-{name}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    // Probes are in a file, for every process that maps it: the listeners of tests that run beside this one would be
    // this collector's too.
    let own = folder.join(collector.file_name().unwrap());
    std::fs::copy(&collector, &own).unwrap();
    let said = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "scenario", "--ignored", "--nocapture"])
        .env(PLAY, name)
        .env("LD_LIBRARY_PATH", libraries.join(scenario.libraries))
        .env("CUDA_INJECTION64_PATH", &own)
        .env("DEEPCTX_SIM_CUPTI", scenario.misbehaves)
        .env("DEEPCTX_SIM_LOG", folder.join("log.tsv"))
        .envs((name == RECORDED).then(|| (RECORDER_VARIABLE, std::process::id().to_string())))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    std::fs::remove_dir_all(folder).ok();
    assert!(said.status.success() && text.contains("ran to the end"), "{name}: {}\n{text}", said.status);
}

/// Plays one scenario; started by [`run`].
#[test]
#[ignore = "the other tests run it"]
fn scenario() {
    let name = std::env::var(PLAY).unwrap();
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
    let mut harness = Harness::open();
    (scenario.run)(&mut harness);
    println!("ran to the end");
}

macro_rules! scenarios {
    ($($test:ident: $name:literal;)*) => { $(#[test] fn $test() { run($name); })* };
}

scenarios! {
    every_activity_of_cupti_12_is_reported_once_with_its_times: "twelve";
    every_activity_of_cupti_13_is_reported_once_with_its_times: "thirteen";
    buffers_that_come_late_and_out_of_order_lose_nothing: "late";
    who_listens_again_gets_names_again: "again";
    without_listeners_cupti_is_not_used: "unseen";
    a_busy_cupti_is_reported_and_tried_again: "busy";
    a_cupti_that_denies_is_reported_once: "denied";
    a_process_without_cupti_is_reported: "absent";
    records_that_cupti_loses_are_counted: "lose";
    noise_in_buffers_does_no_harm: "garbage";
    a_wild_pointer_costs_a_name_and_no_more: "wild";
    kinds_and_members_of_a_later_version_are_passed_over: "skew";
    a_forked_child_says_nothing_and_its_parent_goes_on: "fork";
    nodes_of_a_graph_are_reported_each: "graph";
    another_tool_may_subscribe_beside_the_collector: "beside";
    a_recorded_program_waits_for_its_collection: "recorded";
}

/// One line of the device's own account.
#[derive(Debug)]
struct Line {
    what: String,
    correlation: u32,
    times: (u64, u64),
    bytes: u64,
    name: String,
}

fn account() -> Vec<Line> {
    let text = std::fs::read_to_string(std::env::var_os("DEEPCTX_SIM_LOG").unwrap()).unwrap();
    let lines = text.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        Line {
            what: fields[0].into(),
            correlation: fields[3].parse().unwrap(),
            times: (fields[8].parse().unwrap(), fields[9].parse().unwrap()),
            bytes: fields[10].parse().unwrap(),
            name: fields[13].into(),
        }
    });
    lines.filter(|line| !matches!(&*line.what, "graph" | "edge" | "host")).collect()
}

/// What was reported of an activity, to be compared with the account.
fn as_line(activity: &Activity, names: &HashMap<u64, String>) -> (String, u32, (u64, u64), u64, String) {
    let what = match activity.kind {
        kind::KERNEL => "kernel",
        kind::COPY => "copy",
        kind::FILL => "fill",
        kind::SYNC => "sync",
        other => panic!("kind {other}"),
    };
    let name = names.get(&activity.name).cloned().unwrap_or_default();
    (what.into(), activity.correlation, (activity.start_ns, activity.end_ns), activity.bytes, name)
}

/// All that was done was reported, and nothing else, with the same times; each has the number of a call that was
/// reported.
fn compare(received: &Messages) {
    let names = received.names();
    let mut reported: Vec<_> = received.activities.iter().map(|activity| as_line(activity, &names)).collect();
    let mut done: Vec<_> = account()
        .into_iter()
        .map(|line| {
            // Names of copies and waits are the account's own.
            let name = if line.what == "kernel" { line.name } else { String::new() };
            (line.what, line.correlation, line.times, line.bytes, name)
        })
        .collect();
    reported.sort();
    done.sort();
    assert_eq!(reported.len(), done.len());
    assert_eq!(reported, done);
    let calls: Vec<u32> = received.of(probe::CORRELATION).map(|message| message[0] as u32).collect();
    for activity in received.activities.iter().filter(|activity| activity.kind != kind::SYNC) {
        assert!(calls.contains(&activity.correlation), "{activity:?}");
    }
}

fn every_activity_is_reported_once(harness: &mut Harness) {
    harness.listen(1);
    harness.start();
    harness.wait_for_state(state::COLLECTING);
    harness.work(4, 500);
    let received = harness.stop_listening();
    compare(&received);
    // Bracketed: the device's clock, between two readings of ours.
    let clocks: Vec<_> = received.of(probe::CLOCK).collect();
    assert!(!clocks.is_empty());
    assert!(clocks.iter().all(|[device, before, after]| before <= after && *device > 0));
    assert_eq!(received.states(), [state::COLLECTING, state::IDLE]);
}

fn listeners_come_and_go(harness: &mut Harness) {
    harness.listen(1);
    harness.start();
    harness.wait_for_state(state::COLLECTING);
    harness.work(1, 50);
    let first = harness.stop_listening();
    compare(&first);
    let known = account().len();
    harness.work(1, 50);
    assert!(harness.received().activities.len() == first.activities.len(), "reported without a listener");
    let unseen = account().len();
    assert!(unseen > known);
    harness.forget();
    harness.listen(2);
    harness.wait_for_state(state::COLLECTING);
    harness.work(1, 50);
    let second = harness.stop_listening();
    assert_eq!(second.activities.len(), account().len() - unseen);
    assert_eq!(second.names().len(), first.names().len());
}

fn nothing_is_requested_without_listeners(harness: &mut Harness) {
    harness.start();
    harness.work(2, 100);
    // That nothing comes shows only after a while.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let received = harness.received();
    assert!(received.messages.is_empty() && received.activities.is_empty());
    // It is not even loaded.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("libdeepctx_collector.so") && !maps.contains("libcupti"), "{maps}");
}

fn a_busy_cupti_is_reported_and_retried(harness: &mut Harness) {
    harness.listen(1);
    harness.start();
    harness.wait_until(|received| received.states().len() >= 2);
    let received = harness.received();
    assert!(received.of(probe::STATE).all(|message| message[..2] == [state::BUSY, 39]));
    harness.work(1, 50);
    assert!(harness.received().activities.is_empty());
}

fn refused(harness: &mut Harness, number: u64) {
    harness.listen(1);
    harness.start();
    harness.wait_for_state(state::UNUSABLE);
    harness.work(1, 50);
    // That it is not tried again shows only after a while.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let states: Vec<_> = harness.received().of(probe::STATE).collect();
    assert_eq!(states, [[state::UNUSABLE, number, 0]]);
}

fn a_denial_is_reported_once(harness: &mut Harness) {
    refused(harness, 35);
}

fn a_missing_cupti_is_reported(harness: &mut Harness) {
    refused(harness, 0xffff_ffff);
}

fn losses_are_reported(harness: &mut Harness) {
    harness.listen(1);
    harness.start();
    harness.wait_for_state(state::COLLECTING);
    harness.work(2, 500);
    harness.wait_until(|received| {
        received.sum_of(state::LOST) + received.activities.len() as u64 >= account().len() as u64
    });
    let received = harness.stop_listening();
    assert_eq!(received.sum_of(state::LOST) + received.activities.len() as u64, account().len() as u64);
    assert!(received.sum_of(state::LOST) > 0);
}

fn garbage_does_no_harm(harness: &mut Harness) {
    harness.listen(1);
    harness.start();
    harness.wait_for_state(state::COLLECTING);
    harness.work_until(|received| received.sum_of(state::SKIPPED) > 0 && !received.activities.is_empty());
    let received = harness.stop_listening();
    assert!(received.sum_of(state::SKIPPED) > 0);
    assert!(received.activities.len() < account().len());
    assert!(!received.activities.is_empty(), "every other buffer is sound");
}

fn wild_records_keep_their_place(harness: &mut Harness) {
    harness.listen(1);
    harness.start();
    harness.wait_for_state(state::COLLECTING);
    harness.work(2, 200);
    let received = harness.stop_listening();
    assert_eq!(received.activities.len(), account().len());
    let wild: Vec<_> = received.activities.iter().filter(|a| a.flags & flag::NO_TIMES != 0).collect();
    assert_eq!(wild.len(), received.activities.len() / 4);
    assert!(wild.iter().all(|activity| activity.name == 0 && activity.end_ns == 0));
}

fn what_a_later_version_adds_is_skipped(harness: &mut Harness) {
    harness.listen(1);
    harness.start();
    harness.wait_for_state(state::COLLECTING);
    harness.work(2, 300);
    harness.wait_until(|received| received.sum_of(state::SKIPPED) > 0);
    let received = harness.stop_listening();
    compare(&received);
}

fn a_child_says_nothing(harness: &mut Harness) {
    harness.listen(1);
    harness.start();
    harness.wait_for_state(state::COLLECTING);
    harness.work(1, 50);
    // SAFETY: the child calls the device's library, which refuses, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let before = harness.received().messages.len();
        let refused = harness.try_launch() == 3;
        let silent = harness.received().messages.len() == before;
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!(refused && silent))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    harness.work(1, 50);
    compare(&harness.stop_listening());
}

fn nodes_of_a_graph_have_numbers(harness: &mut Harness) {
    harness.listen(1);
    harness.start();
    harness.wait_for_state(state::COLLECTING);
    harness.work_with_graph(3);
    let received = harness.stop_listening();
    compare(&received);
    let nodes: Vec<_> = received.activities.iter().filter(|activity| activity.node != 0).collect();
    assert_eq!(nodes.len(), 6, "two kernels, three times");
    let launches: std::collections::HashSet<u32> = nodes.iter().map(|node| node.correlation).collect();
    let numbers: std::collections::HashSet<u64> = nodes.iter().map(|node| node.node).collect();
    assert_eq!((launches.len(), numbers.len()), (3, 2));
    assert!(nodes.iter().all(|node| node.graph != 0));
    // Functions of the host between them are no work.
    let given = received.of(probe::CORRELATION).map(|message| message[0] as u32);
    let others: Vec<u32> = given.filter(|given| !launches.contains(given)).collect();
    assert_eq!(others.len(), 2, "what was captured: {others:?}");
}

fn nothing_comes_before_the_collection(harness: &mut Harness) {
    harness.start_with_late_listener(std::time::Duration::from_millis(50));
    assert_eq!(harness.received().states(), [state::COLLECTING]);
    harness.work(1, 50);
    compare(&harness.stop_listening());
}

fn another_tool_may_subscribe_beside(harness: &mut Harness) {
    harness.listen(1);
    harness.start();
    harness.wait_for_state(state::COLLECTING);
    assert_eq!(harness.subscribe_beside(), 0);
    harness.work(1, 50);
    compare(&harness.stop_listening());
}
