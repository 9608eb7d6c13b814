//! Sums: the values of a merged tree's boxes.
//!
//! Owns: the exclusive and inclusive values of each box, and the threads that hidden code belongs to. Because: the
//! shape of a tree only grows, while its values are summed again at each refresh, for any metric, in total or since a
//! mark. Does not: add boxes.

use rustc_hash::FxHashMap;

use super::{MergedTree, is_target};
use crate::context::selection::View;
use crate::frame::WorkerKind;
use crate::metric::Metric;
use crate::profile::Profile;
use crate::view::mark::Mark;

/// Values by node of the shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub exclusive: Vec<u64>,
    pub inclusive: Vec<u64>,
}

impl MergedTree {
    /// The values of any metric, as of the last refresh.
    pub(crate) fn sums(&self, profile: &Profile, metric: Metric, since: Option<&Mark>) -> Sums {
        let mut sums = Sums::default();
        self.sum_up(&mut sums, profile, metric, since);
        sums
    }

    pub(super) fn sum_up(&self, sums: &mut Sums, profile: &Profile, metric: Metric, since: Option<&Mark>) {
        sums.exclusive.clear();
        sums.exclusive.resize(self.shape.len(), 0);
        for (node, place, cell) in profile.tree.placed_cells(metric) {
            let Some(&to) = self.of_node.get(node.index()) else { continue };
            if self.passes(node) {
                let before = since.map_or(0, |mark| mark.value(metric, place).0);
                let sum = &mut sums.exclusive[to as usize];
                *sum = sum.saturating_add(cell.sum.saturating_sub(before));
            }
        }
        self.sum_below(sums);
    }

    pub(super) fn sum_workers(
        &self,
        profile: &Profile,
        since: Option<&Mark>,
    ) -> FxHashMap<u32, [u64; WorkerKind::ALL.len()]> {
        let mut workers = FxHashMap::default();
        if self.selection.view != View::Python {
            return workers;
        }
        let metric = self.selection.metric;
        for (node, place, cell) in profile.tree.placed_cells(metric) {
            let Some(kind) = self.worker_of_node.get(node.index()).copied().flatten() else { continue };
            let to = self.of_node[node.index()];
            if is_target(self.label(to).kind) && self.passes(node) {
                let before = since.map_or(0, |mark| mark.value(metric, place).0);
                let sums = workers.entry(to).or_insert([0u64; WorkerKind::ALL.len()]);
                let sum = &mut sums[kind as usize];
                *sum = sum.saturating_add(cell.sum.saturating_sub(before));
            }
        }
        workers
    }

    /// The kind of threads with most of a box's own value, if that is of hidden frames; and how much of it.
    pub(crate) fn workers(&self, node: u32) -> Option<(WorkerKind, u64)> {
        let sums = self.workers.get(&node)?;
        let most = WorkerKind::ALL.into_iter().max_by_key(|kind| sums[*kind as usize])?;
        Some((most, sums[most as usize])).filter(|(_, sum)| *sum > 0)
    }

    pub(super) fn sum_below(&self, sums: &mut Sums) {
        sums.inclusive.clone_from(&sums.exclusive);
        for node in (1..self.shape.len()).rev() {
            let parent = self.shape.parent(node as u32) as usize;
            sums.inclusive[parent] = sums.inclusive[parent].saturating_add(sums.inclusive[node]);
        }
    }
}
