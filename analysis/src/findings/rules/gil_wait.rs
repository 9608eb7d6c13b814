//! Threads that wait for Python's global interpreter lock.

use deepctx_profile::metric::Metric;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, gil_holders, share_of_runnable};
use crate::findings::facts::Class;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "gil-wait",
    what: "threads that wait for Python's global interpreter lock",
    definition: "time off the CPU below `take_gil` / (that + time on the CPU) ≥ `min_percent`",
    source: "own rule; py-spy's share of threads that hold the lock",
    origin: "",
    needs: "time off the CPU, with native frames",
    parameters: &[Parameter { name: "min_percent", default: 10.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let share = match share_of_runnable(facts, Class::GilWait) {
        Ok(share) => share,
        Err(missing) => return missing,
    };
    let outcome = ShareCheck {
        metric: Metric::OffCpuTime,
        share,
        limit: "min_percent",
        of: Some("time in which threads run or could run"),
        places: None,
        is_in: &|node| facts.classes(node).has(Class::GilWait),
        by: PlaceKey::Line,
        title: &|share| {
            format!("Threads that could run wait {share} of their time for Python's global lock (GIL)")
        },
        figure: "time waiting for the lock",
        advice: "Use processes instead of threads for Python code, or code that releases the lock (NumPy, \
                 I/O); a free-threaded build has none.",
        because: "the waits end with the lock; what they wait for may be needed",
    }
    .outcome(facts, values);
    match outcome {
        Outcome::Findings(mut findings) => {
            findings.iter_mut().for_each(|finding| finding.evidence.extend(gil_holders::figures(facts)));
            Outcome::Findings(findings)
        }
        other => other,
    }
}
