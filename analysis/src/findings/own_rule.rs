//! Rules of users: a query over call paths with a threshold.
//!
//! Owns: [`OwnRule`]. Because: authors know what matters in their program, and must not need a new release to check it.
//! Does not: read files; the command line does.

use std::collections::BTreeMap;

use deepctx_profile::metric::Metric;

use super::facts::{Facts, PlaceKey};
use super::reason;
use super::rule::Outcome;
use super::rules::{ShareCheck, no_host_time};
use crate::query::Query;

/// A rule that fires when the stacks that match a query have at least a share of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnRule {
    /// Its name: small letters, digits and hyphens.
    pub name: String,
    /// Which stacks.
    pub path: Query,
    /// The metric to sum; without it, the one for the program's own time.
    pub metric: Option<Metric>,
    /// The smallest share that is a finding, in percent.
    pub share_above: f64,
    /// What to do.
    pub advice: String,
}

impl OwnRule {
    pub(super) fn check(&self, facts: &Facts<'_>) -> Outcome {
        let Some(metric) = self.metric.or(facts.host()) else { return no_host_time() };
        if !facts.has(metric) {
            let sentence = format!("the profile has no values of {metric}");
            return Outcome::missing_because(reason::NO_VALUES, sentence);
        }
        let matches = self.path.matches(facts.profile());
        let is_in = |node| matches.has(node);
        let title = |share: &str| format!("{share} of {metric} is on paths {}", self.path.text());
        let draft = ShareCheck {
            metric,
            share: facts.share_where(metric, is_in),
            limit: "share-above",
            of: None,
            places: None,
            is_in: &is_in,
            by: PlaceKey::Line,
            title: &title,
            figure: "share of the paths",
            advice: &self.advice,
            because: "what is not on these paths is not touched",
        }
        .draft(facts, self.share_above);
        match draft {
            Ok(draft) => {
                let parameters = BTreeMap::from([("share-above", self.share_above)]);
                Outcome::Findings(vec![draft.named(&self.name, parameters)])
            }
            Err(outcome) => outcome,
        }
    }
}
