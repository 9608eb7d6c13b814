//! Tables of ranks only.
//!
//! Owns: [`RankTables`]. Because: rules about ranks need no other table over time, and the critical path alone takes
//! longer than all of these. Does not: apply thresholds.

use std::collections::BTreeMap;

use deepctx_profile::frame::clean;
use deepctx_profile::trace::{Job, RankTrace};

use super::collectives::{self, Stragglers};
use super::ranks::{self, PhaseImbalance, SlowestRank};
use super::steps::{self, StepSplit};
use super::window::{Steps, Window};

/// Comparison of ranks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RankTables {
    /// The ranks that others wait for.
    pub(crate) stragglers: Stragglers,
    /// The slowest rank of each training step.
    pub(crate) slowest: Vec<SlowestRank>,
    /// Imbalance of phases.
    pub(crate) imbalance: Vec<PhaseImbalance>,
    /// By rank: the length of all its training steps, for steps measured on each rank. Ranks without steps have none.
    pub(crate) steps_ns: BTreeMap<u32, u64>,
    /// By rank: time in which it waited for others in a collective; in several at once counts once.
    pub(crate) waited_ns: BTreeMap<u32, u64>,
    /// By rank: from the first event to the last, and the file.
    pub(crate) ranks: BTreeMap<u32, (u64, String)>,
}

impl RankTables {
    /// `None` with fewer than two ranks.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        if job.ranks().len() < 2 {
            return None;
        }
        let matches = collectives::compute(job, Steps::default());
        let split = |window: Window<'_>| steps::compute(&window, &matches.waits_of(window.of.rank));
        let windows = job.ranks().iter().map(|rank| Window::new(rank, Steps::default()));
        let steps: Vec<StepSplit> = windows.flat_map(split).collect();
        let ranks = job.ranks().iter().map(|of| (of.rank, (of.span_ns(), clean(&of.file))));
        let mut steps_ns: BTreeMap<u32, u64> = BTreeMap::new();
        for (rank, parts) in ranks::measured_on_all(&steps).0 {
            let of_rank = steps_ns.entry(rank).or_default();
            *of_rank = of_rank.saturating_add(parts.length_ns);
        }
        let waited = |of: &RankTrace| (of.rank, matches.waits_of(of.rank).length());
        Some(RankTables {
            slowest: ranks::slowest(&steps),
            imbalance: ranks::imbalance(&steps),
            steps_ns,
            waited_ns: job.ranks().iter().map(waited).collect(),
            ranks: ranks.collect(),
            stragglers: matches.stragglers,
        })
    }

    /// Time of all ranks together.
    pub(crate) fn time_ns(&self) -> u64 {
        self.ranks.values().fold(0, |sum: u64, (ns, _)| sum.saturating_add(*ns))
    }
}
