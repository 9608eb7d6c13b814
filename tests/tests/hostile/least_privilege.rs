//! Captures by a user who is not root, for various capabilities.
//!
//! Owns: a recording as `nobody` with exactly some capabilities, and the output of `doctor` then. Because: users who
//! grant less than root must know the exact loss. Does not: test how capabilities are granted.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::{can_capture, folded, program, stderr};
use super::documented::Reader;
use super::{OTHER, OtherUserProcess, compiled_workload, open_folder, others_folder};

/// All capabilities that a capture uses, by `setpriv`'s names.
const ALL: [&str; 6] = ["bpf", "perfmon", "sys_ptrace", "dac_read_search", "checkpoint_restore", "syslog"];

/// Uses CPU time in the kernel and in Python, as a user other than the recording one.
const TARGET: &str = "
def read(zero):
    while True:
        zero.read(1 << 20)
read(open('/dev/zero', 'rb', buffering=0))
";

struct Scene {
    _folder: tempfile::TempDir,
    /// A world-executable copy of the program.
    program: PathBuf,
    theirs: PathBuf,
    target: OtherUserProcess,
}

impl Scene {
    /// A Python program whose file only its user may read.
    fn new() -> Self {
        Self::of(|folder| {
            let script = folder.join("spin.py");
            fs::write(&script, TARGET).unwrap();
            chown(&script, Some(1), Some(1)).unwrap();
            let mut python = Command::new("setpriv");
            python.args(["--reuid=1", "--regid=1", "--clear-groups", "/usr/bin/python3"]).arg(&script);
            OtherUserProcess::root(python.stdin(Stdio::null()))
        })
    }

    /// A program whose file was deleted while running.
    fn deleted() -> Self {
        Self::of(|folder| {
            let innocent = compiled_workload(folder, "innocent");
            let mut command = Command::new("setpriv");
            command.args(["--reuid=1", "--regid=1", "--clear-groups"]).arg(&innocent).arg("100000");
            let mut target = OtherUserProcess::root(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
            target.wait_for_line("ready");
            fs::remove_file(&innocent).unwrap();
            target.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            target
        })
    }

    fn of(start: impl FnOnce(&Path) -> OtherUserProcess) -> Self {
        let folder = open_folder();
        let theirs = others_folder(folder.path());
        let copy = folder.path().join("deepctx-bpf");
        fs::copy(program().get_program(), &copy).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        let target = start(folder.path());
        Self { _folder: folder, program: copy, theirs, target }
    }

    /// Runs the program as `nobody` with all capabilities except these.
    fn run(&self, without: &[&str], arguments: &[&str]) -> Output {
        self.command(without).args(arguments).output().unwrap()
    }

    /// A command for the program as `nobody` with all capabilities except these.
    fn command(&self, without: &[&str]) -> Command {
        let held: Vec<String> =
            ALL.iter().filter(|name| !without.contains(name)).map(|name| format!("+{name}")).collect();
        let held = held.join(",");
        let mut command = Command::new("setpriv");
        let user = OTHER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps", &held]);
        command.args(["--ambient-caps", &held]).arg(&self.program);
        command.env("HOME", &self.theirs).env_remove("SUDO_UID").env_remove("XDG_CACHE_HOME");
        command
    }

    /// Folded stacks of a recording with samples of each of these.
    fn stacks(&self, without: &[&str], parts: &[&str]) -> String {
        let profile = self.theirs.join(format!("without-{}.dctx", without.join("-")));
        let options = ["--pid", &self.target.pid()];
        let mut recording = Recording::of_file(&profile, &mut self.command(without), &options);
        let stacks = |file: &str| folded(file, "samples", &[]);
        recording.wait_until(|file| {
            let stacks = stacks(file);
            parts.iter().all(|part| stacks.contains(part))
        });
        let RecordingOutcome { status, said } = recording.interrupted();
        assert!(status.success(), "{said}");
        stacks(&recording.file())
    }

    fn doctor(&self, without: &[&str]) -> String {
        String::from_utf8(self.run(without, &["doctor"]).stdout).unwrap()
    }
}

fn can_test() -> bool {
    let there = Path::new("/usr/bin/python3").exists();
    assert!(there || std::env::var_os("CI").is_none(), "this test needs /usr/bin/python3");
    if !there {
        eprintln!("skipped: this test needs /usr/bin/python3");
    }
    there && can_capture()
}

#[test]
fn six_capabilities_are_enough_without_root() {
    if !can_test() {
        return;
    }
    let scene = Scene::new();
    scene.stacks(&[], &["spin.py:read", "_[k]"]);
    assert!(!scene.doctor(&[]).contains("without CAP_"), "{}", scene.doctor(&[]));
}

#[test]
fn each_capability_less_costs_what_doctor_says() {
    if !can_test() {
        return;
    }
    let scene = Scene::new();
    let stacks = scene.stacks(&["dac_read_search"], &["python3-"]);
    assert!(!stacks.contains("spin.py:read"), "{stacks}");
    let said = scene.doctor(&["dac_read_search"]);
    assert!(said.contains("CAP_DAC_READ_SEARCH (Python names of other users' processes"), "{said}");

    scene.stacks(&["syslog"], &["spin.py:read", "kernel-restricted"]);
    let said = scene.doctor(&["syslog"]);
    assert!(said.contains("CAP_SYSLOG (names of kernel functions"), "{said}");
}

#[test]
fn deleted_programs_have_names_with_checkpoint_restore_only() {
    if !can_test() {
        return;
    }
    let scene = Scene::deleted();
    scene.stacks(&[], &[";main;outer;"]);
    let stacks = scene.stacks(&["checkpoint_restore"], &["module-deleted"]);
    assert!(!stacks.contains("innermost"), "{stacks}");
    let said = scene.doctor(&["checkpoint_restore"]);
    assert!(said.contains("CAP_CHECKPOINT_RESTORE (files that were deleted"), "{said}");
}

#[test]
fn without_a_needed_capability_nothing_is_captured() {
    if !can_test() {
        return;
    }
    let scene = Scene::new();
    for (name, shown) in [("bpf", "CAP_BPF"), ("perfmon", "CAP_PERFMON"), ("sys_ptrace", "CAP_SYS_PTRACE")] {
        let profile = scene.theirs.join(name);
        let arguments = ["record", "-d", "1s", "--pid", &scene.target.pid(), "-o", profile.to_str().unwrap()];
        let output = scene.run(&[name], &arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(shown) && !profile.exists(), "{}", stderr(&output));
        let said = scene.doctor(&[name]);
        assert!(said.contains(&format!("without {shown}")), "{said}");
    }
}

/// A folder on a disk: an in-memory `/tmp` is often mounted `nosuid`, which disables file capabilities.
fn folder_on_disk() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn the_page_on_profiling_without_root_is_true() {
    if !can_test() {
        return;
    }
    let folder = folder_on_disk();
    let theirs = others_folder(folder.path());
    fs::copy(program().get_program(), theirs.join("deepctx-bpf")).unwrap();
    fs::set_permissions(theirs.join("deepctx-bpf"), Permissions::from_mode(0o755)).unwrap();
    let service = folder.path().join("serve.py");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/serve.py"), &service).unwrap();
    let mut python = Command::new("/usr/bin/python3");
    let mut target =
        OtherUserProcess::start(python.arg(&service).stdin(Stdio::null()).stdout(Stdio::piped()));
    target.wait_for_line("ready");
    let user = OTHER.to_string();
    let reader = Reader {
        folder: Some(&theirs),
        pid: target.pid(),
        variables: &[("HOME", theirs.clone().into())],
        user: &["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"],
        ..Reader::default()
    };
    reader.follows("without-root.md");
}
