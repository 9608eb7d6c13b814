//! Selections: which part of a profile a report covers.
//!
//! Owns: [`Selection`], and [`Subset`], a profile with its selection applied. Because: several tables need the filter
//! and the merged tree, which cost more than any of them. Does not: choose a metric for a profile.

use std::borrow::Cow;

use deepctx_profile::context::selection::Selection as Shown;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::trace::Job;
use deepctx_profile::view::request::Pattern;
use deepctx_profile::view::{self, MergedTree};

use crate::Query;

/// Default number of rows of each table: as many as fit a terminal.
const ROWS: usize = 10;

/// The part of a profile that a report covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Metric, languages, lines and grouping.
    pub shown: Shown,
    /// Which stacks count; all of them without a pattern.
    pub filter: Option<Pattern>,
    /// Which call paths count, of the stacks that pass the filter; all of them without a query.
    pub path: Option<Query>,
    /// Maximum number of rows of each table.
    pub rows: usize,
}

/// The default metric: the timer's, or else the first with values in one of the profiles.
pub fn usual_metric(profiles: &[&Profile]) -> Metric {
    let usual = [Metric::CpuTime, Metric::Cycles];
    let has_values = |metric: &Metric| profiles.iter().any(|profile| profile.tree.total(*metric).sum > 0);
    let others = Metric::ALL.iter().filter(|metric| !metric.is_of_machine());
    usual.iter().chain(others).copied().find(has_values).unwrap_or(Metric::CpuTime)
}

impl Selection {
    /// All stacks by one metric, with ten rows for each table.
    pub const fn of(metric: Metric) -> Self {
        Selection { shown: Shown::of(metric), filter: None, path: None, rows: ROWS }
    }

    /// The part of a profile whose stacks and call paths count.
    pub fn part_of<'p>(&self, profile: &'p Profile) -> Cow<'p, Profile> {
        let filtered = match &self.filter {
            Some(pattern) => Cow::Owned(view::only(profile, pattern)),
            None => Cow::Borrowed(profile),
        };
        match &self.path {
            Some(query) => Cow::Owned(query.part_of(&filtered)),
            None => filtered,
        }
    }
}

/// A profile with its selection applied.
#[derive(Clone, Debug)]
pub struct Subset<'p> {
    whole: &'p Profile,
    profile: Cow<'p, Profile>,
    selection: Selection,
    tree: MergedTree,
    events: Option<&'p Job>,
}

impl<'p> Subset<'p> {
    /// Applies a selection to a profile.
    pub fn new(whole: &'p Profile, selection: &Selection) -> Self {
        let profile = selection.part_of(whole);
        let mut tree = MergedTree::new(selection.shown);
        tree.refresh(&profile);
        Subset { whole, profile, selection: selection.clone(), tree, events: None }
    }

    /// The same with single events of the capture, by rank: rules about ranks use these. A selection does not filter
    /// them.
    #[must_use]
    pub fn with_events(self, job: Option<&'p Job>) -> Self {
        Subset { events: job, ..self }
    }

    /// The selected part.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Single events of the capture, if they are known.
    pub(crate) fn events(&self) -> Option<&Job> {
        self.events
    }

    /// All of the profile.
    pub(crate) fn whole(&self) -> &Profile {
        self.whole
    }

    /// The selection.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The metric of the selection.
    pub fn metric(&self) -> Metric {
        self.selection.shown.metric
    }

    /// The sum of the metric over everything shown.
    pub fn total(&self) -> u64 {
        self.tree.total()
    }

    /// The merged tree.
    pub(crate) fn tree(&self) -> &MergedTree {
        &self.tree
    }
}
