//! Logging as part of the program's own time.

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_host_time};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::query::Query;

/// What it matches. Progress bars, sweeps and automatic logging call the program back: of these libraries only the
/// functions that report count, not what they iterate over or run.
const PATHS: [&str; 3] = [
    r"python:@/\/(logging\/__init__\.py$|torch\/utils\/tensorboard\/|tensorboardX\/)/",
    r"python:/(^|\.)(update|refresh|display|close|write|clear|reset|set_(postfix|description)(_str)?)$/@/\/tqdm\//",
    r"python:/(^|\.)_?(log|init|finish|save|watch|define)(_\w+)?$/@/\/(wandb|mlflow)\//",
];

pub(super) const RULE: Rule = Rule {
    id: "logging-time",
    what: "time in logging and in reporting of metrics",
    definition: "time below `logging`, TensorBoard and the functions of wandb, MLflow and tqdm that report / all time \
                 ≥ `min_percent`; what a progress bar iterates over or a sweep runs left out",
    source: "own rule",
    origin: "",
    needs: "samples with Python frames",
    parameters: &[Parameter { name: "min_percent", default: 2.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    let mut matches = Vec::new();
    for path in PATHS {
        match Query::parse(path) {
            Ok(query) => matches.push(query.matches(facts.profile())),
            Err(error) => {
                return Outcome::missing_because(reason::BAD_QUERY, format!("its query is bad: {error}"));
            }
        }
    }
    // Most programs have none of some of these frames.
    matches.retain(|of| !of.is_none());
    let is_in = |node| matches.iter().any(|of| of.has(node));
    let share = match matches.is_empty() {
        true => facts.share_of(metric, |_, _| false),
        false => facts.share_where(metric, is_in),
    };
    ShareCheck {
        metric,
        share,
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &is_in,
        by: PlaceKey::Line,
        title: &|share| format!("{share} of {metric} is logging"),
        figure: "time in logging",
        advice: "Log every n-th step, or hand values to a thread that writes them.",
        because: "what is not logged costs nothing",
    }
    .outcome(facts, values)
}
