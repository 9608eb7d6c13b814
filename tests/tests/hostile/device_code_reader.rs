//! Device code is read by an unprivileged, replaceable process.
//!
//! Owns: recordings of a program whose kernels are named by its device code, in which the reader is inspected and
//! killed. Because: whoever builds a program controls its device code, and unpacking it takes seconds. Does not: test
//! which names are found.

use std::process::{Command, Stdio};

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::{can_capture, folded, signal};
use super::simulated::{self, Setting};
use super::worker_support::{is_without_privileges, worker_of_pid};
use super::{OtherUserProcess, open_folder};

#[test]
fn a_lost_device_code_reader_without_privileges_is_replaced() {
    if !can_capture() || !simulated::is_built() {
        return;
    }
    let Some(latecomer) = simulated::latecomer() else { return };
    let folder = open_folder();
    let setting = Setting { libraries: "bare", ..Setting::default() };
    let mut command = Command::new(&latecomer[0]);
    command.envs(setting.variables(&folder.path().join("device.tsv"))).stdin(Stdio::piped());
    let program = OtherUserProcess::root(&mut command);
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
