//! More generated code than anybody can look at costs its own user's stacks, and holds nobody up.
//!
//! Owns: a process with hundreds of megabytes of it beside one that works. Does not: test what a look at generated code
//! finds.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::cli_support::{Busy, can_capture, folded, program, stderr};
use super::{Theirs, compiled_workload, gap_count, open_folder};

/// Looking at all of it takes ten times as long.
const MAPPINGS: &str = "24";
/// Just below the largest mapping that is looked at.
const MEBIBYTES: &str = "15";
/// How long a recording records.
const RECORDED: Duration = Duration::from_secs(2);
/// What it may take besides: its start is promised within 2 s and its end within 5 s.
const BESIDES: Duration = Duration::from_secs(7);

#[test]
fn a_flood_of_generated_code_holds_nobody_up() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let flood = compiled_workload(folder.path(), "generated_flood");
    let mut theirs = Theirs::start(Command::new(flood).args([MAPPINGS, MEBIBYTES]).stdout(Stdio::piped()));
    theirs.wait_for_line("ready");
    let busy = Busy::start();
    let profile = folder.path().join("run.dctx");

    let began = Instant::now();
    let mut record = program();
    record.args(["record", "-d", "2s", "--pid", &busy.pid(), "--pid", &theirs.pid(), "-o"]).arg(&profile);
    let output = record.output().unwrap();
    let took = began.elapsed();

    assert!(output.status.success(), "{}", stderr(&output));
    assert!(took < RECORDED + BESIDES, "{took:?}");
    let over_budget = gap_count(&deepctx_storage::open(&profile).unwrap().profile, "mapping-over-budget");
    assert!(over_budget > 0, "{}", stderr(&output));
    let stacks = folded(profile.to_str().unwrap(), "samples", &[]);
    assert!(stacks.lines().any(|line| line.starts_with("sh-")), "{stacks}");
}
