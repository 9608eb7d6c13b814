//! Phases: the cost of each part of training.
//!
//! Owns: [`Phases`]. Because: readers begin here. Does not: recognise phases ([`deepctx_profile::context::phase`]).

use deepctx_profile::context::phase::{Phase, phases};
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::Subset;
use crate::amount::{Amount, percent, value};

/// Metrics of a phase, if the profile has them.
const METRICS: [Metric; 6] = [
    Metric::CpuTime,
    Metric::OffCpuTime,
    Metric::GpuTime,
    Metric::Kernels,
    Metric::SyncTime,
    Metric::CopyTime,
];

/// The parts of a training step in their order; what is outside any part comes last.
const ORDER: [Phase; 11] = [
    Phase::Loading,
    Phase::LoadingWorker,
    Phase::Forward,
    Phase::Backward,
    Phase::Communication,
    Phase::Optimizer,
    Phase::Evaluation,
    Phase::Checkpoint,
    Phase::Compilation,
    Phase::Spinning,
    Phase::Other,
];

/// Phases with a value of any metric, in the order of a training step. Empty for a program with unknown phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Phases {
    /// Training steps that were timed, if any. The sums also have work before and after these.
    pub training_steps: Option<u64>,
    /// A row for each phase.
    pub rows: Vec<PhaseRow>,
}

/// One phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseRow {
    /// Its name.
    pub phase: &'static str,
    /// By metric; every row has the same ones.
    pub values: Vec<PhaseValue>,
}

/// Cost of a phase by one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseValue {
    /// Name of the metric.
    pub metric: &'static str,
    /// The sum.
    #[serde(flatten, serialize_with = "value")]
    pub value: Amount,
    /// As a share of all phases.
    pub share_percent: f64,
}

impl Phases {
    /// Sums up the phases.
    pub fn compute(subset: &Subset<'_>) -> Self {
        Self::of_profile(subset.profile())
    }

    /// Sums up the phases of a whole profile.
    pub(crate) fn of_profile(profile: &Profile) -> Self {
        Self::of_contexts(profile, &phases(profile))
    }

    /// The same, where the phase of every context is known.
    pub(crate) fn of_contexts(profile: &Profile, of_node: &[Phase]) -> Self {
        if of_node.iter().all(|phase| *phase == Phase::Other) {
            return Phases::default();
        }
        // Sums by the number of their phase.
        let sums: Vec<(Metric, Vec<u64>)> = METRICS
            .into_iter()
            .map(|metric| {
                let mut sums = vec![0u64; Phase::ALL.len()];
                for (node, cell) in profile.tree.cells(metric) {
                    let sum = &mut sums[of_node[node.index()] as usize];
                    *sum = sum.saturating_add(cell.sum);
                }
                (metric, sums)
            })
            .filter(|(_, sums)| sums.iter().any(|sum| *sum > 0))
            .collect();
        let row = |phase: &Phase| PhaseRow {
            phase: phase.name(),
            values: sums.iter().map(|(metric, sums)| phase_value(*metric, sums, *phase as usize)).collect(),
        };
        let used = |phase: &&Phase| sums.iter().any(|(_, sums)| sums[**phase as usize] > 0);
        let rows = ORDER.iter().filter(used).map(row).collect();
        Phases { training_steps: training_steps(profile), rows }
    }
}

/// Timed training steps of a profile, if they are known.
pub(crate) fn training_steps(profile: &Profile) -> Option<u64> {
    step_cell(profile).map(|cell| cell.count)
}

/// Training steps at the place with most of them: several optimizers end several steps at a time.
pub(crate) fn step_cell(profile: &Profile) -> Option<Cell> {
    step_place(profile).map(|(_, cell)| cell)
}

/// The same, with the place.
pub(crate) fn step_place(profile: &Profile) -> Option<(NodeId, Cell)> {
    profile.tree.cells(Metric::StepTime).max_by_key(|(_, cell)| cell.count)
}

/// Training steps in the sums of a whole capture: the only divisor for figures of one step. `timed` are the steps of
/// one place; `elapsed` is the length of the capture, zero when unknown.
///
/// Steps are timed from one end to the next, so neither the one that ends first nor the one that is cut off last is,
/// but the sums have their work. Of a program that is captured from its start, that is one step; of one that is
/// captured from its middle, the parts of two, one on average. So the time that the timed steps leave of the capture
/// counts as a part of a step, and as one at most: the rest is the program's start and end.
pub(crate) fn steps_in_sums(timed: &Cell, elapsed: Nanos) -> f64 {
    let mean = timed.mean().filter(|mean| *mean > 0.0);
    timed.count as f64 + mean.map_or(0.0, |mean| untimed_ns(timed, elapsed) as f64 / mean)
}

/// Length of the part of a capture that counts as one more step than those that were timed.
fn untimed_ns(timed: &Cell, elapsed: Nanos) -> u64 {
    elapsed.0.saturating_sub(timed.sum).min(timed.mean().unwrap_or(0.0) as u64)
}

/// Length of all training steps in the sums of a capture, nanoseconds: of each process those at its longest place, as
/// several optimizers end several steps at a time. 0 if they are unknown.
pub(crate) fn steps_in_sums_ns(profile: &Profile, elapsed: Nanos) -> u64 {
    let mut by_process: FxHashMap<Option<NodeId>, u64> = FxHashMap::default();
    for (node, cell) in profile.tree.cells(Metric::StepTime) {
        let longest = by_process.entry(profile.process_of(node)).or_default();
        *longest = cell.sum.saturating_add(untimed_ns(&cell, elapsed)).max(*longest);
    }
    by_process.into_values().fold(0, u64::saturating_add)
}

fn phase_value(metric: Metric, sums: &[u64], at: usize) -> PhaseValue {
    let whole = sums.iter().fold(0u64, |whole, sum| whole.saturating_add(*sum));
    PhaseValue {
        metric: metric.name(),
        value: Amount::new(sums[at], metric.unit()),
        share_percent: percent(sums[at], whole),
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::text;

    use super::*;
    use crate::Selection;

    fn phases_of(lines: &str) -> Phases {
        Phases::compute(&Subset::new(&text::parse(lines).unwrap(), &Selection::of(Metric::CpuTime)))
    }

    #[test]
    fn phases_have_their_share_of_each_metric() {
        let phases = phases_of(
            "P python3-7 / y /a/train.py:main / y /v/torch/_tensor.py:Tensor.backward 300
             P python3-7 / y /a/train.py:main 100
             P python3-7 / y /a/train.py:main / y /v/torch/nn/modules/module.py:Module._call_impl 100",
        );
        let rows: Vec<_> = phases
            .rows
            .iter()
            .map(|row| (row.phase, row.values[0].value.value, row.values[0].share_percent))
            .collect();
        assert_eq!(rows, [("forward", 100, 20.0), ("backward", 300, 60.0), ("other", 100, 20.0)]);
        assert_eq!(phases.training_steps, None);
    }

    #[test]
    fn spinning_threads_are_a_row_before_other_work() {
        let phases = phases_of(
            "P python3-7 / y /v/torch/nn/modules/module.py:Module._call_impl / n gomp_team_barrier_wait_end 100
             P python3-7 / n gomp_thread_start / n gomp_team_barrier_wait_end 300
             P python3-7 / n work 50",
        );
        let rows: Vec<_> = phases.rows.iter().map(|row| (row.phase, row.values[0].value.value)).collect();
        assert_eq!(rows, [("forward", 100), ("spinning", 300), ("other", 50)]);
    }

    #[test]
    fn every_phase_has_a_place_in_a_step() {
        for phase in Phase::ALL {
            assert_eq!(ORDER.iter().filter(|it| **it == phase).count(), 1, "{}", phase.name());
        }
    }

    #[test]
    fn sums_have_up_to_one_step_more_than_was_timed() {
        let mut timed = Cell::EMPTY;
        (0..9).for_each(|_| timed.add(1_000));
        let check = |elapsed, expect| assert_eq!(steps_in_sums(&timed, Nanos(elapsed)), expect);
        // Unknown, and as long as the steps.
        check(0, 9.0);
        check(9_000, 9.0);
        check(9_250, 9.25);
        check(10_000, 10.0);
        // It began with imports.
        check(50_000, 10.0);
        check(u64::MAX, 10.0);
        assert_eq!(steps_in_sums(&Cell::EMPTY, Nanos(5)), 0.0);
        let mut instant = Cell::EMPTY;
        instant.add(0);
        assert_eq!(steps_in_sums(&instant, Nanos(5)), 1.0);
    }

    #[test]
    fn a_program_without_phases_has_no_rows() {
        assert_eq!(phases_of("P a-1 / n f 5"), Phases::default());
    }
}
