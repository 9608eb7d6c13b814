//! A capture that runs until a condition of the test holds.
//!
//! Owns: starting `record`, its output lines, ending it. Because: on a busy machine everything takes longer, and a test
//! that waits for a condition waits only as long as needed. Does not: judge the capture.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::{lives, program, signal};

/// Timeout for any condition: many times the slowest on an idle machine.
pub(crate) const LONGEST: Duration = Duration::from_secs(600);
/// Default flush interval of a growing profile. The captured program computes until the test has seen enough of it.
const FLUSH: &str = "300ms";
/// Interval between checks of an unchanged profile.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval between cheap checks.
const GLANCE_EVERY: Duration = Duration::from_millis(20);

/// Waits for an expected condition.
#[track_caller]
pub(crate) fn wait_for(what: &str, there: impl FnMut() -> bool) {
    assert!(comes(LONGEST, GLANCE_EVERY, there), "{what} did not happen in {LONGEST:?}");
}

/// Polls a condition; whether it became true.
pub(crate) fn comes(longest: Duration, every: Duration, mut there: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + longest;
    while !there() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(every);
    }
    true
}

/// A running `record`.
pub(crate) struct Recording {
    child: Child,
    said: Receiver<String>,
    received: RefCell<String>,
    file: PathBuf,
    /// Folder of the profile, unless the path was given.
    folder: Option<tempfile::TempDir>,
}

/// How a recording ended.
pub(crate) struct RecordingOutcome {
    pub(crate) status: ExitStatus,
    /// Its whole output.
    pub(crate) said: String,
}

impl Recording {
    /// Starts to record a process.
    pub(crate) fn start(pid: &str, options: &[&str]) -> Self {
        Self::by(&mut program(), &[&["--pid", pid], options].concat())
    }

    /// Starts to record with this command, which is the program or execs it.
    pub(crate) fn by(command: &mut Command, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut recording = Self::of_file(&folder.path().join("run.dctx"), command, options);
        recording.folder = Some(folder);
        recording
    }

    /// The same with this profile.
    pub(crate) fn of_file(file: &Path, command: &mut Command, options: &[&str]) -> Self {
        command.args(["record", "-v", "-o"]).arg(file);
        if !options.contains(&"--flush") {
            command.args(["--flush", FLUSH]);
        }
        command.args(options).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (say, said) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
        Self { child, said, received: RefCell::default(), file: file.to_owned(), folder: None }
    }

    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// The profile, possibly still growing.
    pub(crate) fn file(&self) -> String {
        self.file.display().to_string()
    }

    /// Its output so far.
    pub(crate) fn said(&self) -> String {
        let mut received = self.received.borrow_mut();
        self.said.try_iter().for_each(|line| *received += &format!("{line}\n"));
        received.clone()
    }

    /// Waits until it prints this text. Returns the whole line.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + LONGEST;
        loop {
            let line = self.said.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            match line {
                Ok(line) => {
                    *self.received.borrow_mut() += &format!("{line}\n");
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("not said in {LONGEST:?}: {text}\n{}", self.said()),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("ended before it said: {text}\n{}", self.said())
                }
            }
        }
    }

    /// Waits until running processes have their probes.
    #[track_caller]
    pub(crate) fn wait_for_probes(&self) {
        self.wait_for("the probes are in place");
        wait_for("a handler of signals", || self.catches_interrupts());
    }

    /// Whether a signal would end it cleanly. Without anything to probe, that is later than the probes.
    fn catches_interrupts(&self) -> bool {
        const SIGINT: u32 = 2;
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & 1 << (SIGINT - 1) != 0)
    }

    /// Polls the growing profile until the condition holds.
    #[track_caller]
    pub(crate) fn wait_until(&self, mut holds: impl FnMut(&str) -> bool) {
        let (file, manifest) = (self.file(), self.file.join("manifest.json"));
        let (mut seen, mut looked) = (None, Instant::now());
        let there = || {
            // Checked first, because data written at its end counts.
            let runs = lives(&self.pid());
            // Before the first flush there is nothing to open.
            let written = std::fs::metadata(&manifest).and_then(|metadata| metadata.modified()).ok();
            if runs && written == seen && looked.elapsed() < LOOK_EVERY {
                return false;
            }
            (seen, looked) = (written, Instant::now());
            let there = written.is_some() && holds(&file);
            assert!(there || runs, "it ended before that was seen\n{}", self.said());
            there
        };
        assert!(comes(LONGEST, GLANCE_EVERY, there), "not seen in {LONGEST:?}\n{}", self.said());
    }

    #[track_caller]
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.pid(), name);
    }

    /// Waits for its end, which has another cause. A recorded command shares its input, which is closed.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> RecordingOutcome {
        self.ended_within(LONGEST)
    }

    /// The same with a time limit.
    #[track_caller]
    pub(crate) fn ended_within(&mut self, longest: Duration) -> RecordingOutcome {
        drop(self.child.stdin.take());
        let mut status = None;
        let is_over = || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        };
        assert!(comes(longest, GLANCE_EVERY, is_over), "it did not end in {longest:?}\n{}", self.said());
        let status = status.unwrap();
        let received = self.said();
        // The last lines may not have come through the channel yet, which closes after them.
        let rest: String = self.said.iter().map(|line| line + "\n").collect();
        RecordingOutcome { status, said: received + &rest }
    }

    /// Interrupts it, unless it ended by itself.
    #[track_caller]
    pub(crate) fn interrupted(&mut self) -> RecordingOutcome {
        if self.child.try_wait().unwrap().is_none() {
            self.signal("INT");
        }
        self.ended()
    }

    /// Interrupts it, which must succeed. Returns the file with its folder.
    #[track_caller]
    pub(crate) fn end(mut self) -> (tempfile::TempDir, String) {
        let RecordingOutcome { status, said } = self.interrupted();
        assert!(status.success(), "{status}\n{said}");
        (self.folder.take().expect("a folder of its own"), self.file())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // It has ended if the test succeeded.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Records a process until its profile meets the condition. Returns the file with its folder.
#[track_caller]
pub(crate) fn record_until(
    pid: &str,
    options: &[&str],
    holds: impl FnMut(&str) -> bool,
) -> (tempfile::TempDir, String) {
    let recording = Recording::start(pid, options);
    recording.wait_until(holds);
    recording.end()
}

/// The same for a process that always computes. It runs in bursts, each twice as long as the previous one, and is
/// stopped while its samples are on their way to the profile, because concurrent tests need the CPUs.
#[track_caller]
pub(crate) fn record_in_bursts(
    pid: &str,
    options: &[&str],
    mut holds: impl FnMut(&str) -> bool,
) -> (tempfile::TempDir, String) {
    const FIRST_BURST: Duration = Duration::from_millis(300);
    /// Half a second until a sample is attributed, plus the next flush.
    const ARRIVES: Duration = Duration::from_millis(900);
    signal(pid, "STOP");
    let recording = Recording::start(pid, options);
    recording.wait_for_probes();
    let mut burst = FIRST_BURST;
    let mut run = || {
        signal(pid, "CONT");
        std::thread::sleep(burst);
        signal(pid, "STOP");
        burst *= 2;
        Instant::now()
    };
    let mut stopped = run();
    recording.wait_until(|file| {
        let there = holds(file);
        if !there && stopped.elapsed() > ARRIVES {
            stopped = run();
        }
        there
    });
    let ended = recording.end();
    signal(pid, "CONT");
    ended
}
