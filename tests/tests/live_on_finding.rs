//! Actions of `record --on-finding` for a program with a finding, and changes of a running capture by `control`. Needs
//! root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cli_support::recording::{Recording, RecordingOutcome, wait_for};
use cli_support::{Busy, can_capture, program, run, sample_count, stderr, stdout};
use deepctx_profile::metric::Metric;
use serde_json::Value;

/// A program with one hot line, which logs each SIGUSR1 to a file; killed on drop.
struct HotProgram(Child);

impl HotProgram {
    fn start(notes: &Path) -> Self {
        const PROGRAM: &str = "
import signal, sys
def caught(*_):
    open(sys.argv[1], 'a').write('caught')
def spin():
    x = 0
    while True: x += 1
signal.signal(signal.SIGUSR1, caught)
print('ready', flush=True)
spin()
";
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).arg(notes).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child)
    }
}

impl Drop for HotProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_finding_keeps_tells_and_ends_a_capture() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| std::fs::read_to_string(path(name)).unwrap_or_default();
    let hot = HotProgram::start(&path("signals"));
    let output = program()
        .current_dir(folder.path())
        .args(["record", "--pid", &hot.0.id().to_string(), "--keep", "5s", "-o", "run.dctx"])
        .args(["--on-finding", "hotspot=keep", "--on-finding", "hotspot=signal:USR1"])
        .args(["--on-finding", "hotspot=run:cat > finding.json; echo $FINDING_RULE > rule; exit 3"])
        .args(["--on-finding", "hotspot=stop", "--on-finding", "gil-wait=run:touch never"])
        .output()
        .unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("finding hotspot (low)") && said.contains("the capture ends"), "{said}");
    assert!(said.contains("written because of a finding") && said.contains("exit status: 3"), "{said}");
    // If the recording ends before the first is written, one profile serves both.
    let of_both = said.contains("because of a finding, at the end of the recording");
    assert!(path("run.dctx").exists() && path("run-2.dctx").exists() != of_both, "{said}");
    let finding: Value = serde_json::from_str(&text("finding.json")).unwrap();
    assert_eq!((&finding["rule"], text("rule").trim()), (&"hotspot".into(), "hotspot"));
    assert!(finding["places"][0]["name"].as_str().unwrap().contains("spin"), "{finding:#}");
    assert_eq!(text("signals"), "caught", "once for each option");
    assert!(!path("never").exists());
    let kept = run(&["report", path("run.dctx").to_str().unwrap(), "--format", "json"]);
    assert!(kept.status.success() && stdout(&kept).contains("\"finding\""), "{}", stderr(&kept));
}

#[test]
fn a_short_recording_acts_at_its_end() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let hot = HotProgram::start(&folder.path().join("signals"));
    let pid = hot.0.id().to_string();
    // Rules and parameters from a file work like built-in ones.
    let rules = folder.path().join("rules.toml");
    let own = "[hotspot]\nfunction_percent = 1\n[[rule]]\nname = \"mine\"\npath = \"python:spin\"\n\
               share-above = 5\nadvice = \"Do less.\"\n";
    std::fs::write(&rules, own).unwrap();
    let rules = rules.display().to_string();
    let options = ["--pid", &pid, "--freq", "999", "--rules", &rules];
    let options =
        [&options[..], &["--on-finding", "mine=run:touch reported", "--on-finding", "hotspot=stop"]];
    let options = options.concat();
    let mut recording = Recording::by(program().current_dir(folder.path()), &options);
    // Rules first run after ten seconds; on a very busy machine, it ends by itself.
    recording.wait_until(|file| sample_count(file) > 300);
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(folder.path().join("reported").exists(), "{said}");
    // Once with its action, once at the end of the recording.
    assert_eq!(said.matches("of cpu-time is on paths python:spin").count(), 2, "{said}");
}

/// A running capture's answer to a request: exit code and output.
fn asked(socket: &str, request: &str) -> (Option<i32>, String) {
    let output = run(&[&["control", socket][..], &request.split(' ').collect::<Vec<_>>()].concat());
    (output.status.code(), stdout(&output) + &stderr(&output))
}

#[test]
fn a_running_capture_is_changed_on_request() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let hot = HotProgram::start(&folder.path().join("signals"));
    // A function that the program never calls: its probe costs nothing, so only a request detaches it.
    let rows = "[[probe]]\nlibrary = \"libc.so*\"\nsymbol = \"getpgid\"\nevent = \"user\"\narguments = []\n";
    std::fs::write(path("probes.toml"), rows).unwrap();
    let (pid, socket) = (hot.0.id().to_string(), path("control.sock"));
    let options =
        ["--freq", "9", "--control", &socket, "--probe-file", &path("probes.toml"), "--probe-budget", "100%"];
    let mut recording = Recording::start(&pid, &options);
    recording.wait_for_probes();
    let status = || {
        let (code, said) = asked(&socket, "status");
        assert_eq!(code, Some(0), "{said}");
        serde_json::from_str::<Value>(&said).unwrap()
    };
    let frequency = || status()["frequency_hz"].clone();
    assert_eq!(frequency(), 9);
    assert_eq!(asked(&socket, "freq 1997").0, Some(0));
    assert_eq!(frequency(), 1997);
    // Far more than at the first frequency, on any machine.
    let before = status()["samples"].as_u64().unwrap();
    recording.wait_until(|file| sample_count(file) > before + 1000);
    for (request, expect) in [
        ("freq 0", "expected 1 to 10000"),
        ("dance", "expected status"),
        ("keep", "record with --keep"),
        ("trace", "record with --trace signal=TIME"),
    ] {
        let (code, said) = asked(&socket, request);
        assert!(code == Some(2) && said.contains(expect), "{request}: {said}");
    }
    assert_eq!(frequency(), 1997);
    assert_eq!(asked(&socket, "probes off"), (Some(0), "budgeted probes are detached\n".to_owned()));
    recording.wait_until(|file| {
        let profile = deepctx_storage::open(file).unwrap().profile;
        profile.ledger.duty_cycled().is_some()
    });
    assert_eq!(asked(&socket, "stop").0, Some(0));
    let RecordingOutcome { status, said } = recording.ended();
    assert!(status.success(), "{said}");
    assert!(
        said.contains("on request") && said.contains("each CPU is sampled 1997 times per second"),
        "{said}"
    );
    assert!(!Path::new(&socket).exists());
    let profile = deepctx_storage::open(recording.file()).unwrap().profile;
    let sentence = profile.ledger.duty_cycled().unwrap();
    assert!(sentence.starts_with("functions of your own: attached"), "{sentence}");
    // A sample at the first frequency represents 111 ms, one at the second half a millisecond.
    let seen = |metric| profile.tree.total(metric).sum;
    let each_ns = seen(Metric::CpuTime) / seen(Metric::Samples);
    assert!(each_ns < 100_000_000, "{each_ns} ns a sample");
    assert!(asked(&socket, "status").1.contains("No such file"));
}

#[test]
fn what_is_kept_is_written_on_request() {
    if !can_capture() {
        return;
    }
    let (folder, busy) = (tempfile::tempdir().unwrap(), Busy::start());
    let socket = folder.path().join("control.sock").display().to_string();
    let mut recording = Recording::start(&busy.pid(), &["--keep", "60s", "--control", &socket]);
    recording.wait_for_probes();
    assert_eq!(asked(&socket, "keep"), (Some(0), "writing the kept data\n".to_owned()));
    let file = recording.file();
    let kept =
        |file: &str| deepctx_storage::open(Path::new(file)).unwrap().profile.meta.kept.unwrap().because;
    let is_whole = |file: &str| {
        Path::new(file).exists() && deepctx_storage::open(Path::new(file)).is_ok_and(|of| of.is_complete())
    };
    wait_for("what is kept", || is_whole(&file));
    assert_eq!(kept(&file), "request");
    assert_eq!(asked(&socket, "stop").0, Some(0));
    let RecordingOutcome { status, said } = recording.ended();
    assert!(status.success() && busy.lives(), "{said}");
    // It continued, and wrote the rest to another file.
    assert_eq!(kept(&file.replace("run.dctx", "run-2.dctx")), "end");
    assert!(said.contains("s after the start: writing the kept data"), "{said}");
}

#[test]
fn a_window_of_single_events_begins_on_request() {
    if !can_capture() {
        return;
    }
    /// Waits before the window.
    const BEFORE: u64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let waiting =
        Busy::of(Command::new("python3").args(["-c", "import time\nwhile True: time.sleep(0.005)"]));
    let socket = folder.path().join("control.sock").display().to_string();
    let options = ["--off-cpu", "--trace", "signal=10m", "--control", &socket];
    let mut recording = Recording::start(&waiting.pid(), &options);
    let waits = |file: &str| {
        let profile = deepctx_storage::open(Path::new(file)).unwrap().profile;
        profile.tree.total(Metric::OffCpuTime).count
    };
    recording.wait_until(|file| waits(file) >= BEFORE);
    assert_eq!(asked(&socket, "trace"), (Some(0), "recording of individual events requested\n".to_owned()));
    let traced = |file: &str| {
        let text = stdout(&run(&["timeline", file]));
        let words: Vec<&str> = text.lines().next().unwrap_or_default().split_whitespace().collect();
        let at = words.iter().position(|word| word.starts_with("event"));
        at.and_then(|at| words[at - 1].parse::<u64>().ok()).unwrap_or(0)
    };
    recording.wait_until(|file| traced(file) > 0);
    assert_eq!(asked(&socket, "stop").0, Some(0));
    let RecordingOutcome { status, said } = recording.ended();
    assert!(status.success() && said.contains("individual events are recorded from"), "{said}");
    let (traced, waits) = (traced(&recording.file()), waits(&recording.file()));
    assert!(0 < traced && traced + BEFORE <= waits, "{traced} of {waits}: {said}");
}
