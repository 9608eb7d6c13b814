//! Files are parsed by a process that has nothing to lose, and that can be lost.
//!
//! Owns: a recording of two programs that no cache knows, whose first builder of unwind tables is killed. Because:
//! whoever wrote a file that is mapped somewhere chose what its parser meets. Does not: test what tables say.

use super::cli_support::{can_capture, folded};
use super::open_folder;
use super::worker_support::recorded_while_killing;

#[test]
fn a_lost_builder_without_privileges_is_replaced() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let profile = recorded_while_killing("table-builder", folder.path());
    let rows = deepctx_storage::open(&profile).unwrap().profile.ledger.rows();
    let without_table = rows.iter().filter(|row| row.reason.starts_with("table-")).count();
    assert_eq!(without_table, 0, "{rows:?}");
    let stacks = folded(profile.to_str().unwrap(), "samples", &[]);
    for function in ["first_spin", "second_spin"] {
        assert!(stacks.contains(&format!(";main;{function}")), "{stacks}");
    }
}
