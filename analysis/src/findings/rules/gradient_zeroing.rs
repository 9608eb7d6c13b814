//! Gradients that are filled with zeroes.

use super::path_check::PathCheck;
use super::{Facts, Outcome, PlaceKey, Rule, Values};
use crate::findings::rule::Parameter;

/// What it matches.
const PATH: &str = r"/(^|\.)zero_grad($|#)/ ** operator:/^aten::(zero_|_foreach_zero_)($|\.)/";

pub(super) const RULE: Rule = Rule {
    id: "gradient-zeroing",
    what: "gradients that are filled with zeroes instead of being dropped",
    definition: "time in `aten::zero_` or `aten::_foreach_zero_` below `zero_grad` / all time ≥ \
                 `min_percent`",
    source: "TorchTidy (`GradNotSetToNonePattern` of torch.profiler)",
    origin: "any `zero_` below `zero_grad`",
    needs: "samples with Python and native frames",
    parameters: &[Parameter { name: "min_percent", default: 1.0, source: "own; TorchTidy reports any" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    PathCheck {
        path: PATH,
        by: PlaceKey::Line,
        is: "fills gradients with zeroes",
        figure: "time in zeroing gradients",
        advice: "Call optimizer.zero_grad(set_to_none=True), the default since PyTorch 2.0.",
        because: "gradients that are dropped are not written",
        unless: &[],
    }
    .outcome(facts, values)
}
