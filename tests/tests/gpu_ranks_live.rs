//! Collectives of several ranks on the simulated device, in one capture.
//!
//! Owns: the tests that collectives are matched by communicator and number, and that a late rank is found, by programs
//! as a user runs them. Because: the id of a communicator is read at a call, its handle at the return, and its kernels
//! are launched by the library. Does not: test a single stage. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
mod cases;
mod cli_support;
#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
mod simulated;

use std::collections::BTreeMap;

use cases::Analysis;
use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::Steps;
use deepctx_profile::trace::RankTrace;
use simulated::Setting;

const ROUNDS: u64 = 30;

/// Three ranks of a program, each with a separate device.
fn ranks(program: &str) -> Vec<String> {
    // Each device has a separate log: a shared file would interleave them.
    let script = "for rank in 0 1 2; do \
                  (test $rank = 0 || DEEPCTX_SIM_LOG=$DEEPCTX_SIM_LOG.$rank; \
                  JOB=deepctx-ranks-$$ RANK=$rank WORLD_SIZE=3 \"$@\") & \
                  done; wait";
    let shell = ["sh", "-c", script, "sh"].map(str::to_owned);
    shell.into_iter().chain(simulated::python(program)).collect()
}

const SETTING: Setting = Setting {
    libraries: "cuda13",
    collector: true,
    misbehaves: "",
    variables: &[],
    words: &["--trace", "10m"],
};

/// The collectives of each communicator in order: number, operation, bytes and ranks.
type ByCommunicator = BTreeMap<String, Vec<(u64, String, u64, u32)>>;

fn collectives(of: &RankTrace) -> ByCommunicator {
    let trace = &of.trace;
    let mut found = ByCommunicator::new();
    for (_, note) in trace.collectives.iter() {
        let operation = trace.name(note.operation).to_owned();
        let kernel = trace.name(trace.device.get(note.op).unwrap().name).to_ascii_lowercase();
        assert!(kernel.contains(&format!("_{operation}_")), "{operation} runs as {kernel}");
        let row = (note.ordinal.unwrap(), operation, note.elements_in, note.group_size);
        found.entry(trace.name(note.communicator).to_owned()).or_default().push(row);
    }
    found.values_mut().for_each(|of| of.sort());
    found
}

#[test]
fn collectives_of_ranks_match_by_communicator_and_number() {
    let Some(capture) = simulated::record(SETTING, &ranks("gpu_ranks.py"), &[&ROUNDS.to_string()]) else {
        return;
    };
    let job = capture.job.as_ref().unwrap();
    let ranks: Vec<u32> = job.ranks().iter().map(|of| of.rank).collect();
    assert_eq!(ranks, [0, 1, 2]);
    let found: Vec<ByCommunicator> = job.ranks().iter().map(collectives).collect();
    let of_all: Vec<(u64, String, u64, u32)> = (0..3 * ROUNDS)
        .map(|number| match number % 3 {
            0 => (number, "allreduce".to_owned(), 400, 3),
            1 => (number, "broadcast".to_owned(), 100, 3),
            _ => (number, "allreduce".to_owned(), 20, 3),
        })
        .collect();
    // The number of ranks of a split is unknown.
    let of_split: Vec<_> = (0..ROUNDS).map(|number| (number, "allreduce".to_owned(), 200, 0)).collect();
    for of in &found {
        let lists: Vec<_> = of.values().collect();
        assert_eq!(lists.len(), 2, "{:?}", of.keys());
        assert!(lists.contains(&&of_all) && lists.contains(&&of_split), "{of:?}");
    }
    // Ranks 0 and 2 share both communicators, and rank 1 one of them.
    assert!(found[0].keys().eq(found[2].keys()));
    assert_eq!(found[0].keys().filter(|key| found[1].contains_key(*key)).count(), 1);
    let tables = OverTime::compute(job, Steps::default());
    let stragglers = &tables.stragglers;
    assert_eq!(stragglers.not_matched, []);
    let mut matched: BTreeMap<&str, (usize, Vec<u64>)> = BTreeMap::new();
    for of in stragglers.collectives.iter().filter(|of| of.communicator.starts_with("group ")) {
        let row = matched.entry(&of.communicator).or_insert((of.ranks, Vec::new()));
        row.1.push(of.ordinal);
    }
    let mut matched: Vec<_> = matched.into_values().collect();
    matched.sort();
    assert_eq!(matched, [(2, (0..ROUNDS).collect()), (3, (0..3 * ROUNDS).collect())]);
}

/// Findings for ranks with one late rank per collective, always the same or in turn.
fn of_late_ranks(which: &str) -> Option<Analysis> {
    let (_folder, file) = simulated::record_file(SETTING, &ranks("gpu_straggler.py"), &["60", which])?;
    Some(Analysis::of(&file, &["--only", "straggler"]))
}

#[test]
fn the_rank_that_is_always_late_is_a_straggler() {
    let Some(always) = of_late_ranks("always") else { return };
    let finding = always.finding("straggler").unwrap();
    assert_eq!(finding["places"][0]["name"], "rank 1", "{finding:#}");
    let Some(turns) = of_late_ranks("turns") else { return };
    assert_eq!((turns.outcome("straggler"), turns.findings("straggler").count()), ("healthy", 0));
}
