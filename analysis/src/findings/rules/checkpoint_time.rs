//! Checkpoints being written or read.

use deepctx_profile::context::phase::Phase;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, no_host_time};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "checkpoint-time",
    what: "time in which checkpoints are written or read",
    definition: "time of phase `checkpoint` / all time ≥ `min_percent`",
    source: "SageMaker Debugger (case of frequent checkpoints)",
    origin: "a case, found by hand: I/O wait at each checkpoint",
    needs: "samples with Python frames",
    parameters: &[Parameter { name: "min_percent", default: 5.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(metric) = facts.host() else { return no_host_time() };
    let is_in = |node| facts.phase(node) == Phase::Checkpoint;
    ShareCheck {
        metric,
        share: facts.share_where(metric, is_in),
        limit: "min_percent",
        of: None,
        places: None,
        is_in: &is_in,
        by: PlaceKey::Line,
        title: &|share| format!("{share} of {metric} is writing or reading checkpoints"),
        figure: "time in checkpoints",
        advice: "Write checkpoints less often, or asynchronously (torch.distributed.checkpoint.async_save).",
        because: "a checkpoint that is not written costs nothing; time waiting for disks comes on top",
    }
    .outcome(facts, values)
}
