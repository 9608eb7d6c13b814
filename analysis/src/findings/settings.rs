//! Settings: which rules run, with which parameters, and rules of users.
//!
//! Owns: [`Settings`] and how names are looked up. Because: a misspelled rule must be an error that lists known names,
//! not a rule that never runs. Does not: read files; the command line does.

use std::collections::BTreeMap;
use std::fmt;

use super::own_rule::OwnRule;
use super::rule::{Rule, Values};
use super::rules::RULES;

/// Which rules run, and with which parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    set: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    only: Vec<String>,
    skip: Vec<String>,
    own: Vec<OwnRule>,
    external: Vec<String>,
}

/// Maximum number of user rules: each walks the profile once.
pub const OWN_RULES_MAX: usize = 100;

/// A name or a value that no rule accepts.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingsError {
    /// No rule has this id.
    UnknownRule {
        /// What was asked for.
        name: String,
        /// The existing rules.
        known: Vec<String>,
    },
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
    /// The name of a user rule has characters other than small letters, digits and hyphens.
    BadName(String),
    /// Two rules have this name.
    NameTaken(String),
    /// The share of a user rule is not a percentage.
    BadShare(String),
    /// There are more user rules than [`OWN_RULES_MAX`].
    TooMany,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: Vec<&str>| names.join(", ");
        match self {
            SettingsError::UnknownRule { name, known } => {
                write!(f, "unknown rule `{name}`: expected one of {}", known.join(", "))
            }
            SettingsError::UnknownParameter { rule, name } => {
                let names = list(rule.parameters.iter().map(|of| of.name).collect());
                write!(f, "rule `{}` has no parameter `{name}`: expected one of {names}", rule.id)
            }
            SettingsError::BadValue { rule, name } => {
                write!(f, "parameter `{name}` of rule `{rule}`: expected a number that is not negative")
            }
            SettingsError::BadName(name) => {
                write!(f, "bad name `{name}` of a rule: expected small letters, digits and hyphens")
            }
            SettingsError::NameTaken(name) => write!(f, "there is already a rule `{name}`"),
            SettingsError::BadShare(name) => {
                write!(f, "`share-above` of rule `{name}`: expected a percentage from 0 to 100")
            }
            SettingsError::TooMany => write!(f, "more than {OWN_RULES_MAX} rules of your own"),
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
        let rule = self.built_in(rule)?;
        let parameter = rule.parameters.iter().find(|of| of.name == name);
        let parameter =
            parameter.ok_or_else(|| SettingsError::UnknownParameter { rule, name: name.to_owned() })?;
        if !value.is_finite() || value < 0.0 {
            return Err(SettingsError::BadValue { rule: rule.id, name: parameter.name });
        }
        self.set.entry(rule.id).or_default().insert(parameter.name, value);
        Ok(())
    }

    /// Runs only the named rules.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn only(&mut self, rule: &str) -> Result<(), SettingsError> {
        self.require(rule)?;
        self.only.push(rule.to_owned());
        Ok(())
    }

    /// Leaves a rule out.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn skip(&mut self, rule: &str) -> Result<(), SettingsError> {
        self.require(rule)?;
        self.skip.push(rule.to_owned());
        Ok(())
    }

    /// Adds a rule of a user.
    ///
    /// # Errors
    /// Its name or its share is bad, or there are too many.
    pub fn add(&mut self, rule: OwnRule) -> Result<(), SettingsError> {
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if rule.name.is_empty() || !rule.name.bytes().all(is_plain) {
            return Err(SettingsError::BadName(rule.name));
        }
        if self.require(&rule.name).is_ok() {
            return Err(SettingsError::NameTaken(rule.name));
        }
        if !(0.0..=100.0).contains(&rule.share_above) {
            return Err(SettingsError::BadShare(rule.name));
        }
        if self.own.len() == OWN_RULES_MAX {
            return Err(SettingsError::TooMany);
        }
        self.own.push(rule);
        Ok(())
    }

    /// Registers the name of a rule that runs elsewhere, and whose answer is added by [`Findings::add`].
    ///
    /// [`Findings::add`]: super::Findings::add
    ///
    /// # Errors
    /// There is a rule of this name.
    pub fn add_external(&mut self, rule: &str) -> Result<(), SettingsError> {
        if self.require(rule).is_ok() {
            return Err(SettingsError::NameTaken(rule.to_owned()));
        }
        self.external.push(rule.to_owned());
        Ok(())
    }

    /// Whether there is a rule of this name, including rules that do not run.
    ///
    /// # Errors
    /// There is none.
    pub fn require(&self, rule: &str) -> Result<(), SettingsError> {
        let is_users = self.users().any(|name| name == rule);
        if is_users { Ok(()) } else { self.built_in(rule).map(drop) }
    }

    /// Built-in rules that run.
    pub(super) fn rules(&self) -> impl Iterator<Item = &'static Rule> + '_ {
        RULES.iter().copied().filter(|rule| self.runs(rule.id))
    }

    /// Rules of users that run.
    pub(super) fn own_rules(&self) -> impl Iterator<Item = &OwnRule> + '_ {
        self.own.iter().filter(|rule| self.runs(&rule.name))
    }

    /// Names of rules that are not built in.
    fn users(&self) -> impl Iterator<Item = &str> {
        self.own.iter().map(|rule| &rule.name).chain(&self.external).map(String::as_str)
    }

    /// Whether a rule runs.
    pub(super) fn runs(&self, rule: &str) -> bool {
        let names = |list: &[String]| list.iter().any(|name| name == rule);
        (self.only.is_empty() || names(&self.only)) && !names(&self.skip)
    }

    fn built_in(&self, id: &str) -> Result<&'static Rule, SettingsError> {
        let found = RULES.iter().copied().find(|rule| rule.id == id);
        found.ok_or_else(|| {
            let known = RULES.iter().map(|rule| rule.id).chain(self.users());
            SettingsError::UnknownRule { name: id.to_owned(), known: known.map(str::to_owned).collect() }
        })
    }

    /// The parameters of a rule in force.
    pub(super) fn values(&self, rule: &'static Rule) -> Values<'_> {
        Values::new(rule, self.set.get(rule.id))
    }
}
