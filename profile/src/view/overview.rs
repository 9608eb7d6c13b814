//! Overview: the top few functions, operators and layers of a merged tree.
//!
//! Owns: [`overview`]. Because: the first screen shows the top of each table, of the same stacks as the flame graph.
//! Does not: conclude anything; the caller adds that to the snapshot.

use crate::order::SortRows as _;
use rustc_hash::FxHashMap;

use super::flame::source_place;
use super::merged_tree::{LabelId, MergedTree};
use crate::frame::FrameKind;
use crate::view::request::Resolution;
use crate::view::snapshot::{Overview, TableRow, Timeline};

/// Rows of each table: as many as the tallest screen shows.
const ROWS: usize = 50;

/// The tables, as of the last refresh; the timeline is the caller's.
pub(super) fn overview(tree: &MergedTree) -> Overview {
    let functions = tree.table(Resolution { rows: ROWS, ..Resolution::default() });
    let mut operators = of_kind(tree, FrameKind::Operator);
    operators
        .sort_rows_by(|a, b| (b.exclusive, b.inclusive, &a.label).cmp(&(a.exclusive, a.inclusive, &b.label)));
    operators.truncate(ROWS);
    let mut layers = of_kind(tree, FrameKind::Layer);
    layers
        .sort_rows_by(|a, b| (b.inclusive, b.exclusive, &a.label).cmp(&(a.inclusive, a.exclusive, &b.label)));
    layers.truncate(ROWS);
    Overview { conclusions: None, functions, operators, layers, timeline: Timeline::default() }
}

/// The cost of each label of a kind, without nested ones of that kind and with them. A label nested in itself counts
/// once.
fn of_kind(tree: &MergedTree, kind: FrameKind) -> Vec<TableRow> {
    let mut costs: FxHashMap<LabelId, (u64, u64)> = FxHashMap::default();
    // By node: the innermost enclosing node of the kind; 0, the root, is none. Callers come first.
    let mut within = vec![0u32; tree.inclusive.len()];
    for (node, &inclusive) in (0u32..).zip(&tree.inclusive).skip(1) {
        let outer = within[tree.parent(node) as usize];
        within[node as usize] = outer;
        if inclusive == 0 || tree.label(node).kind != kind {
            continue;
        }
        within[node as usize] = node;
        let label = tree.label_id(node);
        if let Some((own, _)) = costs.get_mut(&tree.label_id(outer)).filter(|_| outer != 0) {
            *own = own.saturating_sub(inclusive);
        }
        let above = std::iter::successors(Some(outer), |&at| Some(within[tree.parent(at) as usize]));
        let again = above.take_while(|at| *at != 0).any(|at| tree.label_id(at) == label);
        let (own, total) = costs.entry(label).or_default();
        *own = own.saturating_add(inclusive);
        *total = total.saturating_add(if again { 0 } else { inclusive });
    }
    let row = |(id, (exclusive, inclusive)): (LabelId, (u64, u64))| {
        let label = tree.label_of_id(id);
        TableRow {
            label: label.text.clone(),
            detail: label.detail.clone(),
            kind,
            exclusive,
            inclusive,
            others: Vec::new(),
            source: source_place(tree, id, 0),
        }
    };
    costs.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::selection::Selection;
    use crate::metric::Metric;
    use crate::testing::profile;

    #[test]
    fn operators_count_without_those_within_them() {
        let profile = profile(
            "P a-1 / y t.py:f:1 / o aten::linear / n x / o aten::addmm / n gemm 60
             P a-1 / o aten::linear / n y 10
             P a-1 / o aten::addmm / o aten::addmm / n gemm 5
             P a-1 / n idle 25",
        );
        let mut tree = MergedTree::new(Selection::of(Metric::CpuTime));
        tree.refresh(&profile);
        let overview = overview(&tree);
        let rows: Vec<_> =
            overview.operators.iter().map(|row| (row.label.as_str(), row.exclusive, row.inclusive)).collect();
        assert_eq!(rows, [("aten::addmm", 65, 65), ("aten::linear", 10, 70)]);
        let hottest: Vec<_> =
            overview.functions.iter().take(2).map(|row| (row.label.as_str(), row.exclusive)).collect();
        assert_eq!(hottest, [("gemm", 65), ("idle", 25)]);
        assert!(overview.layers.is_empty());
    }
}
