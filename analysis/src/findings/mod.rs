//! Findings: what the rules conclude from a profile.
//!
//! Owns: [`Findings`]: all rules run over one profile, with the outcome of each. Because: a profile attributes every
//! sample but draws no conclusions; without rules its reader must know what to look for. Does not: know any rule; each
//! is a file in `rules/`, or a query that a user wrote ([`OwnRule`]).
//!
//! Rules read [`facts::Facts`], which walks the profile once for all of them, and use values with their sampling
//! interval ([`share::Share`]).

mod facts;
mod finding;
mod own_rule;
mod reason;
mod rule;
mod rules;
mod settings;
mod share;

use deepctx_profile::order::SortRows as _;
use std::borrow::Cow;
use std::collections::BTreeMap;

use deepctx_profile::context::phase::Phase;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::Subset;
use facts::Facts;
use rules::SHARED_TIME;

pub use finding::{Basis, Figure, Finding, Gain, Location, LocationKind, Severity, UnknownSeverity};
pub use own_rule::OwnRule;
pub use rule::{Outcome, Parameter, Rule};
pub use rules::RULES;
pub use settings::{OWN_RULES_MAX, Settings, SettingsError};

/// The conclusions of the rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// The conclusions: those with the largest gain first, those without a bound last.
    pub findings: Vec<Finding>,
    /// The outcome of each rule, in their order.
    pub checks: Vec<Check>,
}

/// The outcome of one rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Its id.
    pub rule: String,
    /// `findings`, `healthy`, `not-checked`, or `failed` for a rule that ran elsewhere.
    pub outcome: Cow<'static, str>,
    /// Values that it examined; 0 if it was not checked.
    pub datapoints: u64,
    /// Why it was not checked, in a sentence; `None` if it was.
    pub reason: Option<String>,
    /// Key of that reason; `None` for a rule that ran elsewhere.
    #[serde(default)]
    pub reason_key: Option<Cow<'static, str>>,
    /// Options of `record` that record the missing input; `None` if it was checked, or no option helps.
    pub record_with: Option<Cow<'static, str>>,
}

impl Check {
    /// The rule has findings.
    pub const FINDINGS: &'static str = "findings";
    /// It has none.
    pub const HEALTHY: &'static str = "healthy";
    /// The profile lacks its input.
    pub const NOT_CHECKED: &'static str = "not-checked";
    /// It failed without an answer.
    pub const FAILED: &'static str = "failed";
}

/// Rules that lack the same input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotChecked<'f> {
    /// Why they were not checked.
    pub reason: &'f str,
    /// Options of `record` that record the missing input; empty if none helps.
    pub record_with: &'f str,
    /// Their ids.
    pub rules: Vec<&'f str>,
}

/// The answer of a rule that ran elsewhere: one written in Python.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ExternalRule {
    /// Its outcome.
    pub check: Check,
    /// Its conclusions.
    pub findings: Vec<Finding>,
}

impl ExternalRule {
    /// A rule that failed without an answer.
    pub fn failed(rule: &str, reason: &str) -> Self {
        let check = Check {
            rule: rule.to_owned(),
            outcome: Check::FAILED.into(),
            datapoints: 0,
            reason: Some(reason.to_owned()),
            reason_key: None,
            record_with: None,
        };
        ExternalRule { check, findings: Vec::new() }
    }
}

impl Findings {
    /// Runs the rules. `elapsed` is the length of the capture, zero when unknown.
    pub fn compute(subset: &Subset<'_>, elapsed: Nanos, settings: &Settings) -> Self {
        let facts = Facts::of(subset.profile(), subset.whole(), elapsed).with_events(subset.events());
        Self::of(&facts, settings)
    }

    /// Runs the rules over a whole profile.
    pub fn of_profile(profile: &Profile, elapsed: Nanos, settings: &Settings) -> Self {
        Self::with_phases(profile, elapsed, settings).0
    }

    /// The same, with the phase of every context, which the rules need as well.
    pub(crate) fn with_phases(profile: &Profile, elapsed: Nanos, settings: &Settings) -> (Self, Vec<Phase>) {
        let facts = Facts::of(profile, profile, elapsed);
        let found = Self::of(&facts, settings);
        (found, facts.into_phases())
    }

    fn of(facts: &Facts<'_>, settings: &Settings) -> Self {
        let mut all = Findings::default();
        for rule in settings.rules() {
            all.take(rule.id, (rule.check)(facts, &settings.values(rule)));
        }
        for rule in settings.own_rules() {
            all.take(&rule.name, rule.check(facts));
        }
        for finding in &mut all.findings {
            finding.weigh(|metric| facts.part_of_capture(metric));
        }
        all.refer();
        all.sort();
        all
    }

    /// Leaves time that several rules found to the one that claims it. Severities stay: who waits for one of these
    /// rules must not miss it because another one fires, too.
    fn refer(&mut self) {
        let first = |finding: &Finding| finding.places.first().map(|place| (place.kind, place.name.clone()));
        for shared in SHARED_TIME {
            // One that referred to another rule says no longer what could be won.
            let claims = |of: &&Finding| of.rule == shared.claims && of.gain.percent().is_some();
            let claims: Vec<_> = self.findings.iter().filter(claims).map(first).collect();
            let is_claimed = |of: &Finding| match shared.at_one_place {
                true => claims.contains(&first(of)),
                false => !claims.is_empty(),
            };
            let explain = self.findings.iter_mut().filter(|of| of.rule == shared.explains);
            for finding in explain.filter(|of| of.gain.percent().is_some() && is_claimed(of)) {
                let because = format!("`{}` found the same time, and says what could be won", shared.claims);
                finding.gain = Gain::Unknown { because: because.into() };
                finding.gain_of_capture_percent = None;
            }
        }
    }

    /// Adds the answers of rules that ran elsewhere, except those that the settings exclude.
    pub fn add(&mut self, external: Vec<ExternalRule>, settings: &Settings) {
        for ExternalRule { check, findings } in external {
            if settings.runs(&check.rule) {
                let rule = &check.rule;
                self.findings.extend(findings.into_iter().map(|finding| Finding {
                    rule: rule.clone(),
                    severity: Severity::of_percent(finding.weight_percent()),
                    ..finding
                }));
                self.checks.push(check);
            }
        }
        self.sort();
    }

    /// Rules with equal gains keep the order of their list.
    fn sort(&mut self) {
        let gain = |finding: &Finding| finding.weight_percent().unwrap_or(-1.0);
        self.findings.sort_rows_by(|a, b| gain(b).total_cmp(&gain(a)));
    }

    fn take(&mut self, rule: &str, outcome: Outcome) {
        self.checks.push(check(rule, &outcome));
        if let Outcome::Findings(findings) = outcome {
            self.findings.extend(findings);
        }
    }

    /// Rules with this outcome, in their order.
    pub fn rules_with(&self, outcome: &str) -> Vec<&str> {
        let checks = self.checks.iter().filter(|check| check.outcome == outcome);
        checks.map(|check| check.rule.as_str()).collect()
    }

    /// Rules that were not checked, by missing input.
    pub fn not_checked(&self) -> Vec<NotChecked<'_>> {
        let mut by_reason: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for check in self.checks.iter().filter(|check| check.outcome == Check::NOT_CHECKED) {
            if let Some(reason) = &check.reason {
                let record_with = check.record_with.as_deref().unwrap_or_default();
                by_reason.entry((reason, record_with)).or_default().push(&check.rule);
            }
        }
        let all = by_reason.into_iter();
        all.map(|((reason, record_with), rules)| NotChecked { reason, record_with, rules }).collect()
    }

    /// Rules that were checked, with and without findings.
    pub fn checked(&self) -> usize {
        self.checks.iter().filter(|check| check.reason.is_none()).count()
    }
}

fn check(rule: &str, outcome: &Outcome) -> Check {
    let (name, datapoints) = match outcome {
        Outcome::Findings(findings) => {
            (Check::FINDINGS, findings.iter().map(|finding| finding.datapoints).max().unwrap_or(0))
        }
        Outcome::Healthy { datapoints } => (Check::HEALTHY, *datapoints),
        Outcome::NotChecked { .. } => (Check::NOT_CHECKED, 0),
    };
    let (reason, sentence) = match outcome {
        Outcome::NotChecked { reason, detail } => {
            (Some(reason), Some(detail.clone().unwrap_or_else(|| reason.sentence.to_owned())))
        }
        _ => (None, None),
    };
    Check {
        rule: rule.to_owned(),
        outcome: name.into(),
        datapoints,
        reason: sentence,
        reason_key: reason.map(|reason| reason.key.into()),
        record_with: reason.and_then(|reason| reason.helps).map(Cow::from),
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::metric::Metric;

    use super::*;
    use crate::Selection;

    /// The answer of a rule with one finding with the given possible gain, as the Python module writes it.
    fn external(rule: &str, at_most_percent: f64) -> ExternalRule {
        let answer = format!(
            r#"{{"check": {{"rule": "{rule}", "outcome": "findings", "datapoints": 9, "reason": null,
            "record_with": null}}, "findings": [{{"rule": "other", "severity": "low", "title": "t", "places": [],
            "metric": "cpu-time", "share_percent": 1.5, "gain": {{"label": "bounded", "because": "b",
            "at_most_percent": {at_most_percent}}}, "evidence": [{{"name": "n", "value": 2, "unit": "ns",
            "basis": "measured"}}], "advice": "a", "parameters": {{"min": 1.0}}, "datapoints": 9,
            "violations": 3}}]}}"#
        );
        serde_json::from_str(&answer).unwrap()
    }

    #[test]
    fn rules_that_ran_elsewhere_stand_by_their_gain() {
        let profile = deepctx_profile::text::parse("P a-1 / n f 1").unwrap();
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        let mut settings = Settings::default();
        for rule in ["small", "large", "left-out", "broken"] {
            settings.add_external(rule).unwrap();
        }
        settings.skip("left-out").unwrap();
        let mut found = Findings::compute(&subset, Nanos(1), &settings);
        let built_in = found.checks.len();
        let broken = ExternalRule::failed("broken", "it raised ZeroDivisionError");
        let answers =
            vec![external("small", 2.0), external("large", 30.0), external("left-out", 90.0), broken];
        found.add(answers, &settings);
        let said: Vec<_> = found.findings.iter().map(|of| (of.rule.as_str(), of.severity)).collect();
        assert_eq!(said, [("large", Severity::High), ("small", Severity::Low)]);
        let outcomes: Vec<_> = found.checks[built_in..].iter().map(|of| (&*of.rule, &*of.outcome)).collect();
        assert_eq!(outcomes, [("small", "findings"), ("large", "findings"), ("broken", "failed")]);
    }

    #[test]
    fn a_name_that_is_taken_is_refused() {
        let mut settings = Settings::default();
        settings.add_external("mine").unwrap();
        for name in ["mine", "hotspot"] {
            assert_eq!(settings.add_external(name), Err(SettingsError::NameTaken(name.to_owned())));
        }
    }
}
