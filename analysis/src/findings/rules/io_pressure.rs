//! Programs of the machine that wait for disks.

use deepctx_profile::metric::Metric;

use super::pressure::PressureCheck;
use super::{Facts, Outcome, Rule, Values};
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
    PressureCheck {
        metric: Metric::IoPressureTime,
        what: "some program of the machine waited for a disk",
        figure: "time in which some task waited for a disk",
        advice: "Read data ahead and from memory or a local disk, put small files into large ones, write checkpoints \
                 less often or in the background.",
        because: "data that is there is not waited for; whether this program waited, --off-cpu says",
    }
    .outcome(facts, values)
}
