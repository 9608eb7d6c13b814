//! Snapshots: a merged tree as the plain data that screens and pictures draw.
//!
//! Owns: [`Screen`], [`losses`]. Because: a live view asks again every second, and only what is new may cost.
//! Does not: know how big a screen is; the caller says how fine it wants the picture.

use std::sync::Arc;

use super::flame::{flame_node, source_place};
use super::mark::Mark;
use super::merged::{LabelId, Only};
use super::{Merged, Request, SameBy, Selection};
use crate::ledger::Stage;
use crate::metric::Metric;
use crate::profile::Profile;
use crate::snapshot::{
    Column, FlameNode, FlameTree, FrameKind, LossRow, SourceLines, StageRow, Table, TableRow,
};

/// How fine a snapshot is. The default leaves nothing out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grain {
    /// Boxes with a smaller share of the total are left out, 0..=1. Their values stay in the boxes above them.
    pub least_share: f64,
    /// Most rows of the table.
    pub rows: usize,
}

impl Default for Grain {
    fn default() -> Self {
        Grain { least_share: 0.0, rows: usize::MAX }
    }
}

/// One selection of one profile, kept up to date. Use a new one for another selection or another profile.
#[derive(Clone, Debug)]
pub struct Screen {
    merged: Merged,
}

impl Screen {
    /// An empty screen.
    pub fn new(selection: Selection) -> Self {
        Screen { merged: Merged::new(selection, SameBy::Place) }
    }

    /// The same, with sequences of boxes that repeat themselves joined.
    #[must_use]
    pub fn folding_recursion(self) -> Self {
        Screen { merged: self.merged.folding_recursion() }
    }

    /// What it shows.
    pub fn selection(&self) -> &Selection {
        self.merged.selection()
    }

    /// Takes in what the profile has now.
    pub fn refresh(&mut self, profile: &Profile) {
        self.merged.refresh(profile);
    }

    /// Takes in what the profile has now of what a request asks for.
    pub(super) fn refresh_request(&mut self, profile: &Profile, request: &Request, since: Option<&Mark>) {
        self.merged.refresh_only(profile, Only { filter: request.filter.as_ref(), since });
    }

    /// Value of everything shown.
    pub fn total(&self) -> u64 {
        self.merged.inclusive.first().copied().unwrap_or(0)
    }

    /// The flame graph, as of the last refresh.
    pub fn flame(&self, grain: Grain) -> FlameTree {
        let merged = &self.merged;
        if merged.inclusive.is_empty() {
            return FlameTree { nodes: vec![flame_root()] };
        }
        let walk = merged.walk((self.total() as f64 * grain.least_share).ceil() as u64);
        let mut nodes: Vec<FlameNode> = Vec::with_capacity(walk.len());
        let mut path: Vec<u32> = Vec::new();
        for (node, depth) in walk {
            let place = nodes.len() as u32;
            path.truncate(depth as usize);
            let parent = path.last().copied().unwrap_or(0);
            path.push(place);
            nodes.push(FlameNode { parent, ..flame_node(merged, node) });
            if place > 0 {
                nodes[parent as usize].children.push(place);
            }
        }
        FlameTree { nodes }
    }

    /// Functions, hottest first by exclusive value, then by inclusive value, then by label.
    pub fn table(&self, grain: Grain) -> Vec<TableRow> {
        self.rows(grain, &[])
    }

    /// The table with the values of every metric that the profile has.
    pub(super) fn full_table(&self, profile: &Profile, grain: Grain, since: Option<&Mark>) -> Table {
        let others: Vec<Metric> =
            profile.tree.metrics().filter(|metric| *metric != self.selection().metric).collect();
        let values: Vec<Vec<(u64, u64)>> = others
            .iter()
            .map(|&metric| self.merged.sums(profile, metric, since))
            .map(|sums| self.merged.totals_of(&sums.exclusive, &sums.inclusive))
            .collect();
        let column = |metric: Metric| Column { metric: metric.name(), unit: metric.unit() };
        Table { others: others.into_iter().map(column).collect(), rows: self.rows(grain, &values) }
    }

    fn rows(&self, grain: Grain, others: &[Vec<(u64, u64)>]) -> Vec<TableRow> {
        if self.merged.inclusive.is_empty() {
            return Vec::new();
        }
        let merged = &self.merged;
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
        rows.truncate(grain.rows);
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

    /// The bottom-up tree, as of the last refresh.
    pub fn callers(&self, grain: Grain) -> FlameTree {
        if self.merged.inclusive.is_empty() {
            return FlameTree { nodes: vec![flame_root()] };
        }
        super::callers::callers(&self.merged, (self.total() as f64 * grain.least_share).ceil() as u64)
    }

    /// The lines of a file. The mark is that of the last refresh.
    pub(super) fn source_lines(
        &self,
        profile: &Profile,
        file: &Arc<str>,
        since: Option<&Mark>,
    ) -> SourceLines {
        super::source::source_lines(&self.merged, profile, file, since)
    }

    /// With a mark: value of everything before it.
    pub(super) fn before(&self) -> u64 {
        self.merged.before.as_ref().and_then(|before| before.inclusive.first()).copied().unwrap_or(0)
    }

    /// With a mark: how many values there were before it and since.
    pub(super) fn counts(&self) -> (u64, u64) {
        self.merged.counts
    }

    /// The contexts with the highest values of their own, hottest first: value, and labels from the outermost in.
    pub fn hottest(&self, most: usize) -> Vec<(u64, Vec<&str>)> {
        self.merged.hottest(most)
    }
}

fn flame_root() -> FlameNode {
    FlameNode { label: "all".to_owned(), kind: FrameKind::Root, ..FlameNode::default() }
}

/// What became of the records at each stage that is in use.
pub(super) fn stages(profile: &Profile) -> Vec<StageRow> {
    let row = |stage: &Stage| {
        let account = profile.ledger.stage(*stage);
        let &crate::ledger::Account { received, kept, merged, .. } = account;
        StageRow { stage: stage.name(), received, kept, merged, dropped: account.dropped.total() }
    };
    Stage::ALL.iter().map(row).filter(|row| (row.received, row.kept, row.dropped) != (0, 0, 0)).collect()
}

/// Losses and gaps of a profile, in stage order: the ledger's, and what the profile's own tables had to refuse.
pub fn losses(profile: &Profile) -> Vec<LossRow> {
    let mut ledger = profile.ledger.clone();
    for (reason, n) in profile.refusals() {
        ledger.gap(Stage::Attribute, reason, n);
    }
    ledger.rows()
}
