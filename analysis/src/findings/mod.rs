//! Findings: what the rules conclude from a profile.
//!
//! Owns: [`Findings`]: all rules run over one profile, and what each of them said. Because: a profile attributes
//! every sample and concludes nothing; whoever opens it must otherwise know what to look for. Does not: know a rule;
//! each is a file in `rules/`.
//!
//! Rules read [`facts::Facts`], which walks the profile once for all of them, and look at values with the interval that
//! sampling gives them ([`share::Share`]).

mod facts;
mod finding;
mod rule;
mod rules;
mod settings;
mod share;

use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;
use serde::Serialize;

use crate::Subset;
use facts::Facts;

pub use finding::{Basis, Figure, Finding, Gain, Place, PlaceKind, Severity, UnknownSeverity};
pub use rule::{Outcome, Parameter, Rule};
pub use rules::RULES;
pub use settings::{Settings, SettingsError, find};

/// What the rules conclude.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// The conclusions: those with the largest gain first, those without a bound last.
    pub findings: Vec<Finding>,
    /// What became of each rule, in their order.
    pub checks: Vec<Check>,
}

/// What became of one rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Its id.
    pub rule: &'static str,
    /// `findings`, `healthy` or `not-checked`.
    pub outcome: &'static str,
    /// Values that it looked at; 0 when it was not checked.
    pub datapoints: u64,
    /// Why it was not checked; `None` when it was.
    pub reason: Option<String>,
    /// Options of `record` that record what is missing; `None` when it was checked, or no option helps.
    pub record_with: Option<&'static str>,
}

impl Findings {
    /// Runs the rules. `elapsed` is the length of the capture, zero when unknown.
    pub fn compute(subset: &Subset<'_>, elapsed: Nanos, settings: &Settings) -> Self {
        Self::of_profile(subset.profile(), elapsed, settings)
    }

    /// Runs the rules over a whole profile.
    pub(crate) fn of_profile(profile: &Profile, elapsed: Nanos, settings: &Settings) -> Self {
        let facts = Facts::of(profile, elapsed);
        let mut all = Findings::default();
        for rule in settings.rules() {
            let outcome = (rule.check)(&facts, &settings.values(rule));
            all.checks.push(check(rule, &outcome));
            if let Outcome::Findings(findings) = outcome {
                all.findings.extend(findings);
            }
        }
        // Rules stand in the order of their list where gains are equal.
        let gain = |finding: &Finding| finding.gain.percent().unwrap_or(-1.0);
        all.findings.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        all
    }

    /// Rules that were checked, with and without findings.
    pub fn checked(&self) -> usize {
        self.checks.iter().filter(|check| check.reason.is_none()).count()
    }
}

fn check(rule: &Rule, outcome: &Outcome) -> Check {
    let (name, datapoints) = match outcome {
        Outcome::Findings(findings) => {
            ("findings", findings.iter().map(|finding| finding.datapoints).max().unwrap_or(0))
        }
        Outcome::Healthy { datapoints } => ("healthy", *datapoints),
        Outcome::NotChecked { .. } => ("not-checked", 0),
    };
    let (reason, record_with) = match outcome {
        Outcome::NotChecked { reason, record_with } => {
            (Some(reason.clone()), Some(*record_with).filter(|options| !options.is_empty()))
        }
        _ => (None, None),
    };
    Check { rule: rule.id, outcome: name, datapoints, reason, record_with }
}
