//! What the profiler's own probes cost the program.

use deepctx_profile::frame::PROBE_BEGINNINGS;

use super::path_check::PathCheck;
use super::{Facts, Outcome, PlaceKey, Rule, Values};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "probe-cost",
    what: "time in probes and programs that a profiler attached",
    definition: "time below `uprobe_…`, `kprobe_…`, `asm_exc_int3`, `bpf_trace_run…`, `bpf_trampoline_…` and the \
                 like / all time ≥ `min_percent`; BPF programs that filter packets left out",
    source: "own rule",
    origin: "",
    needs: "samples with kernel frames",
    parameters: &[Parameter { name: "min_percent", default: 3.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    PathCheck {
        path: &format!("kernel:/^({})/", PROBE_BEGINNINGS.join("|")),
        by: PlaceKey::Operator,
        is: "is probes of a profiler, which also slow down what surrounds them",
        figure: "time in probes",
        advice: "Record fewer features (--probe), limit stacks (--launch-stacks 100/s) or set \
                 --probe-budget 3%.",
        because: "a run without the profiler has none of it; shares of other findings are too low by as much",
        unless: &[],
    }
    .outcome(facts, values)
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;

    #[test]
    fn the_rule_and_the_views_agree_on_probes() {
        let found = "30% of cpu-time is probes of a profiler, which also slow down what surrounds them";
        let run = |entry: &str| format!("P py-7 / n f / k {entry} 300\nP py-7 / n main 700");
        PROBE_BEGINNINGS.iter().for_each(|entry| check(RULE.id, &run(entry), found));
        check(RULE.id, &run("asm_exc_page_fault"), "healthy");
    }
}
