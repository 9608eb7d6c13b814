//! More loader workers than CPUs.

use std::collections::{BTreeMap, BTreeSet};

use deepctx_profile::context::phase::Phase;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::{NodeId, Tree};

use super::pressure::{cpu_figures, no_system_metrics, usable_cpus};
use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, counted, no_host_time};
use crate::findings::finding::{Figure, Gain, Location};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "loader-workers",
    what: "a data loader with far more workers than it has CPUs",
    definition: "processes and threads seen in phase `loading worker` at one time / CPUs of the machine, or those that \
                 the affinity and the CPU limit of the targets allow if these are fewer, > `max_percent` percent",
    source: "SageMaker Debugger (`Dataloader`); DeepContext 6.5 (16 loader threads for 6 cores)",
    origin: "active workers / cores < 70 % or > 200 %",
    needs: "samples with Python frames, and system metrics",
    parameters: &[Parameter { name: "max_percent", default: 200.0, source: "SageMaker Debugger" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(host) = facts.host() else { return no_host_time() };
    let cpus = usable_cpus(facts);
    if cpus == 0 {
        return no_system_metrics();
    }
    let workers = workers(facts, host);
    let percent = workers as f64 * 100.0 / cpus as f64;
    if percent <= values.get("max_percent") {
        return Outcome::Healthy { datapoints: workers.max(1) };
    }
    let draft = Draft {
        title: format!("{workers} workers load data on {}", counted(cpus, "CPU")),
        metric: host.name(),
        share_percent: 0.0,
        gain: Gain::Unknown { because: "how much the workers hinder each other is not known".into() },
        places: batches_used(facts, host),
        evidence: [vec![workers_figure(workers)], cpu_figures(facts)].concat(),
        advice: "Start about as many workers as there are CPUs (num_workers); more of them compete with each other \
                 and with the training.",
        datapoints: workers,
        violations: workers.saturating_sub(cpus),
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// Processes and threads that make batches for others, as many as there were at one time: each epoch may have its own.
pub(super) fn workers(facts: &Facts<'_>, host: Metric) -> u64 {
    if !facts.has_phase(Phase::LoadingWorker) {
        return 0;
    }
    let seen = facts.values(host).chain(facts.values(Metric::OffCpuTime)).map(|(node, _)| node);
    let workers = seen.filter(|node| facts.phase(*node) == Phase::LoadingWorker);
    let tree = &facts.profile().tree;
    let workers: BTreeSet<Worker> = workers.map(|node| worker(tree, facts.thread(node))).collect();
    at_one_time(facts, &workers).unwrap_or(workers.len() as u64)
}

/// Their number as evidence: a bound, since all of them count if one has no values by time.
pub(super) fn workers_figure(workers: u64) -> Figure {
    Figure::bounded("workers at one time, at most", workers as f64, "count")
}

/// A thread by its frame and that above it: those are the same in a part of a profile and in the whole.
type Worker = [FrameId; 2];

fn worker(tree: &Tree, thread: NodeId) -> Worker {
    let node = tree.node(thread);
    [tree.node(node.parent).frame, node.frame]
}

/// The most of these that lived at one time, from their first to their last value. `None` if one has no values by time.
fn at_one_time(facts: &Facts<'_>, workers: &BTreeSet<Worker>) -> Option<u64> {
    let whole = facts.whole();
    let mut lives: BTreeMap<Worker, (usize, usize)> = BTreeMap::new();
    for lane in whole.timeline.lanes() {
        let worker = worker(&whole.tree, lane.node);
        let is_seen = |value: &u64| *value > 0;
        let seen = lane.values.iter().position(is_seen).zip(lane.values.iter().rposition(is_seen));
        let Some((first, last)) = seen.filter(|_| workers.contains(&worker)) else { continue };
        let life = lives.entry(worker).or_insert((first, last));
        *life = (life.0.min(first), life.1.max(last));
    }
    if lives.len() < workers.len() {
        return None;
    }
    // Those of an epoch begin in the window in which those of the one before end: so ends come first.
    let changes = lives.values().flat_map(|(first, last)| [(*first, 1i64), ((*last).max(first + 1), -1)]);
    let mut changes: Vec<(usize, i64)> = changes.collect();
    changes.sort_unstable();
    let mut now = 0;
    let counts = changes.into_iter().map(|(_, change)| {
        now += change;
        now
    });
    counts.max().and_then(|most| u64::try_from(most).ok())
}

/// The lines that use the workers' batches: they, or their callers, created the loader.
fn batches_used(facts: &Facts<'_>, host: Metric) -> Vec<Location> {
    let Some(loading) = facts.loading() else { return Vec::new() };
    let metric = if facts.has(Metric::OffCpuTime) { Metric::OffCpuTime } else { host };
    let is_in = |node| loading.is_wait(facts, metric, node);
    facts.places(metric, PlaceKey::Line, is_in, loading.time(metric).value)
}
