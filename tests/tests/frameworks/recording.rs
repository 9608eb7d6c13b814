//! A capture that runs until a test has seen what it waits for.
//!
//! Owns: starting `record`, the lines that it says, ending it. Because: on a busy machine everything takes longer,
//! and a test that waits for a condition waits as long as that takes, and no longer. Does not: judge what was
//! captured.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::super::cli_support::program;
use super::Target;

/// After this a condition counts as one that never comes true: many times what the slowest takes on an idle machine.
const LONGEST: Duration = Duration::from_secs(600);
/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A running `record`.
pub(crate) struct Recording {
    child: Child,
    said: Receiver<String>,
    folder: tempfile::TempDir,
}

impl Recording {
    /// Starts to record a process.
    pub(crate) fn start(target: &Target, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = program();
        command.args(["record", "-v", "--flush", "1s", "--pid", &target.pid(), "-o"]);
        command.arg(folder.path().join("run.dctx")).args(options);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (say, said) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
        Self { child, said, folder }
    }

    /// The profile, also while it grows.
    pub(crate) fn file(&self) -> String {
        self.folder.path().join("run.dctx").display().to_string()
    }

    /// Waits until it says this. Gives the whole line.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + LONGEST;
        let mut all = String::new();
        loop {
            match self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => all += &format!("{line}\n"),
                Err(RecvTimeoutError::Timeout) => panic!("not said in {LONGEST:?}: {text}\n{all}"),
                Err(RecvTimeoutError::Disconnected) => panic!("ended before it said: {text}\n{all}"),
            }
        }
    }

    /// Waits until what runs already has its probes.
    #[track_caller]
    pub(crate) fn wait_for_probes(&self) {
        self.wait_for("the probes are in place");
    }

    /// Looks at the growing profile until it holds what is waited for.
    #[track_caller]
    pub(crate) fn wait_until(&self, mut holds: impl FnMut(&str) -> bool) {
        let deadline = Instant::now() + LONGEST;
        let (file, manifest) = (self.file(), self.folder.path().join("run.dctx/manifest.json"));
        // Before the first flush there is nothing to open.
        while !manifest.exists() || !holds(&file) {
            assert!(Instant::now() < deadline, "not seen in {LONGEST:?}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Ends it, unless it ended with its target. Gives the file, in its folder.
    #[track_caller]
    pub(crate) fn end(mut self) -> (tempfile::TempDir, String) {
        let file = self.file();
        if self.child.try_wait().unwrap().is_none() {
            let pid = self.child.id().to_string();
            assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        }
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.said.iter().collect::<Vec<_>>().join("\n"));
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        (folder, file)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // It has ended where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Records a program that waits for a line on its input, from when its probes are there until it says `done`. Gives
/// the file, in its folder.
#[track_caller]
pub(crate) fn record_through(command: &mut Command, options: &[&str]) -> (tempfile::TempDir, String) {
    let mut target = Target::start(command.stdin(Stdio::piped()));
    let recording = Recording::start(&target, options);
    recording.wait_for_probes();
    target.go();
    target.wait_for("done");
    recording.end()
}

/// Records a program until its profile holds what is waited for. Gives the file, in its folder.
#[track_caller]
pub(crate) fn record_until(
    target: &Target,
    options: &[&str],
    holds: impl FnMut(&str) -> bool,
) -> (tempfile::TempDir, String) {
    let recording = Recording::start(target, options);
    recording.wait_until(holds);
    recording.end()
}
