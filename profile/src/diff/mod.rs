//! Diff: what grew and what shrank between two profiles, by calling context and by function, and how far to believe it.
//!
//! Owns: matching of contexts, the change of each, and its noise bound. Because: two runs of a program have other ids, other
//! builds and another number of samples, and most differences between them are chance. Does not: write; see
//! [`mod@text`]; the flame graph of a comparison is an export.
//!
//! Contexts are matched by [`names`], which leaves out what differs between runs and builds of one program. Shares of the
//! totals are compared, so that a longer run is not a slower one.
//!
//! # How far to believe it
//!
//! Samples fall at random: the value `S` of a context is a sum of independent values, so its variance is about the sum of
//! their squares, which every cell keeps. The share `p = S / T` of a total `T = S + R` then has the variance
//! `((1 - p)² var S + p² var R) / T²`. The question is what chance alone would do, so both sides are taken to have the share
//! and the squares that both have together. The bound of a change is twice the root of both variances (95 of 100 chance
//! changes are smaller). Thousands of contexts are compared at once and one in twenty of those would pass by chance, so a
//! change counts as more than noise only if it passes the procedure of Benjamini and Hochberg: among all that pass, about
//! one in twenty is chance.

mod names;
pub mod text;

use rustc_hash::FxHashMap;

use crate::context::Contexts;
use crate::metric::{Cell, Metric};
use crate::profile::Profile;
use crate::view::Selection;

use names::Names;

/// Share of chance among the changes that are called more than noise.
const FALSE_SHARE: f64 = 0.05;

/// Two profiles, context by context.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What was compared.
    pub metric: Metric,
    /// Figures of the whole profiles, before and after.
    pub totals: [Cell; 2],
    labels: Vec<String>,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    label: u32,
    cells: [Cell; 2],
}

/// One context or function in both profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Texts of the frames, outermost first; of a function just its own.
    pub path: Vec<String>,
    /// Values before and after, in the metric's unit.
    pub values: [u64; 2],
    /// Shares of the totals before and after, 0..=1.
    pub shares: [f64; 2],
    /// Chance changes are smaller than this in 95 of 100 cases; a share.
    pub bound: f64,
    /// Whether chance is an unlikely cause, considering how many were compared.
    pub significant: bool,
}

impl Row {
    /// How much the share grew.
    pub fn change(&self) -> f64 {
        self.shares[1] - self.shares[0]
    }
}

/// Compares two profiles as a selection shows them.
pub fn compare(before: &Profile, after: &Profile, selection: &Selection) -> Comparison {
    let mut comparison = Comparison {
        metric: selection.metric,
        totals: [before, after].map(|profile| profile.tree.total(selection.metric)),
        labels: vec!["all".to_owned()],
        nodes: vec![Node { parent: 0, label: 0, cells: [Cell::EMPTY; 2] }],
    };
    let names = Names::between(before, after);
    let mut labels: FxHashMap<String, u32> = FxHashMap::default();
    let mut places: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    for (side, profile) in [before, after].into_iter().enumerate() {
        let contexts = Contexts::of(profile, selection);
        let label_of: Vec<u32> = contexts
            .frames
            .iter()
            .map(|(_, frame)| {
                let label = names.of(&frame, contexts.strings, selection.lines);
                *labels.entry(label).or_insert_with_key(|label| {
                    comparison.labels.push(label.clone());
                    comparison.labels.len() as u32 - 1
                })
            })
            .collect();
        let mut place_of = vec![0u32; contexts.tree.len()];
        for (number, node) in contexts.tree.nodes().enumerate().skip(1) {
            let (parent, label) = (place_of[node.parent.index()], label_of[node.frame.index()]);
            place_of[number] = *places.entry((parent, label)).or_insert_with(|| {
                comparison.nodes.push(Node { parent, label, cells: [Cell::EMPTY; 2] });
                comparison.nodes.len() as u32 - 1
            });
        }
        for (node, cell) in contexts.tree.cells(selection.metric) {
            comparison.nodes[place_of[node.index()] as usize].cells[side].merge(cell);
        }
    }
    comparison
}

impl Comparison {
    /// Contexts whose own share changed, largest change first.
    pub fn contexts(&self) -> Vec<Row> {
        let with_values = self.nodes.iter().filter(|node| node.cells.iter().any(|cell| !cell.is_empty()));
        self.rows(with_values.map(|node| (self.path(node), node.cells)).collect())
    }

    /// Functions whose own share, over all their contexts, changed; largest change first.
    pub fn functions(&self) -> Vec<Row> {
        let mut by_label = vec![[Cell::EMPTY; 2]; self.labels.len()];
        for node in &self.nodes {
            for (sum, cell) in by_label[node.label as usize].iter_mut().zip(&node.cells) {
                sum.merge(cell);
            }
        }
        let rows = self.labels.iter().zip(by_label);
        let rows = rows.filter(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
        self.rows(rows.map(|(label, cells)| (vec![label.clone()], cells)).collect())
    }

    /// Each context with its values before and after, sorted by its frames.
    pub fn stacks(&self) -> Vec<(Vec<&str>, [u64; 2])> {
        let with_values = self.nodes.iter().filter(|node| node.cells.iter().any(|cell| cell.sum > 0));
        let mut stacks: Vec<_> =
            with_values.map(|node| (self.path_texts(node), node.cells.map(|cell| cell.sum))).collect();
        stacks.sort();
        stacks
    }

    fn path(&self, node: &Node) -> Vec<String> {
        self.path_texts(node).into_iter().map(str::to_owned).collect()
    }

    fn path_texts(&self, node: &Node) -> Vec<&str> {
        let mut texts = Vec::new();
        let mut at = node;
        // A parent stands before its children; the root, which is its own parent, has no text.
        while at.label != 0 {
            texts.push(self.labels[at.label as usize].as_str());
            at = &self.nodes[at.parent as usize];
        }
        texts.reverse();
        if texts.is_empty() { vec![self.labels[0].as_str()] } else { texts }
    }

    fn rows(&self, cells: Vec<(Vec<String>, [Cell; 2])>) -> Vec<Row> {
        let mut rows: Vec<(Row, f64)> = cells
            .into_iter()
            .map(|(path, cells)| {
                let deviation = deviation(&cells, &self.totals);
                let share = |side: usize| match self.totals[side].sum {
                    0 => 0.0,
                    total => cells[side].sum as f64 / total as f64,
                };
                let row = Row {
                    path,
                    values: cells.map(|cell| cell.sum),
                    shares: [share(0), share(1)],
                    bound: 2.0 * deviation,
                    significant: false,
                };
                let chance =
                    if deviation > 0.0 { chance_beyond(row.change().abs() / deviation) } else { 1.0 };
                (row, chance)
            })
            .collect();
        // The largest chance that still is below its place's part of the allowed share: all below it pass.
        rows.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.path.cmp(&b.0.path)));
        let n = rows.len() as f64;
        let passing = rows.iter().enumerate().rev();
        let passing =
            passing.map(|(place, (_, chance))| (place, *chance <= FALSE_SHARE * (place + 1) as f64 / n));
        let passing = passing.clone().find(|(_, passes)| *passes).map_or(0, |(place, _)| place + 1);
        rows[..passing].iter_mut().for_each(|(row, _)| row.significant = true);

        let mut rows: Vec<Row> =
            rows.into_iter().map(|(row, _)| row).filter(|row| row.change() != 0.0).collect();
        rows.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()).then_with(|| a.path.cmp(&b.path)));
        rows
    }
}

/// Standard deviation of the difference of two shares of which chance alone makes the difference.
fn deviation(cells: &[Cell; 2], totals: &[Cell; 2]) -> f64 {
    let sum = |cells: &[Cell; 2], of: fn(&Cell) -> f64| of(&cells[0]) + of(&cells[1]);
    let share = sum(cells, |cell| cell.sum as f64) / sum(totals, |cell| cell.sum as f64).max(1.0);
    let all = sum(totals, |cell| cell.sum_squares as f64).max(1.0);
    // Part of all squares that is the context's own.
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

/// Chance that a normal deviate is further than `z` from 0, on either side: the approximation 7.1.26 of Abramowitz and
/// Stegun, which is right to seven digits.
fn chance_beyond(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = series.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    (sum * (-x * x).exp()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests;
