//! Kernels that are too short for their launches.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::device::activity::Shape;
use deepctx_profile::frame::{Frame, FrameKind};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::units::counted_as;
use rustc_hash::FxHashSet;

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, no_device_time, written};
use crate::amount::percent;
use crate::findings::facts::PlacePart;
use crate::findings::finding::{Figure, Gain};
use crate::findings::rule::Parameter;
use crate::findings::share::Sum;

pub(super) const RULE: Rule = Rule {
    id: "small-kernels",
    what: "kernels so short that launching them takes as long, which could be fused",
    definition: "kernels with time / launches < `max_us` and at least `min_launches` launches; together ≥ \
                 `min_percent` of the time of all kernels",
    source: "DeepContext 4.3 ②",
    origin: "time / launches of a kernel < a threshold that the paper does not give",
    needs: "kernels with measured time",
    parameters: &[
        Parameter { name: "max_us", default: 10.0, source: "own; a launch takes 5 to 10 µs" },
        Parameter { name: "min_launches", default: 100.0, source: "own" },
        Parameter { name: "min_percent", default: 2.0, source: "own" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if !facts.has(Metric::GpuTime) {
        return no_device_time();
    }
    let is_kernel = |node| facts.frame(node).kind() == FrameKind::GpuKernel;
    let parts = facts.parts(Metric::GpuTime, PlaceKey::Leaf, is_kernel);
    let whole = facts.profile().tree.total(Metric::GpuTime);
    let (max_ns, least) = (values.get("max_us") * 1e3, values.get("min_launches"));
    let is_small = |part: &PlacePart| {
        let Sum { value, count } = part.sum;
        count as f64 >= least && (value as f64) < max_ns * count as f64
    };
    let mut small: Vec<(FrameId, PlacePart)> = parts.into_iter().filter(|(_, part)| is_small(part)).collect();
    small.sort_rows_by_key(|(frame, part)| (Reverse(part.sum.value), frame.number()));
    let mut sum = Sum::default();
    small.iter().for_each(|(_, part)| sum += part.sum);
    let share = percent(sum.value, whole.sum);
    if small.is_empty() || share < values.get("min_percent") {
        return Outcome::Healthy { datapoints: whole.count };
    }
    let names: FxHashSet<FrameId> = small.iter().map(|(frame, _)| *frame).collect();
    let mut evidence = vec![
        Figure::measured("launches of small kernels", sum.count as f64, "count"),
        Figure::measured("mean time of one", sum.value as f64 / sum.count.max(1) as f64, "ns"),
        Figure::measured("small kernels by name", small.len() as f64, "count"),
    ];
    evidence.extend(resources(facts, &names));
    let title = format!(
        "{} of {:.1} µs on average take {} of the time of kernels",
        counted_as(sum.count, "launch", "launches"),
        sum.value as f64 / sum.count.max(1) as f64 / 1e3,
        written(share)
    );
    let mut places: Vec<_> =
        small.iter().take(5).map(|(frame, part)| facts.place(*frame, part, whole.sum)).collect();
    let is_in = |node| is_kernel(node) && names.contains(&facts.profile().tree.node(node).frame);
    places.extend(facts.lines(Metric::GpuTime, is_in, whole.sum));
    let draft = Draft {
        title,
        metric: Metric::GpuTime.name(),
        share_percent: share,
        gain: Gain::Bounded {
            at_most_percent: share,
            because: "fused kernels still do the work; gaps between launches come on top".into(),
        },
        places,
        evidence,
        advice: "Fuse them (torch.compile, a fused optimizer, CUDA graphs) or use larger batches; few \
                 registers and little shared memory leave room to fuse.",
        datapoints: whole.count,
        violations: sum.count,
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// Maximum registers and shared memory of the small kernels: they limit fusion.
fn resources(facts: &Facts<'_>, names: &FxHashSet<FrameId>) -> Vec<Figure> {
    let profile = facts.profile();
    let shapes: Vec<&Shape> = profile
        .gpu
        .shapes()
        .filter(|(node, _)| names.contains(&profile.tree.node(*node).frame))
        .filter(|(node, _)| matches!(facts.frame(*node), Frame::GpuKernel { .. }))
        .map(|(_, shape)| shape)
        .collect();
    let registers = shapes.iter().filter_map(|shape| shape.registers).map(|of| of.max).max();
    let shared = shapes.iter().filter_map(|shape| shape.most_shared()).max();
    let registers =
        registers.map(|most| Figure::measured("most registers of a thread", most.into(), "count"));
    let shared = shared.map(|most| Figure::bounded("most shared memory of a block", most.into(), "bytes"));
    registers.into_iter().chain(shared).collect()
}
