//! Files are parsed by a process that has nothing to lose, and that can be lost.
//!
//! Owns: a recording of two programs that no cache knows, whose first builder of unwind tables is killed. Because:
//! whoever wrote a file that is mapped somewhere chose what its parser meets. Does not: test what tables say.

use std::fs;
use std::process::Stdio;

use super::cli_support::{can_capture, folded, program};
use super::open_folder;
use super::worker_support::{compiled, is_without_privileges, signal, worker_of};

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

    let builder = worker_of(&recording, "table-builder", |_| true);
    is_without_privileges(&builder);
    signal(&builder, "-9");
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
