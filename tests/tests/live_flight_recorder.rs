//! The flight recorder over real processes, by the program as a user runs it. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cli_support::recording::wait_for;
use cli_support::{Busy, can_capture, expect_code, program, signal};
use deepctx_profile::ledger::{CheckTime, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{KeptWindow, Profile};

/// A running recorder; killed on drop.
struct Recorder(Child);

impl Recorder {
    /// Starts it, and waits until it handles the signal.
    fn start(output: &Path, arguments: &[&str]) -> Self {
        let all = [&["record", "-o", output.to_str().unwrap()], arguments].concat();
        let child = program().args(all).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let recorder = Self(child);
        let status = format!("/proc/{}/status", recorder.0.id());
        wait_for("handling of SIGUSR1", || {
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            // Bit n is signal n + 1; SIGUSR1 is 10.
            u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 9) != 0
        });
        recorder
    }

    fn signal(&self, name: &str) {
        signal(&self.0.id().to_string(), name);
    }

    /// Ends it; returns its output.
    fn end(mut self) -> String {
        self.signal("INT");
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.0.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A profile of the recorder, once complete.
fn written(path: &Path) -> Profile {
    wait_for(&format!("{}", path.display()), || is_written(path));
    deepctx_storage::open(path).unwrap().profile
}

fn is_written(path: &Path) -> bool {
    path.exists() && deepctx_storage::open(path).is_ok_and(|opened| opened.is_complete())
}

fn kept(profile: &Profile) -> KeptWindow {
    profile.meta.kept.clone().unwrap()
}

fn samples(profile: &Profile) -> u64 {
    profile.tree.total(Metric::Samples).count
}

#[test]
fn signals_write_windows_and_the_target_goes_on() {
    if !can_capture() {
        return;
    }
    let (folder, busy) = (tempfile::tempdir().unwrap(), Busy::start());
    let path = |name: &str| folder.path().join(name);
    let arguments = ["--pid", &busy.pid(), "--keep", "1s", "--system-metrics", "off"];
    let recorder = Recorder::start(&path("run.dctx"), &arguments);
    recorder.signal("USR1");
    let first = written(&path("run.dctx"));
    // Repeated until some data is older than the window.
    let mut number = 2;
    let last = loop {
        recorder.signal("USR1");
        let next = written(&path(&format!("run-{number}.dctx")));
        if kept(&next).before_records > 0 && samples(&next) > 0 {
            break next;
        }
        number += 1;
    };
    assert!(Path::new("/proc").join(busy.pid()).exists(), "the target goes on");
    let said = recorder.end();
    let at_end = written(&path(&format!("run-{}.dctx", number + 1)));
    for (profile, because) in [(&first, "signal"), (&last, "signal"), (&at_end, "end")] {
        assert_eq!(kept(profile).because, because);
        assert_eq!(profile.ledger.check(CheckTime::Finished), Ok(()), "{:?}", profile.ledger);
        assert_eq!(profile.ledger.stage(Stage::Attribute).kept, samples(profile));
        let (name, value) = profile.meta.options.iter().find(|(name, _)| name == "keep").unwrap();
        assert_eq!((name.as_str(), value.as_str()), ("keep", "1s"));
    }
    // The samples of the last window and those before it add up to all.
    let captured = said.lines().find_map(|line| line.strip_prefix("captured: ")).unwrap();
    let captured: u64 = captured.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(kept(&at_end).before_records + samples(&at_end), captured, "{said}");
    let text = expect_code(0, &["report", path("run-2.dctx").to_str().unwrap()]);
    assert!(text.contains("kept by a flight recorder (signal)"), "{text}");
}

#[test]
fn a_capture_shorter_than_what_is_kept_is_whole() {
    if !can_capture() {
        return;
    }
    let (folder, busy) = (tempfile::tempdir().unwrap(), Busy::start());
    let output = folder.path().join("run.dctx");
    let named = output.to_str().unwrap();
    let record = ["record", "--pid", &busy.pid(), "-F", "999", "--keep", "60s", "--duration", "2s"];
    let record = [&record[..], &["-o", named]].concat();
    expect_code(0, &record);
    let profile = written(&output);
    let KeptWindow { before, before_records, because } = kept(&profile);
    assert_eq!((before.0, before_records, because.as_str()), (0, 0, "end"));
    assert!(samples(&profile) > 0);
    assert_eq!(profile.ledger.check(CheckTime::Finished), Ok(()));
    // Nothing is overwritten.
    assert!(expect_code(2, &record).contains("already exists"));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let check = |arguments: &[&str], expect: &str| {
        let said = expect_code(2, &[&["record", "--pid", "1"], arguments].concat());
        assert!(said.contains(expect), "{arguments:?}: {said}");
    };
    check(&["--keep", "0s"], "expected 1s to 1h, found '0s'");
    check(&["--keep", "60s", "--trace", "10s"], "expected one of them");
    check(&["--keep", "60s", "--on-hang", "5x"], "need `--probe ranges`");
    check(&["--keep", "60s", "-o", "/nowhere/run.dctx"], "expected a folder for the profile, found none");
}

/// The example whose training steps stop, freshly compiled; killed on drop.
struct StallingProgram {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

impl StallingProgram {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/stalling.c");
        let (library, path) = (folder.path().join("libstalling.so"), folder.path().join("stalling"));
        let compile = |arguments: &[&str], output: &Path| {
            let mut compiler = Command::new("gcc");
            compiler.args(["-O1", "-g"]).args(arguments).arg("-o").arg(output).arg(&source);
            if arguments.is_empty() {
                compiler.arg(&library).arg(format!("-Wl,-rpath,{}", folder.path().display()));
            }
            assert!(compiler.status().unwrap().success(), "{} does not compile", source.display());
        };
        compile(&["-DLIBRARY", "-shared", "-fPIC"], &library);
        compile(&[], &path);
        let mut command = Command::new(path);
        command.arg("10").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut stalling = Self { child, input, output: BufReader::new(output), folder };
        stalling.says("ready");
        stalling
    }

    fn says(&mut self, expect: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), expect);
    }

    /// Runs some more steps; none ends afterwards.
    fn step(&mut self) {
        self.input.write_all(b"\n").unwrap();
        self.says("done");
    }
}

impl Drop for StallingProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_hang_is_written_once_and_recording_goes_on() {
    if !can_capture() {
        return;
    }
    let mut stalling = StallingProgram::start();
    let path = |name: &str| -> PathBuf { stalling.folder.path().join(name) };
    let (hang, after) = (path("hang.dctx"), path("hang-2.dctx"));
    let pid = stalling.child.id().to_string();
    let arguments = ["--pid", &pid, "--keep", "60s", "--on-hang", "5x", "--probe", "ranges", "--off-cpu"];
    let marker = ["--step-marker", "*/libstalling.so:train_step"];
    let recorder = Recorder::start(&hang, &[&arguments[..], &marker].concat());
    // Steps before the probe is attached are missed, and without any no hang is detected.
    let mut asked = Instant::now();
    stalling.step();
    wait_for("a hang", || {
        if asked.elapsed() > Duration::from_secs(5) {
            asked = Instant::now();
            stalling.step();
        }
        is_written(&hang)
    });
    let profile = written(&hang);
    assert_eq!(kept(&profile).because, "hang");
    assert_eq!(profile.ledger.check(CheckTime::Finished), Ok(()));
    let steps = profile.tree.total(Metric::StepTime).count;
    assert!(steps >= 3, "{steps}");
    // It waits for input, and the unfinished wait is included.
    assert!(profile.tree.total(Metric::OffCpuTime).sum > 0);
    stalling.step();
    recorder.signal("USR1");
    let more = written(&after);
    let said = recorder.end();
    assert!(more.tree.total(Metric::StepTime).count >= steps, "{said}");
    assert!(
        said.contains("no training step has ended for") && said.contains(&format!("dump --pid {pid}")),
        "{said}"
    );
}
