//! Logging as part of the program's own time.

use super::path_check::PathCheck;
use super::{Facts, Outcome, PlaceKey, Rule, Values};
use crate::findings::rule::Parameter;

/// What it matches.
const PATH: &str = r"python:@/\/(logging\/__init__\.py$|torch\/utils\/tensorboard\/|tensorboardX\/|wandb\/|mlflow\/|tqdm\/)/";

pub(super) const RULE: Rule = Rule {
    id: "logging-time",
    what: "time in logging and in reporting of metrics",
    definition: "time below `logging`, TensorBoard, wandb, MLflow or tqdm / all time ≥ `min_percent`",
    source: "own rule",
    origin: "",
    needs: "samples with Python frames",
    parameters: &[Parameter { name: "min_percent", default: 2.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    PathCheck {
        path: PATH,
        by: PlaceKey::Line,
        is: "is logging",
        figure: "time in logging",
        advice: "Log every n-th step, or hand values to a thread that writes them.",
        because: "what is not logged costs nothing",
    }
    .outcome(facts, values)
}
