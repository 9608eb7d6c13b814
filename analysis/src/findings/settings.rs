//! Settings: which rules run, and with which parameters.
//!
//! Owns: [`Settings`] and how names are looked up. Because: a misspelled rule must be an error that lists the known ones,
//! not a rule that never runs. Does not: read files; the command line does.

use std::collections::BTreeMap;
use std::fmt;

use super::rule::{Rule, Values};
use super::rules::RULES;

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
        Values::new(rule, self.set.get(rule.id))
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
