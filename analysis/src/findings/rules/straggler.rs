//! A rank for which the others wait.

use super::{Draft, Facts, Outcome, Rule, Values, no_ranks, rank_place, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::over_time::{Collective, RankTables};
use deepctx_profile::order::SortRows as _;

pub(super) const RULE: Rule = Rule {
    id: "straggler",
    what: "a rank for which the others wait in collectives",
    definition: "time that others wait for the rank that comes last, less the error of clocks / time of all ranks \
                 ≥ `min_percent`, and ≥ `min_part_percent` of all such waits, and on average twice as long as it waits \
                 for others: else ranks are late by turns",
    source: "HTA (stragglers: the latest rank of a collective); SageMaker Debugger (case of a straggler)",
    origin: "of the last call of the collective whose lengths differ most, the two ranks that begin \
             last (HTA)",
    needs: "single events of several ranks, with collectives",
    parameters: &[
        Parameter {
            name: "min_percent",
            default: 5.0,
            source: "own; HTA names the two latest, however late",
        },
        Parameter { name: "min_part_percent", default: 50.0, source: "own" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(ranks) = facts.ranks() else { return no_ranks() };
    let found = &ranks.stragglers;
    let datapoints = found.collectives.len() as u64;
    let Some(latest) = found.ranks.iter().max_by_key(|row| row.waited_for_ns).filter(|_| datapoints > 0)
    else {
        return Outcome::missing(reason::NO_COMMON_COLLECTIVE);
    };
    let waits = found.ranks.iter().fold(0, |sum: u64, row| sum.saturating_add(row.waited_ns));
    // Sums over collectives count those at once, of several communicators, each.
    let at_most_ns = waited_by_others(ranks, latest.rank);
    let waited_for_ns = latest.waited_for_ns.min(at_most_ns);
    let share = percent(waited_for_ns, ranks.time_ns());
    let part = percent(latest.waited_for_ns, waits);
    let others = ranks.ranks.len().saturating_sub(1).max(1);
    // A rank that is late by turns waits for others as long as each of them waits for it.
    let by_turns = latest.waited_for_ns / (others as u64) < latest.waited_ns.saturating_mul(2);
    if share < values.get("min_percent") || part < values.get("min_part_percent") || by_turns {
        return Outcome::Healthy { datapoints };
    }
    // Of waits at once, the same part is certain as of all.
    let certain = percent(for_certain(&found.collectives, latest.rank), latest.waited_for_ns);
    let at_least_ns = (certain.min(100.0) / 100.0 * waited_for_ns as f64) as u64;
    if percent(at_least_ns, ranks.time_ns()) < values.get("min_percent") {
        return Outcome::missing(reason::CLOCKS_DISAGREE);
    }
    let mut evidence = vec![
        Figure::measured("time that others waited for it", waited_for_ns as f64, "ns"),
        Figure::bounded("the same without the error of clocks, at least", at_least_ns as f64, "ns"),
        Figure::measured("of all such waits", part, "percent"),
        Figure::measured("time that it waited for others", latest.waited_ns as f64, "ns"),
    ];
    evidence.extend(reasons(ranks, latest.rank));
    let affected = affected_percent(ranks, latest.rank);
    let draft = Draft {
        title: match others {
            1 => {
                format!("The other rank waits for rank {}: {} of the time of both", latest.rank, written(share))
            }
            n => format!(
                "The other {n} ranks wait for rank {}: {} of the time of all ranks",
                latest.rank,
                written(share)
            ),
        },
        metric: "time of all ranks",
        share_percent: affected,
        gain: Gain::Bounded {
            at_most_percent: affected,
            because: "if it comes with the others, all end earlier, by no more than these waited; the next to come \
                      may be late, too"
                .into(),
        },
        places: vec![rank_place(ranks, latest.rank, share)],
        evidence,
        advice: "See in which phase it is slow (`timeline`): data that it alone loads, more work than others have, \
                 another clock of its device, other programs on its host.",
        datapoints,
        violations: latest.times_latest as u64,
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// How long the other ranks waited for any, together.
fn waited_by_others(ranks: &RankTables, rank: u32) -> u64 {
    let others = ranks.waited_ns.iter().filter(|(other, _)| **other != rank);
    others.fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns))
}

/// The time that others waited for a rank, less what the error of clocks may add to it.
fn for_certain(collectives: &[Collective], rank: u32) -> u64 {
    let error = |row: &Collective| row.clock_error_ns.saturating_mul(row.ranks.saturating_sub(1) as u64);
    let certain = |row: &Collective| row.waited_ns.saturating_sub(error(row));
    let of_rank = collectives.iter().filter(|row| row.latest_rank == rank);
    of_rank.map(certain).fold(0, u64::saturating_add)
}

/// Time of all ranks that this one makes longer, percent: the waits of the others and, in each collective, as much of
/// its own as each of them waits.
fn affected_percent(ranks: &RankTables, rank: u32) -> f64 {
    let its = ranks.stragglers.collectives.iter().filter(|of| of.latest_rank == rank);
    let later = its.map(|of| of.waited_ns as f64 / of.ranks.saturating_sub(1).max(1) as f64).sum::<f64>();
    let mean = ranks.time_ns() as f64 / ranks.ranks.len().max(1) as f64;
    if mean > 0.0 { (later * 100.0 / mean).min(100.0) } else { 0.0 }
}

/// The phases in which it spends more than the median rank, over the training steps in which it is the slowest.
fn reasons(ranks: &RankTables, rank: u32) -> Vec<Figure> {
    let measured = ranks.slowest.iter().filter_map(|step| step.found.figures());
    let of_rank = measured.filter(|step| step.slowest_rank == rank);
    let mut sums: Vec<(&'static str, u64)> = Vec::new();
    for excess in of_rank.flat_map(|step| &step.because) {
        let (name, more) = (excess.phase.above_median(), excess.slowest_ns - excess.median_ns);
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(more),
            None => sums.push((name, more)),
        }
    }
    sums.sort_rows_by_key(|(_, more)| std::cmp::Reverse(*more));
    sums.into_iter().take(2).map(|(name, more)| Figure::measured(name, more as f64, "ns")).collect()
}
