//! Programs of the machine that wait for memory.

use deepctx_profile::metric::Metric;

use super::pressure::PressureCheck;
use super::{Facts, Outcome, Rule, Values};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "memory-pressure",
    what: "a machine with too little memory: pages are reclaimed, or read back",
    definition: "time in which some task waited for memory (pressure stall information) / length of the capture ≥ \
                 `min_percent`",
    source: "own rule; the kernel's own count of it",
    origin: "",
    needs: "system metrics",
    parameters: &[Parameter { name: "min_percent", default: 2.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    PressureCheck {
        metric: Metric::MemoryPressureTime,
        what: "some program of the machine waited for memory",
        figure: "time in which some task waited for memory",
        advice: "Load fewer samples ahead (prefetch_factor, num_workers), map files instead of reading them, or raise \
                 the memory limit of the cgroup.",
        because: "pages that stay are not waited for",
    }
    .outcome(facts, values)
}
