//! Devices that get their first work late.

use deepctx_profile::metric::Metric;
use deepctx_profile::units::Nanos;

use super::{Draft, Facts, Outcome, Rule, Values};
use crate::amount::percent;
use crate::findings::finding::{Figure, Gain};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "late-start",
    what: "a first kernel that comes late: the program initializes for long",
    definition: "time from the start of the capture to the first kernel > `max_minutes`",
    source: "SageMaker Debugger (`MaxInitializationTime`)",
    origin: "the first step later than 20 minutes",
    needs: "kernels with measured time, by time",
    parameters: &[Parameter { name: "max_minutes", default: 20.0, source: "SageMaker Debugger" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let timeline = &facts.whole().timeline;
    let lanes = timeline.lanes().iter().filter(|lane| lane.metric == Metric::GpuTime);
    let first = lanes.filter_map(|lane| lane.values.iter().position(|value| *value > 0)).min();
    let first = first.map(|first| Nanos(timeline.window().0.saturating_mul(first as u64)));
    let of_trace = || facts.whole().gpu.uses.iter().map(|of| of.until_first).min();
    let Some(start) = first.or_else(of_trace) else { return super::no_device_time() };
    if start.as_seconds() <= values.get("max_minutes") * 60.0 {
        return Outcome::Healthy { datapoints: 1 };
    }
    let share = percent(start.0, facts.elapsed().0.max(start.0));
    let draft = Draft {
        title: format!("The first kernel ran {start} after the capture began"),
        metric: "length of the capture",
        share_percent: share,
        gain: Gain::Bounded {
            at_most_percent: share,
            because: "the program cannot start before it starts".into(),
        },
        places: Vec::new(),
        evidence: vec![Figure::bounded("time before the first kernel, at least", start.0 as f64, "ns")],
        advice: "See what ran until then (time view): downloads, reading of data, compilation, imports.",
        datapoints: 1,
        violations: 1,
    };
    Outcome::Findings(vec![draft.finding(values)])
}
