//! CPUs that the hypervisor withholds from a virtual machine.

use std::cmp::Reverse;

use deepctx_profile::metric::Metric;

use super::pressure::no_system_metrics;
use super::{Draft, Facts, Outcome, Rule, Values, violations_at_least, written};
use crate::amount::percent;
use crate::findings::finding::{Basis, Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::tables::system::resource;

pub(super) const RULE: Rule = Rule {
    id: "cpu-steal",
    what: "a virtual machine whose CPUs the hypervisor gives to others",
    definition: "time in which the hypervisor withheld CPUs that had something to run (steal time) ≥ `min_percent` of \
                 that + the time in which they ran, and ≥ `min_percent` of the length of the capture",
    source: "own rule; common alerts on steal time",
    origin: "steal time / time of all CPUs > 10 %",
    needs: "system metrics",
    parameters: &[Parameter {
        name: "min_percent",
        default: 5.0,
        source: "own; the common alert is at 10, of all CPUs, also idle ones",
    }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let tree = &facts.whole().tree;
    let (stolen, busy) = (tree.total(Metric::CpuStealTime), tree.total(Metric::CpuBusyTime).sum);
    let (datapoints, elapsed) = (stolen.count, facts.elapsed().0);
    if datapoints == 0 {
        return no_system_metrics();
    }
    if elapsed == 0 {
        return Outcome::missing(reason::NO_CAPTURE_LENGTH);
    }
    let share = percent(stolen.sum, stolen.sum.saturating_add(busy));
    // On an idle machine, a tick is a large share of little.
    let least = share.min(percent(stolen.sum, elapsed));
    if stolen.sum == 0 || least < values.get("min_percent") {
        return Outcome::Healthy { datapoints };
    }
    let mut evidence = vec![
        Figure::measured("CPUs withheld, of the time in which they had something to run", share, "percent"),
        Figure::measured("CPUs withheld, all together", stolen.sum as f64, "ns"),
    ];
    evidence.extend(cpu_with_most(facts, elapsed));
    let draft = Draft {
        title: format!(
            "The hypervisor withheld CPUs for {} of the time in which they had something to run",
            written(share)
        ),
        metric: "time in which CPUs had something to run",
        share_percent: share,
        gain: Gain::Bounded {
            at_most_percent: share,
            because: "with CPUs of its own the machine does the same work without these waits".into(),
        },
        places: Vec::new(),
        evidence,
        advice: "Run on CPUs that no other virtual machine uses (dedicated cores, another host or type of instance), \
                 or see whether the instance has used up its CPU credits; the program itself cannot avoid it.",
        datapoints,
        violations: violations_at_least(share, datapoints),
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// The CPU that was withheld longest.
fn cpu_with_most(facts: &Facts<'_>, elapsed: u64) -> Option<Figure> {
    let profile = facts.whole();
    let cells = profile.tree.cells(Metric::CpuStealTime);
    let (node, most) = cells.max_by_key(|(node, cell)| (cell.sum, Reverse(node.number())))?;
    Some(Figure {
        name: format!("{} withheld, of the capture", resource(profile, node)?).into(),
        value: percent(most.sum.min(elapsed), elapsed),
        unit: "percent".into(),
        basis: Basis::Measured,
    })
}
