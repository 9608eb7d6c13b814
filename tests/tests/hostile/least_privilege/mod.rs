//! Captures by a user who is not root, for various capabilities.
//!
//! Owns: running the program as `nobody` with exactly some capabilities, and the output of `doctor` then. Because:
//! users who grant less than root must know the exact loss. Does not: test how capabilities are granted.

mod gpu_probes;
mod live_view;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::{can_capture, folded, program, stderr};
use super::documented::Reader;
use super::{OTHER, OtherUserProcess, compiled_workload, open_folder, others_folder};

/// All capabilities that a capture uses, by `setpriv`'s names.
const ALL: [&str; 6] = ["bpf", "perfmon", "sys_ptrace", "dac_read_search", "checkpoint_restore", "syslog"];

/// Uses CPU time in the kernel and in Python, as a user other than the recording one.
const TARGET: &str = "
def read_zeroes(zero):
    while True:
        zero.read(1 << 20)
read_zeroes(open('/dev/zero', 'rb', buffering=0))
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
        let held: Vec<&str> = ALL.into_iter().filter(|name| !without.contains(name)).collect();
        self.command_with(&held)
    }

    /// The program as `nobody` with exactly these capabilities.
    fn command_with(&self, held: &[&str]) -> Command {
        let held: String = held.iter().map(|name| format!(",+{name}")).collect();
        // `setpriv` takes no empty list.
        let held = format!("-all{held}");
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
        // It begins with what `doctor` says of each.
        for name in without {
            let lacks = format!("without CAP_{} (", name.to_uppercase());
            assert!(said.contains(&lacks) && self.doctor(without).contains(&lacks), "{lacks}: {said}");
        }
        assert_eq!(said.contains("without CAP_"), !without.is_empty(), "{said}");
        stacks(&recording.file())
    }

    fn doctor(&self, without: &[&str]) -> String {
        String::from_utf8(self.run(without, &["doctor"]).stdout).unwrap()
    }

    /// What `doctor` says with exactly these capabilities.
    fn checks(&self, held: &[&str]) -> Checks {
        let output = self.command_with(held).args(["doctor", "--format", "json"]).output().unwrap();
        Checks(serde_json::from_slice(&output.stdout).unwrap())
    }
}

/// What `doctor` lists for these features, each capability once.
fn needs(scene: &Scene, features: &[&str]) -> Vec<String> {
    let checks = scene.checks(&[]);
    let needs: BTreeSet<String> = features.iter().flat_map(|feature| checks.needs(feature)).collect();
    needs.into_iter().collect()
}

/// The output of `doctor`.
struct Checks(Value);

impl Checks {
    /// A row of it.
    fn row(&self, name: &str) -> &Value {
        let row = self.0.as_array().unwrap().iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("no {name}: {}", self.0))
    }

    /// The capabilities that are for something, as `setpriv` names them.
    fn needs(&self, name: &str) -> Vec<String> {
        let found = self.row(name)["found"].as_str().unwrap();
        let needs = found.split_once("; missing").map_or(found, |(needs, _)| needs);
        needs.split(", ").map(|name| name.strip_prefix("CAP_").unwrap().to_lowercase()).collect()
    }

    /// What a capture says that cannot begin: what it lacks, and what can be done, in the words of `doctor`.
    fn refusal(&self) -> [String; 2] {
        let row = self.row("privileges");
        let without = row["found"].as_str().unwrap().strip_prefix("without ").unwrap();
        // What stands with its consequence, in brackets, ends no capture.
        let lacks: Vec<&str> = without.split(", ").filter(|one| !one.contains('(')).collect();
        let lacks = lacks.join(", ");
        [
            format!("error: profiling needs privileges that this process lacks: {lacks}"),
            format!("hint: {}", row["fix"].as_str().unwrap()),
        ]
    }
}

/// These without one of them.
fn without<'a>(held: &[&'a str], one: &str) -> Vec<&'a str> {
    held.iter().copied().filter(|name| *name != one).collect()
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
    scene.stacks(&[], &["spin.py:read_zeroes", "_[k]"]);
    assert!(!scene.doctor(&[]).contains("without CAP_"), "{}", scene.doctor(&[]));
}

#[test]
fn each_capability_less_costs_what_doctor_says() {
    if !can_test() {
        return;
    }
    let scene = Scene::new();
    let stacks = scene.stacks(&["dac_read_search"], &["python3-"]);
    assert!(!stacks.contains("spin.py:read_zeroes"), "{stacks}");
    let said = scene.doctor(&["dac_read_search"]);
    assert!(said.contains("CAP_DAC_READ_SEARCH (Python names of other users' processes"), "{said}");

    scene.stacks(&["syslog"], &["spin.py:read_zeroes", "kernel-restricted"]);
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
