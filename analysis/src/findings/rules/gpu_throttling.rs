//! GPUs that heat slows down. At its power limit, a GPU under full load is as it should be: that is a figure here.
//!
//! Time in which the hardware slowed a GPU down and named no cause (`GpuSlowdownTime`) counts for nothing: NVIDIA's
//! driver says the same while clocks change, as they do when work begins, and one reading in twenty is 5 %.

use std::cmp::Reverse;

use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::tree::NodeId;

use super::gpu_windows::MIN_SECONDS;
use super::pressure::no_system_metrics;
use super::{Draft, Facts, Outcome, Rule, Values, violations_at_least, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Finding, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::tables::system::resource;

pub(super) const RULE: Rule = Rule {
    id: "gpu-throttling",
    what: "GPUs that are slowed down because they are too hot",
    definition: "time in which a GPU that ran anything was slowed down by heat / length of the capture ≥ \
                 `min_percent`; a capture of at least `min_seconds`",
    source: "own rule; the reasons for low clocks that NVIDIA's driver gives",
    origin: "",
    needs: "launches, and system metrics of GPUs",
    parameters: &[
        Parameter {
            name: "min_percent",
            default: 5.0,
            source: "own: a GPU that is cooled well is never too hot",
        },
        MIN_SECONDS,
    ],
    check,
};

/// A GPU that was slowed down.
struct Slowed {
    node: NodeId,
    /// For how long.
    time: u64,
    /// How much of that it may have been at work, at most.
    at_work: u64,
    readings: u64,
}

/// Only for a program that launched something: the driver does not report whose work the GPUs ran.
fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if !facts.whole_has(Metric::Kernels) {
        return Outcome::missing(reason::NO_KERNEL_LAUNCHES);
    }
    let tree = &facts.whole().tree;
    if tree.total(Metric::CpuBusyTime).count == 0 {
        return no_system_metrics();
    }
    let Some(datapoints) = tree.cells(Metric::GpuThermalLimitedTime).map(|(_, cell)| cell.count).max() else {
        return Outcome::missing(reason::NO_GPU_READINGS);
    };
    if facts.elapsed().as_seconds() < values.get("min_seconds") {
        return Outcome::missing(reason::TOO_FEW_GPU_READINGS);
    }
    Outcome::of(finding(facts, values).into_iter().collect(), datapoints)
}

/// The finding, about the GPU that was slowed down longest.
fn finding(facts: &Facts<'_>, values: &Values<'_>) -> Option<Finding> {
    let (profile, elapsed) = (facts.whole(), facts.elapsed().0);
    let least = values.get("min_percent");
    let mut gpus = slowed(facts);
    gpus.retain(|gpu| percent(gpu.time, elapsed) >= least);
    let longest = gpus.iter().max_by_key(|gpu| (gpu.time, Reverse(gpu.node.number())))?;
    let (share, readings) = (percent(longest.time, elapsed), longest.readings.max(1));
    // One may be slowed down after the other.
    let sum = |of: fn(&Slowed) -> u64| gpus.iter().map(of).fold(0, u64::saturating_add).min(elapsed);
    let of_any = percent(sum(|gpu| gpu.time), elapsed);
    let mut evidence = vec![Figure::measured("GPU slowed down, of the capture", share, "percent")];
    if gpus.len() > 1 {
        evidence.push(Figure::measured("GPUs that were slowed down", gpus.len() as f64, "count"));
        evidence.push(Figure::bounded("any of them slowed down, of the capture, at most", of_any, "percent"));
    }
    let limited = profile.tree.exclusive(longest.node, Metric::GpuPowerLimitedTime).sum.min(elapsed);
    if limited > 0 {
        let at_limit = percent(limited, elapsed);
        evidence.push(Figure::measured("GPU at its power limit, of the capture", at_limit, "percent"));
    }
    let clock = profile.tree.exclusive(longest.node, Metric::GpuClockMegahertz);
    if let Some(mean) = clock.mean() {
        evidence.push(Figure::measured("MHz of its clock, mean", mean, "count"));
        evidence.push(Figure::measured("MHz of its clock, most", clock.max as f64, "count"));
    }
    let draft = Draft {
        title: format!(
            "For {} of the capture, {} was slowed down by heat",
            written(share),
            resource(profile, longest.node).unwrap_or_default()
        ),
        metric: "length of the capture",
        share_percent: of_any,
        gain: Gain::Bounded {
            at_most_percent: percent(sum(|gpu| gpu.at_work), elapsed),
            because: "the work stays, and can only be faster while the GPU is slowed down and busy".into(),
        },
        places: Vec::new(),
        evidence,
        advice: "Cool it better (fans, airflow, filters, the temperature of the room): `nvidia-smi -q -d TEMPERATURE` \
                 says how hot it and its memory may be.",
        datapoints: readings,
        violations: violations_at_least(share, readings),
    };
    Some(draft.finding(values))
}

/// GPUs that ran anything and were slowed down.
fn slowed(facts: &Facts<'_>) -> Vec<Slowed> {
    let (tree, elapsed) = (&facts.whole().tree, facts.elapsed().0);
    let of_gpu = |(node, cell): (NodeId, Cell)| {
        let time = cell.sum.min(elapsed);
        let busy = tree.exclusive(node, Metric::GpuBusyTime);
        // A divided GPU (MIG) has no busy time.
        let at_work = if busy.is_empty() { time } else { time.min(busy.sum) };
        (at_work > 0).then_some(Slowed { node, time, at_work, readings: cell.count })
    };
    tree.cells(Metric::GpuThermalLimitedTime).filter_map(of_gpu).collect()
}
