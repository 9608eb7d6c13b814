//! More loader workers than CPUs.

use std::collections::BTreeSet;

use deepctx_profile::context::phase::Phase;
use deepctx_profile::metric::Metric;

use super::loading::LoadingTime;
use super::pressure::{cpus, no_system_metrics};
use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, no_host_time};
use crate::findings::finding::{Figure, Gain, Location};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "loader-workers",
    what: "a data loader with far more workers than the machine has CPUs",
    definition: "processes and threads seen in phase `loading worker` / CPUs of the machine > `max_percent` percent",
    source: "SageMaker Debugger (`Dataloader`); DeepContext 6.5 (16 loader threads for 6 cores)",
    origin: "active workers / cores < 70 % or > 200 %",
    needs: "samples with Python frames, and system metrics",
    parameters: &[Parameter { name: "max_percent", default: 200.0, source: "SageMaker Debugger" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(host) = facts.host() else { return no_host_time() };
    let cpus = cpus(facts);
    if cpus == 0 {
        return no_system_metrics();
    }
    let workers = workers(facts, host);
    let percent = workers as f64 * 100.0 / cpus as f64;
    if percent <= values.get("max_percent") {
        return Outcome::Healthy { datapoints: workers.max(1) };
    }
    let draft = Draft {
        title: format!("{workers} workers load data on {cpus} CPUs"),
        metric: host.name(),
        share_percent: 0.0,
        gain: Gain::Unknown { because: "how much the workers hinder each other is not known".into() },
        places: batches_used(facts, host),
        evidence: vec![
            Figure::measured("workers that were seen", workers as f64, "count"),
            Figure::measured("CPUs of the machine", cpus as f64, "count"),
        ],
        advice: "Start about as many workers as there are CPUs (num_workers); more of them compete with each other \
                 and with the training.",
        datapoints: workers,
        violations: workers.saturating_sub(cpus),
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// Processes and threads that make batches for others.
pub(super) fn workers(facts: &Facts<'_>, host: Metric) -> u64 {
    let seen = facts.values(host).chain(facts.values(Metric::OffCpuTime)).map(|(node, _)| node);
    let workers = seen.filter(|node| facts.phase(*node) == Phase::LoadingWorker);
    workers.map(|node| facts.thread(node)).collect::<BTreeSet<_>>().len() as u64
}

/// The lines that use the workers' batches: they, or their callers, created the loader.
fn batches_used(facts: &Facts<'_>, host: Metric) -> Vec<Location> {
    let Some(loading) = LoadingTime::of(facts, host) else { return Vec::new() };
    let metric = if facts.has(Metric::OffCpuTime) { Metric::OffCpuTime } else { host };
    let is_in = |node| loading.is_wait(facts, node);
    facts.places(metric, PlaceKey::Line, is_in, loading.time(metric).value)
}
