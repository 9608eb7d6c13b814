//! What the profiler's own probes cost the program.

use super::path_check::PathCheck;
use super::{Facts, Outcome, PlaceKey, Rule, Values};
use crate::findings::rule::Parameter;

/// What it matches. A running BPF program has a tag in its name, unlike the kernel's own functions that load one.
const PATH: &str = r"kernel:/^(__uprobe_|uprobe_|uretprobe_|arch_uprobe_|bpf_prog_[0-9a-f]{16}|bpf_trampoline_|asm_exc_int3)/";

pub(super) const RULE: Rule = Rule {
    id: "probe-cost",
    what: "time in probes and programs that a profiler attached",
    definition: "time below `uprobe_…`, `asm_exc_int3` and `bpf_prog_…` / all time ≥ `min_percent`",
    source: "own rule",
    origin: "",
    needs: "samples with kernel frames",
    parameters: &[Parameter { name: "min_percent", default: 3.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    PathCheck {
        path: PATH,
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
