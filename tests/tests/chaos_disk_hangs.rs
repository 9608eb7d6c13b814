//! A disk that hangs. Needs root, BPF, and a disk in a file that can be frozen.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cli_support::held_objects::HeldObjects;
use cli_support::recording::{Recording, RecordingOutcome, wait_for};
use cli_support::{
    Busy, TICKS, can_capture, expect_code, gap_count, program, run, sample_count, stderr, ticks,
};
use deepctx_profile::ledger::CheckTime;
use libbpf_rs::query::LinkInfoIter;

/// Promised maximum time for a recording to end.
const END: Duration = Duration::from_secs(5);
/// Samples per second of CPU time.
const FREQUENCY: u64 = 499;

fn runs(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(stderr(&output)) }
}

/// A separate disk. Frozen, it accepts no write, and a writing process cannot even be killed.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// `None` if none can be created.
    fn made() -> Option<Self> {
        let disk = Self { folder: tempfile::tempdir().unwrap() };
        match disk.mount() {
            Ok(()) => Some(disk),
            Err(because) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "no disk can be mounted: {because}");
                println!("skipped: no disk can be mounted here: {because}");
                None
            }
        }
    }

    fn mount(&self) -> Result<(), String> {
        let image = self.folder.path().join("image");
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        fs::create_dir(self.path()).unwrap();
        runs(Command::new("/sbin/mkfs.ext4").arg("-q").arg(&image))?;
        runs(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(self.path()))
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn freeze(&self, frozen: bool) -> Result<(), String> {
        let how = if frozen { "--freeze" } else { "--unfreeze" };
        runs(Command::new("/sbin/fsfreeze").arg(how).arg(self.path()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Its waiters continue, even if the test failed.
        let _ = self.freeze(false);
        let _ = runs(Command::new("umount").arg("-l").arg(self.path()));
    }
}

/// Records onto this disk until it is frozen, a flush hangs, and the notice appears.
fn hanging(disk: &Disk, busy: &Busy) -> Recording {
    let options = ["-F", "499", "--flush", "200ms", "--pid", &busy.pid()];
    let recording = Recording::of_file(&disk.path().join("run.dctx"), &mut program(), &options);
    recording.wait_until(|file| sample_count(file) > 100);
    disk.freeze(true).unwrap();
    recording
}

#[test]
fn a_capture_goes_on_while_its_disk_hangs() {
    if !can_capture() {
        return;
    }
    let Some(disk) = Disk::made() else { return };
    let busy = Busy::start();
    let mut recording = hanging(&disk, &busy);
    let (before, seen) = (ticks(&busy.pid()), sample_count(&recording.file()));
    // Longer than a slow disk may take.
    wait_for("eight seconds of CPU time", || ticks(&busy.pid()) >= before + 8 * TICKS);
    disk.freeze(false).unwrap();
    recording.wait_until(|file| sample_count(file) > seen + 4 * FREQUENCY);
    let used = ticks(&busy.pid()) - before;
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    let profile = deepctx_storage::open(recording.file()).unwrap().profile;
    profile.ledger.check(CheckTime::Finished).unwrap();
    assert!(gap_count(&profile, "disk-stalled") > 0, "{said}");
    let share = (sample_count(&recording.file()) - seen) * 100 / (used * FREQUENCY / TICKS);
    assert!(share >= 95, "{share} % of the samples while it hung: {said}");
    assert_eq!(profile.ledger.lost(), 0, "{said}");
    println!("{share} % of the samples are there, {} flushes left out", gap_count(&profile, "disk-stalled"));
}

#[test]
fn a_disk_that_hangs_does_not_hold_up_the_end() {
    if !can_capture() {
        return;
    }
    let Some(disk) = Disk::made() else { return };
    let busy = Busy::start();
    let mut recording = hanging(&disk, &busy);
    let held = HeldObjects::by(&recording.pid());
    let began = std::time::Instant::now();
    recording.signal("INT");
    let line = recording.wait_for("the disk did not take the last part of the profile");
    let took = began.elapsed();
    assert!(took <= END, "{took:?}: {line}");
    // The kernel retains all processes that wait for this disk.
    disk.freeze(false).unwrap();
    let RecordingOutcome { status, said } = recording.ended();
    assert_eq!(status.code(), Some(2), "{said}");
    expect_code(0, &["report", &recording.file()]);
    held.left_in_order(&recording.file(), &busy.pid(), CheckTime::Running);
    println!("said after {took:?}");
}

#[test]
fn two_signals_are_answered_beside_a_frozen_disk() {
    if !can_capture() {
        return;
    }
    let Some(disk) = Disk::made() else { return };
    let busy = Busy::start();
    let mut recording = hanging(&disk, &busy);
    let held = HeldObjects::by(&recording.pid());
    assert!(!held.links.is_empty());
    let began = std::time::Instant::now();
    recording.signal("INT");
    recording.signal("INT");
    let line = recording.wait_for("error: ");
    let took = began.elapsed();
    assert!(took <= END, "{took:?}: {line}");
    // Its process remains until the disk answers. Meanwhile it does not run and blocks no other process.
    let is_held = |id: u32| held.links.contains(&id);
    wait_for("the end of all links", || !LinkInfoIter::default().any(|link| is_held(link.id)));
    assert!(busy.lives());
    disk.freeze(false).unwrap();
    let RecordingOutcome { status, said } = recording.ended();
    assert_eq!(status.code(), Some(2), "{said}");
    expect_code(0, &["report", &recording.file()]);
    held.left_in_order(&recording.file(), &busy.pid(), CheckTime::Running);
    println!("said after {took:?}: {line}");
}

/// A recording whose raw copy goes to an unread pipe.
fn with_unread_copy(folder: &Path, busy: &Busy) -> (Recording, fs::File) {
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Opened for both, so that neither side waits for the other.
    let reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let raw = ["--force", "--raw", pipe.to_str().unwrap(), "--freq", "4999", "--pid", &busy.pid()];
    (Recording::of_file(&folder.join("run.dctx"), &mut program(), &raw), reader)
}

#[test]
fn a_raw_copy_that_hangs_costs_only_itself() {
    if !can_capture() {
        return;
    }
    let (folder, busy) = (tempfile::tempdir().unwrap(), Busy::start());
    let (mut recording, _reader) = with_unread_copy(folder.path(), &busy);
    // Many times the capacity of a pipe.
    recording.wait_until(|file| sample_count(file) > 10_000);
    recording.signal("INT");
    let RecordingOutcome { status, said } = recording.ended_within(END);
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("the disk did not take the last part of the raw copy"), "{said}");
    let report = run(&["report", &recording.file()]);
    assert!(report.status.success() && stderr(&report).is_empty(), "{}", stderr(&report));
}
