//! Operators whose backward pass takes far longer than their forward pass.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use super::{Draft, Facts, Outcome, Rule, Values, no_host_time, written};
use crate::amount::percent;
use crate::findings::facts::{Class, SAMPLES_MIN};
use crate::findings::finding::{Figure, Finding, Gain, Location, LocationKind};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::findings::share::{Sum, wilson_lower};

/// Findings of this rule.
const MOST: usize = 5;

pub(super) const RULE: Rule = Rule {
    id: "backward-cost",
    what: "an operator whose backward pass takes far longer than its forward pass",
    definition: "time below `[backward]` of an operator at a line / its time without that > `min_ratio`, \
                 and ≥ `min_percent` of all time; of devices where there is device time",
    source: "DeepContext 4.3 ③",
    origin: "time of the backward pass / time of the forward pass > 2",
    needs: "the backward pass below its operators",
    parameters: &[
        Parameter { name: "min_ratio", default: 2.0, source: "DeepContext" },
        Parameter { name: "min_percent", default: 1.0, source: "own" },
    ],
    check,
};

/// The two passes of an operator at a line.
#[derive(Clone, Copy, Debug, Default)]
struct Passes {
    forward: Sum,
    backward: Sum,
    context: u32,
}

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let profile = facts.profile();
    // Frames first: they are far fewer than contexts.
    let is_there = || profile.tree.nodes().any(|node| is_backward(facts, node.frame));
    if !facts.has_class(Class::Backward) || !is_there() {
        return Outcome::missing(reason::NO_BACKWARD_OPERATORS);
    }
    let device = facts.has(Metric::GpuTime).then_some(Metric::GpuTime);
    let Some(metric) = device.or(facts.host()) else { return no_host_time() };
    let sampled = Facts::is_sampled(metric);
    let whole = facts.share(metric, Class::Backward).whole;
    if sampled && whole.count < SAMPLES_MIN {
        return Outcome::missing(reason::TOO_FEW_SAMPLES);
    }
    let (ratio, least) = (values.get("min_ratio"), values.get("min_percent"));
    let is_slow = |passes: &Passes| {
        let Passes { forward, backward, .. } = passes;
        // Without any time of its forward pass, the ratio of an operator is unknown. Samples may differ in length.
        let enough = forward.value > 0
            && backward.value as f64 > ratio * forward.value as f64
            && percent(backward.value, whole.value) >= least;
        let mut both = *forward;
        both += *backward;
        let share = match sampled {
            true => wilson_lower(backward.count, both.count),
            false => backward.value as f64 / both.value.max(1) as f64,
        };
        enough && share > ratio / (1.0 + ratio)
    };
    let by_operator = passes(facts, metric);
    let mut slow: Vec<_> = by_operator.into_iter().filter(|(_, passes)| is_slow(passes)).collect();
    slow.sort_rows_by_key(|((operator, line), of)| {
        (Reverse(of.backward.value), operator.number(), line.number())
    });
    let found = slow
        .into_iter()
        .take(MOST)
        .map(|((operator, line), passes)| finding(facts, values, metric, whole, operator, line, passes));
    Outcome::of(found.collect(), whole.count)
}

fn is_backward(facts: &Facts<'_>, frame: FrameId) -> bool {
    facts.frame_classes(frame).has(Class::Backward)
}

/// By operator and line: the time of both passes.
fn passes(facts: &Facts<'_>, metric: Metric) -> FxHashMap<(FrameId, FrameId), Passes> {
    let tree = &facts.profile().tree;
    // For each context, the operator that it counts for; its class decides whether it belongs to the backward pass.
    let mut operator = vec![0u32; tree.len()];
    let mut has_backward: FxHashMap<u32, ()> = FxHashMap::default();
    for (number, node) in (0u32..).zip(tree.nodes()).skip(1) {
        let above = operator.get(node.parent.index()).copied().unwrap_or(0);
        let in_backward = facts.classes(node.parent).has(Class::Backward);
        let is_operator = matches!(facts.profile().frames.get(node.frame), Frame::Operator { .. });
        let own = !in_backward && is_operator;
        let starts = is_backward(facts, node.frame);
        if starts && !in_backward && above != 0 {
            has_backward.insert(above, ());
        }
        if let Some(at) = operator.get_mut(number as usize) {
            *at = if own && !starts { number } else { above };
        }
    }
    let mut passes: FxHashMap<(FrameId, FrameId), Passes> = FxHashMap::default();
    for (node, sum) in facts.values(metric) {
        let backward = facts.classes(node).has(Class::Backward);
        // An operator within the one that has the backward pass is part of its forward pass.
        let mut at = operator.get(node.index()).copied().unwrap_or(0);
        while at != 0 && !has_backward.contains_key(&at) {
            at = operator.get(tree.node(NodeId::from_number(at)).parent.index()).copied().unwrap_or(0);
        }
        if at == 0 {
            continue;
        }
        let owner = NodeId::from_number(at);
        let key = (tree.node(owner).frame, tree.node(facts.line(owner)).frame);
        let of = passes.entry(key).or_insert(Passes { context: at, ..Passes::default() });
        *(if backward { &mut of.backward } else { &mut of.forward }) += sum;
    }
    passes
}

fn finding(
    facts: &Facts<'_>,
    values: &Values<'_>,
    metric: Metric,
    whole: Sum,
    operator: FrameId,
    line: FrameId,
    passes: Passes,
) -> Finding {
    let Passes { forward, backward, context } = passes;
    let times = backward.value as f64 / forward.value.max(1) as f64;
    let share = percent(backward.value, whole.value);
    // At most the part above the threshold: the usual backward pass of a product takes twice its forward pass.
    let usual = values.get("min_ratio") * forward.value as f64;
    let excess = (backward.value as f64 - usual) / whole.value.max(1) as f64 * 100.0;
    let (name, at) = (facts.label(operator), facts.label(line));
    let unit = crate::amount::suffix(metric.unit());
    let place = |kind, name: &str| Location {
        kind,
        name: name.to_owned(),
        at: String::new(),
        context,
        share_percent: share,
    };
    let mut places = vec![place(LocationKind::Operator, &name)];
    // Without Python frames there is no line.
    if line != FrameId::ROOT {
        places.push(place(LocationKind::Line, &at));
    }
    Draft {
        title: format!(
            "The backward pass of {name} takes {times:.1} times its forward pass, {} of {metric}",
            written(share)
        ),
        metric: metric.name(),
        share_percent: share,
        gain: Gain::Bounded {
            at_most_percent: excess,
            because: "a backward pass at the usual ratio stays".into(),
        },
        places,
        evidence: vec![
            Figure::measured("forward pass", forward.value as f64, unit),
            Figure::measured("backward pass", backward.value as f64, unit),
            Figure::measured("backward / forward", times, "ratio"),
        ],
        advice: "Use an operator with a cheaper gradient: index_select or embedding instead of indexing by \
                 a tensor, no scatter with equal indices.",
        datapoints: whole.count,
        violations: backward.count,
    }
    .finding(values)
}
