//! Failures: they are counted or labeled, and never affect the target.

use deepctx_capture::config::Bytes;
use deepctx_common::end::Counter;

use crate::scene::Scene;
use crate::support::can_capture;

/// The kernel programs' counts of noted records equal those of sent and dropped ones.
pub(crate) fn adds_up(reported: &crate::scene::ReportedRecords) {
    let seen = reported.counter(Counter::SamplesSeen)
        + reported.counter(Counter::ProcessEventsSeen)
        + reported.counter(Counter::CallsSeen);
    let dropped = reported.counter(Counter::DropRingFull) + reported.counter(Counter::DropScratchBusy);
    let unwanted = reported.counter(Counter::SamplesFiltered) + reported.counter(Counter::SamplesIdle);
    assert_eq!(seen - unwanted, reported.counter(Counter::RecordsEmitted) + dropped);
    assert_eq!(reported.counter(Counter::RecordsEmitted), reported.records, "what was emitted was read");
}

#[test]
fn when_launches_flood_the_ring_each_is_still_counted() {
    if !can_capture() {
        return;
    }
    const LAUNCHES: u64 = 50_000;
    let mut scene = Scene::new(&["open DRIVER"], |options| options.ring = Some(Bytes(64 << 10)));
    scene.tell(&format!("launch {LAUNCHES} 4"));
    let reported = scene.end();
    assert_eq!(reported.count("cuLaunchKernel"), 4 * LAUNCHES);
    assert!(reported.counter(Counter::DropRingFull) > 0, "the ring was never full");
    adds_up(reported);
    assert!((reported.of("cuLaunchKernel").len() as u64) < 4 * LAUNCHES);
}

#[test]
fn launches_that_flood_the_ring_cost_no_sample() {
    if !can_capture() {
        return;
    }
    let mut scene = Scene::new(&["open DRIVER"], |options| options.ring = Some(Bytes(64 << 10)));
    scene.tell("launch 50000 4");
    let reported = scene.end();
    assert!(reported.counter(Counter::DropRingFull) > 0, "the ring was never full");
    let unwanted = reported.counter(Counter::SamplesFiltered) + reported.counter(Counter::SamplesIdle);
    let wanted = reported.counter(Counter::SamplesSeen) - unwanted;
    let lost = wanted - reported.samples.len() as u64;
    assert!(wanted > 20, "{wanted} samples");
    assert!(lost <= reported.counter(Counter::DropScratchBusy), "{lost} of {wanted} samples are lost");
}

#[test]
fn a_process_that_hides_itself_is_watched_all_the_same() {
    if !can_capture() {
        return;
    }
    let mut scene = Scene::new(&["undumpable", "open DRIVER"], |_| {});
    scene.tell("launch 10");
    scene.until(|reported| reported.calls.len() >= 10);
    let reported = scene.end();
    assert_eq!(reported.count("cuLaunchKernel"), 10);
    adds_up(reported);
}

#[test]
fn library_closed_and_loaded_again_keeps_its_probes() {
    if !can_capture() {
        return;
    }
    let mut scene = Scene::new(&["open DRIVER"], |_| {});
    for round in 1..=3 {
        scene.tell("launch 4");
        scene.tell("close");
        scene.tell("open DRIVER");
        scene.until(|reported| reported.calls.len() >= 4 * round);
    }
    let reported = scene.end();
    assert_eq!((reported.count("cuLaunchKernel"), reported.calls.len()), (12, 12));
    assert_eq!(reported.probes.files, 1, "one file has its probes once");
    adds_up(reported);
}

#[test]
fn a_process_that_is_no_target_leaves_nothing() {
    if !can_capture() {
        return;
    }
    let mut scene = Scene::new(&["open DRIVER"], |_| {});
    let path = scene.built.path("accelerated");
    let mut other = crate::support::Target::start(&mut std::process::Command::new(path));
    other.line();
    let driver = scene.built.path("libcuda.so.1").display().to_string();
    for command in [format!("open {driver}"), "launch 100".to_owned()] {
        use std::io::Write as _;
        writeln!(other.child.stdin.as_mut().unwrap(), "{command}").unwrap();
        other.line();
    }
    scene.tell("launch 1");
    scene.until(|reported| !reported.calls.is_empty());
    let reported = scene.end();
    assert_eq!((reported.count("cuLaunchKernel"), reported.calls.len()), (1, 1));
}
