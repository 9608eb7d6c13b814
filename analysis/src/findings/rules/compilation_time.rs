//! Code being compiled while the program runs.

use deepctx_profile::context::phase::Phase;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_host_time};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "compilation-time",
    what: "time in which torch.compile, Triton or XLA compile",
    definition: "time of phase `compilation` / all time ≥ `min_percent`",
    source: "own rule",
    origin: "",
    needs: "samples with Python or native frames",
    parameters: &[Parameter { name: "min_percent", default: 10.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    let is_in = |node| facts.phase(node) == Phase::Compilation;
    ShareCheck {
        metric,
        share: facts.share_of(metric, |_, phase| phase == Phase::Compilation),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &is_in,
        by: PlaceKey::Line,
        title: &|share| format!("{share} of {metric} is compiling code"),
        figure: "time in compilers",
        advice: "Keep compiled code between runs (TORCHINDUCTOR_FX_GRAPH_CACHE, \
                 JAX_COMPILATION_CACHE_DIR), and avoid recompilation by changing shapes (dynamic=True, \
                 padding).",
        because: "code from a cache is not compiled again",
    }
    .outcome(facts, values)
}
