//! Training steps that take far longer than others.

use deepctx_profile::metric::Metric;
use deepctx_profile::trace::HostKind;
use deepctx_profile::units::Nanos;

use super::{Draft, Facts, Outcome, Rule, Values, counted};
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "uneven-steps",
    what: "training steps that take far longer than others",
    definition: "the longest step > mean + `sigmas` · deviation, at least `min_steps` steps, and \
                 min(deviation / 2, mean − shortest) / mean ≥ `min_percent`: at most that share of the \
                 time is above the mean",
    source: "SageMaker Debugger (`StepOutlier`)",
    origin: "step > mean + 3 σ (5 σ in the paper), from 100 steps on, and more than 10 of them",
    needs: "steps",
    parameters: &[
        Parameter { name: "sigmas", default: 3.0, source: "SageMaker Debugger" },
        Parameter { name: "min_steps", default: 100.0, source: "SageMaker Debugger" },
        Parameter { name: "min_percent", default: 5.0, source: "own" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let profile = facts.profile();
    let Some((node, steps)) = profile.tree.cells(Metric::StepTime).max_by_key(|(_, cell)| cell.count) else {
        return Outcome::missing(reason::NO_STEPS);
    };
    if (steps.count as f64) < values.get("min_steps") {
        return Outcome::missing(reason::TOO_FEW_STEPS);
    }
    let (Some(mean), Some(deviation)) = (steps.mean(), steps.deviation()) else {
        return Outcome::Healthy { datapoints: steps.count };
    };
    // The excess above the mean equals the deficit below: half of the mean distance from it, which is at most the
    // deviation; and no training step is further below than the shortest.
    let above = (deviation / 2.0).min(mean - steps.min as f64);
    let above = if mean > 0.0 { above / mean * 100.0 } else { 0.0 };
    let limit = mean + values.get("sigmas") * deviation;
    if steps.max as f64 <= limit || above < values.get("min_percent") {
        return Outcome::Healthy { datapoints: steps.count };
    }
    let place = facts.places(Metric::StepTime, super::PlaceKey::Line, |at| at == node, steps.sum);
    let at = place.first().map_or_else(String::new, |of| format!(" at {}", of.name));
    let title = format!(
        "Of {}{at}, the longest took {}, the mean {}",
        counted(steps.count, "step"),
        Nanos(steps.max),
        Nanos(mean as u64)
    );
    let outliers = single_steps(facts).filter(|ns| *ns as f64 > limit).count() as u64;
    let mut evidence = vec![
        Figure::measured("mean step", mean, "ns"),
        Figure::measured("deviation", deviation, "ns"),
        Figure::measured("longest step", steps.max as f64, "ns"),
        Figure::bounded("time above the mean, at most", above, "percent"),
    ];
    if facts.events().is_some() {
        evidence.push(Figure::measured(
            "steps as far above the mean, of those traced",
            outliers as f64,
            "count",
        ));
    }
    let draft = Draft {
        title,
        metric: Metric::StepTime.name(),
        share_percent: above,
        gain: Gain::Bounded { at_most_percent: above, because: "steps of the mean length stay".into() },
        places: place,
        evidence,
        advice: "Compare with the time view at that moment: checkpoints, evaluation, data loading, \
                 collection of garbage, other programs.",
        datapoints: steps.count,
        // Sums have one place only.
        violations: outliers.clamp(1, steps.count),
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// Lengths of the training steps with single events.
fn single_steps<'f>(facts: &Facts<'f>) -> impl Iterator<Item = u64> + use<'f> {
    let ranks = facts.events().into_iter().flat_map(|job| job.ranks());
    let steps = ranks.flat_map(|rank| rank.trace.host.iter()).filter(|(_, op)| op.kind == HostKind::Step);
    steps.map(|(_, op)| op.duration.0)
}
