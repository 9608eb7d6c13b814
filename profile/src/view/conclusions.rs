//! Conclusions: what rules and phases say about a profile, as plain rows for a screen.
//!
//! Owns: [`Conclusions`] and its rows. Because: a screen shows what is wrong before it shows where the time went, and
//! needs both as plain values. Does not: conclude anything; the analysis does, and passes its rows in.

use crate::metric::Metric;
use crate::units::Nanos;

/// What is concluded from a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conclusions {
    /// Time since the capture began at which they were drawn.
    pub at: Nanos,
    /// What the rules found, the largest gain first.
    pub findings: Vec<FindingRow>,
    /// Which rules had their input.
    pub rules: RuleCoverage,
    /// What each part of training took; empty unless a forward and a backward pass were recognized.
    pub phases: Vec<PhaseRow>,
    /// How long training steps took; `None` when the profile has none.
    pub steps: Option<StepFigures>,
}

/// How much could be won by acting on a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Less than 5 %, or an amount that is not known.
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
    /// How much could be won.
    pub severity: Severity,
    /// Share of its metric that is affected, 0..=1.
    pub share: f64,
    /// Conclusion in one sentence.
    pub title: String,
    /// Where it holds, the largest share first.
    pub places: Vec<FindingPlace>,
    /// Metric that the share is of; `None` when that is none of a flame graph.
    pub metric: Option<Metric>,
    /// What could be won at most, in words.
    pub gain: String,
    /// Figures behind the conclusion, each with how it is known.
    pub evidence: Vec<String>,
    /// What to do.
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

/// What one part of training took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseRow {
    /// Name of the phase.
    pub name: &'static str,
    /// Its CPU time.
    pub time: Nanos,
    /// Share of the CPU time of all phases, 0..=1.
    pub share: f64,
}

/// How long training steps took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepFigures {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: Nanos,
    /// The shortest.
    pub least: Nanos,
    /// The longest.
    pub most: Nanos,
}
