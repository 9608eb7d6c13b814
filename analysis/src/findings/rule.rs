//! Rule: what is checked, with which parameters, and the possible outcomes.
//!
//! Owns: [`Rule`], [`Parameter`], [`Outcome`], and the values of parameters. Because: every threshold has a name and a
//! source, and a rule without its input must name the option that records it. Does not: know any single rule.

use std::collections::BTreeMap;

use deepctx_common::reason::Reason;

use super::facts::Facts;
use super::finding::Finding;

/// What is checked.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its id, in kebab case.
    pub id: &'static str,
    /// What it detects, in a few words.
    pub what: &'static str,
    /// When it fires, as a formula or a sentence over its parameters.
    pub definition: &'static str,
    /// Its source: a paper section or a tool.
    pub source: &'static str,
    /// The definition of the source; empty for our own rules.
    pub origin: &'static str,
    /// Required input of a profile.
    pub needs: &'static str,
    /// Its thresholds.
    pub parameters: &'static [Parameter],
    pub(super) check: fn(&Facts<'_>, &Values<'_>) -> Outcome,
}

/// A threshold of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name, which ends in its unit.
    pub name: &'static str,
    /// Its value unless a user sets another.
    pub default: f64,
    /// Source of the default.
    pub source: &'static str,
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The check has findings.
    Findings(Vec<Finding>),
    /// The check found nothing.
    Healthy {
        /// Number of values that the rule examined.
        datapoints: u64,
    },
    /// It was not checked.
    NotChecked {
        /// Why. `helps` names options of `record` that record the missing input.
        reason: &'static Reason,
        /// The same in a sentence with figures, if there are any.
        detail: Option<String>,
    },
}

impl Outcome {
    /// Not checked: the profile lacks an input.
    pub(super) fn missing(reason: &'static Reason) -> Self {
        Outcome::NotChecked { reason, detail: None }
    }

    /// The same, with the figures of this profile.
    pub(super) fn missing_because(reason: &'static Reason, detail: String) -> Self {
        Outcome::NotChecked { reason, detail: Some(detail) }
    }

    /// The findings, or healthy if there are none.
    pub(super) fn of(findings: Vec<Finding>, datapoints: u64) -> Self {
        if findings.is_empty() { Outcome::Healthy { datapoints } } else { Outcome::Findings(findings) }
    }
}

/// The parameters of one rule in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'s> {
    rule: &'static Rule,
    set: Option<&'s BTreeMap<&'static str, f64>>,
}

impl<'s> Values<'s> {
    /// The parameters of a rule: its defaults, with the values that users set.
    pub(super) fn new(rule: &'static Rule, set: Option<&'s BTreeMap<&'static str, f64>>) -> Self {
        Values { rule, set }
    }

    /// The value of a parameter. For an unknown parameter it is NaN, which no value exceeds.
    pub(super) fn get(&self, name: &str) -> f64 {
        let default = || self.rule.parameters.iter().find(|of| of.name == name).map(|of| of.default);
        let set = self.set.and_then(|set| set.get(name).copied());
        set.or_else(default).unwrap_or(f64::NAN)
    }

    /// All of them by name.
    pub(super) fn all(&self) -> BTreeMap<&'static str, f64> {
        self.rule.parameters.iter().map(|of| (of.name, self.get(of.name))).collect()
    }

    /// The rule.
    pub(super) fn rule(&self) -> &'static Rule {
        self.rule
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}
