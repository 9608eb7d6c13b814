//! Files are parsed by a process that has nothing to lose, and that can be lost.
//!
//! Owns: a recording of two programs that no cache knows, whose first builder of unwind tables is killed. Because:
//! whoever wrote a file that is mapped somewhere chose what its parser meets. Does not: test what tables say.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::cli_support::{can_capture, folded, program};
use super::open_folder;

/// Its function is on every stack; the program that it starts is another file.
const SOURCE: &str = "
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) void SPIN(double seconds) {
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec - began.tv_sec + 1e-9 * (now.tv_nsec - began.tv_nsec) < seconds);
    __asm__ volatile(\"\");
}
int main(int count, char **next) {
    while (access(next[1], F_OK) != 0) SPIN(0.1);
    SPIN(1);
    if (count > 2) execv(next[2], next + 1);
    return 0;
}
";
/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Compiles the program with this name for its function.
fn compiled(folder: &Path, function: &str) -> String {
    let path = folder.join(function);
    let source = path.with_extension("c");
    fs::write(&source, SOURCE).unwrap();
    let define = format!("-DSPIN={function}");
    let done = Command::new("cc").args(["-O1", &define, "-o"]).arg(&path).arg(&source).status().unwrap();
    assert!(done.success());
    path.to_str().unwrap().to_owned()
}

/// The builder that a recording has started.
fn builder_of(recording: &Child) -> String {
    let began = Instant::now();
    loop {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let process = entry.path();
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let is_child = fs::read_to_string(process.join("status"))
                .is_ok_and(|status| status.contains(&format!("\nPPid:\t{}\n", recording.id())));
            // A child that has not become the worker yet has its parent's command line.
            if is_child && line.split(|byte| *byte == 0).any(|word| word == b"table-builder") {
                return entry.file_name().into_string().unwrap();
            }
        }
        assert!(began.elapsed() < PATIENCE, "no builder was started");
    }
}

/// Waits until a process has this in its status.
fn has_in_status(pid: &str, lines: &[&str]) {
    let began = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        if lines.iter().all(|line| status.contains(line)) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{status}");
    }
}

#[test]
fn a_lost_builder_without_privileges_is_replaced() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let (first, second) = (compiled(folder.path(), "first_spin"), compiled(folder.path(), "second_spin"));
    let (go, profile) = (folder.path().join("go"), folder.path().join("run.dctx"));
    let mut record = program();
    record.args(["record", "--freq", "499", "-o"]).arg(&profile).args(["--", &first]).arg(&go).arg(second);
    let mut recording = record.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();

    let builder = builder_of(&recording);
    has_in_status(
        &builder,
        &["\nUid:\t65534\t65534\t65534\t65534\n", "\nCapPrm:\t0000000000000000\n", "\nSeccomp:\t2\n"],
    );
    assert!(Command::new("kill").args(["-9", &builder]).status().unwrap().success());
    fs::write(&go, "").unwrap();

    assert!(recording.wait().unwrap().success());
    let rows = deepctx_storage::open(&profile).unwrap().profile.ledger.rows();
    let without_table = rows.iter().filter(|row| row.reason.starts_with("table-")).count();
    assert_eq!(without_table, 0, "{rows:?}");
    let stacks = folded(profile.to_str().unwrap(), "samples", &[]);
    for function in ["first_spin", "second_spin"] {
        assert!(stacks.contains(&format!(";main;{function}")), "{stacks}");
    }
}
