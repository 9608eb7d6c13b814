//! Programs of the machine that wait for disks.

use deepctx_profile::metric::Metric;

use super::pressure::{PressureCheck, own_waits};
use super::{Facts, Outcome, Rule, Values};
use crate::findings::finding::Figure;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "io-pressure",
    what: "a machine on which programs wait for disks",
    definition: "time in which some task waited for a disk (pressure stall information) / length of the capture ≥ \
                 `min_percent`",
    source: "SageMaker Debugger (`IOBottleneck`); the kernel's own count of it",
    origin: "share of snapshots with GPU < 10 % and I/O wait > 50 % is > 50 %",
    needs: "system metrics",
    parameters: &[Parameter { name: "min_percent", default: 10.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let outcome = PressureCheck {
        metric: Metric::IoPressureTime,
        what: "some program of the machine waited for a disk",
        figure: "time in which some task waited for a disk",
        advice: "Read data ahead and from memory or a local disk, put small files into large ones, write checkpoints \
                 less often or in the background.",
        because: "data that is there is not waited for; whether this program waited, --off-cpu says",
    }
    .outcome(facts, values);
    match outcome {
        Outcome::Findings(mut findings) => {
            findings.iter_mut().for_each(|finding| finding.evidence.extend(waits_for_disks(facts)));
            Outcome::Findings(findings)
        }
        outcome => outcome,
    }
}

/// Waits of the program itself, if they were recorded. They are no bound: it may wait for a process that reads for it.
pub(super) fn waits_for_disks(facts: &Facts<'_>) -> Option<Figure> {
    let waits = own_waits(facts, "disk")?;
    let waited = waits.known_ns as f64;
    Some(match waits.unknown_ns > 0 {
        true => Figure::bounded("waits of the program's threads for disks, at least", waited, "ns"),
        false => Figure::measured("waits of the program's threads for disks", waited, "ns"),
    })
}
