//! More mappings than the kernel's tables hold affect only their own user.
//!
//! Owns: processes with a hundred thousand mappings, and one that starts when they have filled the tables. Because: all
//! users share the kernel's tables. Does not: test eviction (`table_shares`), or fill the table of probes
//! (`probe_sites`).

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;

use super::cli_support::recording::{Recording, RecordingOutcome};
use super::cli_support::victim::{VICTIM, harms_nobody};
use super::cli_support::{Busy, can_capture, gap_count};
use super::{OtherUserProcess, compiled_workload, complete_share, open_folder};

/// Together they have one and a half times the mappings that fit.
const PROCESSES: &str = "48";
/// The maximum kept per process.
const MAPPINGS: &str = "2040";
/// They use the remaining room.
const SMALL: &str = "64";

/// Processes with this number of mappings, and the folder of their program.
fn flood() -> (tempfile::TempDir, OtherUserProcess) {
    let folder = open_folder();
    let flood = compiled_workload(folder.path(), "mapping_flood");
    let mut flooding = Command::new(&flood);
    flooding.args([PROCESSES, MAPPINGS, SMALL]).arg(&flood).stdout(Stdio::piped());
    let mut theirs = OtherUserProcess::start(&mut flooding);
    theirs.wait_for_line("ready");
    (folder, theirs)
}

#[test]
fn whoever_fills_the_tables_harms_nobody() {
    if !can_capture() {
        return;
    }
    // Gaps are written with samples, and sleeping processes have none.
    let ((_folder, theirs), busy) = (flood(), Busy::start());
    harms_nobody("98 000 mappings", &["--pid", &theirs.pid(), "--pid", &busy.pid()], |file| {
        gap_count(&deepctx_storage::open(file).unwrap().profile, "mapping-over-share") > 10_000
    });
}

#[test]
fn whoever_fills_the_tables_leaves_room_for_others() {
    if !can_capture() {
        return;
    }
    let (_folder, theirs) = flood();
    // It execs its program, which has more mappings than the shell, during the recording.
    let victim =
        Victim::start(Command::new("sh").args(["-c", "read go; exec python3 -c 'while True: pass'"]));
    let is_full = |profile: &Profile| gap_count(profile, "mapping-over-share") > 10_000;
    let is_enough = |profile: &Profile| profile.tree.total(Metric::Samples).count > 500;
    let (said, _) = recorded(&theirs, victim, is_full, is_enough);

    assert!(said.contains("mappings of user 65534"), "who has too many is named: {said}");
    // Without shares, hardly any stack is complete. The first stacks after an `exec` may precede its tables.
    let share = complete_share(&said);
    assert!(share >= 95.0, "{share} % of the stacks of who came late are complete: {said}");
}

/// A process that starts late, on request.
struct Victim {
    process: OtherUserProcess,
    input: ChildStdin,
}

impl Victim {
    fn start(command: &mut Command) -> Self {
        let command = command.uid(VICTIM).gid(VICTIM).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = OtherUserProcess::root(command);
        let input = process.0.stdin.take().unwrap();
        Self { process, input }
    }
}

/// Output and profile of a recording of both. The victim starts when the tables are full, and has enough samples at the
/// end.
fn recorded(
    theirs: &OtherUserProcess,
    mut victim: Victim,
    is_full: impl Fn(&Profile) -> bool,
    is_enough: impl Fn(&Profile) -> bool,
) -> (String, Profile) {
    let opened = |file: &str| deepctx_storage::open(file).unwrap().profile;
    let mut recording = Recording::start(&theirs.pid(), &["--pid", &victim.process.pid()]);
    recording.wait_until(|file| is_full(&opened(file)));
    victim.input.write_all(b"\n").unwrap();
    recording.wait_until(|file| is_enough(&opened(file)));
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    (said, opened(&recording.file()))
}
