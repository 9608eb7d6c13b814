//! Rules that are a query with a threshold.
//!
//! Owns: [`PathCheck`]. Because: a rule that is a query reads like its definition, and shows users how to write their
//! own. Does not: know what a single rule looks for.

use super::{Facts, Outcome, PlaceKey, ShareCheck, Values, no_host_time};
use crate::findings::facts::Class;
use crate::findings::reason;
use crate::query::Query;

/// A rule that fires when stacks that match a query have at least `min_percent` of all time.
pub(super) struct PathCheck<'p> {
    /// The query.
    pub(super) path: &'p str,
    /// Key that groups places.
    pub(super) by: PlaceKey,
    /// The conclusion behind `10% of cpu-time`.
    pub(super) is: &'static str,
    /// Name of the share in the evidence.
    pub(super) figure: &'static str,
    pub(super) advice: &'static str,
    /// Why the gain is bounded by the share.
    pub(super) because: &'static str,
    /// Contexts in one of these classes are left out.
    pub(super) unless: &'static [Class],
}

impl PathCheck<'_> {
    pub(super) fn outcome(&self, facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
        let Some(metric) = facts.host() else { return no_host_time() };
        let query = match Query::parse(self.path) {
            Ok(query) => query,
            Err(error) => {
                return Outcome::missing_because(reason::BAD_QUERY, format!("its query is bad: {error}"));
            }
        };
        let matches = query.matches(facts.profile());
        let is_left_out = |node| self.unless.iter().any(|class| facts.classes(node).has(*class));
        let is_in = |node| matches.has(node) && !is_left_out(node);
        // Most programs have none of these frames.
        let share = match matches.is_none() {
            true => facts.share_of(metric, |_, _| false),
            false => facts.share_where(metric, is_in),
        };
        ShareCheck {
            metric,
            share,
            limit: "min_percent",
            of: None,
            places: None,
            is_in: &is_in,
            by: self.by,
            title: &|share| format!("{share} of {metric} {}", self.is),
            figure: self.figure,
            advice: self.advice,
            because: self.because,
        }
        .outcome(facts, values)
    }
}
