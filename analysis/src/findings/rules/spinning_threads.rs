//! Threads that busy-wait for others.

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_host_time};
use crate::findings::facts::Class;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "spinning-threads",
    what: "threads of OpenMP, BLAS or Eigen that wait at barriers without giving up their CPU",
    definition: "time in functions that spin (`gomp_barrier_wait`, `__kmp_wait`, `blas_thread_server`, …) \
                 / all time ≥ `min_percent`",
    source: "own rule, from captures of training on CPUs",
    origin: "",
    needs: "samples with native frames",
    parameters: &[Parameter { name: "min_percent", default: 10.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    ShareCheck {
        metric,
        share: facts.share(metric, Class::Spin),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &|node| facts.classes(node).has(Class::Spin),
        by: PlaceKey::Line,
        title: &|share| format!("{share} of {metric} is threads spinning at barriers, not computing"),
        figure: "time in functions that spin",
        advice: "Use fewer threads (OMP_NUM_THREADS, torch.set_num_threads) or let them sleep \
                 (OMP_WAIT_POLICY=passive).",
        because: "a thread that waits does no work; whether others become faster is not known",
    }
    .outcome(facts, values)
}
