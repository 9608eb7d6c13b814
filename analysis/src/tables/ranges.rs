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
use deepctx_profile::tree::NodeId;
use serde::Serialize;

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

fn of_metric(subset: &Subset<'_>, metric: Metric) -> Ranges {
    let profile = subset.profile();
    // One line of a program may lead there by several call paths.
    let mut cells: BTreeMap<(String, String), Cell> = BTreeMap::new();
    for (node, cell) in profile.tree.cells(metric) {
        cells.entry(name_and_place(profile, node)).or_insert(Cell::EMPTY).merge(cell);
    }
    let mut cells: Vec<_> = cells.into_iter().collect();
    cells.sort_rows_by_key(|(_, cell)| Reverse(cell.sum));
    let row = |((name, entered_at), cell): ((String, String), Cell)| Range {
        name,
        entered_at,
        count: cell.count,
        total_ns: cell.sum,
        mean_ns: cell.mean().unwrap_or(0.0),
        deviation_ns: cell.deviation().unwrap_or(0.0),
        min_ns: cell.min,
        max_ns: cell.max,
    };
    Table::cut(cells.into_iter().map(row).collect(), subset.selection().rows)
}

fn name_and_place(profile: &Profile, node: NodeId) -> (String, String) {
    let stack = profile.tree.stack(node);
    let frames = || stack.iter().rev().map(|frame| profile.frames.get(*frame));
    let name = match frames().next() {
        Some(Frame::Range { name }) => clean(profile.strings.get(name)),
        _ => String::new(),
    };
    let of_program = |frame: &Frame| match frame {
        Frame::Python { file, .. } => !profile.strings.get(*file).contains("/torch/"),
        _ => false,
    };
    let caller = frames().find(of_program);
    let caller = caller.or_else(|| frames().find(|frame| matches!(frame, Frame::Python { .. })));
    (name, caller.map_or_else(String::new, |frame| frame.label(&profile.strings, true)))
}

#[cfg(test)]
mod tests {
    use deepctx_profile::text;

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
        add("P a-1 / y t.py:main:9 / y /v/torch/optim.py:step / r SGD.step", Metric::RangeTime, &[10, 14]);
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
}
