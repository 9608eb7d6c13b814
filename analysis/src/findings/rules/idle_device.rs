//! Devices that have nothing to do.

use deepctx_profile::activity::ActivityKind;
use deepctx_profile::metric::Metric;
use rustc_hash::FxHashMap;

use super::{Draft, Facts, Outcome, Rule, Values, counted, no_device_time, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Gain};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "idle-device",
    what: "devices that have nothing to do for much of the capture",
    definition: "time in which a device runs a kernel or a copy / length of the capture < `min_busy_percent`",
    source: "Kineto's TensorBoard plug-in (GPU utilization < 50 %); Nsight Systems (`gpu_time_util`, 50 %)",
    needs: "activities of devices, all of them kept",
    parameters: &[Parameter { name: "min_busy_percent", default: 50.0, source: "Kineto, Nsight Systems" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if !facts.has(Metric::GpuTime) {
        return no_device_time();
    }
    let activities = &facts.profile().gpu.activities;
    if activities.left_out() > 0 || activities.iter().len() == 0 {
        return Outcome::missing("not every activity of the devices was kept", "a shorter --duration");
    }
    if facts.elapsed().0 == 0 {
        return Outcome::missing("the length of the capture is not known", "");
    }
    let busy = busy_by_device(facts);
    let whole = facts.elapsed().0.saturating_mul(busy.len() as u64);
    let sum: u64 = busy.values().sum();
    let (share, datapoints) = (percent(sum, whole), activities.iter().len() as u64);
    if share >= values.get("min_busy_percent") {
        return Outcome::Healthy { datapoints };
    }
    let idle = 100.0 - share;
    let draft = Draft {
        title: format!("{} idle {} of the capture", devices(busy.len()), written(idle)),
        metric: "length of the capture",
        share_percent: idle,
        gain: Gain::Bounded { at_most_percent: idle, because: "the device's own work stays".into() },
        places: Vec::new(),
        evidence: vec![Figure::measured("time in which a kernel or a copy ran", share, "percent")],
        advice: "See what the program does meanwhile: rules on data loaders, waits and CPU latency, and \
                 the time view.",
        datapoints,
        violations: busy.len() as u64,
    };
    Outcome::Findings(vec![draft.finding(values)])
}

fn devices(n: usize) -> String {
    match n {
        1 => "The device is".to_owned(),
        n => format!("{} are", counted(n as u64, "device")),
    }
}

/// By process and device: the union of its activities, ns.
fn busy_by_device(facts: &Facts<'_>) -> FxHashMap<(u32, u32), u64> {
    let mut spans: FxHashMap<(u32, u32), Vec<(u64, u64)>> = FxHashMap::default();
    for activity in facts.profile().gpu.activities.iter() {
        if activity.kind != ActivityKind::Sync {
            let span = (activity.start.0, activity.end.0);
            spans.entry((activity.pid, activity.device)).or_default().push(span);
        }
    }
    spans.into_iter().map(|(device, spans)| (device, union(spans))).collect()
}

fn union(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let (mut sum, mut until) = (0u64, 0u64);
    for (start, end) in spans {
        sum = sum.saturating_add(end.saturating_sub(start.max(until)));
        until = until.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_activities_count_once() {
        let check = |spans: &[(u64, u64)], expect| assert_eq!(union(spans.to_vec()), expect, "{spans:?}");
        check(&[], 0);
        check(&[(5, 9), (0, 2)], 6);
        check(&[(0, 10), (2, 3), (8, 12)], 12);
        check(&[(4, 2)], 0);
    }
}
