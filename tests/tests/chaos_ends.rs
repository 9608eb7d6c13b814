//! The state of the kernel and the profile after a capture or its target changes at the worst moment. Needs root and
//! BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use cli_support::held_objects::HeldObjects;
use cli_support::recording::{Recording, RecordingOutcome, wait_for};
use cli_support::{
    Busy, TICKS, can_capture, expect_code, gap_count, is_without_privileges, program_under, sample_count,
    signal, ticks, workers_of,
};
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::metric::Metric;
use deepctx_uprobes::{Kernel, Layers, Library, Planner};

#[test]
fn no_probe_is_left_however_a_recording_ends() {
    if !can_capture() {
        return;
    }
    let busy = Busy::python();
    for signal in ["INT", "TERM", "KILL", "ABRT"] {
        let mut recording = Recording::start(&busy.pid(), &["--off-cpu"]);
        recording.wait_for_probes();
        recording.wait_until(|file| sample_count(file) > 0);
        let held = HeldObjects::by(&recording.pid());
        assert!(!held.programs.is_empty() && !held.links.is_empty(), "{signal}");
        recording.signal(signal);
        recording.ended();
        held.are_gone();
        assert!(busy.lives(), "{signal}");
    }
}

/// Code that a program runs before its input, and at its end.
const BEFORE: &str = "import ctypes, os, select, sys
while not select.select([sys.stdin], [], [], 0)[0]: pass
";
const AFTER: &str = "
def after():
    n = 0
    while True: n += 1
after()
";

/// A Python program that spins, runs the given code on input, and spins on; ended when dropped.
struct Target(Child);

impl Target {
    fn to(what: &str) -> Self {
        let mut command = Command::new("python3");
        command.arg("-c").arg(format!("{BEFORE}{what}{AFTER}"));
        Self(command.stdin(Stdio::piped()).spawn().unwrap())
    }

    fn goes_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records a program that runs this code. Later code must have names, and the profile must be complete.
fn goes_on_after(what: &str) {
    goes_on_after_both(what, |_| ());
}

/// The same with a preceding event in the recording.
fn goes_on_after_both(what: &str, happens: impl Fn(&Recording)) {
    if !can_capture() {
        return;
    }
    let mut target = Target::to(what);
    let mut recording = Recording::start(&target.0.id().to_string(), &["--freq", "499"]);
    recording.wait_until(|file| sample_count(file) > 100);
    happens(&recording);
    target.goes_on();
    // The command line, shown in the title, also contains the function's name.
    let has_names = |file: &str| expect_code(0, &["report", file, "--all"]).contains("<string>:after");
    recording.wait_until(has_names);
    let held = HeldObjects::by(&recording.pid());
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    let profile = deepctx_storage::open(recording.file()).unwrap().profile;
    profile.ledger.check(CheckTime::Finished).unwrap();
    held.are_gone();
    assert!(target.0.try_wait().unwrap().is_none(), "the program lives: {said}");
}

#[test]
fn a_target_that_leaves_its_namespaces_keeps_its_names() {
    // CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET
    goes_on_after("assert ctypes.CDLL(None).unshare(0x6c020000) == 0\nimport decimal, sqlite3");
}

#[test]
fn a_target_that_becomes_another_user_keeps_its_names() {
    goes_on_after("os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)");
}

#[test]
fn a_target_that_becomes_another_program_keeps_its_names() {
    goes_on_after(&format!("os.execvp('python3', ['python3', '-c', {AFTER:?}])"));
}

#[test]
fn a_target_whose_children_die_at_once_keeps_its_names() {
    // Each ends while its scan begins: some by themselves, some by another program.
    let child = "os.execvp('true', ['true']) if n % 2 else os._exit(0)";
    goes_on_after(&format!("for n in range(100):\n    if os.fork() == 0: {child}\n    os.wait()"));
}

#[test]
fn a_target_that_dies_after_exec_ends_the_recording() {
    if !can_capture() {
        return;
    }
    let mut target = Target::to("os.execvp('true', ['true'])");
    let mut recording = Recording::start(&target.0.id().to_string(), &["--freq", "499"]);
    recording.wait_until(|file| sample_count(file) > 100);
    let held = HeldObjects::by(&recording.pid());
    target.goes_on();
    let RecordingOutcome { status, said } = recording.ended();
    assert_eq!(status.code(), Some(0), "{said}");
    let opened = deepctx_storage::open(recording.file()).unwrap();
    assert!(opened.is_complete(), "{:?}", opened.notes);
    opened.profile.ledger.check(CheckTime::Finished).unwrap();
    held.are_gone();
}

/// Sends this signal to the memory readers, and lets the program exec another one.
fn goes_on_after_readers_get(signal_name: &str) {
    goes_on_after_both(&format!("os.execvp('python3', ['python3', '-c', {AFTER:?}])"), |recording| {
        let readers = workers_of(&recording.pid(), "memory-reader");
        assert!(!readers.is_empty());
        let readers = readers.iter().map(|reader| reader.file_name().unwrap().to_str().unwrap());
        for reader in readers {
            is_without_privileges(reader);
            signal(reader, signal_name);
        }
    });
}

#[test]
fn lost_memory_readers_are_replaced() {
    goes_on_after_readers_get("KILL");
}

#[test]
fn a_target_that_misses_a_deadline_gets_its_names_later() {
    // Simulates a stalled machine: the target is not at fault, and no read is answered in time.
    goes_on_after_readers_get("STOP");
}

#[test]
fn running_out_of_open_files_keeps_what_was_recorded() {
    if !can_capture() {
        return;
    }
    let mut target = Target::to(&format!("os.execvp('python3', ['python3', '-c', {AFTER:?}])"));
    let mut recording = Recording::start(&target.0.id().to_string(), &["--freq", "499"]);
    recording.wait_until(|file| sample_count(file) > 100);
    let pid = recording.pid();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let mut limit = Command::new("prlimit");
    limit.args(["--pid", &pid, &format!("--nofile={open}:{open}")]);
    assert!(limit.status().unwrap().success());
    // The new program's files cannot be opened; its stacks are recorded and marked.
    target.goes_on();
    let executable = Path::new("/proc").join(target.0.id().to_string()).join("cmdline");
    wait_for("the new program", || {
        fs::read_to_string(&executable).is_ok_and(|line| !line.contains("select"))
    });
    let seen = sample_count(&recording.file());
    recording.wait_until(|file| sample_count(file) > seen + 500);
    let held = HeldObjects::by(&pid);
    let RecordingOutcome { status, said } = recording.interrupted();
    // The last write may find no free descriptor; then it is reported, and earlier data stays.
    let when = match status.code() {
        Some(0) => CheckTime::Finished,
        code => {
            assert!(code == Some(2) && said.contains("Too many open files"), "{status}: {said}");
            CheckTime::Running
        }
    };
    assert!(sample_count(&recording.file()) > seen + 500, "{said}");
    held.left_in_order(&recording.file(), &target.0.id().to_string(), when);
}

#[test]
fn running_out_of_memory_keeps_what_was_recorded() {
    if !can_capture() {
        return;
    }
    let mut target = Target::to("import sqlite3, decimal, json, http.client, xml.dom.minidom");
    let options = ["--freq", "499", "--flush", "200ms", "--off-cpu"];
    let mut recording = Recording::start(&target.0.id().to_string(), &options);
    recording.wait_until(|file| sample_count(file) > 100);
    let (pid, held) = (recording.pid(), HeldObjects::by(&recording.pid()));
    let seen = sample_count(&recording.file());
    // Below current use: no further thread, memory file or large allocation is possible.
    let mut limit = Command::new("prlimit");
    limit.args(["--pid", &pid, "--as=1048576:1048576"]);
    assert!(limit.status().unwrap().success());
    target.goes_on();
    let RecordingOutcome { status, said } = recording.ended();
    // If it cannot continue without memory, the program ends as the standard library does.
    assert!(status.code() == Some(2) || status.signal() == Some(libc_abort()), "{status}: {said}");
    assert!(said.contains("memory"), "{said}");
    let profile = deepctx_storage::open(recording.file()).unwrap().profile;
    profile.ledger.check(CheckTime::Running).unwrap();
    assert!(sample_count(&recording.file()) >= seen, "{said}");
    held.are_gone();
    assert!(target.0.try_wait().unwrap().is_none(), "{said}");
}

/// `SIGABRT`.
const fn libc_abort() -> i32 {
    6
}

/// A calendar clock that jumps by a year and back at each reading; other clocks are unaffected.
const JUMPING: &str = "
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long step(void) {
    static atomic_long readings;
    return atomic_fetch_add(&readings, 1) % 2 ? -31536000 : 31536000;
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += step();
    return failed;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec, at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
";

/// Compiles a library.
fn library(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (source, library) = (folder.join("source.c"), folder.join(name));
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(compiler.status().unwrap().success());
    library
}

#[test]
fn steps_of_the_calendar_change_no_profile() {
    if !can_capture() {
        return;
    }
    let (busy, folder) = (Busy::python(), tempfile::tempdir().unwrap());
    let mut jumping = Command::new("env");
    let jump = format!("LD_PRELOAD={}", library(folder.path(), "jump.so", JUMPING).display());
    let command = program_under(jumping.arg(jump));
    let options = ["--freq", "499", "--flush", "200ms", "--pid", &busy.pid()];
    let mut recording = Recording::of_file(&folder.path().join("run.dctx"), command, &options);
    let before = ticks(&busy.pid());
    recording.wait_until(|file| sample_count(file) > 1000);
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    let profile = deepctx_storage::open(recording.file()).unwrap().profile;
    profile.ledger.check(CheckTime::Finished).unwrap();
    assert_eq!(profile.ledger.lost(), 0, "{said}");
    // At least half a year off, so it was that clock; everything else is unaffected.
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let off = (profile.meta.started.as_nanos() / 1_000_000_000).abs_diff(today.as_secs());
    assert!(off > 180 * 86_400, "{off} s");
    let most = (ticks(&busy.pid()) - before + TICKS) * 499 / TICKS;
    assert!(sample_count(&recording.file()) <= most, "{said}");
    let report = expect_code(0, &["report", &recording.file()]);
    assert!(report.contains("hot"), "{report}");
}

/// Another tool's uprobe, created through the kernel's tracefs file; removed on drop.
struct OtherProbe(String);

impl OtherProbe {
    const EVENTS: &str = "/sys/kernel/tracing/uprobe_events";

    /// A probe at a file offset, with a counter: the kernel then refuses probes with another counter, or none.
    fn on(file: &Path, place: u64, counter: u64) -> Option<Self> {
        let name = format!("deepctx_{}", std::process::id());
        let probe = Self(name);
        let line = format!("p:{0}/{0} {1}:{place:#x}({counter:#x})", probe.0, file.display());
        probe.write(Self::EVENTS, &line).ok()?;
        probe.write(&probe.enable(), "1").ok()?;
        Some(probe)
    }

    fn enable(&self) -> String {
        format!("/sys/kernel/tracing/events/{0}/{0}/enable", self.0)
    }

    fn write(&self, file: &str, line: &str) -> std::io::Result<()> {
        fs::OpenOptions::new().append(true).open(file)?.write_all(line.as_bytes())
    }
}

impl Drop for OtherProbe {
    fn drop(&mut self) {
        let _ = self.write(&self.enable(), "0");
        let _ = self.write(Self::EVENTS, &format!("-:{0}/{0}", self.0));
    }
}

/// A driver, and words that can be found in its file, of which the first is a counter.
const DRIVER: &str = "
unsigned short counter[4] __attribute__((visibility(\"default\"))) = {0x2211, 0x4433, 0x6655, 0x0877};
int cuLaunchKernel(void *a) { __asm__ volatile(\"\" :: \"r\"(a) : \"memory\"); return counter[1] == 0; }
int cuCtxSynchronize(void) { __asm__ volatile(\"\" ::: \"memory\"); return counter[2] == 0; }
";
const COUNTER: [u8; 8] = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x08];

/// File offsets of a function's probe and of its counter in the driver.
fn places(driver: &Path, symbol: &str) -> (u64, u64) {
    let mut planner = Planner::new(Vec::new(), Layers::Lowest, Kernel { version: (6, 12) });
    planner.add_libraries(vec![Library::of_file(driver).unwrap()]);
    let site = planner.planned()[0].sites.iter().find(|site| site.symbol == symbol).unwrap();
    let bytes = fs::read(driver).unwrap();
    let counter = bytes.windows(COUNTER.len()).position(|window| window == COUNTER).unwrap();
    (site.offset.0, counter as u64)
}

#[test]
fn a_probe_that_the_kernel_refuses_costs_its_calls_alone() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let driver = library(folder.path(), "libcuda.so.1", DRIVER);
    let calls = "import ctypes, sys\n\
        d = ctypes.CDLL(sys.argv[1])\n\
        print('ready', flush=True)\n\
        while True: d.cuLaunchKernel(*[0] * 11); d.cuCtxSynchronize()";
    let (launch, counter) = places(&driver, "cuLaunchKernel");
    let taken = OtherProbe::on(&driver, launch, counter);
    let Some(taken) = taken else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no probe of somebody else can be made");
        println!("skipped: no probe of somebody else can be made");
        return;
    };
    let busy = Busy::of(Command::new("python3").args(["-c", calls]).arg(&driver));
    let mut recording = Recording::start(&busy.pid(), &["--freq", "499"]);
    recording.wait_for("no probe on cuLaunchKernel and 0 more");
    recording.wait_until(|file| expect_code(0, &["report", file, "--all"]).contains("cuCtxSynchronize"));
    let held = HeldObjects::by(&recording.pid());
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    let profile = deepctx_storage::open(recording.file()).unwrap().profile;
    profile.ledger.check(CheckTime::Finished).unwrap();
    assert_eq!(gap_count(&profile, "probe-refused"), 1, "{said}");
    assert_eq!(profile.tree.total(Metric::Kernels).sum, 0, "launches have no probe: {said}");
    held.are_gone();
    assert!(busy.lives(), "{said}");
    drop(taken);
}
