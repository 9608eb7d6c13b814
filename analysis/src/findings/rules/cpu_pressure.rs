//! Programs of the machine that wait for a CPU.

use deepctx_profile::metric::Metric;

use super::pressure::PressureCheck;
use super::{Facts, Outcome, Rule, Values};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "cpu-pressure",
    what: "a machine on which programs wait for a CPU",
    definition: "time in which some task could run and had no CPU (pressure stall information) / length of the \
                 capture ≥ `min_percent`",
    source: "SageMaker Debugger (`CPUBottleneck`); the kernel's own count of it",
    origin: "share of snapshots with GPU < 10 % and a CPU > 90 % is > 50 %",
    needs: "system metrics, and targets that no CPU limit stops",
    parameters: &[Parameter { name: "min_percent", default: 20.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if facts.whole_has(Metric::ThrottledPeriods) {
        return Outcome::missing(reason::CPU_LIMIT_REACHED);
    }
    PressureCheck {
        metric: Metric::CpuPressureTime,
        what: "some program of the machine waited for a CPU",
        figure: "time in which some task waited for a CPU",
        advice: "Keep other programs off these CPUs (cpusets, another machine), or start fewer threads and loader \
                 workers (OMP_NUM_THREADS, num_workers).",
        because: "with a CPU for each task nothing waits for one; whether this program waited, --off-cpu says",
    }
    .outcome(facts, values)
}
