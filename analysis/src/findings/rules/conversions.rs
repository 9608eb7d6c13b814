//! Tensor elements that change layout or type.

use deepctx_profile::context::phase::Phase;
use deepctx_profile::metric::Metric;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_host_time};
use crate::findings::facts::{Class, Classes};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "conversions",
    what: "tensors that are converted to another layout or type, and the lines that cause it",
    definition: "time in kernels and operators whose names match \
                 `nchw…nhwc|transpose|_to_copy|copy_|contiguous|convert`, fused kernels, convolutions, pools, \
                 concatenations, copies between devices, what `addmm` and the like add and what optimizers convert left out / all \
                 time ≥ `min_percent`; of devices where there is device time",
    source: "DeepContext 6.2 (layout conversions of U-Net)",
    origin: "a case, found by hand: `nchwToNhwcKernel` took 15.4 % of the time",
    needs: "kernels with measured time, or operators on stacks",
    parameters: &[Parameter {
        name: "min_percent",
        default: 2.0,
        source: "own; DeepContext shows a case of 15.4 %",
    }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let device = facts.has(Metric::GpuTime).then_some(Metric::GpuTime);
    let Some(metric) = device.or(facts.host()) else { return no_host_time() };
    // A tensor that goes to another device is moved, not converted. Optimizers convert scalars, one for each tensor.
    let converts = |classes: Classes, phase: Phase| {
        let moves = classes.has(Class::Transfer) || classes.has(Class::DeviceWait);
        classes.has(Class::Conversion) && !moves && phase != Phase::Optimizer
    };
    ShareCheck {
        metric,
        share: facts.share_of(metric, converts),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &|node| converts(facts.classes(node), facts.phase(node)),
        by: PlaceKey::Line,
        title: &|share| format!("{share} of {metric} converts or copies tensors to another layout or type"),
        figure: "time in conversions",
        advice: "Keep one layout and one type: memory_format=torch.channels_last for model and input, no \
                 .contiguous() or .to() within the step.",
        because: "tensors that have the right layout and type from the beginning are not converted",
    }
    .outcome(facts, values)
}
