//! Table: the functions of a merged tree over all their contexts.
//!
//! Owns: [`MergedTree::table`]. Because: the hottest function may be called from everywhere, and no single box shows
//! it. Does not: draw.

use super::flame::source_place;
use super::mark::Mark;
use super::merged_tree::{LabelId, MergedTree};
use crate::frame::FrameKind;
use crate::metric::Metric;
use crate::profile::Profile;
use crate::view::request::Resolution;
use crate::view::snapshot::{Column, Table, TableRow};

impl MergedTree {
    /// Functions, hottest first by exclusive value, then by inclusive value, then by label.
    pub fn table(&self, resolution: Resolution) -> Vec<TableRow> {
        self.rows(resolution, &[])
    }

    /// The table with the values of every metric that the profile has.
    pub(super) fn full_table(
        &self,
        profile: &Profile,
        resolution: Resolution,
        since: Option<&Mark>,
    ) -> Table {
        let shown = self.selection().metric;
        let others: Vec<Metric> = profile.tree.metrics_with_sum().filter(|metric| *metric != shown).collect();
        let values: Vec<Vec<(u64, u64)>> = others
            .iter()
            .map(|&metric| self.sums(profile, metric, since))
            .map(|sums| self.totals_of(&sums.exclusive, &sums.inclusive))
            .collect();
        let column = |metric: Metric| Column { metric: metric.name(), unit: metric.unit() };
        Table { others: others.into_iter().map(column).collect(), rows: self.rows(resolution, &values) }
    }

    fn rows(&self, resolution: Resolution, others: &[Vec<(u64, u64)>]) -> Vec<TableRow> {
        if self.inclusive.is_empty() {
            return Vec::new();
        }
        let merged = self;
        let is_function = |kind| !matches!(kind, FrameKind::Root | FrameKind::Process | FrameKind::Thread);
        let other =
            |label: usize| others.iter().map(move |values| values.get(label).copied().unwrap_or_default());
        let mut rows: Vec<(LabelId, u64, u64)> = (0..)
            .zip(merged.totals())
            .filter(|&(label, (_, inclusive))| inclusive > 0 || other(label as usize).any(|it| it.1 > 0))
            .map(|(label, (exclusive, inclusive))| (LabelId::from_number(label), exclusive, inclusive))
            .filter(|(label, ..)| is_function(merged.label_of_id(*label).kind))
            .collect();
        rows.sort_unstable_by_key(|&(label, exclusive, inclusive)| {
            (std::cmp::Reverse((exclusive, inclusive)), merged.rank(label))
        });
        rows.truncate(resolution.rows);
        let row = |(id, exclusive, inclusive): (LabelId, u64, u64)| {
            let label = merged.label_of_id(id);
            TableRow {
                label: label.text.clone(),
                detail: label.detail.clone(),
                kind: label.kind,
                exclusive,
                inclusive,
                others: other(id.index()).collect(),
                source: source_place(merged, id, 0),
            }
        };
        rows.into_iter().map(row).collect()
    }
}
