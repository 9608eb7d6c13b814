//! Tables that one user's programs fill → what the programs of others still get.

use deepctx_pipeline::Config;
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::profile::Limits;

use crate::pipeline_support::{PIDS_OF_USER, config, folded, run_with};

/// Samples of a program that makes functions without end, then one of another user's.
fn flooded(limits: Limits) -> (String, Vec<(String, u64)>) {
    let (theirs, other) = (PIDS_OF_USER, 2 * PIDS_OF_USER);
    let flood: String =
        (1..=4000).map(|n| format!("{} sample {theirs}/{theirs} flood f{n}! main\n", n * 10)).collect();
    let records = format!("{flood}90000 sample {other}/{other} app work! main\n");
    let mut pipeline = run_with(&records, Config { limits, ..config() });
    let profile = pipeline.profile();
    profile.ledger.check(CheckTime::Finished).unwrap();
    let refusals = profile.refusals().map(|(reason, count)| (reason.key.into_owned(), count)).collect();
    (folded(profile), refusals)
}

#[test]
fn contexts_of_one_user_leave_room_for_those_of_others() {
    let (stacks, refusals) = flooded(Limits { nodes: 1600, ..Limits::default() });
    assert!(stacks.contains(&format!("app-{};main;work 1\n", 2 * PIDS_OF_USER)), "{stacks}");
    // Seven eighths are theirs, less the few nodes above their functions.
    let kept = 4000 - refusals[0].1;
    assert!((1380..1400).contains(&kept), "{refusals:?}");
    assert_eq!((refusals.len(), refusals[0].0.as_str()), (1, "tree-share"));
}

#[test]
fn frames_of_one_user_leave_room_for_those_of_others() {
    let (stacks, refusals) = flooded(Limits { frames: 1600, ..Limits::default() });
    assert!(stacks.contains(&format!("app-{};main;work 1\n", 2 * PIDS_OF_USER)), "{stacks}");
    let keys: Vec<&str> = refusals.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["frames-share"]);
}

#[test]
fn names_of_one_user_leave_room_for_those_of_others() {
    let (stacks, refusals) = flooded(Limits { string_bytes: 8000, ..Limits::default() });
    assert!(stacks.contains(&format!("app-{};main;work 1\n", 2 * PIDS_OF_USER)), "{stacks}");
    let keys: Vec<&str> = refusals.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["names-share"]);
}
