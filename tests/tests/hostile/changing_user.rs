//! A process that changes its user while it is read costs neither of them their turn.
//!
//! Owns: that attack. Because: processes are scanned of one user after another, and a turn that never ends leaves all
//! programs of its user without unwind rows. Does not: test whose turn it is (`waiting_scans`).

use std::process::{Command, Stdio};

use deepctx_profile::metric::Metric;

use super::cli_support::can_capture;
use super::cli_support::victim::{VICTIM, harms_nobody};
use super::{OTHER, Theirs, compiled_workload, open_folder};

/// Reading one of them takes longer than it keeps its user.
const MAPPINGS: &str = "1000";

#[test]
fn whoever_changes_their_user_harms_neither() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let changing = compiled_workload(folder.path(), "changing_user");
    let (victim, other) = (VICTIM.to_string(), OTHER.to_string());
    let mut command = Command::new(&changing);
    command.args(["4", MAPPINGS, &victim, &other]).arg(&changing).stdout(Stdio::piped());
    let mut theirs = Theirs::root(&mut command);
    theirs.wait_for_line("ready");
    let pid = theirs.pid();
    let mut theirs = Some(theirs);
    // Beside it, programs of both would wait for their turn, as they should: it belongs to both.
    harms_nobody("users that change", &["--pid", &pid], |file| {
        let is_on = deepctx_storage::open(file).unwrap().profile.tree.total(Metric::Samples).count > 3_000;
        theirs.take_if(|_| is_on);
        is_on
    });
}
