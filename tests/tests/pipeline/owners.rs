//! Tables that one user's programs fill → what the programs of others still get.

use deepctx_pipeline::{Config, Pipeline};
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::profile::{Limits, Meta};

use crate::pipeline_support::{NamesInAddresses, PIDS_OF_USER, ReplayStep, config, folded, run_with, steps};

/// Samples of a program that makes functions without end, then one of another user's.
fn flood() -> String {
    let (theirs, other) = (PIDS_OF_USER, 2 * PIDS_OF_USER);
    let flood: String =
        (1..=4000).map(|n| format!("{} sample {theirs}/{theirs} flood f{n}! main\n", n * 10)).collect();
    format!("{flood}90000 sample {other}/{other} app work! main\n")
}

/// Contexts and refusals of such a page.
fn flooded(limits: Limits) -> (String, Vec<(String, u64)>) {
    let mut pipeline = run_with(&flood(), Config { limits, ..config() });
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
fn last_samples_of_a_process_are_still_its_users() {
    let (theirs, other) = (PIDS_OF_USER, 2 * PIDS_OF_USER);
    let records = format!("{}90001 exit {theirs}\n90002 exit {other}", flood());
    let limits = Limits { nodes: 1600, ..Limits::default() };
    let mut pipeline =
        Pipeline::new(NamesInAddresses::default(), Meta::default(), Config { limits, ..config() });
    pipeline.symbols().forgets_users = true;
    for step in steps(&records) {
        if let ReplayStep::Feed(input) = step {
            pipeline.feed(input);
        }
    }
    // The ends are known before the samples are used.
    pipeline.finish();
    let stacks = folded(pipeline.profile());
    assert!(stacks.contains(&format!("app-{other};main;work 1\n")), "{stacks}");
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
