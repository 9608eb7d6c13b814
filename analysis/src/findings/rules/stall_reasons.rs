//! What the warps of hot kernels wait for.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, written};
use crate::amount::percent;
use crate::findings::facts::{SAMPLES_MIN, WARP_SAMPLES};
use crate::findings::finding::{Figure, Finding, Gain, Location, LocationKind};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::findings::share::wilson_lower;

const STALL: &str = "stall:";
/// Reasons that are not stalls: an instruction was issued, by this or another warp.
const NO_STALLS: [Metric; 2] = [Metric::StallSelected, Metric::StallNotSelected];
/// Maximum number of findings.
const MOST: usize = 5;
/// Maximum number of instructions in a finding.
const INSTRUCTIONS_MAX: usize = 3;

pub(super) const RULE: Rule = Rule {
    id: "stall-reasons",
    what: "a hot kernel whose warps mostly wait for one thing",
    definition: "kernels with > `kernel_percent` of all samples of warps, and > `reason_percent` of their \
                 samples with one stall reason",
    source: "DeepContext 4.3 ④",
    origin: "of hot kernels, instructions with stalls > a threshold that the paper does not give",
    needs: "samples of warps",
    parameters: &[
        Parameter { name: "kernel_percent", default: 5.0, source: "own; the paper gives none" },
        Parameter { name: "reason_percent", default: 40.0, source: "own; the paper gives none" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let kernels = samples(facts);
    let sum = |of: &BTreeMap<Metric, u64>| of.values().copied().fold(0, u64::saturating_add);
    let all = kernels.values().map(sum).fold(0, u64::saturating_add);
    if all < SAMPLES_MIN {
        return Outcome::missing(reason::TOO_FEW_WARP_SAMPLES);
    }
    let mut found: Vec<(u64, FrameId, Finding)> = Vec::new();
    for (kernel, reasons) in kernels {
        let of_kernel = sum(&reasons);
        if percent(of_kernel, all) <= values.get("kernel_percent") {
            continue;
        }
        let stalls = reasons.into_iter().filter(|(reason, _)| !NO_STALLS.contains(reason));
        let Some((reason, n)) = stalls.max_by_key(|(reason, n)| (*n, Reverse(*reason))) else { continue };
        if wilson_lower(n, of_kernel) * 100.0 > values.get("reason_percent") {
            found.push((of_kernel, kernel, finding(facts, values, kernel, reason, [n, of_kernel, all])));
        }
    }
    found.sort_rows_by_key(|(samples, kernel, _)| (Reverse(*samples), kernel.number()));
    Outcome::of(found.into_iter().take(MOST).map(|(_, _, finding)| finding).collect(), all)
}

/// By kernel: samples by reason.
fn samples(facts: &Facts<'_>) -> FxHashMap<FrameId, BTreeMap<Metric, u64>> {
    let mut kernels: FxHashMap<FrameId, BTreeMap<Metric, u64>> = FxHashMap::default();
    let tree = &facts.profile().tree;
    for metric in Metric::ALL.iter().copied().filter(|metric| metric.name().starts_with(STALL)) {
        for (node, cell) in tree.cells(metric) {
            let kernel = tree.node(tree.node(node).parent).frame;
            let samples = kernels.entry(kernel).or_default().entry(metric).or_default();
            *samples = samples.saturating_add(cell.sum);
        }
    }
    kernels
}

fn finding(
    facts: &Facts<'_>,
    values: &Values<'_>,
    kernel: FrameId,
    reason: Metric,
    [n, of_kernel, all]: [u64; 3],
) -> Finding {
    let (name, stall) = (facts.label(kernel), reason.name().trim_start_matches(STALL));
    let share = percent(n, of_kernel);
    let tree = &facts.profile().tree;
    let waits = |node: NodeId| tree.node(tree.node(node).parent).frame == kernel;
    let mut instructions = facts.places(reason, PlaceKey::Leaf, waits, all);
    instructions.truncate(INSTRUCTIONS_MAX);
    let mut places = vec![Location {
        kind: LocationKind::Kernel,
        name: name.clone(),
        at: String::new(),
        context: 0,
        share_percent: percent(of_kernel, all),
    }];
    places.extend(instructions);
    places.extend(facts.lines(reason, waits, all));
    Draft {
        title: format!("{} of the samples of {name} wait: {stall}", written(share)),
        metric: WARP_SAMPLES,
        share_percent: percent(of_kernel, all),
        gain: Gain::Bounded {
            at_most_percent: percent(n, all),
            because: "other warps may run while one waits, so that less is won".into(),
        },
        places,
        evidence: vec![
            Figure::measured("samples with this reason", n as f64, "count"),
            Figure::measured("share of the kernel's samples", share, "percent"),
        ],
        advice: advice(reason),
        datapoints: all,
        violations: n,
    }
    .finding(values)
}

fn advice(reason: Metric) -> &'static str {
    match reason {
        Metric::StallLongScoreboard | Metric::StallLgThrottle | Metric::StallTexThrottle => {
            "It waits for memory: read less, read neighbours together, keep data in shared memory, or \
             raise occupancy."
        }
        Metric::StallShortScoreboard | Metric::StallMioThrottle => {
            "It waits for shared memory or special functions: avoid bank conflicts, use wider accesses."
        }
        Metric::StallBarrier | Metric::StallMembar | Metric::StallWarpgroupArrive => {
            "Its warps wait for each other: give them equal work, or synchronize less often."
        }
        Metric::StallImcMiss => "It misses the constant cache: use fewer constants and immediate operands.",
        Metric::StallNoInstructions | Metric::StallBranchResolving => {
            "It waits for instructions: shorten its code or its loops, avoid branches that diverge."
        }
        Metric::StallMathPipeThrottle | Metric::StallGmma => {
            "Its arithmetic units are busy: use tensor cores or a lower precision."
        }
        _ => "Look at the instructions with most samples (`report --all`).",
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use deepctx_profile::frame::Frame;
    use deepctx_profile::text;
    use deepctx_profile::units::Nanos;

    use super::super::tests::profile;
    use super::*;
    use crate::findings::{Findings, Settings};

    #[test]
    fn the_instructions_that_wait_are_named_with_their_lines() {
        let mut profile = profile("P py-7 / n f 1");
        let mut sample = |kernel: &str, offset: u64, reason: Metric, times: u64| {
            let mut frame = |text: &str| text::parse_frame(&mut profile, text).unwrap();
            let mut stack =
                vec![frame("P py-7"), frame("y /a/train.py:step:30"), frame(&format!("g {kernel}"))];
            let (kernel, file) = (profile.text(kernel), profile.text("/a/gather.cu"));
            let line = NonZeroU32::new(40 + offset as u32);
            stack.push(profile.frame(Frame::Instruction { kernel, offset, file, line }));
            profile.add(&stack, reason, times);
        };
        sample("gather", 0x10, Metric::StallLongScoreboard, 300);
        for offset in 1..5 {
            sample("gather", offset, Metric::StallLongScoreboard, 50 + offset);
        }
        sample("gather", 0x20, Metric::StallSelected, 90);
        sample("other", 0x10, Metric::StallLongScoreboard, 2);
        let mut settings = Settings::default();
        settings.only("stall-reasons").unwrap();
        let found = Findings::of_profile(&profile, Nanos(1), &settings).findings;
        let [finding] = &found[..] else { panic!("{found:?}") };
        let places: Vec<_> =
            finding.places.iter().map(|place| (place.kind, place.name.as_str(), place.at.as_str())).collect();
        let expect = [
            (LocationKind::Kernel, "[gpu] gather", ""),
            (LocationKind::Instruction, "gather+0x10 (gather.cu:56)", "/a/gather.cu:56"),
            (LocationKind::Instruction, "gather+0x4 (gather.cu:44)", "/a/gather.cu:44"),
            (LocationKind::Instruction, "gather+0x3 (gather.cu:43)", "/a/gather.cu:43"),
            (LocationKind::Line, "train.py:step:30", "/a/train.py:30"),
        ];
        assert_eq!(places, expect);
    }
}
