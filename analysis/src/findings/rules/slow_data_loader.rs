//! Training steps that wait for data from loader workers.

use deepctx_profile::metric::Metric;

use super::loading::no_loading;
use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_host_time};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "slow-data-loader",
    what: "steps that wait for batches of loader workers",
    definition: "time of phase `data loading` in threads that also do something else and serve no loader, without that \
                 of loaders without workers and, off the CPU, without the longest wait of each thread (of a second at \
                 most, as waits are recorded) / all time of these threads ≥ `min_percent`; time waiting for a CPU left \
                 out",
    source: "Kineto's TensorBoard plug-in (data loader > 5 % of the step)",
    origin: "data loader > 5 % of the step",
    needs: "Python frames and time off the CPU, or a trace",
    parameters: &[Parameter { name: "min_percent", default: 5.0, source: "Kineto" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    let Some(loading) = facts.loading() else { return no_loading() };
    let with_waits = loading.with_waits;
    let places = if facts.has(Metric::OffCpuTime) { Metric::OffCpuTime } else { metric };
    let outcome = ShareCheck {
        metric,
        share: loading.with_workers,
        limit: "min_percent",
        of: Some("time of the threads that use batches"),
        places: Some(places),
        is_in: &|node| loading.is_wait(facts, places, node),
        by: PlaceKey::Line,
        title: &|share| format!("The program waits {share} of its time for batches of the data loader"),
        figure: "time of loading in the threads that use batches",
        advice: "Use more workers (num_workers), prefetch more (prefetch_factor, persistent_workers=True), \
                 or make samples cheaper: decode and resize them beforehand.",
        because: "batches that are ready in time are not waited for",
    }
    .outcome(facts, values);
    match outcome {
        // Only a small part of a wait is on the CPU.
        Outcome::Healthy { .. } if !with_waits => Outcome::missing(reason::NO_LOADER_WAITS),
        outcome => outcome,
    }
}
