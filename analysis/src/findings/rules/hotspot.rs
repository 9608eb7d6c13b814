//! Functions and kernels that take much of the time.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::frame::{Frame, FrameKind, OWN_WORK};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, no_host_time, too_few, written};
use crate::findings::facts::{Class, PlacePart};
use crate::findings::finding::{Figure, Finding, Gain};
use crate::findings::rule::Parameter;
use crate::findings::share::Share;

/// Maximum number of findings: a profile with more has no hotspot.
const MOST: usize = 3;

pub(super) const RULE: Rule = Rule {
    id: "hotspot",
    what: "a function or a kernel that takes much of the time by itself",
    definition: "own time of a kernel / time of all kernels > `kernel_percent`; own time of a function / \
                 all time on the CPU > `function_percent`, functions that spin left out",
    source: "DeepContext 4.3 ①",
    origin: "time of a node / time of the root > a threshold that the paper does not give",
    needs: "samples, or kernels with measured time",
    parameters: &[
        Parameter { name: "kernel_percent", default: 20.0, source: "own; the paper gives none" },
        Parameter { name: "function_percent", default: 20.0, source: "own; the paper gives none" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let host = facts.host();
    let few = host.map(|host| too_few(&facts.share(host, Class::Spin)));
    let enough = matches!(few, Some(None));
    if !facts.has(Metric::GpuTime) && !enough {
        return few.flatten().unwrap_or_else(no_host_time);
    }
    let mut findings = hottest(facts, values, Metric::GpuTime, "kernel_percent");
    // Time that merely passes in a function is not its work.
    if let Some(host) = host.filter(|host| enough && Facts::is_sampled(*host)) {
        findings.extend(hottest(facts, values, host, "function_percent"));
    }
    let datapoints = facts.share(host.unwrap_or(Metric::GpuTime), Class::Spin).whole.count;
    Outcome::of(findings, datapoints)
}

fn hottest(facts: &Facts<'_>, values: &Values<'_>, metric: Metric, limit: &str) -> Vec<Finding> {
    let device = metric == Metric::GpuTime;
    // The profiler's own work is that of many functions, too.
    let is_own_work = |node| match facts.frame(node) {
        Frame::Native { symbol, .. } => facts.profile().strings.get(symbol) == OWN_WORK,
        _ => false,
    };
    let is_in = |node| {
        let kind = facts.frame(node).kind();
        let counts = match device {
            true => kind == FrameKind::GpuKernel,
            // An operator or a range stands for what it calls; a full tree or an unknown place, for many functions.
            false => !matches!(
                kind,
                FrameKind::Process
                    | FrameKind::Thread
                    | FrameKind::Operator
                    | FrameKind::GpuKernel
                    | FrameKind::Unresolved
            ),
        };
        counts && !facts.classes(node).has(Class::Spin) && !is_own_work(node)
    };
    let whole = facts.share(metric, Class::Spin).whole;
    let mut parts: Vec<(FrameId, PlacePart)> =
        facts.parts(metric, PlaceKey::Leaf, is_in).into_iter().collect();
    parts.sort_rows_by_key(|(frame, part)| (Reverse(part.sum.value), frame.number()));
    let hot = |(frame, part): (FrameId, PlacePart)| {
        let share =
            Share { part: part.sum, whole, sampled: Facts::is_sampled(metric), exact: Default::default() };
        (share.at_least_percent() > values.get(limit)).then(|| {
            let name = facts.label(frame);
            let is_it = |node| is_in(node) && facts.profile().tree.node(node).frame == frame;
            let itself = facts.place(frame, &part, whole.value);
            // A Python function is its own line.
            let lines = facts.places(metric, PlaceKey::Line, is_it, whole.value).into_iter();
            let lines = lines.filter(|line| line.name != itself.name);
            let places = std::iter::once(itself.clone()).chain(lines).collect();
            Draft {
                title: format!("{name} takes {} of {metric} by itself", written(share.percent())),
                metric: metric.name(),
                share_percent: share.percent(),
                gain: Gain::Unknown {
                    because: "how much faster this work could be done is not known".into(),
                },
                places,
                evidence: vec![Figure::measured("own share", share.percent(), "percent")],
                advice: "Look at its callers and its lines: `report --all`, or the flame graph of `view`.",
                datapoints: whole.count,
                violations: part.sum.count,
            }
            .finding(values)
        })
    };
    parts.into_iter().take(MOST).filter_map(hot).collect()
}
