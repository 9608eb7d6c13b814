//! Programs of the machine that wait for a CPU.

use deepctx_profile::metric::Metric;

use super::pressure::{PressureCheck, own_waits};
use super::{Facts, Outcome, Rule, Values, cpu_limit};
use crate::amount::percent;
use crate::findings::finding::{Figure, Finding, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "cpu-pressure",
    what: "a machine on which programs wait for a CPU",
    definition: "time in which some task could run and had no CPU (pressure stall information) / length of the \
                 capture ≥ `min_percent`",
    source: "SageMaker Debugger (`CPUBottleneck`); the kernel's own count of it",
    origin: "share of snapshots with GPU < 10 % and a CPU > 90 % is > 50 %",
    needs: "system metrics, and targets that no CPU limit stops often",
    parameters: &[Parameter { name: "min_percent", default: 20.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if cpu_limit::explains_waits(facts) {
        return Outcome::missing(reason::CPU_LIMIT_REACHED);
    }
    let outcome = PressureCheck {
        metric: Metric::CpuPressureTime,
        what: "some program of the machine waited for a CPU",
        figure: "time in which some task waited for a CPU",
        advice: "Keep other programs off these CPUs (cpusets, another machine), or start fewer threads and loader \
                 workers (OMP_NUM_THREADS, num_workers).",
        because: "with a CPU for each task nothing waits for one; whether this program waited, --off-cpu says",
    }
    .outcome(facts, values);
    match outcome {
        Outcome::Findings(findings) => {
            Outcome::Findings(findings.into_iter().map(|finding| bounded_by_waits(facts, finding)).collect())
        }
        outcome => outcome,
    }
}

/// Where waits of the program were measured, it wins no more than these.
fn bounded_by_waits(facts: &Facts<'_>, mut finding: Finding) -> Finding {
    let Some(waits) = own_waits(facts, "waiting for a CPU") else { return finding };
    let (waited, elapsed) = (waits.known_ns.saturating_add(waits.unknown_ns), facts.elapsed().0);
    finding.gain = Gain::Bounded {
        at_most_percent: percent(waited.min(elapsed), elapsed).min(finding.share_percent),
        because: "with a CPU for each task nothing waits for one; the program's threads waited no longer"
            .into(),
    };
    // A wait without its stack may have been for something else.
    let figure = "waits of the program's threads for a CPU, at most";
    finding.evidence.push(Figure::bounded(figure, waited as f64, "ns"));
    finding
}
