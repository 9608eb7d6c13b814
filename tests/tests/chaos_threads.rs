//! Threads of a recording that end because of a bug, or hang. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::process::Command;
use std::time::Duration;

use cli_support::held_objects::{HeldObjects, is_in_order};
use cli_support::recording::{Recording, RecordingOutcome, wait_for};
use cli_support::{Busy, TICKS, can_capture, expect_code, gap_count, program, sample_count, ticks};
use deepctx_profile::ledger::CheckTime;

/// Records with a stopped thread. The recording must end only for that reason; an existing profile must open.
fn check(thread: &str, options: &[&str], says: &str) {
    check_of(&mut program(), thread, options, says);
}

/// The same with this program.
fn check_of(program: &mut Command, thread: &str, options: &[&str], says: &str) {
    let busy = Busy::start();
    let defective = program.env("DEEPCTX_TEST_DEFECT", thread);
    let mut recording = Recording::by(defective, &[&["--pid", &busy.pid()], options].concat());
    let RecordingOutcome { status, said } = recording.ended();
    assert_eq!(status.code(), Some(2), "{thread}: {said}");
    assert!(said.contains(says), "{thread}: {said}");
    if !options.contains(&"--keep") {
        expect_code(0, &["report", &recording.file()]);
        // What was still on its way is missing.
        is_in_order(&recording.file(), &busy.pid(), CheckTime::Running);
    }
    assert!(busy.lives(), "{thread}: {said}");
}

#[test]
fn threads_of_a_session_that_stop_end_the_capture() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("run.raw");
    check("pipeline", &[], "the pipeline stopped because of a defect");
    check("store", &[], "the thread \"store\" stopped because of a defect (a test wants it)");
    check("raw", &["--raw", raw.to_str().unwrap()], "the thread \"raw\" stopped because of a defect");
    check("flight-recorder", &["--keep", "2s"], "\"flight-recorder\" stopped because of a defect");
}

/// A folder with a library for metrics of GPUs, which is none: there is something to ask for.
fn gpu_library() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libnvidia-ml.so.1"), "").unwrap();
    folder
}

#[test]
fn a_stopped_thread_of_gpus_ends_the_capture() {
    if !can_capture() {
        return;
    }
    let library = gpu_library();
    let mut program = program();
    let program = program.env("LD_LIBRARY_PATH", library.path());
    check_of(program, "gpus", &[], "the thread \"gpus\" stopped because of a defect (a test wants it)");
}

#[test]
fn a_thread_without_state_survives_one_defect() {
    if !can_capture() {
        return;
    }
    let (busy, library) = (Busy::start(), gpu_library());
    let threads: [(&str, &[&str]); 3] = [("system", &[]), ("gpus", &[]), ("waits", &["--off-cpu"])];
    for (thread, options) in threads {
        let mut program = program();
        program.env("DEEPCTX_TEST_DEFECT", format!("{thread}:once"));
        let defective = program.env("LD_LIBRARY_PATH", library.path());
        let mut recording = Recording::by(defective, &[&["--pid", &busy.pid()], options].concat());
        let again = format!("the thread {thread:?} was started again after a defect (a test wants it)");
        recording.wait_for(&again);
        recording.wait_until(|file| sample_count(file) > 0);
        let held = HeldObjects::by(&recording.pid());
        let RecordingOutcome { status, said } = recording.interrupted();
        assert_eq!(status.code(), Some(0), "{thread}: {said}");
        held.left_in_order(&recording.file(), &busy.pid(), CheckTime::Finished);
        let profile = deepctx_storage::open(recording.file()).unwrap().profile;
        assert_eq!(gap_count(&profile, "thread-restarted"), 1, "{thread}: {said}");
    }
}

#[test]
fn a_second_defect_of_such_a_thread_ends_the_capture() {
    if !can_capture() {
        return;
    }
    let threads: [(&str, &[&str]); 2] = [("system", &[]), ("waits", &["--off-cpu"])];
    for (thread, options) in threads {
        check(thread, options, &format!("the thread {thread:?} was started again after a defect"));
        check(thread, options, &format!("the thread {thread:?} stopped because of a defect"));
    }
}

#[test]
fn a_merge_that_fails_costs_no_data() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let mut program = program();
    let defective = program.env("DEEPCTX_TEST_DEFECT", "merge");
    let mut recording = Recording::by(defective, &["--flush", "100ms", "--pid", &busy.pid()]);
    // It is tried once more.
    for _ in 0..2 {
        recording.wait_for("thread 'merge'");
    }
    let before = sample_count(&recording.file());
    recording.wait_until(|file| sample_count(file) > before);
    let held = HeldObjects::by(&recording.pid());
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("the thread \"merge\" stopped because of a defect"), "{said}");
    let opened = deepctx_storage::open(recording.file()).unwrap();
    assert!(opened.is_complete(), "{:?}", opened.notes);
    opened.profile.ledger.check(CheckTime::Finished).unwrap();
    held.are_gone();
    assert!(busy.lives(), "{said}");
}

#[test]
fn a_trace_that_is_not_written_costs_only_itself() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let mut program = program();
    let standing = program.env("DEEPCTX_TEST_STANDSTILL", "trace");
    let mut recording = Recording::by(standing, &["--trace", "1s", "--pid", &busy.pid()]);
    recording.wait_until(|file| sample_count(file) > 0);
    let held = HeldObjects::by(&recording.pid());
    recording.signal("INT");
    let RecordingOutcome { status, said } = recording.ended_within(Duration::from_secs(60));
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("the trace: the disk did not take the last part"), "{said}");
    let opened = deepctx_storage::open(recording.file()).unwrap();
    assert!(opened.is_complete(), "{:?}", opened.notes);
    opened.profile.ledger.check(CheckTime::Finished).unwrap();
    held.are_gone();
    assert!(busy.lives(), "{said}");
}

#[test]
fn scans_that_always_fail_end_the_capture() {
    if !can_capture() {
        return;
    }
    // Some defects are survived: they may depend on one process.
    let said = "a scan failed because of a defect (a test wants it)";
    check("scan-read", &[], said);
    check("scan-read", &[], "the thread \"scan\" stopped because of a defect (a test wants it)");
}

#[test]
fn a_pipeline_that_stands_still_is_ended_in_time() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let mut program = program();
    let standing = program.env("DEEPCTX_TEST_STANDSTILL", "pipeline");
    let mut recording = Recording::by(standing, &["--pid", &busy.pid()]);
    recording.wait_for_probes();
    // Samples arrive; the thread stops at the first.
    let before = ticks(&busy.pid());
    wait_for("a second of CPU time", || ticks(&busy.pid()) >= before + TICKS);
    let held = HeldObjects::by(&recording.pid());
    recording.signal("INT");
    // It is abandoned after 5 s without progress.
    let RecordingOutcome { status, said } = recording.ended_within(Duration::from_secs(10));
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("the pipeline and its profile did not end within"), "{said}");
    expect_code(0, &["report", &recording.file()]);
    held.left_in_order(&recording.file(), &busy.pid(), CheckTime::Running);
}

/// Records a process until this thread is reported to stand still, and then ends: the ledger must add up, if a profile
/// is written all the time.
fn stands_still(pid: &str, thread: &str, options: &[&str], missing: &str) {
    let (library, mut program) = (gpu_library(), program());
    let standing = program.env("DEEPCTX_TEST_STANDSTILL", thread).env("LD_LIBRARY_PATH", library.path());
    let mut recording = Recording::by(standing, &[&["--pid", pid], options].concat());
    let keeps = options.contains(&"--keep");
    if keeps {
        recording.wait_for_probes();
        recording.signal("USR1");
    }
    let line = recording.wait_for(&format!("the thread {thread:?} has made no progress for "));
    assert!(line.ends_with(missing), "{line}");
    let held = HeldObjects::by(&recording.pid());
    recording.signal("INT");
    let RecordingOutcome { said, .. } = recording.ended_within(Duration::from_secs(60));
    if !keeps {
        let profile = deepctx_storage::open(recording.file()).unwrap().profile;
        let checked = profile.ledger.check(CheckTime::Finished);
        checked.unwrap_or_else(|error| panic!("{thread}: {error}\n{said}"));
    }
    held.are_gone();
}

#[test]
fn threads_that_stand_still_are_reported() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let threads: [(&str, &[&str], &str); 7] = [
        ("drain", &[], "nothing is recorded any more"),
        ("scan", &[], "new code has no unwind rows"),
        ("reader", &[], "new code has no unwind rows"),
        ("probes", &[], "new libraries are not probed"),
        ("system", &["--system-metrics", "500ms"], "what the machine does is not recorded"),
        ("gpus", &["--system-metrics", "500ms"], "figures of GPUs are not recorded"),
        ("flight-recorder", &["--keep", "2s"], "the kept data is no longer written"),
    ];
    // Together, because each waits for a report that takes 20 s.
    std::thread::scope(|scope| {
        for (thread, options, missing) in threads {
            let pid = busy.pid();
            scope.spawn(move || stands_still(&pid, thread, options, missing));
        }
    });
    assert!(busy.lives());
}

#[test]
fn probes_that_stand_still_cost_no_samples() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let mut program = program();
    let standing = program.env("DEEPCTX_TEST_STANDSTILL", "probes");
    let mut recording = Recording::by(standing, &["--pid", &busy.pid()]);
    recording.wait_until(|file| sample_count(file) > 0);
    recording.signal("INT");
    let RecordingOutcome { status, said } = recording.ended_within(Duration::from_secs(60));
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("the thread \"probes\" did not end within 5 s"), "{said}");
    let opened = deepctx_storage::open(recording.file()).unwrap();
    assert!(opened.is_complete(), "{:?}", opened.notes);
    opened.profile.ledger.check(CheckTime::Finished).unwrap();
    assert!(busy.lives(), "{said}");
}

#[test]
fn probes_that_stop_while_they_detach_are_reported() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let mut program = program();
    let defective = program.env("DEEPCTX_TEST_DEFECT", "detach");
    let mut recording = Recording::by(defective, &["--pid", &busy.pid()]);
    recording.wait_until(|file| sample_count(file) > 0);
    let held = HeldObjects::by(&recording.pid());
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("\"probes\" stopped because of a defect (a test wants it)"), "{said}");
    let opened = deepctx_storage::open(recording.file()).unwrap();
    assert!(opened.is_complete(), "{:?}", opened.notes);
    opened.profile.ledger.check(CheckTime::Finished).unwrap();
    held.are_gone();
    assert!(busy.lives(), "{said}");
}

/// Stacks so deep that a ring holds few of them.
const DEEP: &str = "
import sys
sys.setrecursionlimit(5000)
def deep(n):
    if n: deep(n - 1)
    while True: pass
deep(800)
";

#[test]
fn what_a_stopped_profiler_loses_is_counted() {
    if !can_capture() {
        return;
    }
    let busy = Busy::of(Command::new("python3").args(["-c", DEEP]));
    let mut recording = Recording::start(&busy.pid(), &["--freq", "999"]);
    recording.wait_until(|file| sample_count(file) > 500);
    let (before, had) = (ticks(&busy.pid()), sample_count(&recording.file()));
    recording.signal("STOP");
    wait_for("five seconds of CPU time", || ticks(&busy.pid()) >= before + 5 * TICKS);
    recording.signal("CONT");
    recording.wait_until(|file| sample_count(file) > had + 1000);
    let used = ticks(&busy.pid()) - before;
    let held = HeldObjects::by(&recording.pid());
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    held.are_gone();
    assert!(busy.lives(), "{said}");
    let ledger = deepctx_storage::open(recording.file()).unwrap().profile.ledger;
    ledger.check(CheckTime::Finished).unwrap();
    let of =
        |reason: &str| ledger.rows().iter().filter(|row| row.reason == reason).map(|row| row.count).sum();
    let (dropped, unexplained): (u64, u64) = (of("ring-full"), of("unexplained-gap"));
    assert!(dropped > 0 && unexplained == 0, "{dropped} dropped, {unexplained} unexplained: {said}");
    // Received samples match the CPU time used: only counted losses are missing.
    let (received, expected) = (ledger.received() - had, used * 999 / TICKS);
    assert!(received * 100 >= expected * 95, "{received} of {expected}: {said}");
    println!("{received} of {expected} records came, {dropped} of them dropped and counted");
}
