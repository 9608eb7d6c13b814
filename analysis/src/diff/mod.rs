//! Diff: what grew and what shrank between two profiles, by calling context and by function, with its noise bound.
//!
//! Owns: matching of contexts, the change of each, and its noise bound. Because: two runs of a program differ in ids,
//! builds and number of samples, and most differences between them are noise. Does not: render; see [`crate::render`].
//!
//! Contexts are matched by `names`, without the parts that differ between runs and builds of one program. Shares of the
//! totals are compared, so a longer run does not count as a slower one. What only one capture could have, by its
//! options, is left out of both (`one_sided`).
//!
//! # How far to believe it
//!
//! Samples fall at random: the value `S` of a context is a sum of independent values, so its variance is about the sum
//! of their squares, which every cell keeps. The share `p = S / T` of a total `T = S + R` then has the variance `((1 -
//! p)² var S + p² var R) / T²`. The null hypothesis is that both sides are equal, so both are assigned their combined
//! share and squares. The bound of a change is twice the root of both variances (95 of 100 chance changes are smaller).
//! Thousands of contexts are compared at once, and one in twenty would pass by chance. So a change counts as more than
//! noise only if it passes the procedure of Benjamini and Hochberg: about one in twenty that pass is chance.

mod changes;
mod families;
mod growth;
mod names;
mod one_sided;
mod operators;
mod options;

use deepctx_profile::context::Contexts;
use deepctx_profile::frame::FrameKind;
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::order::SortRows as _;
use deepctx_profile::profile::Profile;
use deepctx_profile::view::Selection;
use rustc_hash::FxHashMap;

pub use changes::{Change, ChangeTable, Changes, MatchedValues, Side, SideTotal};
pub use growth::{BadLimit, GrowthLimit, Regression, TotalChange};
use names::Names;
use one_sided::OneSided;
pub use operators::{
    DeviceMemory, MemorySide, OperatorComparison, OperatorFigures, OperatorMatch, OperatorRow, OperatorSide,
    compare_operators,
};
pub use options::{Effect, OptionChange};

/// Share of noise among the changes that count as more than noise.
const FALSE_SHARE: f64 = 0.05;

/// Two profiles, context by context.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The compared metric.
    pub metric: Metric,
    /// Figures of the whole profiles, before and after.
    pub totals: [Cell; 2],
    /// Differences between the captures.
    pub options: Vec<OptionChange>,
    labels: Vec<String>,
    /// By label: the kind of the first frame that had it.
    kinds: Vec<FrameKind>,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    label: u32,
    cells: [Cell; 2],
}

/// Compares two profiles under a selection.
pub fn compare(before: &Profile, after: &Profile, selection: &Selection) -> Comparison {
    let mut options = options::changed(&before.meta, &after.meta);
    let one_sided = OneSided::between([before, after], &mut options);
    let selection = one_sided.selection(selection);
    let mut comparison = Comparison {
        metric: selection.metric,
        totals: [before, after].map(|profile| profile.tree.total(selection.metric)),
        options,
        labels: vec!["all".to_owned()],
        kinds: vec![FrameKind::Root],
        nodes: vec![Node { parent: 0, label: 0, cells: [Cell::EMPTY; 2] }],
    };
    let mut places = Places {
        names: Names::between(before, after),
        one_sided,
        labels: FxHashMap::default(),
        nodes: FxHashMap::default(),
    };
    for (side, profile) in [before, after].into_iter().enumerate() {
        comparison.take(profile, &selection, side, &mut places);
    }
    comparison
}

/// Where the labels and contexts of both profiles are.
struct Places {
    names: Names,
    one_sided: OneSided,
    labels: FxHashMap<String, u32>,
    /// By parent and label.
    nodes: FxHashMap<(u32, u32), u32>,
}

impl Comparison {
    /// Adds the values of one side.
    fn take(&mut self, profile: &Profile, selection: &Selection, side: usize, places: &mut Places) {
        let contexts = Contexts::of(profile, selection);
        // None: the frame is left out.
        let mut label_of: Vec<Option<u32>> = Vec::with_capacity(contexts.frames.len());
        for (_, frame) in contexts.frames.iter() {
            if places.one_sided.includes(&frame, contexts.strings) {
                label_of.push(None);
                continue;
            }
            let label = places.names.of(&frame, contexts.strings, selection.lines);
            label_of.push(Some(*places.labels.entry(label).or_insert_with_key(|label| {
                self.labels.push(label.clone());
                self.kinds.push(frame.kind());
                self.labels.len() as u32 - 1
            })));
        }
        let mut place_of = vec![0u32; contexts.tree.len()];
        for (number, node) in contexts.tree.nodes().enumerate().skip(1) {
            let parent = place_of[node.parent.index()];
            place_of[number] = match label_of[node.frame.index()] {
                None => parent,
                Some(label) => *places.nodes.entry((parent, label)).or_insert_with(|| {
                    self.nodes.push(Node { parent, label, cells: [Cell::EMPTY; 2] });
                    self.nodes.len() as u32 - 1
                }),
            };
        }
        for (node, cell) in contexts.tree.cells(selection.metric) {
            self.nodes[place_of[node.index()] as usize].cells[side].merge(&cell);
        }
    }

    /// The changes: for functions and contexts each the requested number of rows.
    pub fn changes(&self, rows: usize) -> Changes {
        let side = |side: usize| SideTotal { total: self.totals[side].sum, values: self.totals[side].count };
        Changes {
            schema_version: crate::SCHEMA_VERSION,
            metric: self.metric.name(),
            unit: self.metric.unit(),
            before: side(0),
            after: side(1),
            total: self.total_change(),
            matched: self.matched(),
            options: self.options.clone(),
            functions: ChangeTable::cut(self.functions(), rows),
            contexts: ChangeTable::cut(self.contexts(), rows),
        }
    }

    /// Share of each side in contexts that the other side also has.
    pub fn matched(&self) -> MatchedValues {
        // A context exists if it or one below it has values. Parents precede children.
        let mut there: Vec<[bool; 2]> =
            self.nodes.iter().map(|node| node.cells.map(|c| !c.is_empty())).collect();
        for (place, node) in self.nodes.iter().enumerate().rev() {
            let below = there[place];
            let above = &mut there[node.parent as usize];
            *above = [above[0] | below[0], above[1] | below[1]];
        }
        let mut sums = [0u64; 2];
        for (node, _) in self.nodes.iter().zip(&there).filter(|(_, there)| **there == [true, true]) {
            for (sum, cell) in sums.iter_mut().zip(&node.cells) {
                *sum = sum.saturating_add(cell.sum);
            }
        }
        let share = |side: usize| match self.totals[side].sum {
            0 => None,
            total => Some(sums[side] as f64 / total as f64),
        };
        MatchedValues { before: share(0), after: share(1) }
    }

    /// Every context with its values before and after, the input of a differential flame graph.
    #[cfg(feature = "export")]
    pub fn difference(&self) -> deepctx_storage::export::svg::Difference<'_> {
        let totals = self.totals.map(|total| total.sum);
        let frames = self.kinds.iter().copied().zip(self.labels.iter().map(String::as_str)).collect();
        deepctx_storage::export::svg::Difference {
            metric: self.metric,
            totals,
            stacks: self.stacks(),
            frames,
        }
    }

    /// Contexts whose exclusive share changed, largest change first.
    pub fn contexts(&self) -> Vec<Change> {
        let with_values = self.nodes.iter().filter(|node| node.cells.iter().any(|cell| !cell.is_empty()));
        self.rows(with_values.map(|node| (self.path(node), node.cells)).collect())
    }

    /// Functions whose exclusive share over all their contexts changed; largest change first.
    pub fn functions(&self) -> Vec<Change> {
        let mut by_label = vec![[Cell::EMPTY; 2]; self.labels.len()];
        for node in &self.nodes {
            for (sum, cell) in by_label[node.label as usize].iter_mut().zip(&node.cells) {
                sum.merge(cell);
            }
        }
        let rows = (0..).zip(by_label);
        let rows = rows.filter(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
        self.rows(rows.map(|(label, cells)| (vec![label], cells)).collect())
    }

    /// Each context with its values before and after, sorted by its frames.
    pub fn stacks(&self) -> Vec<(Vec<&str>, [u64; 2])> {
        let with_values = self.nodes.iter().filter(|node| node.cells.iter().any(|cell| cell.sum > 0));
        let mut stacks: Vec<_> =
            with_values.map(|node| (self.texts(&self.path(node)), node.cells.map(|cell| cell.sum))).collect();
        stacks.sort();
        stacks
    }

    /// Labels of a context, outermost first.
    fn path(&self, node: &Node) -> Vec<u32> {
        let mut labels = Vec::new();
        let mut at = node;
        // Parents precede children; the root, which is its own parent, has no text.
        while at.label != 0 {
            labels.push(at.label);
            at = &self.nodes[at.parent as usize];
        }
        labels.reverse();
        if labels.is_empty() { vec![0] } else { labels }
    }

    fn texts(&self, labels: &[u32]) -> Vec<&str> {
        labels.iter().map(|label| self.labels[*label as usize].as_str()).collect()
    }

    fn rows(&self, cells: Vec<(Vec<u32>, [Cell; 2])>) -> Vec<Change> {
        let mut rows: Vec<(Change, f64)> =
            cells.into_iter().map(|(labels, cells)| self.change(&labels, cells)).collect();
        // The largest probability that is below the threshold of its rank: all smaller ones pass.
        rows.sort_rows_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.frames.cmp(&b.0.frames)));
        let n = rows.len() as f64;
        let passes =
            |(place, (_, chance)): &(usize, &(Change, f64))| *chance <= FALSE_SHARE * (*place + 1) as f64 / n;
        let passing = rows.iter().enumerate().rev().find(passes).map_or(0, |(place, _)| place + 1);
        rows[..passing].iter_mut().for_each(|(row, _)| row.significant = true);

        let rows = rows.into_iter().map(|(row, _)| row);
        let mut rows: Vec<Change> = rows.filter(|row| row.change != 0.0).collect();
        rows.sort_rows_by(|a, b| {
            b.change.abs().total_cmp(&a.change.abs()).then_with(|| a.frames.cmp(&b.frames))
        });
        rows
    }

    /// The change of one row, and the probability that it is noise.
    fn change(&self, labels: &[u32], cells: [Cell; 2]) -> (Change, f64) {
        let deviation = deviation(&cells, &self.totals);
        let side = |side: usize| Side {
            share: match self.totals[side].sum {
                0 => 0.0,
                total => cells[side].sum as f64 / total as f64,
            },
            value: cells[side].sum,
        };
        let (before, after) = (side(0), side(1));
        let change = after.share - before.share;
        let chance = if deviation > 0.0 { chance_beyond(change.abs() / deviation) } else { 1.0 };
        let frames = self.texts(labels).into_iter().map(str::to_owned).collect();
        let kinds = labels.iter().map(|label| self.kinds[*label as usize]).collect();
        let bound = 2.0 * deviation;
        (Change { change, bound, significant: false, before, after, frames, kinds }, chance)
    }
}

/// Standard deviation of the difference of two shares under the null hypothesis.
fn deviation(cells: &[Cell; 2], totals: &[Cell; 2]) -> f64 {
    let sum = |cells: &[Cell; 2], of: fn(&Cell) -> f64| of(&cells[0]) + of(&cells[1]);
    let share = sum(cells, |cell| cell.sum as f64) / sum(totals, |cell| cell.sum as f64).max(1.0);
    let all = sum(totals, |cell| cell.sum_squares as f64).max(1.0);
    // The context's part of all squares.
    let own = sum(cells, |cell| cell.sum_squares as f64) / all;
    let variances = totals.iter().map(|total| {
        if total.sum == 0 {
            // Nothing is known of this side: any share is as likely.
            return 1.0 / 12.0;
        }
        let squares = total.sum_squares as f64 / (total.sum as f64).powi(2);
        ((1.0 - share).powi(2) * own + share.powi(2) * (1.0 - own)) * squares
    });
    variances.sum::<f64>().sqrt()
}

/// Probability that a normal deviate is further than `z` from 0, on either side: the approximation 7.1.26 of Abramowitz
/// and Stegun, accurate to seven digits.
fn chance_beyond(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = series.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    (sum * (-x * x).exp()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests;
