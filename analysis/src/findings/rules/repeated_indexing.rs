//! Tensors that a loop indexes element by element.

use std::cmp::Reverse;

use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::tree::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, no_host_time, too_few};
use crate::findings::facts::Class;
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::findings::share::Share;
use crate::tables::phases::steps_in_sums;

pub(super) const RULE: Rule = Rule {
    id: "repeated-indexing",
    what: "a tensor that a loop indexes element by element",
    definition: "calls of one indexing operator (`select`, `slice`, `index`, …) at one line / steps ≥ \
                 `min_calls`, with ≥ `min_percent` of all time there in such operators; those that another operator \
                 calls (`cat`, a backward pass) left out",
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
        return Outcome::missing(reason::NO_OPERATOR_CALLS);
    }
    let Some(steps) = steps(facts) else {
        return Outcome::missing(reason::NO_STEP_COUNT);
    };
    if let Some(few) = too_few(&facts.share_of(host, |_, _| false)) {
        return few;
    }
    let mut calls: FxHashMap<Key, u64> = FxHashMap::default();
    for (node, sum) in facts.values(metric) {
        // An indexing operator's own calls are not calls of the program.
        let Some(operator) = indexing(facts, node).filter(|of| *of == facts.operator(node)) else { continue };
        let n = if metric == Metric::Calls { sum.value } else { sum.count };
        let of_key = calls.entry(key(facts, operator)).or_default();
        *of_key = of_key.saturating_add(n);
    }
    let sum = |calls: &FxHashMap<Key, u64>| calls.values().copied().fold(0, u64::saturating_add);
    let all = sum(&calls);
    calls.retain(|_, n| *n as f64 >= values.get("min_calls") * steps);
    let loops = loops(facts, host, &calls, values.get("min_percent"));
    calls.retain(|key, _| loops.contains(&key.place));
    let is_in = |node| looped(facts, node, &calls).is_some();
    let most =
        calls.iter().max_by_key(|(key, n)| (**n, Reverse((key.operator.number(), key.place.number()))));
    let Some((Key { place, operator }, n)) = most else { return Outcome::Healthy { datapoints: all } };
    let share = facts.share_where(host, is_in);
    let per_step = *n as f64 / steps;
    let draft = Draft {
        title: format!(
            "{} runs {per_step:.0} times a step at {}",
            facts.label(*operator),
            facts.label(*place)
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
            Figure::measured("steps", steps, "count"),
        ],
        advice: "Index once with a tensor of indices, or use an operator over the whole dimension (stack, \
                 gather, vmap).",
        datapoints: all,
        violations: sum(&calls),
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// One indexing operator at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// The line; without one, what encloses the operator: a trace without Python functions has ranges.
    place: FrameId,
    operator: FrameId,
}

fn key(facts: &Facts<'_>, operator: NodeId) -> Key {
    let tree = &facts.profile().tree;
    let line = facts.line(operator);
    let place = if line == NodeId::ROOT { tree.node(operator).parent } else { line };
    Key { place: tree.node(place).frame, operator: tree.node(operator).frame }
}

/// Which of these operators a context is in.
fn looped(facts: &Facts<'_>, node: NodeId, calls: &FxHashMap<Key, u64>) -> Option<Key> {
    indexing(facts, node).map(|operator| key(facts, operator)).filter(|key| calls.contains_key(key))
}

/// The places whose operators have at least a share of the time. Each loop is checked alone: many short ones are no
/// defect.
fn loops(facts: &Facts<'_>, host: Metric, calls: &FxHashMap<Key, u64>, percent: f64) -> FxHashSet<FrameId> {
    let mut loops: FxHashMap<FrameId, Share> = FxHashMap::default();
    let whole = facts.share_of(host, |_, _| false);
    for (node, sum) in facts.values(host) {
        if let Some(key) = looped(facts, node, calls) {
            loops.entry(key.place).or_insert(whole).part += sum;
        }
    }
    let large = loops.into_iter().filter(|(_, share)| share.at_least_percent() >= percent);
    large.map(|(place, _)| place).collect()
}

/// The indexing operator of a context, if the program calls it directly and not through another operator: `cat` narrows
/// each tensor that it joins, and its backward pass slices once for each, without a loop of the program.
fn indexing(facts: &Facts<'_>, node: NodeId) -> Option<NodeId> {
    if !facts.classes(node).has(Class::Indexing) {
        return None;
    }
    let profile = facts.profile();
    let caller = |at: &NodeId| Some(profile.tree.node(*at).parent).filter(|parent| *parent != NodeId::ROOT);
    // A line of the program within an operator calls the operators below it directly.
    let below_line = std::iter::successors(Some(node), caller).take_while(|at| facts.line(*at) != *at);
    let is_operator = |at: &NodeId| match facts.frame(*at) {
        // Ranges that PyTorch draws as operators have no namespace.
        Frame::Operator { name } => {
            let name = profile.strings.get(name);
            name == "[backward]" || name.split([' ', '<', '(']).any(|part| part.contains("::"))
        }
        _ => false,
    };
    let outermost = below_line.filter(is_operator).last()?;
    facts.frame_classes(profile.tree.node(outermost).frame).has(Class::Indexing).then_some(outermost)
}

/// Training steps of all processes in the sums: those ended by ranges, at the place with most of them, or those of
/// PyTorch's profiler.
fn steps(facts: &Facts<'_>) -> Option<f64> {
    let profile = facts.profile();
    let caller = |at: &NodeId| Some(profile.tree.node(*at).parent).filter(|parent| *parent != NodeId::ROOT);
    let mut by_process: FxHashMap<Option<NodeId>, Cell> = FxHashMap::default();
    for (node, cell) in profile.tree.cells(Metric::StepTime) {
        let most = by_process.entry(std::iter::successors(Some(node), caller).last()).or_insert(cell);
        if cell.count > most.count {
            *most = cell;
        }
    }
    // Sorted: the sum must not depend on the order of a map.
    let mut of_processes: Vec<f64> =
        by_process.values().map(|timed| steps_in_sums(timed, facts.elapsed())).collect();
    of_processes.sort_by(f64::total_cmp);
    let by_ranges = (!of_processes.is_empty()).then(|| of_processes.iter().sum::<f64>());
    let drawn = || {
        let is_step = |frame| match frame {
            Frame::Operator { name } | Frame::Range { name } | Frame::Native { symbol: name, .. } => {
                profile.strings.get(name).starts_with("ProfilerStep#")
            }
            _ => false,
        };
        // Names of frames: these are far fewer than contexts.
        let steps = profile.frames.iter().filter(|(_, frame)| is_step(*frame)).map(|(id, _)| id);
        let steps: FxHashSet<FrameId> = steps.collect();
        if steps.is_empty() {
            return None;
        }
        // Ranks with the same names share one context per step.
        let times = |node| profile.tree.exclusive(node, Metric::WallTime).count.max(1);
        let nodes = (0u32..).map(NodeId::from_number).zip(profile.tree.nodes());
        let times = nodes.filter(|(_, node)| steps.contains(&node.frame)).map(|(at, _)| times(at));
        Some(times.fold(0, u64::saturating_add) as f64)
    };
    by_ranges.or_else(drawn).filter(|steps| *steps > 0.0)
}
