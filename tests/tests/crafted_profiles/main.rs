//! Profiles crafted to crash their reader.
//!
//! Owns: files of a few megabytes that unpack to more than a machine has, nest endlessly or have cycles, and every
//! command that opens profiles. Because: profiles are passed on, and are opened with `sudo`. Does not: try random bytes
//! (`tests/fuzz-targets`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod crafted;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cli_support::{binary, stderr};
use crafted::{Cells, CraftedProfile};

/// Memory limit of each command: that of a machine with twice as much.
const KIBIBYTES: u64 = 1 << 20;
/// CPU time limit in seconds: many times the slowest, and a tenth of the time that a quadratic comparison of contexts
/// takes.
const CPU_SECONDS: u64 = 60;
/// Wall time limit: commands that take longer are stuck.
const SECONDS: &str = "300";
/// Every export format.
const FORMATS: [&str; 13] = [
    "folded",
    "svg",
    "html",
    "pprof",
    "speedscope",
    "firefox",
    "chrome",
    "perfetto",
    "otlp",
    "hatchet",
    "csv",
    "json",
    "dctx",
];

/// Runs a command with limits of memory and CPU time.
fn bounded(arguments: &[&str]) -> Output {
    let script = format!("ulimit -d {KIBIBYTES}; ulimit -t {CPU_SECONDS}; exec \"$@\"");
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", SECONDS, "sh", "-c", &script, "sh"]).arg(binary()).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).output().unwrap()
}

/// Checks that it succeeded or failed with one sentence: no signal, no panic.
#[track_caller]
fn survives(arguments: &[&str]) -> bool {
    let output = bounded(arguments);
    let said = stderr(&output);
    assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    match output.status.code() {
        Some(0) => true,
        Some(2) => {
            let errors = said.lines().filter(|line| line.starts_with("error: ")).count();
            assert_eq!(errors, 1, "{arguments:?}: {said}");
            false
        }
        _ => panic!("{arguments:?}: {}: {said}", output.status),
    }
}

/// Every command that opens profiles survives this one. Returns how many succeeded.
#[track_caller]
fn opens(profile: &Path) -> usize {
    let profile = profile.to_str().unwrap();
    let commands = [
        vec!["view", "--once", profile],
        vec!["report", profile],
        vec!["report", "--format", "json", profile],
        vec!["report", "--format", "html", profile],
        vec!["diff", profile, profile],
        vec!["analyze", profile],
    ];
    commands.iter().filter(|arguments| survives(arguments)).count()
}

/// Every export format survives this profile. Returns how many were written.
#[track_caller]
fn exports(profile: &Path) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let done = |format: &&&str| {
        let out = folder.path().join(format);
        survives(&["export", profile.to_str().unwrap(), "--format", format, "-o", out.to_str().unwrap()])
    };
    FORMATS.iter().filter(done).count()
}

/// Every command and every export format.
#[track_caller]
fn opens_and_exports(profile: &Path) -> usize {
    opens(profile) + exports(profile)
}

/// A file with these contents.
fn file(name: &str, write: impl FnOnce(&mut dyn std::io::Write)) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let mut out = std::io::BufWriter::new(fs::File::create(&path).unwrap());
    write(&mut out);
    out.flush().unwrap();
    drop(out);
    (folder, path)
}

const MILLION: u32 = 1_000_000;

#[test]
fn a_stack_of_a_million_frames_kills_no_command() {
    let (_folder, folded) = file("deep.folded", |out| {
        (0..MILLION).for_each(|n| write!(out, "f{};", n % 7).unwrap());
        writeln!(out, "end 1").unwrap();
    });
    println!("| folded stacks, a million deep: {} of 6 commands did their work", opens(&folded));
    let deep = |frames: u32| CraftedProfile::new().nodes(1..frames, |n| n - 1).value(frames - 1, 1).written();
    println!("| contexts, a million deep: {} of 6 commands did their work", opens(&deep(MILLION)));
    // Too deep for the stack of a thread that recurses per frame.
    let exported = exports(&deep(MILLION / 8));
    println!("| contexts, 125 000 deep: {exported} of 13 forms of an export were written");
}

#[test]
fn names_of_100_megabytes_kill_no_command() {
    let (_folder, folded) = file("long.folded", |out| {
        let part = "n".repeat(1 << 20);
        (0..100).for_each(|_| out.write_all(part.as_bytes()).unwrap());
        writeln!(out, ";end 1").unwrap();
    });
    println!("| a name of 100 MB: {} of 6 commands did their work", opens(&folded));
}

#[test]
fn counts_that_overflow_kill_no_command() {
    let (_folder, folded) = file("counts.folded", |out| {
        (0..4).for_each(|n| writeln!(out, "main;f{n} {}", u64::MAX).unwrap());
        writeln!(out, "main {}", i64::MAX).unwrap();
    });
    println!("| counts of 2^64: {} of 19 commands did their work", opens_and_exports(&folded));
    let stored =
        CraftedProfile::new().nodes(1..8, |n| n / 2).value(7, u64::MAX).value(6, u64::MAX).value(7, u64::MAX);
    println!(
        "| stored counts of 2^64: {} of 19 commands did their work",
        opens_and_exports(&stored.written())
    );
}

#[test]
fn callers_in_circles_kill_no_command() {
    let circle = CraftedProfile::new().nodes(1..1000, |n| n % 999 + 1).value(7, 1);
    println!("| callers in circles: {} of 6 commands did their work", opens(&circle.written()));
    let itself = CraftedProfile::new().nodes(1..10, |n| n).value(7, 1);
    opens(&itself.written());
}

#[test]
fn more_contexts_than_memory_end_in_a_sentence() {
    let stored = CraftedProfile::new().nodes(1..18 * MILLION, |n| n - 1).value(7, 1).written();
    assert!(fs::metadata(stored.join("nodes")).unwrap().len() < 1 << 20, "it is a bomb");
    let output = bounded(&["report", stored.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("error: memory"), "{}", stderr(&output));
    // All open it in the same way; this one also shows it.
    survives(&["view", "--once", stored.to_str().unwrap()]);
}

#[test]
fn a_text_that_unfolds_kills_no_command() {
    let text = "x".repeat(900 << 20);
    let stored = CraftedProfile::new().nodes(1..8, |n| n / 2).value(7, 1);
    let stored = stored.table(
        "executables",
        &[
            ("path", Cells::Text(vec![&text])),
            ("build_id", Cells::Text(vec![""])),
            ("size", Cells::U64(vec![1])),
        ],
    );
    let stored = stored.written();
    assert!(fs::metadata(stored.join("executables")).unwrap().len() < 1 << 20, "it is a bomb");
    for arguments in [vec!["view", "--once"], vec!["report"], vec!["analyze"]] {
        survives(&[&arguments[..], &[stored.to_str().unwrap()]].concat());
    }
}

#[test]
fn rows_that_are_not_there_kill_no_command() {
    let stored = CraftedProfile::new().nodes(1..8, |n| n / 2).value(7, 1);
    for rows in [u64::MAX, 1 << 62, 1 << 33, 1 << 26, 8, 0] {
        let claimed = stored.clone().claiming(rows).written();
        survives(&["report", claimed.to_str().unwrap()]);
        survives(&["view", "--once", claimed.to_str().unwrap()]);
    }
}

#[test]
fn a_manifest_without_a_bottom_kills_no_command() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let (folder, path) = file("manifest.json", |out| {
            let depth = 3_000_000;
            write!(out, "{{\"format\":\"deepctx-profile\",\"version\":1,\"meta\":").unwrap();
            (0..depth).for_each(|_| out.write_all(open.as_bytes()).unwrap());
            (0..depth).for_each(|_| out.write_all(close.as_bytes()).unwrap());
            write!(out, "}}").unwrap();
        });
        assert!(path.exists() && opens(folder.path()) == 0);
    }
}
