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
    /// What it looks for, in a few words.
    pub what: &'static str,
    /// When it fires, as a formula or a sentence over its parameters.
    pub definition: &'static str,
    /// Paper section or tool that it is from.
    pub source: &'static str,
    /// How the source defines it; empty where the rule is our own.
    pub origin: &'static str,
    /// What a profile must hold.
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
    /// Where the default is from.
    pub source: &'static str,
}

/// What a check says.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// There is something to say.
    Findings(Vec<Finding>),
    /// It was checked, and there is nothing.
    Healthy {
        /// Values that the rule looked at.
        datapoints: u64,
    },
    /// It was not checked.
    NotChecked {
        /// Why. What helps are options of `record` that record what is missing.
        reason: &'static Reason,
        /// The same in a sentence with its figures, where there are some.
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

    /// The findings, or healthy when there are none.
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
    /// Those of a rule: its defaults, but for what users set.
    pub(super) fn new(rule: &'static Rule, set: Option<&'s BTreeMap<&'static str, f64>>) -> Self {
        Values { rule, set }
    }

    /// The value of a parameter. One that the rule does not have is not a number, which no value exceeds.
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
