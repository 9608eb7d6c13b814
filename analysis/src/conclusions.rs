//! Conclusions: findings, phases and training steps of a whole profile, as rows of a screen.
//!
//! Owns: [`conclude`]. Because: a screen of a growing profile shows the same conclusions as `analyze`, without knowing
//! any rule. Does not: decide how often they are drawn; the caller with a clock does.

use std::borrow::Cow;
use std::collections::BTreeMap;

use deepctx_profile::context::phase::Phase;
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;
use deepctx_profile::view::conclusions::{
    Conclusions, FindingPlace, FindingRow, PhaseRow, RuleCoverage, Severity, StepFigures,
};

use crate::findings::{self, Check, Finding, Findings, Location, Settings};
use crate::tables::phases::{Phases, step_place, steps_in_sums};

/// Draws conclusions from a profile `elapsed` after its capture began, zero when unknown, by the rules of `settings`.
///
/// It walks all contexts a few times; docs/view.md has the cost.
pub fn conclude(profile: &Profile, elapsed: Nanos, settings: &Settings) -> Conclusions {
    let (found, phases) = Findings::with_phases(profile, elapsed, settings);
    let (steps, latest_steps) = steps(profile, elapsed).unzip();
    Conclusions {
        at: elapsed,
        rules: coverage(profile, &found),
        findings: found.findings.into_iter().map(|finding| row(profile, finding)).collect(),
        phases: training_phases(profile, &phases),
        steps,
        latest_steps: latest_steps.unwrap_or_default(),
    }
}

fn row(profile: &Profile, finding: Finding) -> FindingRow {
    let gain = finding.could_win();
    FindingRow {
        rule: finding.rule,
        severity: match finding.severity {
            findings::Severity::Low => Severity::Low,
            findings::Severity::Medium => Severity::Medium,
            findings::Severity::High => Severity::High,
        },
        share: finding.share_percent / 100.0,
        places: finding.places.into_iter().map(|place| place_of(profile, place)).collect(),
        metric: finding.metric.parse().ok(),
        gain,
        evidence: finding.evidence.iter().map(ToString::to_string).collect(),
        title: finding.title,
        advice: finding.advice,
    }
}

fn place_of(profile: &Profile, place: Location) -> FindingPlace {
    let strings = &profile.strings;
    // The context may end below the place: at the kernel that the line launched.
    let stack = profile.tree.stack(NodeId::from_number(place.context));
    let frames = stack.iter().rev().map(|frame| profile.frames.get(*frame));
    let label = { frames }.find(|frame| frame.label(strings, true) == place.name);
    FindingPlace {
        label: label.map_or_else(|| place.name.clone(), |frame| frame.label(strings, false)),
        name: place.name,
        share: place.share_percent / 100.0,
    }
}

/// Metrics of a process that uses a device.
const OF_DEVICES: [Metric; 4] = [Metric::LaunchTime, Metric::Kernels, Metric::GpuTime, Metric::SyncTime];

/// Rules with and without input. Where no process uses a device, no option for devices is proposed.
fn coverage(profile: &Profile, found: &Findings) -> RuleCoverage {
    let uses_device = profile.tree.metrics().any(|metric| OF_DEVICES.contains(&metric));
    let mut by_option: BTreeMap<&'static str, usize> = BTreeMap::new();
    let options = |check: &Check| match check.record_with {
        Some(Cow::Borrowed("--gpu-activity")) if !uses_device => None,
        // Another program is no option.
        Some(Cow::Borrowed(options)) if options.starts_with("a program") => None,
        Some(Cow::Borrowed(options)) => Some(options),
        // Rules that ran elsewhere are not among those of a screen.
        Some(Cow::Owned(_)) | None => None,
    };
    for options in found.checks.iter().filter_map(options) {
        *by_option.entry(options).or_default() += 1;
    }
    RuleCoverage {
        checked: found.checked(),
        unchecked: found.checks.len() - found.checked(),
        most_helpful: by_option.into_iter().max_by_key(|(_, rules)| *rules),
    }
}

/// Phases by CPU time, in the order of a training step. Only programs with a forward and a backward pass have phases: a
/// web server may have a function called `validate`.
fn training_phases(profile: &Profile, phases: &[Phase]) -> Vec<PhaseRow> {
    let rows: Vec<PhaseRow> = Phases::of_contexts(profile, phases)
        .rows
        .iter()
        .filter_map(|row| {
            let value = row.values.iter().find(|value| value.metric == Metric::CpuTime.name())?;
            let (time, share) = (Nanos(value.value.value), value.share_percent / 100.0);
            Some(PhaseRow { name: row.phase, time, share })
        })
        .filter(|row| row.time.0 > 0)
        .collect();
    let has = |phase: Phase| rows.iter().any(|row| row.name == phase.name());
    if has(Phase::Forward) && has(Phase::Backward) { rows } else { Vec::new() }
}

/// How long training steps took, and times of the latest.
fn steps(profile: &Profile, elapsed: Nanos) -> Option<(StepFigures, Vec<Nanos>)> {
    let (place, cell) = step_place(profile)?;
    let Cell { count, min, max, .. } = cell;
    let mean = Nanos(cell.mean().unwrap_or(0.0) as u64);
    let times = profile.step_times.of(place);
    let percentile = |percent| Some(times?.percentile(percent, &cell)?.middle());
    let figures = StepFigures {
        count,
        in_sums: steps_in_sums(&cell, elapsed),
        mean,
        least: Nanos(min),
        most: Nanos(max),
        median: percentile(50),
        p95: percentile(95),
    };
    Some((figures, profile.step_times.latest(place).collect()))
}

#[cfg(test)]
mod tests {
    use deepctx_profile::text;

    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    /// A profile whose values are samples of a millisecond each.
    fn sampled(lines: &str) -> Profile {
        let mut profile = text::parse(lines).unwrap();
        let cells: Vec<_> =
            profile.tree.cells(Metric::CpuTime).map(|(node, cell)| (node, cell.sum / MILLISECOND)).collect();
        for (node, samples) in cells {
            (0..samples).for_each(|_| profile.tree.add(node, Metric::Samples, 1));
        }
        profile
    }

    #[test]
    fn a_finding_names_the_boxes_that_it_is_about() {
        let profile = sampled(
            "P python3-7 / y /a/t.py:step:30 / n gomp_team_barrier_wait_end@libgomp.so 400000000
             P python3-7 / y /a/t.py:step:31 / n work@libmkl.so 600000000",
        );
        let found = conclude(&profile, Nanos(1_000_000_000), &Settings::default());
        let spin = found.findings.iter().find(|finding| finding.rule == "spinning-threads").unwrap();
        assert_eq!((spin.severity, spin.metric), (Severity::High, Some(Metric::CpuTime)));
        let place = &spin.places[0];
        assert_eq!((place.name.as_str(), place.label.as_str()), ("t.py:step:30", "t.py:step"));
        assert!((spin.share - 0.4).abs() < 1e-9 && spin.gain.starts_with("at most 40.0% of cpu-time"));
        assert!(spin.evidence[0].contains("40.0% (measured)"), "{:?}", spin.evidence);
    }

    #[test]
    fn rules_without_input_name_the_most_helpful_option() {
        let found = conclude(&sampled("P a-1 / n f 200000000"), Nanos(1), &Settings::default());
        assert!(found.rules.checked > 0 && found.rules.unchecked > 0);
        let (options, rules) = found.rules.most_helpful.unwrap();
        assert!(options.starts_with("--") && rules > 1, "{options} helps {rules}");
    }

    #[test]
    fn options_for_devices_are_proposed_where_one_is_used() {
        let most_helpful = |profile: &Profile| {
            conclude(profile, Nanos(1), &Settings::default()).rules.most_helpful.unwrap().0
        };
        let mut profile = sampled("P a-1 / n f 200000000");
        assert_ne!(most_helpful(&profile), "--gpu-activity");
        let (node, _) = profile.tree.cells(Metric::CpuTime).next().unwrap();
        profile.tree.add(node, Metric::LaunchTime, 1);
        assert_eq!(most_helpful(&profile), "--gpu-activity");
    }

    #[test]
    fn only_a_training_has_phases() {
        let check = |lines: &str, expect: &[(&str, u64)]| {
            let phases = conclude(&text::parse(lines).unwrap(), Nanos(1), &Settings::default()).phases;
            let rows: Vec<_> = phases.iter().map(|row| (row.name, row.time.0)).collect();
            assert_eq!(rows, expect);
        };
        let server = "P a-1 / y /v/h11/_util.py:validate 100";
        check(server, &[]);
        let forward = "P a-1 / y /v/torch/nn/modules/module.py:Module._call_impl 300";
        check(forward, &[]);
        let both = format!("{forward}\nP a-1 / y /v/torch/_tensor.py:Tensor.backward 200\n{server}");
        check(&both, &[("forward", 300), ("backward", 200), ("other", 100)]);
        let evaluates = "P a-1 / y /a/t.py:validate / y /v/torch/nn/modules/module.py:Module._call_impl 50";
        let expect = [("forward", 300), ("backward", 200), ("evaluation", 50), ("other", 100)];
        check(&format!("{both}\n{evaluates}"), &expect);
    }

    #[test]
    fn steps_are_those_of_the_place_with_most() {
        let mut profile = text::parse("P a-1 / r D.step 1\nP a-1 / r G.step 1").unwrap();
        assert_eq!(conclude(&profile, Nanos(1), &Settings::default()).steps, None);
        let nodes: Vec<_> = profile.tree.cells(Metric::CpuTime).map(|(node, _)| node).collect();
        for (node, times) in nodes.iter().zip([&[20, 40][..], &[10]]) {
            times.iter().for_each(|time| profile.add_step(*node, Nanos(*time)));
        }
        let expect = StepFigures {
            count: 2,
            in_sums: 2.0,
            mean: Nanos(30),
            least: Nanos(20),
            most: Nanos(40),
            median: Some(Nanos(20)),
            // The longest is within a bucket from 40 to 41.
            p95: Some(Nanos(40)),
        };
        // The first one ends after half a step.
        let later = conclude(&profile, Nanos(75), &Settings::default());
        assert_eq!(later.steps, Some(StepFigures { in_sums: 2.5, ..expect }));
        let found = conclude(&profile, Nanos(1), &Settings::default());
        assert_eq!((found.steps, &found.latest_steps[..]), (Some(expect), &[Nanos(20), Nanos(40)][..]));
        // A step of which only the figures are known.
        profile.tree.add(nodes[0], Metric::StepTime, 30);
        let expect = StepFigures { count: 3, in_sums: 3.0, median: None, p95: None, ..expect };
        assert_eq!(conclude(&profile, Nanos(1), &Settings::default()).steps, Some(expect));
    }
}
