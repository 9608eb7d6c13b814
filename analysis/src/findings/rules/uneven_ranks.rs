//! Work distributed unevenly over ranks.

use super::{Draft, Facts, Outcome, Rule, Values, no_ranks, rank_place, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Finding, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::over_time::{Phase, PhaseImbalance, RankTables};

pub(super) const RULE: Rule = Rule {
    id: "uneven-ranks",
    what: "a phase of the steps in which one rank has far more to do than the mean of ranks",
    definition: "compute, copies, data loader or host of the rank with the most, above the mean of ranks ≥ \
                 `min_imbalance_percent` of the mean, and ≥ `min_percent` of the length of its steps",
    source: "SageMaker Debugger (`LoadBalancing`, which compares histograms of utilization)",
    origin: "Jensen-Shannon distance of the GPUs' histograms of utilization > 0.2",
    needs: "single events of several ranks, with steps",
    parameters: &[
        Parameter {
            name: "min_imbalance_percent",
            default: 20.0,
            source: "SageMaker Debugger (distance 0.2)",
        },
        Parameter { name: "min_percent", default: 5.0, source: "own" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(ranks) = facts.ranks() else { return no_ranks() };
    if ranks.steps_ns.values().all(|ns| *ns == 0) {
        return Outcome::missing(reason::NO_RANK_STEPS);
    }
    if ranks.imbalance.is_empty() {
        return Outcome::missing(reason::NO_COMMON_STEPS);
    }
    let datapoints = ranks.ranks.len() as u64;
    // Waiting and exchanging follow from the imbalance of other ranks, and idle is the rest.
    let is_work = |phase| matches!(phase, Phase::Compute | Phase::Copies | Phase::DataLoader | Phase::Host);
    let rows = ranks.imbalance.iter().filter(|row| is_work(row.phase));
    Outcome::of(rows.filter_map(|row| finding(ranks, row, values)).collect(), datapoints)
}

fn finding(ranks: &RankTables, row: &PhaseImbalance, values: &Values<'_>) -> Option<Finding> {
    let imbalance = row.imbalance_percent?;
    let above_ns = (row.most_ns as f64 - row.mean_ns).max(0.0) as u64;
    let share = percent(above_ns, ranks.steps_ns.get(&row.most_rank).copied().unwrap_or(0));
    if imbalance < values.get("min_imbalance_percent") || share < values.get("min_percent") {
        return None;
    }
    let phase = row.phase.name();
    let draft = Draft {
        title: format!(
            "Rank {} has {} more of {phase} than the mean of ranks, {} of its steps",
            row.most_rank,
            written(imbalance),
            written(share)
        ),
        metric: "length of a rank's steps",
        share_percent: share,
        gain: Gain::Bounded {
            at_most_percent: share,
            because: "spread evenly, each rank has the mean of it; ranks that exchange data end together"
                .into(),
        },
        places: vec![rank_place(ranks, row.most_rank, share)],
        evidence: vec![
            Figure::measured("most, of this rank", row.most_ns as f64, "ns"),
            Figure::measured("mean of ranks", row.mean_ns, "ns"),
            Figure::measured("least", row.least_ns as f64, "ns"),
        ],
        advice: "Give ranks equal parts: batches of equal size (drop_last, lengths in buckets), tables and experts \
                 that are used alike, stages of equal work.",
        datapoints: ranks.ranks.len() as u64,
        violations: 1,
    };
    Some(draft.finding(values))
}
