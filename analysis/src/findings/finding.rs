//! Finding: one conclusion of a rule, with its evidence.
//!
//! Owns: [`Finding`] and its parts. Because: the reader of a conclusion must see where it holds, its largest possible
//! gain and the figures behind it. Does not: draw conclusions; the rules do.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use deepctx_profile::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The conclusion of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Id of the rule.
    pub rule: String,
    /// The possible gain: [`Severity::of_percent`]; also where another finding claims it.
    pub severity: Severity,
    /// The conclusion in one sentence, with its numbers.
    pub title: String,
    /// Its places, largest share first.
    pub places: Vec<Location>,
    /// Name of the metric that shares are of.
    pub metric: Cow<'static, str>,
    /// Share of the metric that is affected.
    pub share_percent: f64,
    /// The most that could be won.
    pub gain: Gain,
    /// The same as a share of the capture's length, if a device was busy for less than that: all of its time may be
    /// little. `None` for other metrics, or if that length is unknown.
    #[serde(default)]
    pub gain_of_capture_percent: Option<f64>,
    /// The figures behind the conclusion.
    pub evidence: Vec<Figure>,
    /// What to do.
    pub advice: String,
    /// The rule's parameters in this check.
    pub parameters: BTreeMap<Cow<'static, str>, f64>,
    /// Number of values that the rule examined: samples, calls, kernels or training steps.
    pub datapoints: u64,
    /// How many of them are affected.
    pub violations: u64,
}

impl Finding {
    /// The possible gain, for comparison with other findings; `None` if unknown.
    pub fn weight_percent(&self) -> Option<f64> {
        self.gain_of_capture_percent.or_else(|| self.gain.percent())
    }

    /// The possible gain, with its reason: `at most 12.0% of cpu-time (bounded: what is computed stays)`.
    pub(crate) fn could_win(&self) -> String {
        let of_capture =
            self.gain_of_capture_percent.map(|percent| format!(", {percent:.1}% of the capture"));
        match &self.gain {
            Gain::Bounded { at_most_percent, because } => format!(
                "at most {at_most_percent:.1}% of {}{} (bounded: {because})",
                self.metric,
                of_capture.unwrap_or_default()
            ),
            Gain::Unknown { because } => format!("not known: {because}"),
        }
    }

    /// States the possible gain as a share of the capture, if the metric was less than all of it.
    pub(crate) fn weigh(&mut self, of_capture: impl FnOnce(&str) -> Option<f64>) {
        self.gain_of_capture_percent =
            self.gain.percent().and_then(|percent| Some(percent * of_capture(&self.metric)?));
        self.severity = Severity::of_percent(self.weight_percent());
    }
}

/// How much could be won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Less than 5 %, or an unknown amount.
    Low,
    /// At least 5 %.
    Medium,
    /// At least 20 %.
    High,
}

impl Severity {
    /// Every severity, lowest first.
    pub const ALL: [Severity; 3] = [Severity::Low, Severity::Medium, Severity::High];

    /// The severity of a possible gain; `None` if that is unknown.
    pub fn of_percent(percent: Option<f64>) -> Self {
        match percent {
            Some(percent) if percent >= 20.0 => Severity::High,
            Some(percent) if percent >= 5.0 => Severity::Medium,
            _ => Severity::Low,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No severity has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSeverity(pub String);

impl fmt::Display for UnknownSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown severity `{}`: expected low, medium or high", self.0)
    }
}

impl std::error::Error for UnknownSeverity {}

impl FromStr for Severity {
    type Err = UnknownSeverity;

    fn from_str(name: &str) -> Result<Self, UnknownSeverity> {
        let known = Severity::ALL.into_iter().find(|severity| severity.name() == name);
        known.ok_or_else(|| UnknownSeverity(name.to_owned()))
    }
}

/// The most that could be won.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "label", rename_all = "lowercase")]
pub enum Gain {
    /// An upper bound: removing the cause gains at most this.
    Bounded {
        /// Share of the finding's metric.
        at_most_percent: f64,
        /// Why it cannot be more.
        because: Cow<'static, str>,
    },
    /// There is no bound, for this reason.
    Unknown {
        /// The reason in a sentence.
        because: Cow<'static, str>,
    },
}

impl Gain {
    /// The bound as a share of the finding's metric; `None` if there is none.
    pub fn percent(&self) -> Option<f64> {
        match self {
            Gain::Bounded { at_most_percent, .. } => Some(*at_most_percent),
            Gain::Unknown { .. } => None,
        }
    }
}

/// Kind of a finding's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocationKind {
    /// A line of a Python function.
    Line,
    /// A layer of a model.
    Layer,
    /// An operator of a framework.
    Operator,
    /// A kernel of a device.
    Kernel,
    /// An instruction of a kernel.
    Instruction,
    /// A function without a Python caller.
    Function,
    /// A process, or the memory of one on a device.
    Process,
    /// A rank of a job. It has no calling context: the context number of its place is 0.
    Rank,
}

/// The place of a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Location {
    /// Its kind.
    pub kind: LocationKind,
    /// Its name: `train.py:step:30`, `aten::addmm`.
    pub name: String,
    /// Path of the source file with the line, or of the library; empty when unknown.
    pub at: String,
    /// Number of the calling context with the largest part, as in the tables of the stored profile.
    pub context: u32,
    /// Its share of the finding's metric.
    pub share_percent: f64,
}

/// How a figure was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// It was measured, or counted in samples.
    Measured,
    /// It is an upper or a lower bound.
    Bounded,
    /// A model derives it, for instance from tensor sizes.
    Modelled,
}

/// One figure behind a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is.
    pub name: Cow<'static, str>,
    /// Its value.
    pub value: f64,
    /// Its unit: `ns`, `bytes`, `count`, `percent` or `ratio`.
    pub unit: Cow<'static, str>,
    /// How it was obtained.
    pub basis: Basis,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Basis::Measured => "measured",
            Basis::Bounded => "bounded",
            Basis::Modelled => "modelled",
        })
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure { name, value, unit, basis } = self;
        let value = *value;
        match &**unit {
            "ns" => write!(f, "{name}: {} ({basis})", Nanos(value as u64)),
            "bytes" => write!(f, "{name}: {} ({basis})", Bytes(value as u64)),
            "percent" => write!(f, "{name}: {value:.1}% ({basis})"),
            "ratio" => write!(f, "{name}: {value:.1} ({basis})"),
            _ => write!(f, "{name}: {value:.0} ({basis})"),
        }
    }
}

impl Figure {
    /// A measured figure.
    pub(crate) fn measured(name: &'static str, value: f64, unit: &'static str) -> Self {
        Figure { name: name.into(), value, unit: unit.into(), basis: Basis::Measured }
    }

    /// A bound.
    pub(crate) fn bounded(name: &'static str, value: f64, unit: &'static str) -> Self {
        Figure { name: name.into(), value, unit: unit.into(), basis: Basis::Bounded }
    }

    /// A modelled figure.
    pub(crate) fn modelled(name: &'static str, value: f64, unit: &'static str) -> Self {
        Figure { name: name.into(), value, unit: unit.into(), basis: Basis::Modelled }
    }
}
