//! What `record --on-finding` does about a program that gives cause for a finding. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cli_support::recording::{Ended, Recording};
use cli_support::{can_capture, program, run, sample_count, stderr, stdout};
use serde_json::Value;

/// A program with one hot line, which notes each SIGUSR1 in a file; killed when dropped.
struct Hot(Child);

impl Hot {
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

impl Drop for Hot {
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
    let hot = Hot::start(&path("signals"));
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
    // Where the end comes before the first is written, one profile serves both.
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
    let hot = Hot::start(&folder.path().join("signals"));
    let pid = hot.0.id().to_string();
    // A rule of a file is as good as ours, and so are the file's parameters.
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
    // Rules look for the first time after ten seconds; on a machine that is too busy for that, it ends by itself.
    recording.wait_until(|file| sample_count(file) > 300);
    let Ended { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(folder.path().join("reported").exists(), "{said}");
    // Once with its action, once at the end of the recording.
    assert_eq!(said.matches("of cpu-time is on paths python:spin").count(), 2, "{said}");
}
