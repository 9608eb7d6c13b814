//! A process with memory whose reads never return costs only its own names. Needs root, BPF and FUSE.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cli_support::recording::{Recording, RecordingOutcome};
use cli_support::victim::harms_nobody;
use cli_support::{Busy, TICKS, can_capture, expect_code, folded, gap_count, program, ticks};

/// Promised maximum time for a recording to end.
const END: Duration = Duration::from_secs(5);
/// Samples per second of CPU time.
const FREQUENCY: u64 = 99;
/// A user that is not root.
const NOBODY: &str = "65534";

/// A program of `tests/workloads` that runs until this is dropped.
struct RunningWorkload(Child);

impl RunningWorkload {
    /// Compiles and starts it; `None` with its output when it does not start.
    fn start(
        name: &str,
        folder: &Path,
        arguments: &[&str],
        variables: &[(&str, String)],
    ) -> Result<Self, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("workloads/{name}.c"));
        let built = folder.join(name);
        let compiled = Command::new("cc").args(["-O1", "-o"]).arg(&built).arg(source).status();
        assert!(compiled.unwrap().success());
        let mut command = Command::new(built);
        Self::of(command.args(arguments).envs(variables.iter().cloned()))
    }

    /// Starts this; `None` with its output when it does not start.
    fn of(command: &mut Command) -> Result<Self, String> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.starts_with("ready ") {
            return Ok(Self(child));
        }
        let output = child.wait_with_output().unwrap();
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for RunningWorkload {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A mounted file that never answers reads, and a process that points the profiler to it. The server is dropped first:
/// its waiters get an error, and everything can end.
struct Scene {
    server: Option<RunningWorkload>,
    victim: Option<RunningWorkload>,
    mount: PathBuf,
    folder: tempfile::TempDir,
}

impl Scene {
    /// With a server of this user; `None` without FUSE.
    fn of_user(user: &str) -> Option<Self> {
        let mut scene = Self::served(&[user])?;
        scene.starts(&scene.mount.join("a"), &[]);
        Some(scene)
    }

    /// With a server of this user, and a Python process with a task whose awaiter is in its file; `None` without FUSE,
    /// or a Python whose tasks are read.
    fn of_task(user: &str) -> Option<Self> {
        let mut scene = Self::served(&[user])?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/silent_tasks.py");
        match RunningWorkload::of(Command::new("python3").arg(script).arg(scene.mount.join("a"))) {
            Ok(victim) => scene.victim = Some(victim),
            Err(because) => {
                assert!(because.contains("3.11"), "{because}");
                println!("skipped: {because}");
                return None;
            }
        }
        Some(scene)
    }

    /// With a server that never answers, and a process that claims its compiler's files are there.
    fn of_mute_folders() -> Option<Self> {
        let mut scene = Self::served(&[NOBODY, "mute"])?;
        let page = scene.folder.path().join("page");
        std::fs::write(&page, [0; 1 << 16]).unwrap();
        let there = scene.mount.join("files").display().to_string();
        let dump = ("XLA_FLAGS", format!("--xla_dump_to={there}"));
        scene.starts(&page, &[dump, ("JAX_COMPILATION_CACHE_DIR", there)]);
        Some(scene)
    }

    /// A folder served with these arguments.
    fn served(words: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path().join("mount");
        std::fs::create_dir(&mount).unwrap();
        let words = [&[mount.to_str().unwrap()], words].concat();
        let server = match RunningWorkload::start("silent_files", folder.path(), &words, &[]) {
            Ok(server) => Some(server),
            Err(because) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "FUSE cannot be mounted: {because}");
                println!("skipped: FUSE cannot be mounted here: {because}");
                return None;
            }
        };
        Some(Self { server, victim: None, mount, folder })
    }

    /// Starts the process, whose list of generated code starts in this file.
    fn starts(&mut self, file: &Path, variables: &[(&str, String)]) {
        let file = file.to_str().unwrap();
        self.victim =
            Some(RunningWorkload::start("silent_pages", self.folder.path(), &[file], variables).unwrap());
    }

    fn victim(&self) -> String {
        self.victim.as_ref().unwrap().pid()
    }

    fn profile(&self) -> PathBuf {
        self.folder.path().join("run.dctx")
    }

    /// Starts to record, with these options.
    fn record(&self, options: &[&str]) -> Recording {
        Recording::of_file(&self.profile(), &mut program(), options)
    }

    /// The count of a gap in the profile.
    fn missing(&self, key: &str) -> u64 {
        let rows = deepctx_storage::open(self.profile()).unwrap().profile.ledger.rows();
        rows.iter().filter(|row| row.reason == key).map(|row| row.count).sum()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server = None;
        self.victim = None;
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}

/// Samples of a process, by its name in the stacks.
fn samples(profile: &Path, name: &str) -> u64 {
    let stacks = folded(profile.to_str().unwrap(), "samples", &[]);
    let of = stacks.lines().filter(|line| line.starts_with(name));
    of.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Whether a process lost no more samples than on a busy machine: 141 samples for 309 ticks were observed, including
/// the start of the recording. A blocked pipeline has none.
fn is_sampled(profile: &Path, name: &str, ticks: u64) -> bool {
    samples(profile, name) >= ticks * FREQUENCY / TICKS / 4
}

/// Records it beside another process, which must be recorded as usual, until the condition holds.
fn check_recording(scene: &Scene, holds: impl Fn(&Scene) -> bool) -> String {
    check_recording_with(&[], "silent_pages-", scene, holds)
}

/// The same with these options, and another name of the process in the stacks.
fn check_recording_with(
    options: &[&str],
    name: &str,
    scene: &Scene,
    holds: impl Fn(&Scene) -> bool,
) -> String {
    let busy = Busy::start();
    let both = ["--pid", &busy.pid(), "--pid", &scene.victim()];
    let mut recording = scene.record(&[&both[..], options].concat());
    recording.wait_for_probes();
    let before = [ticks(&busy.pid()), ticks(&scene.victim())];
    recording.wait_until(|_| samples(&scene.profile(), "sh-") > 100 && holds(scene));
    let used = [ticks(&busy.pid()) - before[0], ticks(&scene.victim()) - before[1]];
    recording.signal("INT");
    let RecordingOutcome { status, said } = recording.ended_within(END);
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(is_sampled(&scene.profile(), "sh-", used[0]), "the process beside it, {used:?}: {said}");
    assert!(is_sampled(&scene.profile(), name, used[1]), "the process itself, {used:?}: {said}");
    said
}

#[test]
fn a_page_of_a_silent_users_server_is_not_touched() {
    if !can_capture() {
        return;
    }
    let Some(scene) = Scene::of_user(NOBODY) else { return };
    let said = check_recording(&scene, |scene| scene.missing("memory-user-file") > 0);
    assert_eq!(scene.missing("memory-no-answer"), 0, "nobody had to wait: {said}");
}

#[test]
fn pages_of_a_silent_server_harm_nobody() {
    if !can_capture() {
        return;
    }
    for (attack, user, key) in [
        ("a page of a silent user's server", NOBODY, "memory-user-file"),
        ("a page that nobody fills", "0", "memory-no-answer"),
    ] {
        let Some(scene) = Scene::of_user(user) else { return };
        harms_nobody(attack, &["--pid", &scene.victim()], |file| {
            gap_count(&deepctx_storage::open(file).unwrap().profile, key) > 0
        });
    }
}

#[test]
fn a_page_that_nobody_fills_costs_one_deadline() {
    if !can_capture() {
        return;
    }
    // Root's servers are trusted, so the page is read, as if it were mapped after the check.
    let Some(scene) = Scene::of_user("0") else { return };
    let said = check_recording(&scene, |scene| scene.missing("memory-no-answer") > 0);
    assert_eq!(scene.missing("memory-no-answer"), 1, "{said}");
    assert!(said.contains(&format!("process {}: its memory did not answer", scene.victim())), "{said}");
}

#[test]
fn a_task_awaited_from_a_silent_page_costs_one_deadline() {
    if !can_capture() {
        return;
    }
    // As if the page were mapped after the check, by a process that has answered before.
    let Some(scene) = Scene::of_task("0") else { return };
    let options = ["--probe", "async"];
    let said =
        check_recording_with(&options, "python3", &scene, |scene| scene.missing("memory-no-answer") > 0);
    assert_eq!(scene.missing("memory-no-answer"), 1, "{said}");
}

#[test]
fn a_task_awaited_from_a_users_server_is_not_followed() {
    if !can_capture() {
        return;
    }
    let Some(scene) = Scene::of_task(NOBODY) else { return };
    let options = ["--probe", "async"];
    let said =
        check_recording_with(&options, "python3", &scene, |scene| scene.missing("memory-user-file") > 0);
    assert_eq!(scene.missing("memory-no-answer"), 0, "nobody had to wait: {said}");
}

#[test]
fn folders_of_a_mute_users_server_are_not_opened() {
    if !can_capture() {
        return;
    }
    let Some(scene) = Scene::of_mute_folders() else { return };
    // Looking up a generated code's name reads the files of its compiler.
    check_recording(&scene, |scene| samples(&scene.profile(), "silent_pages-") > 100);
}

#[test]
fn a_signal_ends_a_recording_of_silent_memory() {
    if !can_capture() {
        return;
    }
    let Some(scene) = Scene::of_user("0") else { return };
    let mut recording = scene.record(&["--pid", &scene.victim(), "--flush", "200ms"]);
    recording.wait_until(|file| {
        std::fs::read_to_string(Path::new(file).join("manifest.json")).unwrap().contains(".parquet")
    });
    recording.signal("INT");
    let RecordingOutcome { status, said } = recording.ended_within(END);
    assert_eq!(status.code(), Some(0), "{said}");
    expect_code(0, &["report", scene.profile().to_str().unwrap()]);
}
