//! Batches loaded by the training thread itself.

use super::loading::no_loading;
use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_host_time};
use crate::findings::facts::is_by_itself;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "synchronous-data-loader",
    what: "batches that are made by the thread that uses them, without workers",
    definition: "time in a `DataLoader` without workers (`_SingleProcessDataLoaderIter`, `fetch.py` outside of a \
                 worker), or on the CPU in a range of phase `data loading` outside of a `DataLoader` / all time of the \
                 threads that load ≥ `min_percent`",
    source: "TorchTidy (`SynchronizedDataLoaderPattern`); threshold of Kineto",
    origin: "any `DataLoader` without workers",
    needs: "Python frames, or a trace",
    parameters: &[Parameter { name: "min_percent", default: 5.0, source: "Kineto" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    let Some(loading) = facts.loading() else { return no_loading() };
    ShareCheck {
        metric,
        share: loading.by_itself,
        limit: "min_percent",
        of: Some("time of the threads that use batches"),
        places: None,
        is_in: &|node| is_by_itself(facts, metric, node) && loading.is_of_threads(facts, node),
        by: PlaceKey::Line,
        title: &|share| {
            format!("The program spends {share} of its time making batches itself, without workers")
        },
        figure: "time of loading in the threads that use batches",
        advice: "Give the DataLoader workers (num_workers=2 or more), so that batches are made while \
                 others are used.",
        because: "workers can make every batch beside the training, if there are CPUs for them",
    }
    .outcome(facts, values)
}
