//! Perf maps with more names than the profiler can keep.
//!
//! Owns: programs with a million names, written again and again, beside programs with few or none. Because: the author
//! of such a file controls its length, and one table has the names of all users. Does not: test how a line is parsed
//! (`symbolizer/src/jit`).

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::victim::{VICTIM, harms_nobody};
use super::cli_support::{can_capture, folded, gap_count, workers_of};
use super::{OTHER, OtherUserProcess, compiled_workload, open_folder};

/// More names than fit.
const MANY: &str = "1100000";
/// Unlimited rounds.
const FOR_EVER: &str = "0";

/// A program with a perf map; its file is removed on drop.
struct Flood {
    process: OtherUserProcess,
    _folder: tempfile::TempDir,
}

impl Flood {
    fn start(user: u32, words: [&str; 3]) -> Self {
        let folder = open_folder();
        let program = compiled_workload(folder.path(), "perf_map_flood");
        let mut command = Command::new(program);
        let mut process = OtherUserProcess::root(
            command.args(words).uid(user).gid(user).stdin(Stdio::null()).stdout(Stdio::piped()),
        );
        process.wait_for_line("ready");
        Self { process, _folder: folder }
    }

    fn pid(&self) -> String {
        self.process.pid()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let pid = self.pid();
        // The process first, because it would rewrite the file.
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
        let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
    }
}

/// Number of frames without a name because their user's names exceed the limits of space or time.
fn unnamed(file: &str) -> u64 {
    let profile = deepctx_storage::open(file).unwrap().profile;
    gap_count(&profile, "jit-no-room") + gap_count(&profile, "jit-late")
}

#[test]
fn a_million_names_written_for_ever_harm_nobody() {
    if !can_capture() {
        return;
    }
    let flood = Flood::start(OTHER, [MANY, "0", FOR_EVER]);
    harms_nobody("a million names, rewritten", &["--pid", &flood.pid()], |file| unnamed(file) > 100);
}

#[test]
fn a_million_names_leave_room_for_a_few() {
    if !can_capture() {
        return;
    }
    // Written once: rereading them would use up the user's time share.
    let flood = Flood::start(OTHER, [MANY, "0", "1"]);
    let folder = open_folder();
    let program = compiled_workload(folder.path(), "perf_map_flood");
    // It starts to generate code when no room is left.
    let script = format!("read go; exec {} 16 0 1", program.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).uid(VICTIM).gid(VICTIM).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut few = Flood { process: OtherUserProcess::root(&mut shell), _folder: folder };

    let mut recording = Recording::start(&flood.pid(), &["-F", "499", "--pid", &few.pid()]);
    recording
        .wait_until(|file| gap_count(&deepctx_storage::open(file).unwrap().profile, "jit-no-room") > 100);
    few.process.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    let own = format!("perf_map_flood-{};", few.pid());
    recording.wait_until(|file| {
        let stacks = folded(file, "samples", &[]);
        let named = |n| {
            let name = format!(";generated_0_{n} ");
            stacks.lines().any(|line| line.starts_with(&own) && line.contains(&name))
        };
        (0..16).all(named)
    });
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
}

/// Sum of the peak memory of a process and of each of its workers, in MiB.
fn peak(recording: &Recording) -> u64 {
    let own = format!("/proc/{}", recording.pid());
    let workers = ["memory-reader", "table-builder", "symbol-reader"];
    let workers = workers.iter().flat_map(|name| workers_of(&recording.pid(), name));
    let of = |process: &Path| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    workers.chain([own.into()]).map(|process: PathBuf| of(&process)).sum::<u64>() / 1024
}

/// Maximum memory for names, their bytes and locations, in addition to a capture's usual memory.
const MEBIBYTES_MOST: u64 = 350;

#[test]
fn two_perf_maps_of_250_megabytes_take_bounded_memory() {
    if !can_capture() {
        return;
    }
    let words = [MANY, "200", "1"];
    let floods = [OTHER, VICTIM].map(|user| Flood::start(user, words));
    let sizes =
        floods.each_ref().map(|flood| fs::metadata(format!("/tmp/perf-{}.map", flood.pid())).unwrap().len());
    assert!(sizes.iter().all(|size| *size > 250_000_000), "{sizes:?}");
    let mut recording = Recording::start(&floods[0].pid(), &["-F", "499", "--pid", &floods[1].pid()]);
    let is_read = |file: &str| {
        let stacks = folded(file, "samples", &[]);
        let missing = |flood: &Flood| {
            stacks
                .lines()
                .any(|line| line.contains(&format!("-{};", flood.pid())) && line.contains("jit-no-room"))
        };
        floods.iter().all(missing)
    };
    recording.wait_until(is_read);
    let peak = peak(&recording);
    println!("| {peak} MiB at most beside two perf maps of {sizes:?} bytes");
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(peak <= MEBIBYTES_MOST, "{peak} MiB: {said}");
}
