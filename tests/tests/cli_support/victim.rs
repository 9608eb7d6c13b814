//! A process that is not part of an attack on a capture.
//!
//! Owns: the required share of its samples in the profile, and the table row with the measured share. Because: an
//! attack without cost for others is harmless. Does not: attack.
//!
//! Two processes use the same CPU time, so both have the same number of samples on any load: one exists before the
//! attack begins, the other starts as a new program during it.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use deepctx_profile::ledger::CheckTime;

use super::held_objects::HeldObjects;
use super::recording::{Recording, RecordingOutcome};
use super::{folded, lives};

/// Neither root nor the attacker.
pub(crate) const VICTIM: u32 = 65533;
/// CPU time that each victim uses.
const SECONDS: &str = "4";
/// Three samples of 4000 may be truncated. On a busy machine with time slices hardly longer than the sampling interval,
/// it is about one in a hundred by chance.
const FREQUENCY: &str = "997";
/// Promised maximum time for a recording to end.
const END: Duration = Duration::from_secs(5);
/// Minimum percentage of samples compared to a run without an attack.
const SAMPLES_LEAST: f64 = 95.0;
/// Minimum percentage of complete stacks of the early process.
const COMPLETE_LEAST: f64 = 99.9;
/// The same for the late process, whose first samples may precede its mappings.
const COMPLETE_LATE_LEAST: f64 = 95.0;

/// An ended recording of both victims and the attacker.
pub(crate) struct RecordedAttack {
    pub(crate) said: String,
    pub(crate) file: String,
    _folder: tempfile::TempDir,
}

/// Records an attacker beside two innocent processes, which compute once the growing profile shows the attack. They
/// must be recorded as without an attack, and the recording must end in time.
#[track_caller]
pub(crate) fn harms_nobody(
    attack: &str,
    options: &[&str],
    is_on: impl FnMut(&str) -> bool,
) -> RecordedAttack {
    static ALONE: OnceLock<Figures> = OnceLock::new();
    let alone = ALONE.get_or_init(|| {
        println!(
            "| {:<36} | samples | complete, % | late, of samples | late complete, % | end, s |",
            "attack"
        );
        let (figures, _) = measured(&[], |_| true);
        figures.print("none", &figures);
        figures
    });
    let (figures, recorded) = measured(options, is_on);
    figures.print(attack, alone);
    let said = &recorded.said;
    for (who, share, complete, least) in [
        ("was there", figures.early.share_of(alone), figures.early.complete_share(), COMPLETE_LEAST),
        ("came late", figures.late.share_of(alone), figures.late.complete_share(), COMPLETE_LATE_LEAST),
    ] {
        assert!(share >= SAMPLES_LEAST, "who {who} has {share:.1} % of the samples: {said}");
        assert!(complete >= least, "{complete:.2} % of the stacks of who {who} are complete: {said}");
    }
    assert!(figures.end <= END, "the end took {:?}: {said}", figures.end);
    recorded
}

/// Results of both victims, and the duration of the end.
struct Figures {
    early: Samples,
    late: Samples,
    end: Duration,
}

impl Figures {
    fn print(&self, attack: &str, alone: &Figures) {
        let Self { early, late, end } = self;
        println!(
            "| {attack:<36} | {:>5.1} % | {:>8.2} | {:>13.1} % | {:>13.2} | {:>6.2} |",
            early.share_of(alone),
            early.complete_share(),
            late.share_of(alone),
            late.complete_share(),
            end.as_secs_f64()
        );
    }
}

/// Samples of a process, and how many of them reach `main`.
pub(crate) struct Samples {
    all: u64,
    pub(crate) complete: u64,
}

impl Samples {
    pub(crate) fn of(stacks: &str, pid: &str) -> Self {
        let mut samples = Self { all: 0, complete: 0 };
        let process = format!("-{pid}");
        for line in stacks.lines() {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            if stack.split(';').next().is_some_and(|first| first.ends_with(&process)) {
                let count: u64 = count.parse().unwrap();
                samples.all += count;
                samples.complete += if stack.contains(";main;") { count } else { 0 };
            }
        }
        samples
    }

    /// Percentage of both victims' samples relative to a run without an attack.
    fn share_of(&self, alone: &Figures) -> f64 {
        200.0 * self.all as f64 / (alone.early.all + alone.late.all) as f64
    }

    fn complete_share(&self) -> f64 {
        100.0 * self.complete as f64 / self.all as f64
    }
}

/// Records both victims beside the processes of these options, until both have computed.
#[track_caller]
fn measured(options: &[&str], is_on: impl FnMut(&str) -> bool) -> (Figures, RecordedAttack) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let program = compiled(folder.path());
    let mut early = InnocentProcess::start(Command::new(&program).arg(SECONDS));
    early.says("ready");
    // Its input is also the program's, which waits for a separate line.
    let script = format!("read go; exec {} {SECONDS}", program.display());
    let mut late = InnocentProcess::start(Command::new("sh").args(["-c", &script]));

    // The longest flush interval users have, because flushes must not help an attack.
    let both = ["-F", FREQUENCY, "--flush", "1s", "--pid", &early.pid(), "--pid", &late.pid()];
    let options = [&both[..], options].concat();
    let mut recording = Recording::of_file(&folder.path().join("run.dctx"), &mut super::program(), &options);
    recording.wait_for_probes();
    if options.len() > both.len() {
        recording.wait_until(is_on);
    }
    early.receives("\n");
    late.receives("\n\n");
    early.says("done");
    late.says("done");

    let held = HeldObjects::by(&recording.pid());
    let began = Instant::now();
    recording.signal("INT");
    let RecordingOutcome { status, said } = recording.ended();
    let end = began.elapsed();
    assert_eq!(status.code(), Some(0), "{said}");
    let file = recording.file();
    held.left_in_order(&file, &early.pid(), CheckTime::Finished);
    assert!(lives(&late.pid()), "{said}");
    let stacks = folded(&file, "samples", &[]);
    let of = |innocent: &InnocentProcess| Samples::of(&stacks, &innocent.pid());
    let figures = Figures { early: of(&early), late: of(&late), end };
    (figures, RecordedAttack { said, file, _folder: folder })
}

fn compiled(folder: &Path) -> PathBuf {
    let built = folder.join("innocent");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/innocent.c");
    let compiled = Command::new("cc").args(["-O2", "-o"]).arg(&built).arg(source).status().unwrap();
    assert!(compiled.success());
    built
}

/// A process that computes after receiving a line; killed on drop.
struct InnocentProcess {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl InnocentProcess {
    fn start(command: &mut Command) -> Self {
        let command = command.uid(VICTIM).gid(VICTIM).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn receives(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[track_caller]
    fn says(&mut self, text: &str) {
        assert!(self.output.by_ref().lines().any(|line| line.unwrap() == text), "it ended before {text:?}");
    }
}

impl Drop for InnocentProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
