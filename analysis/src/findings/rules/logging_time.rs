//! Logging within the program's own time.

use super::{By, Facts, Outcome, Rule, ShareCheck, Values, no_host_time};
use crate::findings::facts::Class;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "logging-time",
    what: "time in logging and in reporting of metrics",
    definition: "time below `logging`, TensorBoard, wandb, MLflow or tqdm / all time ≥ `min_percent`",
    source: "own rule",
    needs: "samples with Python frames",
    parameters: &[Parameter { name: "min_percent", default: 2.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    ShareCheck {
        metric,
        share: facts.share(metric, Class::Logging),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &|node| facts.classes(node).has(Class::Logging),
        by: By::Line,
        title: &|share| format!("{share} of {metric} is logging"),
        figure: "time in logging",
        advice: "Log every n-th step, or hand values to a thread that writes them.",
        because: "what is not logged costs nothing",
    }
    .outcome(facts, values)
}
