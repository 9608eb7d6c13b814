//! Phases of a training loop whose batches come from workers, beside what it says of itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;
mod frameworks;

use std::collections::{BTreeMap, BTreeSet};

use cli_support::expect_code;
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::phase::{Phase, phases};
use deepctx_profile::store;
use frameworks::{Target, capture, with_torch};

#[test]
fn phases_are_those_of_the_training_loop_and_of_its_workers() {
    let Some(mut command) = with_torch("torch_loading.py") else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    let target = Target::start(command.arg(&said));
    let (_folder, file) = capture(&target, 12, &["-F", "199"], || {});
    let profile = store::open(file.as_ref()).unwrap().profile;
    let of = phases(&profile);
    let (mut samples, mut pids) = (BTreeMap::<Phase, u64>::new(), BTreeMap::<Phase, BTreeSet<u32>>::new());
    for (node, cell) in profile.tree.cells(Metric::CpuTime) {
        let phase = of[node.index()];
        *samples.entry(phase).or_default() += cell.count;
        if let Some(Frame::Process { pid, .. }) =
            profile.tree.stack(node).first().map(|frame| profile.frames.get(*frame))
        {
            pids.entry(phase).or_default().insert(pid);
        }
    }
    println!("| samples by phase: {samples:?}");
    // Those that load batches are two others than the one that trains.
    let trainer = BTreeSet::from([target.pid().parse().unwrap()]);
    assert_eq!(pids[&Phase::Backward], trainer);
    assert_eq!(pids[&Phase::LoadingWorker].len(), 2, "{pids:?}");
    assert!(pids[&Phase::LoadingWorker].is_disjoint(&trainer), "{pids:?}");
    assert!(samples.contains_key(&Phase::Loading), "{samples:?}");
    // The parts in proportion, as the loop measured them.
    let said: BTreeMap<String, u64> = serde_json::from_slice(&std::fs::read(&said).unwrap()).unwrap();
    let all: u64 = said.values().sum();
    let parts = [Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Evaluation];
    let seen = |phase: Phase| samples.get(&phase).copied().unwrap_or(0) as f64;
    let seen_all: f64 = parts.into_iter().map(seen).sum();
    for phase in parts {
        let (from_outside, by_itself) = (seen(phase) / seen_all, said[phase.name()] as f64 / all as f64);
        println!("| {}: {from_outside:.3} from outside, {by_itself:.3} by itself", phase.name());
        assert!((from_outside - by_itself).abs() < 0.1, "{}: {samples:?} {said:?}", phase.name());
    }
    let report = expect_code(0, &["report", &file]);
    assert!(report.contains("data loading, in workers"), "{report}");
}
