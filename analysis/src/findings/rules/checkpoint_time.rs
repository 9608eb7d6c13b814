//! Checkpoints being written.

use deepctx_profile::context::phase::Phase;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashSet;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_host_time, too_few};
use crate::findings::facts::{Class, Classes};
use crate::findings::rule::Parameter;
use crate::findings::share::{Share, Sum};

pub(super) const RULE: Rule = Rule {
    id: "checkpoint-time",
    what: "time in which checkpoints are written",
    definition: "time of phase `checkpoint` without what reads one / all time ≥ `min_percent`; or the same of the \
                 threads that train (phases forward, optimizer, data loading), with their time off the CPU, without \
                 waits for a CPU: most of a checkpoint is a wait for a disk",
    source: "SageMaker Debugger (case of frequent checkpoints)",
    origin: "a case, found by hand: I/O wait at each checkpoint",
    needs: "samples with Python frames",
    parameters: &[Parameter { name: "min_percent", default: 5.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    let of_all = facts.share_of(metric, writes);
    // A thread that only writes, beside the training, holds nothing up. Most programs write none.
    let threads = match facts.has_phase(Phase::Checkpoint) {
        true => training_threads(facts, metric),
        false => FxHashSet::default(),
    };
    let is_waited_for = |node| threads.contains(&facts.thread(node)) && is_written(facts, node);
    let with_waits = with_waits(facts, metric, &threads).filter(|share| too_few(share).is_none());
    match with_waits.filter(|share| share.at_least_percent() > of_all.at_least_percent()) {
        Some(share) => ShareCheck {
            share,
            of: Some("time of the threads that write"),
            places: Some(Metric::OffCpuTime),
            is_in: &is_waited_for,
            title: &|share| format!("{share} of the time of the threads that write is writing checkpoints"),
            because: "a checkpoint that is not written costs nothing",
            ..written(metric, of_all)
        }
        .outcome(facts, values),
        None => ShareCheck {
            is_in: &|node| is_written(facts, node),
            title: &|share| format!("{share} of {metric} is writing checkpoints"),
            ..written(metric, of_all)
        }
        .outcome(facts, values),
    }
}

/// What both checks have in common.
fn written<'c>(metric: Metric, share: Share) -> ShareCheck<'c> {
    ShareCheck {
        metric,
        share,
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &|_| false,
        by: PlaceKey::Line,
        title: &str::to_owned,
        figure: "time in checkpoints",
        advice: "Write checkpoints less often, or asynchronously (torch.distributed.checkpoint.async_save, \
                 Orbax's AsyncCheckpointer).",
        because: "a checkpoint that is not written costs nothing; time waiting for disks comes on top",
    }
}

/// A program that only loads a model writes none.
fn writes(classes: Classes, phase: Phase) -> bool {
    phase == Phase::Checkpoint && !classes.has(Class::CheckpointRead)
}

fn is_written(facts: &Facts<'_>, node: NodeId) -> bool {
    writes(facts.classes(node), facts.phase(node))
}

fn training_threads(facts: &Facts<'_>, host: Metric) -> FxHashSet<NodeId> {
    let trains = |node| matches!(facts.phase(node), Phase::Forward | Phase::Optimizer | Phase::Loading);
    let seen = facts.values(host).chain(facts.values(Metric::OffCpuTime)).map(|(node, _)| node);
    seen.filter(|node| trains(*node)).map(|node| facts.thread(node)).collect()
}

/// The share of those of these threads that write, with their waits. `None` without threads, or if waits were not
/// recorded.
fn with_waits(facts: &Facts<'_>, host: Metric, threads: &FxHashSet<NodeId>) -> Option<Share> {
    if threads.is_empty() || !facts.has(Metric::OffCpuTime) || !Facts::is_sampled(host) {
        return None;
    }
    let all = || facts.values(host).chain(facts.values(Metric::OffCpuTime)).map(|(node, _)| node);
    let writes = all().filter(|node| is_written(facts, *node)).map(|node| facts.thread(node));
    let writes: FxHashSet<NodeId> = writes.filter(|thread| threads.contains(thread)).collect();
    let of = |metric| {
        let (mut part, mut whole) = (Sum::default(), Sum::default());
        let counts = |node| writes.contains(&facts.thread(node)) && !facts.classes(node).has(Class::CpuQueue);
        for (node, sum) in facts.values(metric).filter(|(node, _)| counts(*node)) {
            whole += sum;
            if is_written(facts, node) {
                part += sum;
            }
        }
        [part, whole]
    };
    let [part, whole] = of(host);
    Some(Share { part, whole, sampled: true, exact: of(Metric::OffCpuTime) })
}
