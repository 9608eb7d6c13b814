//! What the profiler's own probes cost the program.

use super::path_check::PathCheck;
use super::{Facts, Outcome, PlaceKey, Rule, Values};
use crate::findings::rule::Parameter;

/// What it matches: the ways by which the kernel enters programs that trace. Those that filter packets, or calls of a
/// cgroup, are entered otherwise.
const PATH: &str = r"kernel:/^(__uprobe_|uprobe_|uretprobe_|arch_uprobe_|__x64_sys_uretprobe|__x64_sys_uprobe|kprobe_|kretprobe_|trace_call_bpf|__bpf_trace_|bpf_trace_run|bpf_overflow_handler|bpf_trampoline_|asm_exc_int3)/";

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

#[cfg(test)]
mod tests {
    use deepctx_profile::frame::PROBE_BEGINNINGS;

    #[test]
    fn the_rule_and_the_views_agree_on_probes() {
        assert_eq!(super::PATH, format!("kernel:/^({})/", PROBE_BEGINNINGS.join("|")));
    }
}
