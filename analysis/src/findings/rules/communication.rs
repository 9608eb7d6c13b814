//! Devices that communicate.

use deepctx_profile::context::phase::Phase;
use deepctx_profile::metric::Metric;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_device_time};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "communication",
    what: "time of devices in kernels that communicate",
    definition: "time of kernels in phase `communication` / time of all kernels ≥ `min_percent`",
    source: "Kineto's TensorBoard plug-in (communication > 10 % of the step)",
    origin: "communication > 10 % of the step",
    needs: "kernels with measured time",
    parameters: &[Parameter { name: "min_percent", default: 10.0, source: "Kineto" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if !facts.has(Metric::GpuTime) {
        return no_device_time();
    }
    let is_in = |node| facts.phase(node) == Phase::Communication;
    ShareCheck {
        metric: Metric::GpuTime,
        share: facts.share_of(Metric::GpuTime, |_, phase| phase == Phase::Communication),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &is_in,
        by: PlaceKey::Leaf,
        title: &|share| format!("{share} of the time of kernels is communication"),
        figure: "time of kernels that communicate",
        advice: "Overlap it with the backward pass (larger buckets, FSDP prefetching) or send less (bf16 \
                 gradients, accumulation over several batches).",
        because: "part of it may overlap computation already, and waits for slower ranks are in it",
    }
    .outcome(facts, values)
}
