//! Ranges: the times of the program's named ranges, and the training steps derived from them.
//!
//! Owns: [`Ranges`], for both. Because: training is counted in steps, and users ask whether these are even. Does not:
//! know what a name means.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::profile::Profile;
use deepctx_profile::step_times::Histogram;
use deepctx_profile::tree::NodeId;
use serde::Serialize;

use crate::own_code::is_of_torch;
use crate::{Subset, Table};

/// Ranges or training steps by the place that enters them, longest in total first.
pub type Ranges = Table<Range>;

/// A named range, or a training step, at one place of the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Its name.
    pub name: String,
    /// The line that entered it: the program's own, if a framework's functions are between.
    pub entered_at: String,
    /// How often.
    pub count: u64,
    /// Sum over all times.
    pub total_ns: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub deviation_ns: f64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Of training steps: half of them took no longer, within a thirty-second of it. `None` if single times are not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// The same of 95 in a hundred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_ns: Option<u64>,
}

impl Ranges {
    /// Named ranges, without ranges within them.
    pub fn compute(subset: &Subset<'_>) -> Self {
        of_metric(subset, Metric::RangeTime)
    }

    /// Training steps, each from the end of one to the end of the next at the same place.
    pub fn training_steps(subset: &Subset<'_>) -> Self {
        of_metric(subset, Metric::StepTime)
    }
}

/// The times of ranges or steps of one name at one place.
#[derive(Debug, Default)]
pub(crate) struct PlaceTimes {
    /// Their figures.
    pub(crate) cell: Cell,
    /// Of training steps: how many took how long.
    pub(crate) times: Histogram,
    /// Their contexts.
    pub(crate) nodes: Vec<NodeId>,
}

/// The training steps at the place with the most of them, and their name.
pub(crate) fn most_steps(profile: &Profile) -> Option<(String, PlaceTimes)> {
    let places = places(profile, Metric::StepTime).into_iter();
    let most = places.max_by_key(|(_, of)| (of.cell.count, of.cell.sum));
    most.map(|((name, _), of)| (name, of))
}

/// By name and place.
fn places(profile: &Profile, metric: Metric) -> BTreeMap<(String, String), PlaceTimes> {
    // One line of a program may lead there by several call paths.
    let mut places: BTreeMap<(String, String), PlaceTimes> = BTreeMap::new();
    for (node, cell) in profile.tree.cells(metric) {
        let place = places.entry(name_and_place(profile, node)).or_default();
        place.cell.merge(&cell);
        place.nodes.push(node);
        if metric == Metric::StepTime
            && let Some(of_node) = profile.step_times.of(node)
        {
            place.times.merge(of_node);
        }
    }
    places
}

fn of_metric(subset: &Subset<'_>, metric: Metric) -> Ranges {
    let mut places: Vec<_> = places(subset.profile(), metric).into_iter().collect();
    places.sort_rows_by_key(|(_, of)| Reverse(of.cell.sum));
    let rows = places.into_iter().map(|((name, entered_at), of)| row(name, entered_at, &of.cell, &of.times));
    Table::cut(rows.collect(), subset.selection().rows)
}

fn row(name: String, entered_at: String, cell: &Cell, times: &Histogram) -> Range {
    let percentile = |percent| times.percentile(percent, cell).map(|bounds| bounds.middle().0);
    Range {
        name,
        entered_at,
        count: cell.count,
        total_ns: cell.sum,
        mean_ns: cell.mean().unwrap_or(0.0),
        deviation_ns: cell.deviation().unwrap_or(0.0),
        min_ns: cell.min,
        max_ns: cell.max,
        p50_ns: percentile(50),
        p95_ns: percentile(95),
    }
}

fn name_and_place(profile: &Profile, node: NodeId) -> (String, String) {
    let stack = profile.tree.stack(node);
    let frames = || stack.iter().rev().map(|frame| profile.frames.get(*frame));
    let name = match frames().next() {
        Some(Frame::Range { name }) => clean(profile.strings.get(name)),
        _ => String::new(),
    };
    let of_program = |frame: &Frame| match frame {
        Frame::Python { file, .. } => !is_of_torch(profile.strings.get(*file)),
        _ => false,
    };
    let caller = frames().find(of_program);
    let caller = caller.or_else(|| frames().find(|frame| matches!(frame, Frame::Python { .. })));
    (name, caller.map_or_else(String::new, |frame| frame.label(&profile.strings, true)))
}

#[cfg(test)]
mod tests {
    use deepctx_profile::text;
    use deepctx_profile::units::Nanos;

    use super::*;
    use crate::Selection;

    #[test]
    fn ranges_are_distinguished_by_name_and_source_line() {
        let mut profile = text::parse("").unwrap();
        let mut add = |path: &str, metric, values: &[u64]| {
            let stack: Vec<_> =
                path.split(" / ").map(|part| text::parse_frame(&mut profile, part).unwrap()).collect();
            values.iter().for_each(|value| _ = profile.add(&stack, metric, *value));
        };
        add("P a-1 / y t.py:main:9 / y /torch/optim/sgd.py:step / r SGD.step", Metric::RangeTime, &[10, 14]);
        add("P a-1 / n x / y t.py:main:9 / r SGD.step", Metric::RangeTime, &[12]);
        add("P a-1 / y t.py:main:8 / r epoch", Metric::RangeTime, &[1]);
        add("P a-1 / y t.py:main:8 / r epoch", Metric::StepTime, &[40]);
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        let ranges = Ranges::compute(&subset);
        let rows: Vec<_> = ranges
            .rows
            .iter()
            .map(|r| (r.name.as_str(), r.entered_at.as_str(), r.count, r.mean_ns, r.max_ns))
            .collect();
        assert_eq!(rows, [("SGD.step", "t.py:main:9", 3, 12.0, 14), ("epoch", "t.py:main:8", 1, 1.0, 1)]);
        assert_eq!(Ranges::training_steps(&subset).rows[0].total_ns, 40);
    }

    #[test]
    fn steps_of_all_call_paths_have_common_percentiles() {
        let mut profile =
            text::parse("P a-1 / y t.py:main:9 / r step 1\nP a-1 / n x / y t.py:main:9 / r step 1").unwrap();
        let nodes: Vec<_> = profile.tree.cells(Metric::CpuTime).map(|(node, _)| node).collect();
        for (node, times) in nodes.iter().zip([[10, 12, 30], [11, 13, 31]]) {
            times.iter().for_each(|time| profile.add_step(*node, Nanos(*time)));
        }
        let percentiles = |profile: &Profile| {
            let steps = Ranges::training_steps(&Subset::new(profile, &Selection::of(Metric::CpuTime)));
            let of_row = |row: &Range| (row.count, row.p50_ns, row.p95_ns);
            steps.rows.iter().map(of_row).collect::<Vec<_>>()
        };
        assert_eq!(percentiles(&profile), [(6, Some(12), Some(31))]);
        // A step of which only the figures are known: no percentile is made up.
        profile.tree.add(nodes[0], Metric::StepTime, 10);
        assert_eq!(percentiles(&profile), [(7, None, None)]);
    }
}
