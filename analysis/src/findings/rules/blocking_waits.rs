//! Lines at which the program waits for its device.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::metric::Metric;
use rustc_hash::FxHashSet;

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, counted, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::findings::share::Sum;

pub(super) const RULE: Rule = Rule {
    id: "blocking-waits",
    what: "lines at which the program waits for its device: `.item()`, `.cpu()`, `synchronize()`",
    definition: "lines with time in calls that wait / (length of the capture × threads that wait) ≥ \
                 `min_percent` and at least `min_calls` calls",
    source: "Nsight Systems (expert rules `cuda_api_sync` and `cuda_memcpy_sync`)",
    origin: "any call that waits for the device, listed by length",
    needs: "calls of a device's library",
    parameters: &[
        Parameter { name: "min_percent", default: 10.0, source: "own; Nsight Systems lists any" },
        Parameter { name: "min_calls", default: 10.0, source: "own: one wait at the end is no waste" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let used = [Metric::LaunchTime, Metric::Kernels, Metric::GpuTime, Metric::SyncTime];
    if !used.into_iter().any(|metric| facts.has(metric)) {
        return Outcome::missing(reason::NO_DEVICE_CALLS);
    }
    let threads: FxHashSet<_> = facts.values(Metric::SyncTime).map(|(node, _)| facts.thread(node)).collect();
    let mut calls = Sum::default();
    facts.values(Metric::SyncTime).for_each(|(_, sum)| calls += sum);
    let whole = facts.elapsed().0.saturating_mul(threads.len().max(1) as u64);
    if whole == 0 {
        return Outcome::missing(reason::NO_CAPTURE_LENGTH);
    }
    // Other tools' traces have no threads: those of a process may together wait for longer than it lasts.
    let whole = whole.max(calls.value);
    let (least, least_calls) = (values.get("min_percent"), values.get("min_calls"));
    let mut lines: Vec<_> = facts
        .parts(Metric::SyncTime, PlaceKey::Line, |_| true)
        .into_iter()
        .filter(|(_, part)| percent(part.sum.value, whole) >= least && part.sum.count as f64 >= least_calls)
        .collect();
    lines.sort_rows_by_key(|(frame, part)| (Reverse(part.sum.value), frame.number()));
    let Some((first, _)) = lines.first() else { return Outcome::Healthy { datapoints: calls.count } };
    let mut sum = Sum::default();
    lines.iter().for_each(|(_, part)| sum += part.sum);
    let share = percent(sum.value, whole);
    // While the device works, nobody could go on for long: only the time in which it rests is won.
    let idle = facts.most_idle_percent();
    let others = lines.len() as u64 - 1;
    let beside = if others > 0 { format!(" and {}", counted(others, "other line")) } else { String::new() };
    let mut evidence = vec![
        Figure::measured("time in calls that wait", sum.value as f64, "ns"),
        Figure::measured("calls that wait", sum.count as f64, "count"),
    ];
    evidence
        .extend(idle.map(|idle| Figure::bounded("device idle, of the capture, at most", idle, "percent")));
    let draft = Draft {
        title: format!(
            "The program waits {} of its time for its device, in {} at {}{beside}",
            written(share),
            counted(sum.count, "call"),
            facts.label(*first)
        ),
        metric: "time of the threads that wait",
        share_percent: share,
        gain: Gain::Bounded {
            at_most_percent: idle.map_or(share, |idle| idle.min(share)),
            because: "the device must still finish; what is won is the time in which it had nothing to do"
                .into(),
        },
        places: lines.iter().take(5).map(|(frame, part)| facts.place(*frame, part, whole)).collect(),
        evidence,
        advice: "Read results less often (.item() and .cpu() wait), keep them on the device, or copy with \
                 non_blocking=True from pinned memory.",
        datapoints: calls.count,
        violations: sum.count,
    };
    Outcome::Findings(vec![draft.finding(values)])
}
