//! Training steps that wait for batches while CPUs are idle.

use deepctx_profile::metric::Metric;

use super::loader_workers::{workers, workers_figure};
use super::loading::no_loading;
use super::pressure::{cpu_figures, no_system_metrics, usable_cpus, usable_cpus_busy_percent};
use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, counted, no_host_time, no_waits};
use crate::amount::percent;
use crate::findings::finding::Figure;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "few-loader-workers",
    what: "steps that wait for batches of few loader workers, while the machine has idle CPUs",
    definition: "the share of `slow-data-loader` ≥ `wait_percent`, processes and threads seen in phase \
                 `loading worker` at one time / CPUs of the machine, or those that the affinity and the CPU limit of \
                 the targets allow if these are fewer, < `min_percent` percent, and CPUs busy ≤ `busy_percent`; fewer \
                 workers than CPUs alone are no defect, since a training that waits for no batch needs no more",
    source: "SageMaker Debugger (`Dataloader`); threshold of waits of Kineto",
    origin: "active workers / cores < 70 % or > 200 %",
    needs: "Python frames, time off the CPU and system metrics",
    parameters: &[
        Parameter { name: "min_percent", default: 70.0, source: "SageMaker Debugger" },
        Parameter { name: "wait_percent", default: 5.0, source: "Kineto" },
        Parameter { name: "busy_percent", default: 90.0, source: "SageMaker Debugger's `CPUBottleneck`" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    let Some(loading) = facts.loading() else { return no_loading() };
    if !loading.with_waits {
        return no_waits();
    }
    let cpus = usable_cpus(facts);
    if cpus == 0 {
        return no_system_metrics();
    }
    let (workers, busy) = (workers(facts, metric), usable_cpus_busy_percent(facts));
    let of_cpus = percent(workers, cpus);
    // Without any, `synchronous-data-loader` reports it.
    if workers == 0 || of_cpus >= values.get("min_percent") || busy > values.get("busy_percent") {
        return Outcome::Healthy { datapoints: workers.max(1) };
    }
    let places = if facts.has(Metric::OffCpuTime) { Metric::OffCpuTime } else { metric };
    let is_in = |node| loading.is_wait(facts, places, node);
    let title = |share: &str| {
        let workers = counted(workers, "worker");
        format!("The program waits {share} of its time for batches, of {workers} on {cpus} CPUs")
    };
    let draft = ShareCheck {
        metric,
        share: loading.with_workers,
        limit: "wait_percent",
        of: Some("time of the threads that use batches"),
        places: Some(places),
        is_in: &is_in,
        by: PlaceKey::Line,
        title: &title,
        figure: "time of loading in the threads that use batches",
        advice: "Use more workers (num_workers), up to the number of CPUs that are idle: batches are made one beside \
                 the other then.",
        because: "batches that are ready in time are not waited for",
    }
    .draft(facts, values.get("wait_percent"));
    match draft {
        Ok(mut draft) => {
            draft.evidence.push(workers_figure(workers));
            draft.evidence.extend(cpu_figures(facts));
            draft.evidence.push(Figure::measured("CPUs busy", busy, "percent"));
            Outcome::Findings(vec![draft.finding(values)])
        }
        Err(outcome) => outcome,
    }
}
