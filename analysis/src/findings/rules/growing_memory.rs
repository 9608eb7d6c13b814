//! Tensor memory that keeps growing.

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::timeline::Lane;
use deepctx_profile::units::Bytes;

use super::{Draft, Facts, Outcome, Rule, Values, written};
use crate::findings::finding::{Figure, Finding, Gain, Location, LocationKind};
use crate::findings::reason;
use crate::findings::rule::Parameter;

/// Time windows that a trend needs: four quarters of ten, SageMaker's moving average.
const WINDOWS_MIN: usize = 40;

pub(super) const RULE: Rule = Rule {
    id: "growing-memory",
    what: "memory of tensors that grows throughout the capture",
    definition: "live bytes of a device, averaged over each quarter of the capture: each of the last three \
                 is above the one before, and the last exceeds the second by ≥ `min_points` percent of \
                 the highest and by ≥ `min_mib` MiB",
    source: "SageMaker Debugger (`GPUMemoryIncrease`: +5 points)",
    origin: "the moving average of GPU memory (10 values) rises by > 5 points",
    needs: "memory of tensors by time",
    parameters: &[
        Parameter { name: "min_points", default: 5.0, source: "SageMaker Debugger" },
        Parameter { name: "min_mib", default: 16.0, source: "own: a program that starts grows a little" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let lanes = facts.whole().timeline.lanes();
    let lanes: Vec<&Lane> = lanes.iter().filter(|lane| lane.metric == Metric::LiveBytes).collect();
    if lanes.is_empty() {
        return Outcome::missing(reason::NO_TENSOR_MEMORY);
    }
    let long: Vec<&Lane> = lanes.into_iter().filter(|lane| lane.values.len() >= WINDOWS_MIN).collect();
    if long.is_empty() {
        return Outcome::missing(reason::TOO_SHORT_FOR_TREND);
    }
    let datapoints = long.iter().map(|lane| lane.values.len() as u64).sum();
    let found = long.into_iter().filter_map(|lane| finding(facts, values, lane)).collect();
    Outcome::of(found, datapoints)
}

fn finding(facts: &Facts<'_>, values: &Values<'_>, lane: &Lane) -> Option<Finding> {
    let windows = &lane.values;
    let highest = windows.iter().copied().max().filter(|highest| *highest > 0)?;
    let mean = |quarter: usize| {
        let (from, to) = (windows.len() * quarter / 4, windows.len() * (quarter + 1) / 4);
        let part = windows.get(from..to).unwrap_or_default();
        part.iter().map(|value| *value as f64).sum::<f64>() / part.len().max(1) as f64
    };
    let [second, third, last] = [mean(1), mean(2), mean(3)];
    let least = values.get("min_mib") * f64::from(1 << 20);
    let points = (last - second) / highest as f64 * 100.0;
    if !(second < third && third < last) || points < values.get("min_points") || last - second < least {
        return None;
    }
    let frame = facts.whole().tree.node(lane.node).frame;
    let name = facts.label(frame);
    let title = format!(
        "Live tensors grow from {} to {} ({} of the highest) in {name}",
        Bytes(second as u64),
        Bytes(last as u64),
        written(points)
    );
    let draft = Draft {
        title,
        metric: Metric::LiveBytes.name(),
        share_percent: points,
        gain: Gain::Unknown { because: "memory is won, not time".into() },
        places: vec![Location {
            kind: LocationKind::Process,
            name,
            at: String::new(),
            context: lane.node.number(),
            share_percent: points,
        }],
        evidence: vec![
            Figure::measured("mean of the second quarter", second, "bytes"),
            Figure::measured("mean of the last quarter", last, "bytes"),
            Figure::measured("highest", highest as f64, "bytes"),
        ],
        advice: "Look for tensors that are kept: losses that are summed with their graph (use .item() or \
                 .detach()), lists of outputs. `report --metric live-bytes` lists who allocated them.",
        datapoints: windows.len() as u64,
        violations: windows.iter().filter(|value| **value as f64 > second).count() as u64,
    };
    Some(draft.finding(values))
}
