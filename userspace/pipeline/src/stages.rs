//! Stages: those that know what a record means beyond its own stack.
//!
//! Owns: [`Stages`], and what is told to all of them at once. Because: they keep what earlier records said, each for a question
//! of its own, and a record is entered with all of them. Does not: enter records ([`super::enter`]), or know what a stage keeps.

use deepctx_profile::ledger::Stage;
use deepctx_profile::profile::Profile;

use super::backward::{self, Backward};
use super::correlate::{self, Correlate};
use super::decode::{Arguments, Sample};
use super::holes::Holes;
use super::operators::{self, Operators};
use super::ranges::Ranges;
use super::source::{SiteInfo, Turn};
use super::stacks::Head;
use super::teams::Teams;
use super::tensors::Tensors;
use super::thunks::Thunks;
use super::turns::Turns;
use super::waits::Waits;

/// The stages.
#[derive(Debug)]
pub(super) struct Stages {
    pub(super) waits: Waits,
    pub(super) correlate: Correlate,
    pub(super) backward: Backward,
    pub(super) ranges: Ranges,
    pub(super) operators: Operators,
    pub(super) tensors: Tensors,
    pub(super) teams: Teams,
    pub(super) thunks: Thunks,
    turns: Turns,
    /// Where records are missing, for those who conclude from the last one of a kind.
    pub(super) holes: Holes,
}

impl Stages {
    /// Stages that have seen nothing.
    pub(super) fn new(launches: usize, step_markers: Vec<String>) -> Self {
        Self {
            waits: Waits::default(),
            correlate: Correlate::new(launches),
            backward: Backward::default(),
            ranges: Ranges::new(step_markers),
            operators: Operators::default(),
            tensors: Tensors::default(),
            teams: Teams::default(),
            thunks: Thunks::default(),
            turns: Turns::default(),
            holes: Holes::default(),
        }
    }

    /// Takes in probes: each is one stage's, and those of nobody else are calls of accelerators' libraries.
    pub(super) fn learn(&mut self, sites: Vec<SiteInfo>) {
        let others = self.operators.learn(self.ranges.learn(self.backward.learn(sites)));
        let others = self.teams.learn(self.tensors.learn(others));
        self.correlate.learn(self.thunks.learn(others));
    }

    /// Takes in how often the kernel programs counted each probe.
    pub(super) fn counted(&mut self, counts: &[u64]) {
        self.backward.sites.counted(counts);
        self.ranges.sites.counted(counts);
        self.operators.sites.counted(counts);
        self.tensors.sites.counted(counts);
        self.teams.sites.counted(counts);
        self.thunks.sites.counted(counts);
        self.correlate.counted(counts);
    }

    /// Probes that have a budget begin to be watched, or cease.
    pub(super) fn turn(&mut self, turn: Turn) {
        self.holes.turn(&turn);
        self.backward.turn_edges.take(&turn);
        self.tensors.turn_edges.take(&turn);
        self.teams.turn_edges.take(&turn);
        self.turns.take(turn);
    }

    /// A process changes at this time, which the samples have not reached.
    pub(super) fn will_change(&mut self, pid: u32, time_ns: u64, change: correlate::Change) {
        self.backward.sites.will_change(pid, time_ns);
        self.ranges.sites.will_change(pid, time_ns);
        self.operators.sites.will_change(pid, time_ns);
        self.tensors.sites.will_change(pid, time_ns);
        self.teams.sites.will_change(pid, time_ns);
        self.thunks.sites.will_change(pid, time_ns);
        self.correlate.will_change(pid, time_ns, change);
    }

    /// Whether a call says what it says without a stack of its own.
    #[inline]
    pub(super) fn is_stackless(&self, arguments: &Arguments<'_>) -> bool {
        self.backward.kind(&arguments.call) == Some(backward::Kind::Begins)
            || self.ranges.sites.what(&arguments.call).is_some_and(|kind| !kind.has_stack())
            || self.operators.kind(&arguments.call) == Some(operators::Kind::Next)
            || self.tensors.needs_no_stack(arguments)
            || self.thunks.sites.own(&arguments.call)
    }

    /// Whether what a stack means depends on the calls before it.
    #[inline]
    pub(super) fn follow_calls(&self) -> bool {
        !self.backward.sites.is_empty()
            || !self.ranges.sites.is_empty()
            || !self.teams.sites.is_empty()
            || !self.thunks.sites.is_empty()
    }

    /// The head of a stack within the steps, ranges, teams and thunks that its thread is in by now.
    #[inline]
    pub(super) fn within(&mut self, head: Head, sample: &Sample<'_>) -> Head {
        let Self { backward, ranges, teams, thunks, holes, .. } = self;
        let who = &sample.fixed;
        let head = head.within(backward.steps_of(who, holes), ranges.of(who, holes), teams.of(who, holes));
        head.within_thunks(thunks.of(who, holes))
    }

    /// Writes what is missing, and what is kept of devices, into the profile. The records have come to `now_ns`.
    pub(super) fn write_to(&self, profile: &mut Profile, now_ns: u64) {
        let account = profile.ledger.stage_mut(Stage::Attribute);
        self.turns.write_to(account, now_ns);
        self.backward.write_to(account);
        self.ranges.write_to(account);
        self.operators.write_to(account);
        self.teams.write_to(account);
        self.thunks.write_to(account);
        self.correlate.write_to(profile);
        self.tensors.write_to(profile);
    }
}
