//! Probes on the libraries of a GPU, placed by a user who is not root.
//!
//! Owns: a program on the simulated device that belongs to one more user, and its recording. Because: probes take other
//! rights than samples, and kernels are named from calls. Does not: compare times and counts with the device's own
//! (`gpu_simulated_live` does).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::super::OtherUserProcess;
use super::super::cli_support::recording::{Recording, RecordingOutcome};
use super::super::cli_support::stderr;
use super::super::simulated::{self, Capture};
use super::{Scene, can_test, needs, without};

/// The kernels of the launcher.
const KERNELS: [&str; 4] = ["kernel_0_2us", "kernel_1_3us", "kernel_2_4us", "kernel_3_5us"];

/// Rows of `doctor` that are needed.
const FEATURES: [&str; 2] = ["for a capture", "for probes"];

/// A copy that everybody may read and run: the folder of the tests may be closed to them.
fn copy(from: &Path, folder: &Path) -> String {
    let to = folder.join(from.file_name().unwrap());
    fs::copy(from, &to).unwrap();
    fs::set_permissions(&to, Permissions::from_mode(0o755)).unwrap();
    to.display().to_string()
}

/// A program of another user, which launches as soon as a probe is in its library. `None` without a compiler.
fn scene() -> Option<Scene> {
    let [launcher] = &simulated::launcher()?[..] else { panic!("the launcher is one file") };
    Some(Scene::of(|folder| {
        for library in fs::read_dir(simulated::libraries("cuda13")).unwrap() {
            copy(&library.unwrap().path(), folder);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1", "--regid=1", "--clear-groups"]).arg(copy(Path::new(launcher), folder));
        command.args(["--threads", "1", "--rate", "2000", "--attended"]);
        command.env("LD_LIBRARY_PATH", folder);
        command.env("CUDA_INJECTION64_PATH", copy(&simulated::collector(), folder));
        OtherUserProcess::root(command.stdin(Stdio::null()).stdout(Stdio::null()))
    }))
}

#[test]
fn gpu_probes_need_what_doctor_lists() {
    if !can_test() || !simulated::is_built() {
        return;
    }
    let Some(scene) = scene() else { return };
    let needs = needs(&scene, &FEATURES);
    let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
    let profile = scene.theirs.join("gpu.dctx");
    let options = ["--pid", &scene.target.pid()];
    let mut recording = Recording::of_file(&profile, &mut scene.command_with(&needs), &options);
    recording.wait_until(|file| {
        let names = Capture::so_far(file.as_ref()).kernel_names();
        KERNELS.iter().all(|kernel| names.contains(*kernel))
    });
    let RecordingOutcome { status, said } = recording.interrupted();
    assert!(status.success(), "{said}");
}

#[test]
fn gpu_probes_without_a_capability_say_what_doctor_says() {
    if !can_test() || !simulated::is_built() {
        return;
    }
    let Some(scene) = scene() else { return };
    let needs = needs(&scene, &FEATURES);
    let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
    let profile = scene.theirs.join("gpu.dctx");
    for needed in &needs {
        let held = without(&needs, needed);
        let mut record = scene.command_with(&held);
        record.args(["record", "-d", "1s", "--pid", &scene.target.pid(), "-o"]).arg(&profile);
        let output = record.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{needed}: {}", stderr(&output));
        let said = stderr(&output);
        for line in scene.checks(&held).refusal() {
            assert!(said.lines().any(|said| said == line), "{line}\n{said}");
        }
        assert!(!profile.exists(), "{needed}");
    }
}
