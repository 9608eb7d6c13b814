//! Ranks: the slowest rank of each training step and why, and how evenly work is distributed.
//!
//! Owns: [`SlowestRank`], [`PhaseImbalance`], [`CommunicatorSum`]. Because: ranks that exchange data end their steps
//! together, so the slow rank is not the one with the longest step but the one that waited least. Does not: match
//! collectives or align clocks.
//!
//! A rank's *own* time of a step is its length without the time in which it only waited in a collective for a rank that
//! had not arrived. The rank with the most own time is the slowest, because of the phases in which it spends more than
//! the median rank. Both depend on matched collectives: with none, own time is the length. Steps of two ranks are the
//! same if their numbers are, and their names if a rank has several. What the slowest rank itself waited for is the
//! critical path of its step, which takes too long to compute for every step.
//!
//! Kinds of parallelism are in [`super::Parallelism`], and waits of pipelines in [`super::Pipeline`].

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use deepctx_profile::trace::TraceTime;
use serde::Serialize;

use super::collectives::Collective;
use super::critical_path::{self, CriticalPath};
use super::measurement::{LaneLoss, Measurement};
use super::steps::{StepParts, StepSplit};
use super::window::Window;

/// Maximum number of steps with the critical path of their slowest rank: each takes as long as that of a whole trace.
const PATHS_MAX: usize = 16;

/// What a rank does in a part of a training step. Each moment of a step is in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// A kernel computes.
    Compute,
    /// Memory is copied or filled, and no kernel computes.
    Copies,
    /// Ranks exchange data, and all have arrived.
    Transfer,
    /// A collective waits for a rank that has not arrived.
    Waiting,
    /// The device is idle, and the data loader runs.
    DataLoader,
    /// The device is idle, and an operator or a call runs.
    Host,
    /// The device is idle, and the trace has no activity of the host.
    Idle,
}

/// All phases.
const PHASES: [Phase; 7] = [
    Phase::Compute,
    Phase::Copies,
    Phase::Transfer,
    Phase::Waiting,
    Phase::DataLoader,
    Phase::Host,
    Phase::Idle,
];

impl Phase {
    /// In words.
    pub(crate) const fn name(self) -> &'static str {
        self.words()[0]
    }

    /// Name of its time above the median of ranks.
    pub(crate) const fn above_median(self) -> &'static str {
        self.words()[1]
    }

    const fn words(self) -> [&'static str; 2] {
        macro_rules! words {
            ($name:literal) => {
                [$name, concat!($name, " above the median of ranks")]
            };
        }
        match self {
            Phase::Compute => words!("compute"),
            Phase::Copies => words!("copies"),
            Phase::Transfer => words!("transfer"),
            Phase::Waiting => words!("waiting for ranks"),
            Phase::DataLoader => words!("data loader"),
            Phase::Host => words!("host"),
            Phase::Idle => words!("idle"),
        }
    }

    /// Its time in a step.
    fn of(self, step: &StepParts) -> u64 {
        match self {
            Phase::Compute => step.kernel_ns,
            Phase::Copies => step.copy_ns + step.fill_ns,
            Phase::Transfer => step.communication_ns.saturating_sub(step.waiting_ns),
            Phase::Waiting => step.waiting_ns,
            Phase::DataLoader => step.data_loader_ns,
            Phase::Host => step.api_call_ns + step.operator_ns,
            Phase::Idle => step.other_ns,
        }
    }
}

/// The slowest rank of a training step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowestRank {
    /// Number of the step.
    pub step: u64,
    /// Its name without the number, on the first of these ranks.
    pub name: String,
    /// Ranks that have the step.
    pub ranks: usize,
    /// The slowest one; unknown if a rank lost events of the step.
    #[serde(flatten)]
    pub found: Measurement<SlowestRankTimes>,
}

/// Which rank is the slowest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowestRankTimes {
    /// The rank with the most own time.
    pub slowest_rank: u32,
    /// Its length without waiting for others.
    pub own_ns: u64,
    /// The same in the median of ranks.
    pub median_own_ns: u64,
    /// The same on the fastest rank.
    pub least_own_ns: u64,
    /// Phases in which it spends more than the median rank, the largest difference first.
    pub because: Vec<Excess>,
    /// What the end of its step waited for; `None` in steps of [`super::OverTime::slowest_paths_left_out`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<CriticalPath>,
    /// Its step, from begin to end.
    #[serde(skip)]
    time: (TraceTime, TraceTime),
}

/// A phase in which a rank is slower than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Excess {
    /// The phase.
    pub phase: Phase,
    /// Time of the slowest rank.
    pub slowest_ns: u64,
    /// Time in the median of ranks.
    pub median_ns: u64,
}

/// One phase over all ranks, summed over all training steps that each rank measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PhaseImbalance {
    /// The phase.
    pub phase: Phase,
    /// Mean over ranks.
    pub mean_ns: f64,
    /// The rank with the most.
    pub most_rank: u32,
    /// Its time.
    pub most_ns: u64,
    /// The rank with the least.
    pub least_rank: u32,
    /// Its time.
    pub least_ns: u64,
    /// Excess of the maximum over the mean, in percent of the mean; `None` without any time.
    pub imbalance_percent: Option<f64>,
    /// Steps that are left out: a rank lost events of them, or did not record them.
    pub steps_not_measured: usize,
}

/// Collectives of one communicator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommunicatorSum {
    /// The communicator.
    pub communicator: String,
    /// Ranks that take part.
    pub ranks: usize,
    /// Collectives.
    pub collectives: usize,
    /// Time that ranks together waited for the latest ones.
    pub waited_ns: u64,
    /// Total time of the exchanges themselves.
    pub transfer_ns: u64,
    /// The rank that others waited for longest.
    pub latest_rank: u32,
    /// Collectives in which it was the latest.
    pub times_latest: usize,
    /// Time that others waited for it.
    pub waited_for_ns: u64,
}

fn own(step: &StepParts) -> u64 {
    step.length_ns.saturating_sub(step.waiting_ns)
}

/// The upper median of unsorted numbers; `None` without any.
pub(super) fn median(mut of: Vec<u64>) -> Option<u64> {
    of.sort_unstable();
    of.get(of.len() / 2).copied()
}

/// The steps of all ranks by number and name. Names count only if a rank has several, each with its own numbers (JAX):
/// with one name each, ranks may call the same step differently.
fn by_number(steps: &[StepSplit]) -> BTreeMap<(u64, &str), Vec<&StepSplit>> {
    let mut names: BTreeMap<u32, &str> = BTreeMap::new();
    let have_one_name =
        steps.iter().all(|step| *names.entry(step.rank).or_insert(step.name.as_str()) == step.name.as_str());
    let mut by_number: BTreeMap<(u64, &str), Vec<&StepSplit>> = BTreeMap::new();
    for step in steps {
        let name = if have_one_name { "" } else { step.name.as_str() };
        by_number.entry((step.step, name)).or_default().push(step);
    }
    by_number
}

/// The ranks of these steps. A rank may have several of one number and name: on different threads, for example.
fn ranks_of(of: &[&StepSplit]) -> BTreeSet<u32> {
    of.iter().map(|step| step.rank).collect()
}

fn lost_of(of: &[&StepSplit]) -> Vec<LaneLoss> {
    of.iter().filter_map(|step| step.split.not_measured()).flat_map(|because| because.lost.clone()).collect()
}

/// The slowest rank of each step that several ranks have.
pub(super) fn slowest(steps: &[StepSplit]) -> Vec<SlowestRank> {
    let several = by_number(steps).into_iter().filter(|(_, of)| ranks_of(of).len() > 1);
    several.map(|((number, _), of)| slowest_of(number, &of)).collect()
}

fn slowest_of(number: u64, of: &[&StepSplit]) -> SlowestRank {
    let measured: Vec<(&StepSplit, &StepParts)> =
        of.iter().filter_map(|step| Some((*step, step.split.figures()?))).collect();
    let found = Measurement::unless(lost_of(of), || slowest_among(&measured));
    let name = of.first().map_or_else(String::new, |step| step.name.clone());
    SlowestRank { step: number, name, ranks: ranks_of(of).len(), found }
}

fn slowest_among(of: &[(&StepSplit, &StepParts)]) -> SlowestRankTimes {
    let slowest = of.iter().max_by_key(|(step, parts)| (own(parts), Reverse(step.rank)));
    let (slowest_rank, time, slowest) =
        slowest.map_or_else(Default::default, |(step, parts)| (step.rank, step.time, **parts));
    let excess = |phase: Phase| Excess {
        phase,
        slowest_ns: phase.of(&slowest),
        median_ns: median(of.iter().map(|(_, parts)| phase.of(parts)).collect()).unwrap_or(0),
    };
    let mut because: Vec<Excess> =
        PHASES.into_iter().filter(|phase| *phase != Phase::Waiting).map(excess).collect();
    because.retain(|row| row.slowest_ns > row.median_ns);
    because.sort_rows_by_key(|row| Reverse(row.slowest_ns - row.median_ns));
    SlowestRankTimes {
        slowest_rank,
        own_ns: own(&slowest),
        median_own_ns: median(of.iter().map(|(_, parts)| own(parts)).collect()).unwrap_or(0),
        least_own_ns: of.iter().map(|(_, parts)| own(parts)).min().unwrap_or(0),
        because,
        path: None,
        time,
    }
}

/// Adds the critical path of the slowest rank to the steps in which it is furthest behind; the number of other steps.
pub(super) fn add_paths(slowest: &mut [SlowestRank], windows: &[Window<'_>]) -> usize {
    let mut measured: Vec<&mut SlowestRankTimes> =
        slowest.iter_mut().filter_map(|step| step.found.figures_mut()).collect();
    // Of two ranks, the median is the slower one.
    measured.sort_rows_by_key(|of| Reverse((of.own_ns - of.median_own_ns, of.own_ns - of.least_own_ns)));
    let left_out = measured.len().saturating_sub(PATHS_MAX);
    for of in measured.into_iter().take(PATHS_MAX) {
        let (from, until) = of.time;
        let window = windows.iter().find(|window| window.of.rank == of.slowest_rank);
        let window = window.map(|window| Window::of_step(window.of, from, until));
        of.path = window.as_ref().and_then(critical_path::compute);
    }
    left_out
}

/// Training steps that each rank with steps has, without lost events on any, and the number of others.
pub(super) fn measured_on_all(steps: &[StepSplit]) -> (Vec<(u32, &StepParts)>, usize) {
    let all: BTreeSet<u32> = steps.iter().map(|step| step.rank).collect();
    let is_whole =
        |of: &Vec<&StepSplit>| ranks_of(of) == all && of.iter().all(|step| step.split.figures().is_some());
    let (whole, not): (Vec<_>, Vec<_>) = by_number(steps).into_values().partition(is_whole);
    let whole = whole.into_iter().flatten();
    (whole.filter_map(|step| Some((step.rank, step.split.figures()?))).collect(), not.len())
}

/// Each phase over ranks; none with fewer than two ranks with training steps.
pub(super) fn imbalance(steps: &[StepSplit]) -> Vec<PhaseImbalance> {
    let (measured, steps_not_measured) = measured_on_all(steps);
    let mut ranks: BTreeMap<u32, [u64; PHASES.len()]> = BTreeMap::new();
    for (rank, step) in measured {
        let sums = ranks.entry(rank).or_default();
        for (sum, phase) in sums.iter_mut().zip(PHASES) {
            *sum = sum.saturating_add(phase.of(step));
        }
    }
    if ranks.len() < 2 {
        return Vec::new();
    }
    let row = |(place, phase): (usize, Phase)| {
        let of_ranks = || ranks.iter().map(|(rank, sums)| (sums[place], *rank));
        let ((most_ns, most_rank), (least_ns, least_rank)) = (of_ranks().max()?, of_ranks().min()?);
        let mean_ns = of_ranks().map(|(ns, _)| ns as f64).sum::<f64>() / ranks.len() as f64;
        let imbalance_percent = (mean_ns > 0.0).then(|| (most_ns as f64 / mean_ns - 1.0) * 100.0);
        Some(PhaseImbalance {
            phase,
            mean_ns,
            most_rank,
            most_ns,
            least_rank,
            least_ns,
            imbalance_percent,
            steps_not_measured,
        })
    };
    PHASES.into_iter().enumerate().filter_map(row).collect()
}

/// Sums of each communicator, most waiting first.
pub(super) fn communicators(collectives: &[Collective]) -> Vec<CommunicatorSum> {
    let mut by_name: BTreeMap<&str, Vec<&Collective>> = BTreeMap::new();
    for collective in collectives {
        by_name.entry(&collective.communicator).or_default().push(collective);
    }
    let mut rows: Vec<CommunicatorSum> =
        by_name.into_iter().filter_map(|(name, of)| communicator(name, &of)).collect();
    rows.sort_rows_by_key(|row| Reverse(row.waited_ns));
    rows
}

fn communicator(name: &str, of: &[&Collective]) -> Option<CommunicatorSum> {
    let mut latest: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
    for collective in of {
        let row = latest.entry(collective.latest_rank).or_default();
        *row = (row.0.saturating_add(collective.waited_ns), row.1 + 1);
    }
    let sum = |time: fn(&Collective) -> u64| of.iter().fold(0, |sum: u64, one| sum.saturating_add(time(one)));
    let (latest_rank, (waited_for_ns, times_latest)) = latest.into_iter().max_by_key(|(_, row)| *row)?;
    Some(CommunicatorSum {
        communicator: name.to_owned(),
        ranks: of.iter().map(|collective| collective.ranks).max()?,
        collectives: of.len(),
        waited_ns: sum(|collective| collective.waited_ns),
        transfer_ns: sum(|collective| collective.transfer_ns),
        latest_rank,
        times_latest,
        waited_for_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{job, of};
    use super::super::{Bound, OverTime, Steps};
    use super::{CriticalPath, SlowestRank};

    /// Two steps: the first with a wait for its kernel, the second with one kernel.
    fn two_steps(first: u64, second: u64) -> String {
        let all = first + second;
        format!(
            "step m 0..{first} s#1
             step m {first}..{all} s#2
             call m 10..12 cudaLaunchKernel #1
             call m 13..40 cudaStreamSynchronize #2
             call m {}..{} cudaLaunchKernel #3
             kernel 0/7 20..32 gemm #1
             kernel 0/7 {}..{all} gemm #3
             sync stream 0/7 14..38 #2",
            first + 1,
            first + 2,
            first + 5,
        )
    }

    fn paths(of: &OverTime) -> Vec<(u64, Option<&CriticalPath>)> {
        let measured = of.slowest.iter().map(|step| (step.step, step.found.figures()));
        measured.map(|(step, found)| (step, found.and_then(|found| found.path.as_ref()))).collect()
    }

    /// The path of a rank if only this step is requested.
    fn alone(traces: &[&str], step: u64, rank: u32) -> CriticalPath {
        let of = OverTime::compute(&job(traces), Steps { from: Some(step), until: Some(step + 1) });
        of.critical_paths.into_iter().find(|path| path.rank == rank).unwrap()
    }

    #[test]
    fn the_slowest_rank_has_the_path_of_its_step() {
        let (a, b) = (two_steps(50, 100), two_steps(80, 60));
        let traces = [a.as_str(), b.as_str()];
        let found = OverTime::compute(&job(&traces), Steps::default());
        let (first, second) = (alone(&traces, 1, 1), alone(&traces, 2, 0));
        assert_eq!(paths(&found), [(1, Some(&first)), (2, Some(&second))]);
        assert_eq!(found.slowest_paths_left_out, 0);
        // The thread: 10 µs before its launch, and 40 behind its wait.
        let parts: Vec<_> = first.parts.iter().map(|part| (part.bound, part.time_ns / 1000)).collect();
        let expect = [(Bound::Cpu, 50), (Bound::Compute, 12), (Bound::Launch, 10), (Bound::SyncReturn, 8)];
        assert_eq!(parts, expect);
    }

    #[test]
    fn steps_furthest_behind_have_a_path() {
        // Step n of rank 1 is n µs longer than that of rank 0.
        let rank = |more: u64| {
            let end = |n: u64| 10 * n + more * n * (n + 1) / 2;
            (1..=20).map(|n| format!("step m {}..{} s#{n}\n", end(n - 1), end(n))).collect::<String>()
        };
        let found = OverTime::compute(&job(&[&rank(0), &rank(1)]), Steps::default());
        let without = paths(&found).into_iter().filter(|(_, path)| path.is_none()).map(|(step, _)| step);
        assert_eq!(without.collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(found.slowest_paths_left_out, 4);
    }

    #[test]
    fn one_rank_with_equal_step_numbers_is_no_comparison() {
        let both = "step m 0..10 train#1\n step m 20..30 eval#1";
        let found = of(both);
        assert_eq!((found.steps.len(), found.slowest), (2, Vec::new()));
        let found = OverTime::compute(&job(&[both, both]), Steps::default());
        assert_eq!(found.slowest.iter().map(|step| step.ranks).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn steps_of_one_number_are_compared_by_name() {
        // Rank 1 trains longer, and rank 0 evaluates longer.
        let rank = |train: u64, all: u64| format!("step m 0..{train} train#1\n step m {train}..{all} eval#1");
        let found = OverTime::compute(&job(&[&rank(10, 60), &rank(30, 50)]), Steps::default());
        let row = |step: &SlowestRank| {
            let times = step.found.figures().unwrap();
            (step.name.clone(), step.step, times.slowest_rank, times.own_ns, times.least_own_ns)
        };
        let rows: Vec<_> = found.slowest.iter().map(row).collect();
        let expect = [("eval".to_owned(), 1, 0, 50_000, 20_000), ("train".to_owned(), 1, 1, 30_000, 10_000)];
        assert_eq!(rows, expect);
    }

    #[test]
    fn ranks_may_call_one_step_differently() {
        let found = OverTime::compute(&job(&["step m 0..9 a#1", "step m 0..9 b#1"]), Steps::default());
        assert_eq!(found.slowest.iter().map(|step| step.ranks).collect::<Vec<_>>(), [2]);
    }
}
