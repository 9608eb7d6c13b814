//! What the warps of hot kernels wait for.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, written};
use crate::amount::percent;
use crate::findings::facts::{PlacePart, SAMPLES_MIN, WARP_SAMPLES};
use crate::findings::finding::{Basis, Figure, Finding, Gain, Location, LocationKind};
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
/// Maximum number of stall reasons of a kernel in a finding.
const REASONS_MAX: usize = 3;
/// Reasons of instructions that wait for the result of another one.
const FOR_RESULTS: [Metric; 2] = [Metric::StallLongScoreboard, Metric::StallShortScoreboard];

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
        let mut stalls: Vec<(Metric, u64)> = stalls.collect();
        stalls.sort_rows_by_key(|(reason, n)| (Reverse(*n), *reason));
        stalls.truncate(REASONS_MAX);
        let Some((_, n)) = stalls.first() else { continue };
        if wilson_lower(*n, of_kernel) * 100.0 > values.get("reason_percent") {
            let kernel_samples = KernelSamples { kernel, stalls, of_kernel, all };
            found.push((of_kernel, kernel, finding(facts, values, &kernel_samples)));
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

/// The samples of a hot kernel.
struct KernelSamples {
    kernel: FrameId,
    /// Its stall reasons, most samples first; at least one.
    stalls: Vec<(Metric, u64)>,
    /// All of its samples.
    of_kernel: u64,
    /// Those of all kernels.
    all: u64,
}

fn finding(facts: &Facts<'_>, values: &Values<'_>, samples: &KernelSamples) -> Finding {
    let KernelSamples { kernel, of_kernel, all, .. } = *samples;
    let (reason, n) = samples.stalls.first().copied().unwrap_or((Metric::StallMisc, 0));
    let (name, stall) = (facts.label(kernel), reason.name().trim_start_matches(STALL));
    let share = percent(n, of_kernel);
    let tree = &facts.profile().tree;
    let waits = |node: NodeId| tree.node(tree.node(node).parent).frame == kernel;
    let parts = facts.parts(reason, PlaceKey::Leaf, waits);
    let mut parts: Vec<(FrameId, PlacePart)> = parts.into_iter().collect();
    parts.sort_rows_by_key(|(frame, part)| (Reverse(part.sum.value), frame.number()));
    parts.truncate(INSTRUCTIONS_MAX);
    let mut evidence = vec![
        Figure::measured("samples with this reason", n as f64, "count"),
        Figure::measured("share of the kernel's samples", share, "percent"),
    ];
    let figure =
        |(reason, n): &(Metric, u64)| Figure::measured(reason.name(), percent(*n, of_kernel), "percent");
    evidence.extend(samples.stalls.iter().map(figure));
    let mut advice = advice(reason).to_owned();
    if FOR_RESULTS.contains(&reason) {
        evidence.extend(parts.iter().filter_map(|(frame, part)| waits_for(facts, *frame, part)));
        advice.extend(parts.first().and_then(|(frame, _)| sentence(facts, *frame)));
    }
    let mut places = vec![Location {
        kind: LocationKind::Kernel,
        name: name.clone(),
        at: String::new(),
        context: 0,
        share_percent: percent(of_kernel, all),
    }];
    places.extend(parts.iter().map(|(frame, part)| facts.place(*frame, part, all)));
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
        evidence,
        advice: &advice,
        datapoints: all,
        violations: n,
    }
    .finding(values)
}

/// The samples of an instruction, and which ones it waits for; `None` if that is not known.
fn waits_for(facts: &Facts<'_>, waiting: FrameId, part: &PlacePart) -> Option<Figure> {
    let producers = facts.profile().producers.of(waiting);
    let names: Vec<String> = producers.iter().map(|producer| facts.label(*producer)).collect();
    let name = format!("samples of {} that wait for {}", facts.label(waiting), names.join(", "));
    let (value, unit) = (part.sum.value as f64, "count".into());
    (!names.is_empty()).then(|| Figure { name: name.into(), value, unit, basis: Basis::Modelled })
}

/// What an instruction waits for, as a sentence after the advice; `None` if that is not known.
fn sentence(facts: &Facts<'_>, waiting: FrameId) -> Option<String> {
    let frames = &facts.profile().frames;
    let producers = facts.profile().producers.of(waiting).iter().copied();
    let known = producers.filter(|producer| matches!(frames.get(*producer), Frame::Instruction { .. }));
    let names: Vec<String> = known.map(|producer| facts.label(producer)).collect();
    let (waiting, names) = (facts.label(waiting), names.split_last()?);
    let names = match names {
        (last, []) => last.clone(),
        (last, others) => format!("{} or {last}", others.join(", ")),
    };
    Some(format!(" {waiting} waits for what {names} loads or computes (modelled)."))
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

    use deepctx_profile::frame::Origin;
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
        let (kernel, file) = (profile.text("gather"), profile.text("/a/gather.cu"));
        let mut at = |offset: u64| {
            let line = NonZeroU32::new(40 + offset as u32);
            profile.frame(Frame::Instruction { kernel, offset, file, line })
        };
        let [waiting, load] = [at(0x10), at(0x4)];
        let reason = profile.text(deepctx_common::samples::NoProducer::BeforeBlock.key());
        let unknown = profile.frame(Frame::Unresolved { reason, origin: Origin::Gpu });
        profile.producers.add(waiting, load);
        profile.producers.add(waiting, unknown);
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
        let (waiting, load) = ("gather+0x10 (gather.cu:56)", "gather+0x4 (gather.cu:44)");
        let modelled = finding.evidence.iter().filter(|figure| figure.basis == Basis::Modelled);
        assert_eq!(
            modelled.map(ToString::to_string).collect::<Vec<_>>(),
            [format!(
                "samples of {waiting} that wait for {load}, [unknown: producer-before-block]: 300 (modelled)"
            )]
        );
        let sentence = format!("{waiting} waits for what {load} loads or computes (modelled).");
        assert!(finding.advice.ends_with(&sentence), "{}", finding.advice);
    }

    #[test]
    fn the_most_frequent_reasons_of_a_kernel_are_evidence() {
        let mut profile = profile("P py-7 / n f 1");
        for (reason, times) in [
            (Metric::StallWait, 60),
            (Metric::StallLongScoreboard, 300),
            (Metric::StallMembar, 40),
            (Metric::StallBarrier, 50),
            (Metric::StallSelected, 90),
        ] {
            let mut frame = |text: &str| text::parse_frame(&mut profile, text).unwrap();
            let mut stack = vec![frame("P py-7"), frame("g gather")];
            let kernel = profile.text("gather");
            let offset = 0x10;
            stack.push(profile.frame(Frame::Instruction { kernel, offset, file: kernel, line: None }));
            profile.add(&stack, reason, times);
        }
        let mut settings = Settings::default();
        settings.only("stall-reasons").unwrap();
        let found = Findings::of_profile(&profile, Nanos(1), &settings).findings;
        let [finding] = &found[..] else { panic!("{found:?}") };
        let reasons: Vec<String> = finding
            .evidence
            .iter()
            .filter(|figure| figure.name.starts_with(STALL))
            .map(ToString::to_string)
            .collect();
        let expect = [
            "stall:long_scoreboard: 55.6% (measured)",
            "stall:wait: 11.1% (measured)",
            "stall:barrier: 9.3% (measured)",
        ];
        assert_eq!(reasons, expect);
        assert!(
            finding.evidence.iter().all(|figure| figure.basis == Basis::Measured),
            "no producer is known"
        );
    }
}
