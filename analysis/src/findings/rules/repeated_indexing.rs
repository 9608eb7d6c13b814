//! Tensors that a loop indexes element by element.

use std::cmp::Reverse;

use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, no_host_time};
use crate::findings::facts::Class;
use crate::findings::finding::{Figure, Gain};
use crate::findings::rule::Parameter;
use crate::tables::phases::training_steps;

pub(super) const RULE: Rule = Rule {
    id: "repeated-indexing",
    what: "a tensor that a loop indexes element by element",
    definition: "calls of one indexing operator (`select`, `slice`, `index`, …) at one line / steps ≥ \
                 `min_calls`, with ≥ `min_percent` of all time in such operators",
    source: "TorchTidy (`ForLoopIndexingPattern`)",
    origin: "one indexing operator ≥ 10 times in a row",
    needs: "calls of operators at lines, and steps",
    parameters: &[
        Parameter { name: "min_calls", default: 10.0, source: "TorchTidy" },
        Parameter { name: "min_percent", default: 1.0, source: "own" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(host) = facts.host() else { return no_host_time() };
    // In a trace each value is a call.
    let metric = if facts.has(Metric::Calls) { Metric::Calls } else { Metric::WallTime };
    if !facts.has(metric) {
        return Outcome::missing("calls of operators were not counted", "--probe operators,ranges");
    }
    let Some(steps) = steps(facts) else {
        return Outcome::missing("the number of steps is not known", "--probe operators,ranges");
    };
    let mut calls: FxHashMap<(FrameId, FrameId), u64> = FxHashMap::default();
    let tree = &facts.profile().tree;
    let key = |node: NodeId| (tree.node(facts.operator(node)).frame, tree.node(facts.line(node)).frame);
    let mut all = 0;
    for (node, sum) in facts.values(metric).filter(|(node, _)| facts.classes(*node).has(Class::Indexing)) {
        let n = if metric == Metric::Calls { sum.value } else { sum.count };
        *calls.entry(key(node)).or_default() += n;
        all += n;
    }
    calls.retain(|_, n| *n as f64 >= values.get("min_calls") * steps as f64);
    let is_in = |node| facts.classes(node).has(Class::Indexing) && calls.contains_key(&key(node));
    let share = facts.share_where(host, is_in);
    let most =
        calls.iter().max_by_key(|((operator, line), n)| (**n, Reverse((operator.number(), line.number()))));
    let Some(((operator, line), n)) = most else { return Outcome::Healthy { datapoints: all } };
    if share.at_least_percent() < values.get("min_percent") {
        return Outcome::Healthy { datapoints: all };
    }
    let per_step = *n as f64 / steps as f64;
    let draft = Draft {
        title: format!(
            "{} runs {per_step:.0} times a step at {}",
            facts.label(*operator),
            facts.label(*line)
        ),
        metric: host.name(),
        share_percent: share.percent(),
        gain: Gain::Bounded {
            at_most_percent: share.percent(),
            because: "one operator over all elements does the same work".into(),
        },
        places: facts.places(host, PlaceKey::Line, is_in, share.whole.value),
        evidence: vec![
            Figure::measured("calls a step", per_step, "count"),
            Figure::measured("steps", steps as f64, "count"),
        ],
        advice: "Index once with a tensor of indices, or use an operator over the whole dimension (stack, \
                 gather, vmap).",
        datapoints: all,
        violations: calls.values().sum(),
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// Training steps of the profile: those that ranges end, or those that PyTorch's profiler drew.
fn steps(facts: &Facts<'_>) -> Option<u64> {
    let profile = facts.profile();
    let by_ranges = training_steps(profile);
    let drawn = || {
        let is_step = |frame| match profile.frames.get(frame) {
            Frame::Operator { name } | Frame::Range { name } | Frame::Native { symbol: name, .. } => {
                profile.strings.get(name).starts_with("ProfilerStep#")
            }
            _ => false,
        };
        Some(profile.tree.nodes().filter(|node| is_step(node.frame)).count() as u64)
    };
    by_ranges.or_else(drawn).filter(|steps| *steps > 0)
}
