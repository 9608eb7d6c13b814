//! Threads that wait for Python's global interpreter lock.

use deepctx_profile::metric::Metric;

use super::{By, Facts, Outcome, Rule, ShareCheck, Values, no_host_time, no_waits};
use crate::findings::facts::Class;
use crate::findings::rule::Parameter;
use crate::findings::share::Share;

pub(super) const RULE: Rule = Rule {
    id: "gil-wait",
    what: "threads that wait for Python's global interpreter lock",
    definition: "time off the CPU below `take_gil` / (that + time on the CPU) ≥ `min_percent`",
    source: "own rule; py-spy's share of threads that hold the lock",
    needs: "time off the CPU, with native frames",
    parameters: &[Parameter { name: "min_percent", default: 10.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if facts.host().is_none() {
        return no_host_time();
    }
    if !facts.has(Metric::OffCpuTime) {
        return no_waits();
    }
    let waits = facts.share(Metric::OffCpuTime, Class::GilWait).part;
    // Idle threads wait for other things: only who wants to run counts.
    let whole = facts.share(Metric::CpuTime, Class::GilWait).whole;
    let share = Share { part: Default::default(), whole, sampled: true, exact: [waits, waits] };
    ShareCheck {
        metric: Metric::OffCpuTime,
        share,
        limit: "min_percent",
        of: Some("time in which threads run or could run"),
        places: None,
        is_in: &|node| facts.classes(node).has(Class::GilWait),
        by: By::Line,
        title: &|share| {
            format!("Threads that could run wait {share} of their time for Python's global lock (GIL)")
        },
        figure: "time waiting for the lock",
        advice: "Use processes instead of threads for Python code, or code that releases the lock (NumPy, \
                 I/O); a free-threaded build has none.",
        because: "the waits end with the lock; what they wait for may be needed",
    }
    .outcome(facts, values)
}
