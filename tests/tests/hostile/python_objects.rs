//! Interpreters with forged objects: cycles of callers, code at random addresses, strings of two gigabytes, garbage.
//!
//! Owns: a dozen of them beside processes that compute. Because: frames, code objects and tasks are read as the program
//! left them, partly in the kernel. Does not: test files of interpreters (`python_interpreters`).

use std::path::Path;
use std::process::{Command, Stdio};

use deepctx_profile::ledger::CheckTime;

use super::OtherUserProcess;
use super::cli_support::victim::harms_nobody;
use super::cli_support::{can_capture, folded};

/// Number of faults in `tests/workloads/hostile_objects.py`, one process each.
const LIES: usize = 12;
/// The limits that stacks report: cyclic callers end after a number of frames; a thread state of another process is not
/// followed; code objects are read up to a maximum size; changed ones get no name.
const REFUSED: [&str; 4] =
    ["python-too-many-frames", "python-thread-state-mismatch", "python-code-unreadable", "python-code-freed"];

#[test]
fn interpreters_whose_objects_lie_harm_nobody() {
    if !can_capture() {
        return;
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/hostile_objects.py");
    let mut command = Command::new("/usr/bin/python3");
    let mut liars = OtherUserProcess::start(command.arg(program).stdin(Stdio::null()).stdout(Stdio::piped()));
    liars.wait_for_line("ready");
    let options = ["--probe", "async", "--pid", &liars.pid()];
    let of_liars = |stacks: &str| {
        let mut processes: Vec<String> = stacks
            .lines()
            .filter_map(|line| line.split(';').next())
            .filter(|process| process.starts_with("python3-"))
            .map(str::to_owned)
            .collect();
        processes.sort_unstable();
        processes.dedup();
        processes.len()
    };
    let recorded = harms_nobody("Python objects that lie", &options, |file| {
        let stacks = folded(file, "samples", &[]);
        of_liars(&stacks) >= LIES && REFUSED.iter().all(|reason| stacks.contains(reason))
    });
    let profile = deepctx_storage::open(&recorded.file).unwrap().profile;
    profile.ledger.check(CheckTime::Finished).unwrap();
}
