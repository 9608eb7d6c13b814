//! The kernel handling page faults.

use super::{By, Facts, Outcome, Rule, ShareCheck, Values, no_host_time};
use crate::findings::facts::Class;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "page-faults",
    what: "time in which the kernel handles page faults",
    definition: "time below `exc_page_fault` and the like / all time ≥ `min_percent`",
    source: "own rule",
    needs: "samples with kernel frames",
    parameters: &[Parameter { name: "min_percent", default: 3.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    ShareCheck {
        metric,
        share: facts.share(metric, Class::PageFault),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &|node| facts.classes(node).has(Class::PageFault),
        by: By::Line,
        title: &|share| format!("{share} of {metric} is page faults"),
        figure: "time in page faults",
        advice: "Keep memory between steps: reuse buffers, preload jemalloc or tcmalloc, or raise \
                 M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.",
        because: "memory that stays mapped does not fault",
    }
    .outcome(facts, values)
}
