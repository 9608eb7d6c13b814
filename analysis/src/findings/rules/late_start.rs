//! Devices that get their first work late, and trainings whose first step is late.

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::timeline::Lane;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;
use rustc_hash::FxHashSet;

use super::{Draft, Facts, Outcome, Rule, Values};
use crate::amount::percent;
use crate::findings::finding::{Figure, Gain};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "late-start",
    what: "a first kernel or training step that comes late: the program initializes for long",
    definition: "time from the start of the capture to the first kernel > `max_minutes`; where kernels were not \
                 measured, to the first range of a process whose training steps are known: its first step has begun \
                 then",
    source: "SageMaker Debugger (`MaxInitializationTime`)",
    origin: "the first step later than 20 minutes",
    needs: "kernels with measured time, by time; or training steps",
    parameters: &[Parameter { name: "max_minutes", default: 20.0, source: "SageMaker Debugger" }],
    check,
};

/// What comes late.
struct First {
    what: &'static str,
    figure: &'static str,
}

const KERNEL: First = First { what: "kernel", figure: "time before the first kernel, at least" };
const STEP: First = First { what: "training step", figure: "time before the first training step, at least" };

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let of_trace = || facts.whole().gpu.uses.iter().map(|of| of.until_first).min();
    let kernel = first_value(facts, |lane| lane.metric == Metric::GpuTime).or_else(of_trace);
    let step = || first_step(facts).map(|start| (start, STEP));
    let Some((start, of)) = kernel.map(|start| (start, KERNEL)).or_else(step) else {
        return super::no_device_time();
    };
    if start.as_seconds() <= values.get("max_minutes") * 60.0 {
        return Outcome::Healthy { datapoints: 1 };
    }
    let share = percent(start.0, facts.elapsed().0.max(start.0));
    let draft = Draft {
        title: format!("The first {} ran {start} after the capture began", of.what),
        metric: "length of the capture",
        share_percent: share,
        gain: Gain::Bounded {
            at_most_percent: share,
            because: "the program cannot start before it starts".into(),
        },
        places: Vec::new(),
        evidence: vec![Figure::bounded(of.figure, start.0 as f64, "ns")],
        advice: "See what ran until then (time view): downloads, reading of data, compilation, imports.",
        datapoints: 1,
        violations: 1,
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// Begin of the first window with a value in one of these lanes.
fn first_value(facts: &Facts<'_>, is_in: impl Fn(&Lane) -> bool) -> Option<Nanos> {
    let timeline = &facts.whole().timeline;
    let lanes = timeline.lanes().iter().filter(|lane| is_in(lane));
    let first = lanes.filter_map(|lane| lane.values.iter().position(|value| *value > 0)).min()?;
    Some(Nanos(timeline.window().0.saturating_mul(first as u64)))
}

/// Sums do not say when a step ran. Ranges do, and the one that ends a step is the first of its process or later.
fn first_step(facts: &Facts<'_>) -> Option<Nanos> {
    let whole = facts.whole();
    let steps = whole.tree.cells(Metric::StepTime);
    let training: FxHashSet<Option<NodeId>> = steps.map(|(node, _)| whole.process_of(node)).collect();
    let is_in =
        |lane: &Lane| lane.metric == Metric::RangeTime && training.contains(&whole.process_of(lane.node));
    first_value(facts, is_in)
}
