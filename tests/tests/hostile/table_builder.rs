//! Files are parsed by an unprivileged, replaceable process.
//!
//! Owns: a recording of two uncached programs, whose first builder of unwind tables is killed. Because: the author of a
//! mapped file controls its parser's input. Does not: test the tables.

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
