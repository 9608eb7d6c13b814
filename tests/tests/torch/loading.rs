//! Phases of a training loop whose batches come from workers, beside its own account.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use crate::cli_support::expect_code;
use crate::cli_support::recording::record_until;
use crate::frameworks::{Target, with_torch};
use deepctx_profile::context::phase::{Phase, phases};
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;

/// Samples of each phase of a capture, and their processes.
fn samples_and_processes(file: &str) -> (BTreeMap<Phase, u64>, BTreeMap<Phase, BTreeSet<u32>>) {
    let profile = deepctx_storage::open(file).unwrap().profile;
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
    (samples, pids)
}

/// The processes that load batches, by their own account.
fn workers(said: &Path) -> BTreeSet<u32> {
    let workers = std::fs::read_to_string(said.with_extension("workers")).unwrap();
    workers.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// Two concurrent trainers would leave too few samples of each.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn loader_workers_started_during_capture_are_tied_to_their_trainer() {
    let _alone = ALONE.lock();
    for method in ["spawn", "forkserver"] {
        let Some(mut command) = with_torch("torch_loading.py") else { return };
        let folder = tempfile::tempdir().unwrap();
        let said = folder.path().join("said");
        let target = Target::start(command.arg(&said).arg(method));
        let trainer = BTreeSet::from([target.pid().parse().unwrap()]);
        let of =
            |file: &str, phase: Phase| samples_and_processes(file).1.get(&phase).cloned().unwrap_or_default();
        // They import PyTorch first.
        let (_folder, file) = record_until(&target.pid(), &["-F", "199"], |file| {
            of(file, Phase::LoadingWorker).len() == 2 && of(file, Phase::Backward) == trainer
        });
        let (loading, backward) = (of(&file, Phase::LoadingWorker), of(&file, Phase::Backward));
        // No other process loads or trains.
        assert_eq!(backward, trainer, "{method}");
        assert!(loading.is_subset(&workers(&said)), "{method}: {loading:?}");
        println!("| {method}: batches are loaded in {loading:?}, by a trainer in {trainer:?}");
    }
}

#[test]
fn phases_match_the_training_loop_and_its_workers() {
    let _alone = ALONE.lock();
    let Some(mut command) = with_torch("torch_loading.py") else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    let target = Target::start(command.arg(&said));
    let parts = [Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Evaluation];
    let (_folder, file) = record_until(&target.pid(), &["-F", "199"], |file| {
        let (samples, pids) = samples_and_processes(file);
        let in_parts: u64 = parts.iter().filter_map(|phase| samples.get(phase)).sum();
        let workers = pids.get(&Phase::LoadingWorker).map_or(0, BTreeSet::len);
        in_parts > 500 && workers == 2 && samples.contains_key(&Phase::Loading)
    });
    let (samples, pids) = samples_and_processes(&file);
    println!("| samples by phase: {samples:?}");
    // The loading processes are two others than the trainer.
    let trainer = BTreeSet::from([target.pid().parse().unwrap()]);
    assert_eq!(pids[&Phase::Backward], trainer);
    assert_eq!(pids[&Phase::LoadingWorker], workers(&said), "{pids:?}");
    assert_eq!(pids[&Phase::LoadingWorker].len(), 2, "{pids:?}");
    assert!(pids[&Phase::LoadingWorker].is_disjoint(&trainer), "{pids:?}");
    // The phases in proportion, as measured by the loop.
    let said: BTreeMap<String, u64> = serde_json::from_slice(&std::fs::read(&said).unwrap()).unwrap();
    let all: u64 = said.values().sum();
    let seen = |phase: Phase| samples.get(&phase).copied().unwrap_or(0) as f64;
    let seen_all: f64 = parts.into_iter().map(seen).sum();
    for phase in parts {
        let (from_outside, by_itself) = (seen(phase) / seen_all, said[phase.name()] as f64 / all as f64);
        println!("| {}: {from_outside:.3} from outside, {by_itself:.3} by itself", phase.name());
        assert!((from_outside - by_itself).abs() < 0.1, "{}: {samples:?} {said:?}", phase.name());
    }
    let report = expect_code(0, &["report", &file, "--all"]);
    assert!(report.contains("data loading, in workers"), "{report}");
}
