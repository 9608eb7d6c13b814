//! Device code is read by an unprivileged, replaceable process.
//!
//! Owns: recordings of a program whose kernels are named by its device code, in which the reader is inspected and
//! killed, and those in which a thread that asks it stops. Because: whoever builds a program controls its device code,
//! and unpacking it takes seconds. Does not: test which names are found.

use std::path::Path;
use std::process::{Command, Stdio};

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::{can_capture, expect_code, folded, is_without_privileges, program, signal};
use super::simulated::{self, Setting};
use super::worker_support::worker_of_pid;
use super::{OtherUserProcess, open_folder};

/// A program whose kernels are loaded before it is recorded; `None` where that cannot be tested. Its device writes its
/// log into the folder.
fn late_program(folder: &Path) -> Option<OtherUserProcess> {
    if !can_capture() || !simulated::is_built() {
        return None;
    }
    let latecomer = simulated::latecomer()?;
    let setting = Setting { libraries: "bare", ..Setting::default() };
    let mut command = Command::new(&latecomer[0]);
    command.envs(setting.variables(&folder.join("device.tsv"))).stdin(Stdio::piped());
    Some(OtherUserProcess::root(&mut command))
}

#[test]
fn a_lost_device_code_reader_without_privileges_is_replaced() {
    let folder = open_folder();
    let Some(program) = late_program(folder.path()) else { return };
    let mut recording = Recording::start(&program.pid(), &[]);

    let reader = worker_of_pid(&recording.pid(), "device-code-reader", |_| true);
    is_without_privileges(&reader);
    signal(&reader, "KILL");
    // The first is named by a host stub in its file, the second by the image in its memory.
    recording.wait_until(|file| {
        let stacks = folded(file, "kernels", &[]);
        ["gemm(float*, int)", "cast(float*)"].iter().all(|kernel| stacks.contains(kernel))
    });
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
}

#[test]
fn a_search_for_kernels_that_stops_ends_the_capture() {
    let folder = open_folder();
    let Some(late) = late_program(folder.path()) else { return };
    let mut program = program();
    let defective = program.env("DEEPCTX_TEST_DEFECT", "recovery");
    let mut recording = Recording::by(defective, &["--pid", &late.pid()]);
    let RecordingOutcome { status, said } = recording.ended();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("\"recovery\" stopped because of a defect"), "{said}");
    expect_code(0, &["report", &recording.file()]);
}

/// Records a program on the simulated device while a thread stops. The recording must end for that reason.
fn ends_without(thread: &str, setting: Setting, command: &[String]) {
    let _alone = simulated::alone();
    let folder = open_folder();
    let variables = setting.variables(&folder.path().join("device.tsv"));
    let variables: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut words = [setting.words, &["--", "env"]].concat();
    words.extend(variables.iter().chain(command).map(String::as_str));
    let mut program = program();
    let defective = program.env("DEEPCTX_TEST_DEFECT", thread).stdin(Stdio::piped());
    let mut recording = Recording::of_file(&folder.path().join("run.dctx"), defective, &words);
    recording.wait_for(&format!("thread '{thread}'"));
    // Its command runs until its input ends.
    let RecordingOutcome { status, said } = recording.ended();
    assert_eq!(status.code(), Some(2), "{thread}: {said}");
    assert!(said.contains(&format!("\"{thread}\" stopped because of a defect")), "{said}");
    expect_code(0, &["report", &recording.file()]);
}

#[test]
fn a_reader_of_lines_that_stops_ends_the_capture() {
    if !can_capture() || !simulated::is_built() {
        return;
    }
    let Some(sampled) = simulated::sampled() else { return };
    let words = &["--pc-sampling"];
    ends_without(
        "cubins",
        Setting { libraries: "cuda13", collector: true, words, ..Setting::default() },
        &sampled,
    );
}
