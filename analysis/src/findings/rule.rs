//! Rule: what is checked, with which parameters, and what the check can say.
//!
//! Owns: [`Rule`], [`Parameter`], [`Outcome`], and the [`Settings`] of users. Because: every threshold has a name and a
//! source, and a rule that lacks its input must say which option records it. Does not: know any single rule.

use std::collections::BTreeMap;
use std::fmt;

use super::facts::Facts;
use super::finding::Finding;
use super::rules::RULES;

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
        /// Why, in a sentence.
        reason: String,
        /// Options of `record` that record what is missing; empty when there is none.
        record_with: &'static str,
    },
}

impl Outcome {
    /// Not checked: the profile lacks an input that these options of `record` would give it.
    pub(super) fn missing(reason: &str, record_with: &'static str) -> Self {
        Outcome::NotChecked { reason: reason.to_owned(), record_with }
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

impl Values<'_> {
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

/// Which rules run, and with which parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    set: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    only: Vec<&'static str>,
    skip: Vec<&'static str>,
}

/// A name or a value that no rule knows.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingsError {
    /// No rule has this id.
    UnknownRule(String),
    /// The rule has no such parameter.
    UnknownParameter {
        /// The rule.
        rule: &'static Rule,
        /// What was asked for.
        name: String,
    },
    /// A threshold is a number that is not negative.
    BadValue {
        /// The rule.
        rule: &'static str,
        /// Its parameter.
        name: &'static str,
    },
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: Vec<&str>| names.join(", ");
        match self {
            SettingsError::UnknownRule(name) => {
                let names = list(RULES.iter().map(|rule| rule.id).collect());
                write!(f, "unknown rule `{name}`: expected one of {names}")
            }
            SettingsError::UnknownParameter { rule, name } => {
                let names = list(rule.parameters.iter().map(|of| of.name).collect());
                write!(f, "rule `{}` has no parameter `{name}`: expected one of {names}", rule.id)
            }
            SettingsError::BadValue { rule, name } => {
                write!(f, "parameter `{name}` of rule `{rule}`: expected a number that is not negative")
            }
        }
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Sets a parameter of a rule.
    ///
    /// # Errors
    /// There is no such rule or parameter, or the value is negative or not finite.
    pub fn set(&mut self, rule: &str, name: &str, value: f64) -> Result<(), SettingsError> {
        let rule = find(rule)?;
        let parameter = rule.parameters.iter().find(|of| of.name == name);
        let parameter =
            parameter.ok_or_else(|| SettingsError::UnknownParameter { rule, name: name.to_owned() })?;
        if !value.is_finite() || value < 0.0 {
            return Err(SettingsError::BadValue { rule: rule.id, name: parameter.name });
        }
        self.set.entry(rule.id).or_default().insert(parameter.name, value);
        Ok(())
    }

    /// Runs only the rules that are named so.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn only(&mut self, rule: &str) -> Result<(), SettingsError> {
        self.only.push(find(rule)?.id);
        Ok(())
    }

    /// Leaves a rule out.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn skip(&mut self, rule: &str) -> Result<(), SettingsError> {
        self.skip.push(find(rule)?.id);
        Ok(())
    }

    /// Rules that run.
    pub(super) fn rules(&self) -> impl Iterator<Item = &'static Rule> + '_ {
        let asked = |rule: &&Rule| self.only.is_empty() || self.only.contains(&rule.id);
        RULES.iter().copied().filter(asked).filter(|rule| !self.skip.contains(&rule.id))
    }

    /// The parameters of a rule in force.
    pub(super) fn values(&self, rule: &'static Rule) -> Values<'_> {
        Values { rule, set: self.set.get(rule.id) }
    }
}

/// The rule of an id.
///
/// # Errors
/// There is none.
pub fn find(id: &str) -> Result<&'static Rule, SettingsError> {
    let found = RULES.iter().copied().find(|rule| rule.id == id);
    found.ok_or_else(|| SettingsError::UnknownRule(id.to_owned()))
}
