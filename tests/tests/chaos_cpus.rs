//! CPUs that go online and offline during a capture. Needs root, BPF, and a machine that can take a CPU offline.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use cli_support::held_objects::HeldObjects;
use cli_support::recording::{Recording, RecordingOutcome};
use cli_support::{Busy, can_capture, gap_count, sample_count};
use deepctx_profile::ledger::CheckTime;

/// The last CPU, brought online again on drop.
struct Cpu {
    number: u32,
    switch: PathBuf,
}

impl Cpu {
    /// `None` if it cannot be taken offline.
    fn last() -> Option<Self> {
        let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let number = list.trim().rsplit([',', '-']).next().unwrap().parse().unwrap();
        let cpu = Self { number, switch: format!("/sys/devices/system/cpu/cpu{number}/online").into() };
        if number == 0 || !cpu.switch.exists() || fs::write(&cpu.switch, "0").is_err() {
            println!("not tried: the CPUs of this machine stay online");
            return None;
        }
        Some(cpu)
    }

    fn set(&self, online: bool) {
        fs::write(&self.switch, if online { "1" } else { "0" }).unwrap();
    }

    /// Binds a process to this CPU.
    fn only(&self, pid: &str) {
        let number = self.number.to_string();
        let moved = Command::new("taskset").args(["--pid", "--cpu-list", &number, pid]).output().unwrap();
        assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        let _ = fs::write(&self.switch, "1");
    }
}

#[test]
fn cpus_that_come_during_a_capture_are_sampled() {
    if !can_capture() {
        return;
    }
    let Some(cpu) = Cpu::last() else { return };
    let busy = Busy::start();
    let mut recording = Recording::start(&busy.pid(), &["--freq", "499"]);
    let mut seen = 0;
    let mut goes_on = |recording: &Recording| {
        let before = seen;
        recording.wait_until(|file| {
            seen = sample_count(file);
            seen > before + 200
        });
        seen = sample_count(&recording.file());
    };
    goes_on(&recording);
    // A CPU that comes online is new to the recording.
    cpu.set(true);
    cpu.only(&busy.pid());
    goes_on(&recording);
    // The kernel removes the sampling event with the CPU; a short absence may go unnoticed.
    cpu.set(false);
    cpu.set(true);
    cpu.only(&busy.pid());
    goes_on(&recording);
    // The process moves elsewhere.
    cpu.set(false);
    goes_on(&recording);
    drop(cpu);
    let held = HeldObjects::by(&recording.pid());
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    held.are_gone();
    assert!(busy.lives(), "{said}");
    let profile = deepctx_storage::open(recording.file()).unwrap().profile;
    profile.ledger.check(CheckTime::Finished).unwrap();
    let came = gap_count(&profile, "cpu-came-late");
    // The last time may follow the last check.
    assert!((2..=3).contains(&came), "{came}: {said}");
}
