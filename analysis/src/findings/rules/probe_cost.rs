//! What the profiler's own probes cost the program.

use super::{By, Facts, Outcome, Rule, ShareCheck, Values, no_host_time};
use crate::findings::facts::Class;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "probe-cost",
    what: "time in probes and programs that a profiler attached",
    definition: "time below `uprobe_…`, `asm_exc_int3` and `bpf_prog_…` / all time ≥ `min_percent`",
    source: "own rule",
    needs: "samples with kernel frames",
    parameters: &[Parameter { name: "min_percent", default: 3.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    ShareCheck {
        metric,
        share: facts.share(metric, Class::Probe),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &|node| facts.classes(node).has(Class::Probe),
        by: By::Operator,
        title: &|share| {
            format!("{share} of {metric} is probes of a profiler, which also slow down what surrounds them")
        },
        figure: "time in probes",
        advice: "Record fewer features (--probe), limit stacks (--launch-stacks 100/s) or set \
                 --probe-budget 3%.",
        because: "a run without the profiler has none of it; shares of other findings are too low by as much",
    }
    .outcome(facts, values)
}
