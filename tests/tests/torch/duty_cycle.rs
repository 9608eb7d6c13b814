//! Operators duty-cycled under a budget, seen from outside, beside the program's own account.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::cli_support::expect_code;
use crate::frameworks::{can_capture_arguments, look_alike, record_from_go, record_through, stacks};
use deepctx_profile::profile::Profile;

/// Microseconds of work after each round of seven operators.
const BUSY: &str = "200";
const ADDMM: &str = "aten::addmm [128 f16, 32x64 f32, 64x128 (transposed) f32]";

/// Options of a capture with this budget.
fn options(budget: &str) -> [&str; 11] {
    let context =
        ["--no-gpu", "--context", "python,native", "--probe", "operators", "--operator-stacks", "all"];
    let [a, b, c, d, e, f, g] = context;
    [a, b, c, d, e, f, g, "--shapes", "aten::addmm", "--probe-budget", budget]
}

/// The program with this many rounds.
fn rounds(folder: &Path, rounds: u64) -> Command {
    let mut command = Command::new(look_alike("torch_starts.cpp", folder));
    command.args([&rounds.to_string(), BUSY]);
    command
}

/// The profile, the calls of each chain of operators, and the report.
fn opened(file: &str) -> (Profile, BTreeMap<String, u64>, String) {
    let profile = deepctx_storage::open(file).unwrap().profile;
    (profile, stacks(file, "calls"), expect_code(0, &["report", file, "--all"]))
}

/// Calls of an operator, anywhere.
fn calls_of(calls: &BTreeMap<String, u64>, operator: &str) -> u64 {
    calls.iter().filter(|(chain, _)| chain.split(';').next_back() == Some(operator)).map(|(_, n)| n).sum()
}

/// Total count of gaps and losses whose key contains one of these.
fn reported(profile: &Profile, keys: &[&str]) -> u64 {
    let rows = profile.ledger.rows();
    rows.iter().filter(|row| keys.iter().any(|key| row.reason == *key)).map(|row| row.count).sum()
}

#[test]
fn a_budget_that_is_not_used_up_changes_nothing() {
    const ROUNDS: u64 = 2000;
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_folder, file) = record_through(&mut rounds(folder.path(), ROUNDS), &options("100%"));
    let (profile, calls, report) = opened(&file);
    assert_eq!(reported(&profile, &["operator-lost", "ring-full"]), 0, "{report}");
    let expect = [
        ("aten::cat".to_owned(), ROUNDS),
        ("aten::embedding".to_owned(), ROUNDS),
        ("aten::linear".to_owned(), ROUNDS),
        (format!("aten::linear;aten::addmm;{ADDMM}"), ROUNDS),
        ("aten::relu_".to_owned(), 2 * ROUNDS),
        ("aten::stack".to_owned(), ROUNDS),
        ("mylib::twice.out".to_owned(), ROUNDS),
    ];
    assert_eq!(calls, expect.into());
    assert!(!report.contains("--probe-budget"), "{report}");
}

#[test]
fn over_budget_operators_are_counted_in_reported_duty_windows() {
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_target, recording) = record_from_go(&mut rounds(folder.path(), 1 << 40), &options("0.5%"));
    // Several duty windows have ended and contain calls.
    recording.wait_until(|file| {
        let profile = deepctx_storage::open(file).unwrap().profile;
        reported(&profile, &["watched-in-turns"]) > 2 && calls_of(&stacks(file, "calls"), "aten::linear") > 0
    });
    let (_folder, file) = recording.end();
    let (profile, calls, report) = opened(&file);
    let windows = reported(&profile, &["watched-in-turns"]);
    let linear = calls_of(&calls, "aten::linear");
    let seen = format!("{windows} windows, {calls:?}\n{report}");
    println!("| {windows} duty windows, {linear} rounds in them");
    assert_eq!(reported(&profile, &["operator-lost", "ring-full"]), 0, "{seen}");
    let sentence = profile.ledger.duty_cycled().unwrap();
    let share = sentence.split_once("attached ").and_then(|(_, rest)| rest.split_once(" %"));
    let share: f64 = share.unwrap().0.parse().unwrap();
    assert!(share < 90.0 && sentence.starts_with("operators, tensors: "), "{sentence}");
    assert!(report.contains(sentence), "{report}");
    // Each round calls each of them equally often; at the edges of a duty window, a round is cut in two.
    for (operator, each) in [("aten::cat", 1), ("aten::relu_", 2), ("aten::embedding", 1)] {
        let count = calls_of(&calls, operator);
        assert!(count.abs_diff(each * linear) <= 2 * each * windows, "{operator}: {seen}");
    }
    // None is misplaced: if one began before its window, its inner one may appear alone.
    for chain in calls.keys() {
        let known = [
            "aten::linear",
            "aten::relu_",
            "aten::embedding",
            "aten::stack",
            "aten::cat",
            "mylib::twice.out",
        ];
        let addmm = chain.strip_prefix("aten::linear;").unwrap_or(chain);
        // The data of a pending operator in one duty window does not carry over to the next.
        let unnamed = chain == "[operator without a name]" && calls[chain] <= windows;
        let is_addmm = addmm == "aten::addmm" || addmm == format!("aten::addmm;{ADDMM}");
        assert!(known.contains(&chain.as_str()) || is_addmm || unnamed, "{chain}: {seen}");
    }
}
