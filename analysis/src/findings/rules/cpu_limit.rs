//! Cgroups throttled by their CPU limit.

use deepctx_profile::metric::Metric;

use super::pressure::no_system_metrics;
use super::{Draft, Facts, Outcome, Rule, Values, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Gain};
use crate::findings::rule::Parameter;
use crate::tables::system::resource;

/// From this share of its periods on, a limit explains waits for a CPU.
const MIN_PERCENT: f64 = 5.0;

pub(super) const RULE: Rule = Rule {
    id: "cpu-limit",
    what: "a container or service that its CPU limit stops again and again",
    definition: "periods in which the limit stopped a cgroup of the targets / periods in which it ran ≥ `min_percent`",
    source: "own rule; Kubernetes' throttling alerts",
    origin: "throttled periods / periods > 25 %",
    needs: "system metrics",
    parameters: &[Parameter {
        name: "min_percent",
        default: MIN_PERCENT,
        source: "own; the common alert is at 25",
    }],
    check,
};

/// Whether a limit stops targets so often that their waits for a CPU are its own.
pub(super) fn explains_waits(facts: &Facts<'_>) -> bool {
    let tree = &facts.whole().tree;
    tree.cells(Metric::LimitedPeriods).any(|(node, periods)| {
        let throttled = tree.exclusive(node, Metric::ThrottledPeriods).sum.min(periods.sum);
        percent(throttled, periods.sum) >= MIN_PERCENT
    })
}

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let profile = facts.whole();
    let tree = &profile.tree;
    if tree.total(Metric::CpuBusyTime).count == 0 {
        return no_system_metrics();
    }
    let (mut findings, mut datapoints) = (Vec::new(), 1);
    for (node, periods) in tree.cells(Metric::LimitedPeriods) {
        let throttled = tree.exclusive(node, Metric::ThrottledPeriods).sum.min(periods.sum);
        let share = percent(throttled, periods.sum);
        datapoints = datapoints.max(periods.sum);
        if throttled == 0 || share < values.get("min_percent") {
            continue;
        }
        let cgroup = resource(profile, node).unwrap_or_default();
        let draft = Draft {
            title: format!("The CPU limit of {cgroup} stopped it in {} of its periods", written(share)),
            metric: "periods of the limit",
            share_percent: share,
            gain: Gain::Bounded {
                at_most_percent: share,
                because: "in these periods it stood still for a part that is not known, at most all of them"
                    .into(),
            },
            places: Vec::new(),
            evidence: vec![
                Figure::measured("periods in which it was stopped", throttled as f64, "count"),
                Figure::measured("periods in which it ran", periods.sum as f64, "count"),
            ],
            advice: "Raise the limit (cpu.max, resources.limits.cpu), or start no more threads than it allows: many \
                     libraries count the machine's CPUs instead (OMP_NUM_THREADS, torch.set_num_threads).",
            datapoints: periods.sum,
            violations: throttled,
        };
        findings.push(draft.finding(values));
    }
    Outcome::of(findings, datapoints)
}
