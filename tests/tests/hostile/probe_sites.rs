//! A user with more probed functions than the table has entries, or with calls that never return, takes nothing from
//! others, and entries of ended processes are reused.
//!
//! Owns: processes with hundreds of drivers, and threads that end within their calls. Because: a capture may run for
//! weeks, and anybody can give a library the name of a driver. Does not: test eviction (`table_shares`).

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use deepctx_common::call::{IN_FLIGHT_MAX, SITES_MAX};
use deepctx_events::Family;
use deepctx_profile::metric::Metric;

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::victim::{VICTIM, harms_nobody};
use super::cli_support::{Busy, can_capture, folded, gap_count};
use super::{OTHER, OtherUserProcess, compiled_workload, open_folder};

/// Copies of a driver: they use most of the probe slots, with a few extra copies.
struct Drivers {
    folder: tempfile::TempDir,
    many: usize,
}

/// Copies in addition to those that fill the table.
const MORE: usize = 2;

impl Drivers {
    fn new() -> Self {
        let folder = open_folder();
        let (driver, functions) = driver(folder.path());
        let drivers = Self { many: SITES_MAX as usize / functions + 16, folder };
        for copy in 0..drivers.many + MORE {
            let copy = drivers.copy(copy);
            std::fs::create_dir(copy.parent().unwrap()).unwrap();
            std::fs::copy(&driver, &copy).unwrap();
            // Root's files are not charged to any user.
            chown(copy, Some(OTHER), Some(OTHER)).unwrap();
        }
        drivers
    }

    fn copy(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string()).join("libcuda.so.1")
    }

    /// A process that has more of them than there are slots.
    fn flood(&self) -> OtherUserProcess {
        let load = "import ctypes, sys, time\n\
            libraries = [ctypes.CDLL(f'{sys.argv[1]}/{n}/libcuda.so.1') for n in range(int(sys.argv[2]))]\n\
            print('ready', flush=True)\n\
            while True: time.sleep(1)";
        let mut flooding = Command::new("python3");
        flooding.args(["-c", load]).arg(self.folder.path()).arg(self.many.to_string());
        let mut theirs = OtherUserProcess::start(flooding.stdout(Stdio::piped()));
        theirs.wait_for_line("ready");
        theirs
    }

    /// A process of this user that launches through another copy on request. It spins until then, because gaps are
    /// written with samples.
    fn late(&self, more: usize, user: u32) -> OtherUserProcess {
        let launch = "import ctypes, select, sys, time\n\
            while not select.select([sys.stdin], [], [], 0)[0]: pass\n\
            d = ctypes.CDLL(sys.argv[1])\n\
            while True: d.cuLaunchKernel(*[0] * 11); time.sleep(0.01)";
        let mut late = Command::new("python3");
        late.args(["-c", launch]).arg(self.copy(self.many + more)).stdin(Stdio::piped());
        OtherUserProcess::root(late.uid(user).gid(user))
    }
}

/// A library with all probed functions of NVIDIA's driver, and their number. They do nothing.
fn driver(folder: &Path) -> (PathBuf, usize) {
    let rows = deepctx_uprobes::rows().iter().filter(|row| row.family == Family::CudaDriver);
    let mut names: Vec<&str> = rows.flat_map(|row| row.names.iter().map(|name| &*name.symbol)).collect();
    names.sort_unstable();
    names.dedup();
    let mut text = String::new();
    for name in &names {
        writeln!(
            text,
            "int {name}(void *a) {{ __asm__ volatile(\"\" :: \"r\"(a) : \"memory\"); return 0; }}"
        )
        .unwrap();
    }
    (library(folder, &text), names.len())
}

/// A library with the name of NVIDIA's driver.
fn library(folder: &Path, text: &str) -> PathBuf {
    let (source, library) = (folder.join("driver.c"), folder.join("driver.so"));
    std::fs::write(&source, text).unwrap();
    let options = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"];
    assert!(Command::new("cc").args(options).arg(&library).arg(&source).status().unwrap().success());
    library
}

/// Sends the line that it waits for.
fn may_begin(process: &mut OtherUserProcess) {
    process.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
}

fn gaps(file: &str, key: &str) -> u64 {
    gap_count(&deepctx_storage::open(file).unwrap().profile, key)
}

fn kernels(file: &str) -> u64 {
    deepctx_storage::open(file).unwrap().profile.tree.total(Metric::Kernels).sum
}

#[track_caller]
fn ends_well(mut recording: Recording) {
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
}

#[test]
fn whoever_fills_the_probe_sites_harms_nobody() {
    if !can_capture() {
        return;
    }
    let drivers = Drivers::new();
    let (theirs, busy) = (drivers.flood(), Busy::start());
    harms_nobody("16 000 probed functions", &["--pid", &theirs.pid(), "--pid", &busy.pid()], |file| {
        gaps(file, "probe-over-share") > 0
    });
}

#[test]
fn probe_sites_are_for_others_and_given_back() {
    if !can_capture() {
        return;
    }
    let drivers = Drivers::new();
    let theirs = drivers.flood();
    let (mut other, mut same) = (drivers.late(0, VICTIM), drivers.late(1, OTHER));
    let pids = ["--pid", &other.pid(), "--pid", &same.pid()];
    let recording = Recording::start(&theirs.pid(), &pids);
    recording.wait_until(|file| gaps(file, "probe-over-share") > 0);
    may_begin(&mut other);
    recording.wait_until(|file| kernels(file) > 50);
    drop(other);
    // The same user gets no slot until the process with all of them has ended.
    let before = gaps(&recording.file(), "probe-over-share");
    may_begin(&mut same);
    recording.wait_until(|file| gaps(file, "probe-over-share") > before);
    let before = kernels(&recording.file());
    drop(theirs);
    recording.wait_until(|file| kernels(file) > before + 200);
    ends_well(recording);
}

/// A stub in which a thread ends while looking up a kernel in no module, and stays in module 1.
const LEFT: &str = "
#include <sys/syscall.h>
#include <unistd.h>
int cuModuleGetFunction(void **out, void *module, const char *name) {
    if (!module) syscall(SYS_exit, 0);
    while (module == (void *)1) pause();
    *out = (void *)name;
    return 0;
}
int cuLaunchKernel(void *kernel) { __asm__ volatile(\"\" :: \"r\"(kernel) : \"memory\"); return 0; }
";

/// Runs `calls_left.c` as this user.
fn calls(folder: &Path, user: u32, arguments: &[&str]) -> OtherUserProcess {
    let program = folder.join("calls_left");
    let mut command = Command::new(program);
    command.arg(folder.join("libcuda.so.1")).args(arguments).uid(user).gid(user);
    OtherUserProcess::root(command.stdin(Stdio::piped()).stdout(Stdio::piped()))
}

/// More calls of another user than are followed, in threads that end within them or stay; then those of a victim.
#[track_caller]
fn leaves_room_for_calls(arguments: &[&str], gap: &str) {
    let folder = open_folder();
    std::fs::rename(library(folder.path(), LEFT), folder.path().join("libcuda.so.1")).unwrap();
    compiled_workload(folder.path(), "calls_left");
    let mut flood = calls(folder.path(), OTHER, arguments);
    let mut victim = calls(folder.path(), VICTIM, &["0"]);
    let mut lines = BufReader::new(flood.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "loaded");
    victim.wait_for_line("loaded");
    let busy = Busy::start();
    let recording = Recording::start(&flood.pid(), &["--pid", &victim.pid(), "--pid", &busy.pid()]);
    recording.wait_for_probes();
    // Nothing scans the table meanwhile, so it fills up on any machine.
    recording.signal("STOP");
    may_begin(&mut flood);
    assert_eq!(lines.next().unwrap().unwrap(), "left");
    recording.signal("CONT");
    recording.wait_until(|file| gaps(file, gap) > 0);
    may_begin(&mut victim);
    // A kernel gets its name when the lookup returns.
    recording.wait_until(|file| folded(file, "kernels", &[]).contains("found_by_name"));
    ends_well(recording);
}

/// More threads than calls in progress are followed.
fn many() -> String {
    (IN_FLIGHT_MAX + 1_000).to_string()
}

#[test]
fn threads_that_end_within_calls_leave_nothing_behind() {
    if can_capture() {
        leaves_room_for_calls(&[&many()], "returns-untracked");
    }
}

#[test]
fn threads_that_stay_in_calls_leave_room_for_others() {
    if can_capture() {
        leaves_room_for_calls(&[&many(), "stay"], "calls-over-share");
    }
}
