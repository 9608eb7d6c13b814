//! Gradients that are filled with zeroes.

use super::{By, Facts, Outcome, Rule, ShareCheck, Values, no_host_time};
use crate::findings::facts::Class;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "gradient-zeroing",
    what: "gradients that are filled with zeroes instead of being dropped",
    definition: "time in `aten::zero_` or `aten::_foreach_zero_` below `zero_grad` / all time ≥ \
                 `min_percent`",
    source: "TorchTidy (`GradNotSetToNonePattern` of torch.profiler)",
    needs: "samples with Python and native frames",
    parameters: &[Parameter { name: "min_percent", default: 1.0, source: "own; TorchTidy reports any" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    let is_in = |node| {
        let classes = facts.classes(node);
        classes.has(Class::ZeroGrad) && classes.has(Class::WriteZero)
    };
    ShareCheck {
        metric,
        share: facts.share_where(metric, is_in),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &is_in,
        by: By::Line,
        title: &|share| format!("{share} of {metric} fills gradients with zeroes"),
        figure: "time in zeroing gradients",
        advice: "Call optimizer.zero_grad(set_to_none=True), the default since PyTorch 2.0.",
        because: "gradients that are dropped are not written",
    }
    .outcome(facts, values)
}
