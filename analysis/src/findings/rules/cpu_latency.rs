//! Lines that keep the CPU far longer than the device.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::frame::FrameKind;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, no_device_time, no_host_time, written};
use crate::findings::facts::{Class, PlacePart, SAMPLES_MIN};
use crate::findings::finding::{Figure, Finding, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::findings::share::{Share, Sum};

pub(super) const RULE: Rule = Rule {
    id: "cpu-latency",
    what: "lines that launch work for a device and keep the CPU far longer than the device",
    definition: "time of the program, without waits for the device and copies that block / time of kernels > \
                 `min_ratio` at a line that launches ≥ `min_launches` kernels and has ≥ `min_percent` of the program's \
                 time",
    source: "DeepContext 4.3 ⑤",
    origin: "CPU time / GPU time of a node > a threshold that the paper does not give",
    needs: "kernels with measured time, and samples or a trace",
    parameters: &[
        Parameter { name: "min_ratio", default: 5.0, source: "own; the paper gives none" },
        Parameter { name: "min_percent", default: 2.0, source: "own" },
        // Work launched once while a program starts cannot be launched less often.
        Parameter { name: "min_launches", default: 100.0, source: "own" },
    ],
    check,
};

/// A line that keeps the CPU longer than the device.
struct SlowLine {
    frame: FrameId,
    part: PlacePart,
    /// Time of the kernels from this line.
    device: Sum,
}

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(host) = facts.host().filter(|host| matches!(host, Metric::CpuTime | Metric::WallTime)) else {
        return no_host_time();
    };
    if !facts.has(Metric::GpuTime) {
        return no_device_time();
    }
    let whole = facts.share(host, Class::Spin).whole;
    if Facts::is_sampled(host) && whole.count < SAMPLES_MIN {
        return Outcome::missing(reason::TOO_FEW_SAMPLES);
    }
    let device = facts.parts(Metric::GpuTime, PlaceKey::Line, |_| true);
    let launches = facts.parts(Metric::Kernels, PlaceKey::Line, |_| true);
    // Where the program waits for the device, it launches nothing: often it waits for kernels of other lines.
    let works = |node| {
        let classes = facts.classes(node);
        !classes.has(Class::DeviceWait) && !classes.has(Class::BlockingCopy)
    };
    let program = facts.parts(host, PlaceKey::Line, works);
    let least_launches = values.get("min_launches");
    let launches_often =
        |frame: &FrameId| launches.get(frame).is_some_and(|part| part.sum.value as f64 >= least_launches);
    let (ratio, least) = (values.get("min_ratio"), values.get("min_percent"));
    let mut slow: Vec<_> = program
        .into_iter()
        .filter(|(frame, _)| facts.profile().frames.get(*frame).kind() == FrameKind::Python)
        .filter(|(frame, _)| launches_often(frame))
        .filter_map(|(frame, part)| Some(SlowLine { frame, device: device.get(&frame)?.sum, part }))
        .filter(|line| {
            let part = line.part.sum;
            let share = Share { part, whole, sampled: Facts::is_sampled(host), exact: Default::default() };
            share.at_least_percent() >= least && part.value as f64 > ratio * line.device.value as f64
        })
        .collect();
    slow.sort_rows_by_key(|line| (Reverse(line.part.sum.value), line.frame.number()));
    if slow.is_empty() {
        return Outcome::Healthy { datapoints: whole.count };
    }
    Outcome::Findings(vec![finding(facts, values, host, whole, &slow)])
}

fn finding(facts: &Facts<'_>, values: &Values<'_>, host: Metric, whole: Sum, slow: &[SlowLine]) -> Finding {
    let (mut host_sum, mut device_sum) = (Sum::default(), Sum::default());
    for line in slow {
        host_sum += line.part.sum;
        device_sum += line.device;
    }
    let share = Share { part: host_sum, whole, sampled: false, exact: Default::default() }.percent();
    let times = host_sum.value as f64 / device_sum.value.max(1) as f64;
    let excess = crate::amount::percent(host_sum.value.saturating_sub(device_sum.value), whole.value);
    let place = |line: &SlowLine| facts.place(line.frame, &line.part, whole.value);
    let draft = Draft {
        title: format!(
            "{} of {host} is at lines that keep the CPU {times:.1} times as long as the device",
            written(share)
        ),
        metric: host.name(),
        share_percent: share,
        gain: Gain::Bounded { at_most_percent: excess, because: "the device's own time stays".into() },
        places: slow.iter().take(5).map(place).collect(),
        evidence: vec![
            Figure::measured("time of the program at these lines", host_sum.value as f64, "ns"),
            Figure::measured("time of kernels from these lines", device_sum.value as f64, "ns"),
            Figure::measured("program / kernels", times, "ratio"),
        ],
        advice: "Launch less often: torch.compile, CUDA graphs (mode='reduce-overhead'), larger batches, \
                 fewer small operators.",
        datapoints: whole.count,
        violations: host_sum.count,
    };
    draft.finding(values)
}
