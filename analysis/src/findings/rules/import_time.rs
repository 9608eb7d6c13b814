//! Python modules being imported.

use deepctx_profile::context::phase::Phase;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_host_time};
use crate::findings::facts::{Class, Classes};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "import-time",
    what: "time in which Python modules are imported",
    definition: "time below `_find_and_load`, outside of every phase of training / all time ≥ `min_percent`",
    source: "own rule",
    origin: "",
    needs: "samples with Python frames, from the start of the program",
    parameters: &[Parameter { name: "min_percent", default: 20.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    // A program that trains while it is imported is training.
    let imports = |classes: Classes, phase: Phase| classes.has(Class::Import) && phase == Phase::Other;
    ShareCheck {
        metric,
        share: facts.share_of(metric, imports),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &|node| imports(facts.classes(node), facts.phase(node)),
        by: PlaceKey::Line,
        title: &|share| format!("{share} of {metric} is importing Python modules"),
        figure: "time in imports",
        advice: "Import what is rarely used where it is used; python -X importtime lists the modules.",
        because: "modules that are not imported cost nothing; those that are needed still do",
    }
    .outcome(facts, values)
}
