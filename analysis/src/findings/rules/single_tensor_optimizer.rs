//! Optimizers that update one tensor after the other.

use super::path_check::PathCheck;
use super::{Facts, Outcome, PlaceKey, Rule, Values};
use crate::findings::rule::Parameter;

/// What it matches.
const PATH: &str = "python:_single_tensor_*";

pub(super) const RULE: Rule = Rule {
    id: "single-tensor-optimizer",
    what: "an optimizer that updates one tensor after the other",
    definition: "time below `_single_tensor_…` of `torch.optim` / all time ≥ `min_percent`",
    source: "TorchTidy (`OptimizerSingleTensorPattern` of torch.profiler)",
    origin: "any optimizer step without `foreach` or `fused`",
    needs: "samples with Python frames",
    parameters: &[Parameter { name: "min_percent", default: 5.0, source: "own; TorchTidy reports any" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    PathCheck {
        path: PATH,
        by: PlaceKey::Line,
        is: "is an optimizer that updates one tensor after the other",
        figure: "time in single-tensor updates",
        advice: "Pass fused=True (CUDA, and CPU since PyTorch 2.4) or foreach=True to the optimizer.",
        because: "the updates themselves still have to be computed",
        unless: &[],
    }
    .outcome(facts, values)
}
