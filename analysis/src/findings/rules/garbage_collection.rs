//! Python's cyclic garbage collector.

use super::path_check::PathCheck;
use super::{Facts, Outcome, PlaceKey, Rule, Values};
use crate::findings::rule::Parameter;

/// What it matches.
const PATH: &str =
    r"native:/^(gc_collect_|_?PyGC_Collect|_Py_RunGC|collect_with_callback|collect_generations)/";

pub(super) const RULE: Rule = Rule {
    id: "garbage-collection",
    what: "time in Python's cyclic garbage collector",
    definition: "time in `gc_collect_main` and the like / all time ≥ `min_percent`",
    source: "own rule",
    origin: "",
    needs: "samples with native frames; an interpreter with symbols",
    parameters: &[Parameter { name: "min_percent", default: 3.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    PathCheck {
        path: PATH,
        by: PlaceKey::Line,
        is: "is Python's garbage collector",
        figure: "time in the collector",
        advice: "Call gc.freeze() after start-up, raise gc.set_threshold(), or collect between steps only.",
        because: "without collections this time is gone; memory in reference cycles then stays allocated",
        unless: &[],
    }
    .outcome(facts, values)
}
