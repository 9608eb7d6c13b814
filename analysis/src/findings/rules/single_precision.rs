//! Matrix products that leave the tensor cores unused.

use deepctx_profile::metric::Metric;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_device_time};
use crate::findings::facts::Class;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "single-precision",
    what: "matrix products and convolutions in fp32 that leave tensor cores unused",
    definition: "time of kernels whose names say so (`sgemm`, `scudnn`, `f32f32_f32f32`; not tf32, f16, \
                 bf16) / time of all kernels ≥ `min_percent`",
    source: "TorchTidy (`FP32MatMulPattern`); Kineto's tensor-core rule",
    origin: "any fp32 product while TF32 is possible (TorchTidy); eligible operators without tensor \
             cores (Kineto)",
    needs: "kernels with measured time",
    parameters: &[Parameter { name: "min_percent", default: 5.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if !facts.has(Metric::GpuTime) {
        return no_device_time();
    }
    ShareCheck {
        metric: Metric::GpuTime,
        share: facts.share(Metric::GpuTime, Class::SinglePrecision),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &|node| facts.classes(node).has(Class::SinglePrecision),
        by: PlaceKey::Leaf,
        title: &|share| {
            format!("{share} of the time of kernels is fp32 products that leave tensor cores unused")
        },
        figure: "time of fp32 products",
        advice: "Where results allow it: torch.autocast with bf16, or \
                 torch.set_float32_matmul_precision('high') for TF32.",
        because: "tensor cores still need some of this time",
    }
    .outcome(facts, values)
}
