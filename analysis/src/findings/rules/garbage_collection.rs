//! Python's cyclic garbage collector.

use super::{By, Facts, Outcome, Rule, ShareCheck, Values, no_host_time};
use crate::findings::facts::Class;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "garbage-collection",
    what: "time in Python's cyclic garbage collector",
    definition: "time in `gc_collect_main` and the like / all time ≥ `min_percent`",
    source: "own rule",
    needs: "samples with native frames; an interpreter with symbols",
    parameters: &[Parameter { name: "min_percent", default: 3.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    ShareCheck {
        metric,
        share: facts.share(metric, Class::GarbageCollection),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &|node| facts.classes(node).has(Class::GarbageCollection),
        by: By::Line,
        title: &|share| format!("{share} of {metric} is Python's garbage collector"),
        figure: "time in the collector",
        advice: "Call gc.freeze() after start-up, raise gc.set_threshold(), or collect between steps only.",
        because: "without collections this time is gone; memory in reference cycles then stays allocated",
    }
    .outcome(facts, values)
}
