//! Overload: more records than the reader can take. All losses are counted.

use std::process::Command;

use deepctx_capture::config::Bytes;
use deepctx_capture::{Capture, CaptureConfig};
use deepctx_common::end::Counter;

use crate::cli_support::recording::wait_for;
use crate::cli_support::{TICKS, ticks};
use crate::support::{
    CaptureContents, Target, can_capture, capture_until, compile, has_program, options, workload,
};

/// Records seen by the kernel programs are filtered, emitted or dropped, and emitted ones are read.
fn check_ledger(captured: &CaptureContents) {
    let count = |c| captured.counter(c);
    let seen = count(Counter::SamplesSeen) + count(Counter::ProcessEventsSeen);
    let accounted = count(Counter::SamplesFiltered)
        + count(Counter::SamplesIdle)
        + count(Counter::RecordsEmitted)
        + count(Counter::DropRingFull)
        + count(Counter::DropScratchBusy);
    assert_eq!(seen, accounted, "{:?}", captured.counters);
    assert_eq!(count(Counter::RecordsEmitted), captured.records, "what was emitted was read");
    let dropped = count(Counter::DropRingFull) + count(Counter::DropScratchBusy);
    // A drop after a CPU's last record leaves no gap.
    assert!(captured.gaps <= dropped, "{} gaps, {dropped} drops", captured.gaps);
}

#[test]
fn the_ledger_adds_up_when_all_is_well() {
    if !can_capture() || !has_program("g++") {
        return;
    }
    let (_folder, program) = compile(&workload("deep_native.cpp"), &[]);
    let target = Target::start(Command::new(&program).args(["50", "2", "0"]));
    let pid = target.pid();
    let captured = capture_until(options(pid, 199), |c| c.of(pid).count() >= 500);
    check_ledger(&captured);
    assert_eq!(captured.gaps, 0);
}

#[test]
fn every_record_that_is_lost_while_nobody_reads_is_counted() {
    if !can_capture() || !has_program("g++") {
        return;
    }
    let (_folder, program) = compile(&workload("deep_native.cpp"), &[]);
    // 200 frames are 1.7 KiB: at 4999 Hz a ring of 64 KiB fills in less than the interval between two drains.
    let target = Target::start(Command::new(&program).args(["200", "4", "0"]));
    let pid = target.pid();
    let options = CaptureConfig { ring: Some(Bytes(64 << 10)), ..options(pid, 4999) };
    let capture = Capture::start(options).unwrap();
    let messages = capture.messages();
    // Enough samples to fill it a hundred times, whatever else uses the CPUs.
    let until = ticks(&pid.to_string()) + TICKS;
    wait_for("a second of CPU time", || ticks(&pid.to_string()) >= until);
    let mut captured = CaptureContents::default();
    captured.finish(capture, messages);
    check_ledger(&captured);
    assert!(
        captured.counter(Counter::DropRingFull) > 0,
        "not enough load to lose anything: {:?}",
        captured.counters
    );
}
