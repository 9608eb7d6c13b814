//! Snapshots: a merged tree as the plain data that screens and pictures draw.
//!
//! Owns: [`Screen`], [`losses`]. Because: a live view asks again every second, and only what is new may cost.
//! Does not: know how big a screen is; the caller says how fine it wants the picture.

use super::{Merged, SameBy, Selection};
use crate::ledger::Stage;
use crate::profile::Profile;
use crate::snapshot::{FlameNode, FlameTree, FrameKind, Header, LossRow, Snapshot, TableRow};

/// Says which frames a reader is looking for, by text and kind. Only stacks with such a frame count.
pub type Filter<'f> = &'f dyn Fn(&str, FrameKind) -> bool;

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

    /// Takes in what the profile has now.
    pub fn refresh(&mut self, profile: &Profile, filter: Option<Filter<'_>>) {
        self.merged.refresh(profile, filter);
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
            let label = merged.label(node);
            nodes.push(FlameNode {
                label: label.text.clone(),
                detail: label.detail.clone(),
                kind: label.kind,
                exclusive: merged.exclusive[node as usize],
                inclusive: merged.inclusive[node as usize],
                parent,
                children: Vec::new(),
            });
            if place > 0 {
                nodes[parent as usize].children.push(place);
            }
        }
        FlameTree { nodes }
    }

    /// Functions, hottest first by exclusive value, then by inclusive value, then by label.
    pub fn table(&self, grain: Grain) -> Vec<TableRow> {
        if self.merged.inclusive.is_empty() {
            return Vec::new();
        }
        let is_function = |kind| !matches!(kind, FrameKind::Root | FrameKind::Process | FrameKind::Thread);
        let mut rows: Vec<_> = self
            .merged
            .totals()
            .filter(|&(label, _, inclusive)| inclusive > 0 && is_function(label.kind))
            .collect();
        rows.sort_unstable_by(|a, b| (b.1, b.2).cmp(&(a.1, a.2)).then_with(|| a.0.cmp(b.0)));
        rows.truncate(grain.rows);
        let row = |(label, exclusive, inclusive): (&super::merged::Label, u64, u64)| TableRow {
            label: label.text.clone(),
            detail: label.detail.clone(),
            kind: label.kind,
            exclusive,
            inclusive,
        };
        rows.into_iter().map(row).collect()
    }

    /// The contexts with the highest values of their own, hottest first: value, and labels from the outermost in.
    pub fn hottest(&self, most: usize) -> Vec<(u64, Vec<&str>)> {
        self.merged.hottest(most)
    }

    /// Everything for one picture, as of the last refresh.
    pub fn snapshot(&self, profile: &Profile, header: Header, grain: Grain) -> Snapshot {
        Snapshot { header, flame: self.flame(grain), table: self.table(grain), losses: losses(profile) }
    }
}

fn flame_root() -> FlameNode {
    FlameNode { label: "all".to_owned(), kind: FrameKind::Root, ..FlameNode::default() }
}

/// Losses and gaps of a profile, in stage order: the ledger's, and what the profile's own tables had to refuse.
pub fn losses(profile: &Profile) -> Vec<LossRow> {
    let mut ledger = profile.ledger.clone();
    for (reason, n) in profile.refusals() {
        ledger.gap(Stage::Attribute, reason, n);
    }
    ledger.rows()
}
