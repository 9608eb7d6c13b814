//! Training steps that take far longer than others.

use std::ops::RangeInclusive;

use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::trace::{HostKind, HostOp, Trace};
use deepctx_profile::units::Nanos;

use super::{Draft, Facts, Outcome, Rule, Values, counted};
use crate::findings::finding::{Figure, Gain, Location};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::tables::ranges::{PlaceTimes, most_steps};

pub(super) const RULE: Rule = Rule {
    id: "uneven-steps",
    what: "training steps that take far longer than others",
    definition: "of the steps of one place, that with most of them: more than `n_outliers` are above \
                 mean + `sigmas` · deviation (where only sums are known, the longest is), \
                 at least `min_steps` steps, and \
                 min(deviation / 2, mean − shortest) / mean ≥ `min_percent`: at most that share of the \
                 time is above the mean",
    source: "SageMaker Debugger (`StepOutlier`)",
    origin: "step > mean + 3 σ (5 σ in the paper), from 100 steps on, and more than 10 of them",
    needs: "steps",
    parameters: &[
        Parameter { name: "sigmas", default: 3.0, source: "SageMaker Debugger" },
        Parameter { name: "n_outliers", default: 10.0, source: "SageMaker Debugger" },
        Parameter { name: "min_steps", default: 100.0, source: "SageMaker Debugger" },
        Parameter { name: "min_percent", default: 5.0, source: "own" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some((name, place)) = most_steps(facts.profile()) else {
        return Outcome::missing(reason::NO_STEPS);
    };
    let steps = place.cell;
    if (steps.count as f64) < values.get("min_steps") {
        return Outcome::missing(reason::TOO_FEW_STEPS);
    }
    let healthy = Outcome::Healthy { datapoints: steps.count };
    let (Some(mean), Some(deviation)) = (steps.mean(), steps.deviation()) else { return healthy };
    // The excess above the mean equals the deficit below: half of the mean distance from it, which is at most the
    // deviation; and no training step is further below than the shortest.
    let above = (deviation / 2.0).min(mean - steps.min as f64);
    let above = if mean > 0.0 { above / mean * 100.0 } else { 0.0 };
    let limit = mean + values.get("sigmas") * deviation;
    if steps.max as f64 <= limit || above < values.get("min_percent") {
        return healthy;
    }
    let outliers = outliers(facts, &name, &place, limit);
    if outliers.as_ref().is_some_and(|known| *known.start() as f64 <= values.get("n_outliers")) {
        return healthy;
    }
    let mut evidence = vec![
        Figure::measured("mean step", mean, "ns"),
        Figure::measured("deviation", deviation, "ns"),
        Figure::measured("longest step", steps.max as f64, "ns"),
        Figure::bounded("time above the mean, at most", above, "percent"),
    ];
    evidence.extend(outliers.as_ref().map(outlier_figure));
    let is_in = |at| place.nodes.contains(&at);
    let places = facts.places(Metric::StepTime, super::PlaceKey::Line, is_in, steps.sum);
    let draft = Draft {
        title: title(&steps, mean, &places),
        metric: Metric::StepTime.name(),
        share_percent: above,
        gain: Gain::Bounded { at_most_percent: above, because: "steps of the mean length stay".into() },
        places,
        evidence,
        advice: "Compare with the time view at that moment: checkpoints, evaluation, data loading, \
                 collection of garbage, other programs.",
        datapoints: steps.count,
        // Where only sums are known, at least the longest.
        violations: outliers.map_or(1, |known| *known.start()).min(steps.count),
    };
    Outcome::Findings(vec![draft.finding(values)])
}

fn title(steps: &Cell, mean: f64, places: &[Location]) -> String {
    let at = places.first().map_or_else(String::new, |of| format!(" at {}", of.name));
    format!(
        "Of {}{at}, the longest took {}, the mean {}",
        counted(steps.count, "step"),
        Nanos(steps.max),
        Nanos(mean as u64)
    )
}

fn outlier_figure(known: &RangeInclusive<u64>) -> Figure {
    let at_least = *known.start() as f64;
    if known.start() == known.end() {
        Figure::measured("steps as far above the mean", at_least, "count")
    } else {
        Figure::bounded("steps as far above the mean, at least", at_least, "count")
    }
}

/// How many steps of a place took longer than `limit` nanoseconds, at least and at most; the longest did. `None` if
/// only sums are known: profiles of older versions have no histogram, or events at best.
fn outliers(facts: &Facts<'_>, name: &str, place: &PlaceTimes, limit: f64) -> Option<RangeInclusive<u64>> {
    let known = if place.times.count() == place.cell.count {
        place.times.longer_than(Nanos(limit as u64))
    } else {
        let ranks = facts.events()?.ranks().iter();
        let traced: Vec<u64> = ranks.flat_map(|rank| steps_of(&rank.trace, name)).collect();
        if traced.is_empty() {
            return None;
        }
        let longer = traced.iter().filter(|ns| **ns as f64 > limit).count() as u64;
        let unknown = place.cell.count.saturating_sub(traced.len() as u64);
        longer..=longer.saturating_add(unknown)
    };
    Some((*known.start()).max(1)..=(*known.end()).max(1))
}

/// Lengths of a trace's training steps of a name: each event has its number behind it.
fn steps_of<'t>(trace: &'t Trace, name: &'t str) -> impl Iterator<Item = u64> + 't {
    let named = move |op: &HostOp| trace.name(op.name).rsplit_once('#').is_some_and(|(of, _)| of == name);
    let steps = trace.host.iter().filter(move |(_, op)| op.kind == HostKind::Step && named(op));
    steps.map(|(_, op)| op.duration.0)
}
