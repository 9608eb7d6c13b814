//! A process whose memory never answers costs its own names and nothing else. Needs root, BPF and FUSE.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cli_support::{Busy, can_capture, expect_code, folded, program, stderr};

/// How long a recording may take to end: promised are 5 s, and the tests' machines are busy.
const END: Duration = Duration::from_secs(5);
/// How long a recording records.
const RECORDED: Duration = Duration::from_secs(3);
/// Samples per second of CPU time.
const FREQUENCY: u64 = 99;
/// Ticks per second in `/proc`.
const TICKS: u64 = 100;
/// A user that is not root.
const NOBODY: &str = "65534";

/// A program of `tests/workloads` that runs until this is dropped.
struct Running(Child);

impl Running {
    /// Compiles and starts it; `None` with what it says when it does not start.
    fn start(name: &str, folder: &Path, arguments: &[&str]) -> Result<Self, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("workloads/{name}.c"));
        let built = folder.join(name);
        let compiled = Command::new("cc").args(["-O1", "-o"]).arg(&built).arg(source).status();
        assert!(compiled.unwrap().success());
        let mut command = Command::new(built);
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
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

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A mounted file that is never read, and a process that points the profiler into it. The server goes first: whoever
/// waits for it gets an error, and everything can end.
struct Scene {
    server: Option<Running>,
    victim: Option<Running>,
    mount: PathBuf,
    folder: tempfile::TempDir,
}

impl Scene {
    /// With a server of this user; `None` where there is no FUSE.
    fn of_user(user: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path().join("mount");
        std::fs::create_dir(&mount).unwrap();
        let server = match Running::start("silent_files", folder.path(), &[mount.to_str().unwrap(), user]) {
            Ok(server) => Some(server),
            Err(because) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "FUSE cannot be mounted: {because}");
                println!("skipped: FUSE cannot be mounted here: {because}");
                return None;
            }
        };
        let mut scene = Self { server, victim: None, mount, folder };
        let file = scene.mount.join("a");
        let victim = Running::start("silent_pages", scene.folder.path(), &[file.to_str().unwrap()]);
        scene.victim = Some(victim.unwrap());
        Some(scene)
    }

    fn victim(&self) -> String {
        self.victim.as_ref().unwrap().pid()
    }

    fn profile(&self) -> PathBuf {
        self.folder.path().join("run.dctx")
    }

    /// A recording of these processes, not started.
    fn record(&self, pids: &[&str], more: &[&str]) -> Command {
        let mut command = program();
        command.args(["record", "-o", self.profile().to_str().unwrap()]).args(more);
        pids.iter().for_each(|pid| _ = command.args(["--pid", pid]));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// How often something of this kind is missing, as the profile says.
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

/// Waits for a recording to end by itself. One that does not is killed, or the test would wait for ever.
fn ended(mut recording: Child, within: Duration) -> Output {
    let began = Instant::now();
    while recording.try_wait().unwrap().is_none() {
        if began.elapsed() >= within {
            let _ = recording.kill();
            panic!("the recording did not end within {within:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    recording.wait_with_output().unwrap()
}

/// Samples of a process, by its name in the stacks.
fn samples(profile: &Path, name: &str) -> u64 {
    let stacks = folded(profile.to_str().unwrap(), "samples", &[]);
    let of = stacks.lines().filter(|line| line.starts_with(name));
    of.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// CPU time of a process so far, in ticks.
fn ticks(pid: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_ascii_whitespace();
    // The 14th and 15th field; the state, which follows the name, is the third.
    fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Whether no more is missing of a process than what it did while the recording began and ended, and what a busy
/// machine takes from both: 141 samples for 309 ticks were seen. A pipeline that waits has nothing.
fn is_sampled(profile: &Path, name: &str, ticks: u64) -> bool {
    samples(profile, name) >= ticks * FREQUENCY / TICKS / 4
}

fn check_recording(user: &str, key: &str) -> Option<(Scene, Output)> {
    let scene = Scene::of_user(user)?;
    let busy = Busy::start();
    let before = [ticks(&busy.pid()), ticks(&scene.victim())];
    let recording = scene.record(&[&busy.pid(), &scene.victim()], &["-d", "3s"]).spawn().unwrap();
    let output = ended(recording, RECORDED + END);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let used = [ticks(&busy.pid()) - before[0], ticks(&scene.victim()) - before[1]];
    assert!(is_sampled(&scene.profile(), "sh-", used[0]), "the process beside it, {used:?}: {said}");
    assert!(is_sampled(&scene.profile(), "silent_pages-", used[1]), "the process itself, {used:?}: {said}");
    assert!(scene.missing(key) > 0, "{key}: {said}");
    Some((scene, output))
}

#[test]
fn a_page_of_a_silent_users_server_is_not_touched() {
    if !can_capture() {
        return;
    }
    let Some((scene, output)) = check_recording(NOBODY, "memory-user-file") else { return };
    assert_eq!(scene.missing("memory-no-answer"), 0, "nobody had to wait: {}", stderr(&output));
}

#[test]
fn a_page_that_nobody_fills_costs_one_deadline() {
    if !can_capture() {
        return;
    }
    // Root's servers are trusted, so the page is read, as it is where it is mapped after the check.
    let Some((scene, output)) = check_recording("0", "memory-no-answer") else { return };
    assert_eq!(scene.missing("memory-no-answer"), 1, "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains(&format!("process {}: its memory did not answer", scene.victim())), "{said}");
}

#[test]
fn a_signal_ends_a_recording_of_silent_memory() {
    if !can_capture() {
        return;
    }
    let Some(scene) = Scene::of_user("0") else { return };
    let recording = scene.record(&[&scene.victim()], &["--flush", "200ms"]).spawn().unwrap();
    let listed = || std::fs::read_to_string(scene.profile().join("manifest.json")).unwrap_or_default();
    let began = Instant::now();
    while !listed().contains(".parquet") && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = recording.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = ended(recording, END);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    expect_code(0, &["report", scene.profile().to_str().unwrap()]);
}

/// A recording whose raw copy goes to a pipe that nobody reads: its pipeline stands still once the pipe is full.
fn standing_still(folder: &Path, busy: &Busy, more: &[&str]) -> (Child, std::fs::File) {
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Opened for both, so that neither side waits for the other.
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let mut command = program();
    command.args(["record", "--force", "--freq", "4999", "--flush", "100ms", "--pid", &busy.pid(), "--raw"]);
    command.arg(pipe).arg("-o").arg(folder.join("run.dctx")).args(more);
    (command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap(), reader)
}

#[test]
fn a_pipeline_that_stands_still_is_ended_in_time() {
    if !can_capture() {
        return;
    }
    let (folder, busy) = (tempfile::tempdir().unwrap(), Busy::start());
    let (recording, _reader) = standing_still(folder.path(), &busy, &["-d", "3s"]);
    let output = ended(recording, RECORDED + 2 * END);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the pipeline and its profile did not end within"), "{said}");
    expect_code(0, &["report", folder.path().join("run.dctx").to_str().unwrap()]);
}
