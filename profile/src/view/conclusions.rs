//! Conclusions: what rules and phases say about a profile, as plain rows for a screen.
//!
//! Owns: [`Conclusions`] and its rows. Because: a screen shows what is wrong before it shows where the time went, and
//! needs both as plain values. Does not: conclude anything; the analysis does, and passes its rows in.

use crate::metric::Metric;
use crate::units::Nanos;

/// Conclusions from a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conclusions {
    /// Time since the capture began at which they were drawn.
    pub at: Nanos,
    /// Findings of the rules, the largest gain first.
    pub findings: Vec<FindingRow>,
    /// Which rules had their input.
    pub rules: RuleCoverage,
    /// Time of each part of training; empty unless a forward and a backward pass were recognized.
    pub phases: Vec<PhaseRow>,
    /// Length of training steps; `None` if the profile has none.
    pub steps: Option<StepFigures>,
    /// Times of the latest of these steps, the last one last; empty if single times are not known.
    pub latest_steps: Vec<Nanos>,
}

/// Possible gain of acting on a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Less than 5 %, or unknown.
    #[default]
    Low,
    /// At least 5 %.
    Medium,
    /// At least 20 %.
    High,
}

/// One finding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FindingRow {
    /// Id of the rule.
    pub rule: String,
    /// Possible gain.
    pub severity: Severity,
    /// Share of its metric that is affected, 0..=1.
    pub share: f64,
    /// Conclusion in one sentence.
    pub title: String,
    /// Where it holds, the largest share first.
    pub places: Vec<FindingPlace>,
    /// Metric of the share; `None` if it is not one of a flame graph.
    pub metric: Option<Metric>,
    /// Largest possible gain, as text.
    pub gain: String,
    /// Figures behind the conclusion, each with its basis.
    pub evidence: Vec<String>,
    /// Recommended action.
    pub advice: String,
}

/// Where a finding holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FindingPlace {
    /// Name with its line (`train.py:step:30`, `aten::addmm`).
    pub name: String,
    /// Name of its boxes when lines are not distinguished (`train.py:step`).
    pub label: String,
    /// Share of the finding's metric, 0..=1.
    pub share: f64,
}

/// Which rules had their input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCoverage {
    /// Rules that were checked.
    pub checked: usize,
    /// Rules that lack their input.
    pub unchecked: usize,
    /// Options of `record` that give most of the unchecked rules their input, and how many.
    pub most_helpful: Option<(&'static str, usize)>,
}

/// Time of one part of training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseRow {
    /// Name of the phase.
    pub name: &'static str,
    /// Its CPU time.
    pub time: Nanos,
    /// Share of the CPU time of all phases, 0..=1.
    pub share: f64,
}

/// Length of training steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepFigures {
    /// Number of steps that were timed.
    pub count: u64,
    /// Number of steps that sums of the capture are of, which also have work before and after those: the divisor for
    /// figures of one step.
    pub in_sums: f64,
    /// Mean.
    pub mean: Nanos,
    /// The shortest.
    pub least: Nanos,
    /// The longest.
    pub most: Nanos,
    /// Half of them took no longer, within a thirty-second of it; `None` if single times are not known.
    pub median: Option<Nanos>,
    /// The same of 95 in a hundred.
    pub p95: Option<Nanos>,
}
