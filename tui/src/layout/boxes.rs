//! Boxes: the position of each box of a flame graph.
//!
//! Owns: [`FlameLayout`]. Because: drawing, keys that move the selection and the mouse must agree on it to the cell.
//! Does not: know styles, labels or the model.

use deepctx_profile::view::snapshot::{FlameTree, FrameKind};

use crate::tree::{children, path};

/// Content of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// One node.
    Node(u32),
    /// Children of `parent` that are narrower than a cell, together.
    Rest {
        /// Their parent.
        parent: u32,
        /// Their number.
        count: usize,
        /// Sum of their values.
        value: u64,
        /// Whether the selection is one of them or below one.
        selected: bool,
    },
    /// Own value of a process or thread in a view that hides its frames.
    Hidden {
        /// The process or thread.
        of: u32,
        /// The value.
        value: u64,
    },
}

/// A box: columns relative to the body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FlameBox {
    /// First column.
    pub(crate) x: u16,
    /// Columns; never 0.
    pub(crate) width: u16,
    /// Its content.
    pub(crate) content: Content,
    /// Its position before rounding. Callees are placed by it: with the rounded one, every level of a deep stack would
    /// lose up to a column.
    exact: Span,
}

/// Content of a graph: the tree, and the user's position in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The boxes.
    pub(crate) tree: &'a FlameTree,
    /// The box at full width.
    pub(crate) zoom: u32,
    /// The selected box.
    pub(crate) selected: u32,
    /// Whether hidden frames add their value to their process.
    pub(crate) hides_frames: bool,
}

/// Columns as fractions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    start: f64,
    width: f64,
}

/// The boxes of the requested rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FlameLayout {
    /// Row of the first entry of `rows`; row 0 is the root.
    pub(crate) first_row: usize,
    /// Boxes by row, left to right; ends with the deepest row that has a box.
    pub(crate) rows: Vec<Vec<FlameBox>>,
    /// Row of the node that fills the width; rows above it are its ancestors.
    pub(crate) zoom_row: usize,
    /// Whether there are boxes below the last requested row.
    pub(crate) more_below: bool,
}

impl FlameLayout {
    /// Lays out rows `first_row..first_row + count` with `zoom` at full width. Visits only boxes of at least a cell.
    pub(crate) fn of(view: View<'_>, width: u16, first_row: usize, count: usize) -> Self {
        let View { tree, zoom, selected, hides_frames } = view;
        let mut layout = Self { first_row, ..Self::default() };
        if tree.nodes.is_empty() || width == 0 {
            return layout;
        }
        let above = path(tree, zoom);
        let selected = path(tree, selected);
        layout.zoom_row = above.len() - 1;
        let end = first_row.saturating_add(count);
        let mut row = layout.zoom_row;
        let exact = Span { start: 0.0, width: f64::from(width) };
        let full = |node| FlameBox { x: 0, width, content: Content::Node(node), exact };
        for &node in above.iter().take(end).skip(first_row) {
            layout.rows.push(vec![full(node)]);
        }
        if end <= layout.zoom_row {
            layout.more_below = true;
            return layout;
        }
        let mut boxes = vec![full(zoom)];
        loop {
            let mut below = Vec::new();
            for upper in &boxes {
                if let Content::Node(node) = upper.content {
                    divide(tree, node, upper, &selected, hides_frames, &mut below);
                }
            }
            row += 1;
            if below.is_empty() {
                return layout;
            }
            if row >= end {
                layout.more_below = true;
                return layout;
            }
            if row >= first_row {
                layout.rows.push(below.clone());
            }
            boxes = below;
        }
    }

    /// Boxes in `row` of the whole graph.
    pub(crate) fn row(&self, row: usize) -> &[FlameBox] {
        row.checked_sub(self.first_row).and_then(|row| self.rows.get(row)).map_or(&[], Vec::as_slice)
    }

    /// The box at a column of a row of the whole graph.
    pub(crate) fn at(&self, row: usize, x: u16) -> Option<&FlameBox> {
        self.row(row).iter().find(|it| (it.x..it.x + it.width).contains(&x))
    }

    /// Row of a node's box, and its index in that row.
    pub(crate) fn find(&self, node: u32) -> Option<(usize, usize)> {
        self.rows.iter().enumerate().find_map(|(row, boxes)| {
            let place = boxes.iter().position(|it| it.content == Content::Node(node))?;
            Some((self.first_row + row, place))
        })
    }
}

/// Appends the boxes of a node's children: those of a column or more in their order, then the rest as one box, unless
/// it rounds to nothing and nothing is free. The free space on the right is the node's own value.
fn divide(
    tree: &FlameTree,
    node: u32,
    upper: &FlameBox,
    selected: &[u32],
    hides_frames: bool,
    out: &mut Vec<FlameBox>,
) {
    let whole = tree.nodes.get(node as usize).map_or(0, |it| it.inclusive);
    if whole == 0 {
        return;
    }
    let scale = upper.exact.width / whole as f64;
    // In a damaged tree children may outweigh their parent: they are cut at its right edge.
    let right = upper.x + upper.width;
    let column = |exact: f64| (exact.round() as u16).clamp(upper.x, right);
    let mut start = upper.exact.start;
    let (mut rest, mut rest_count, mut rest_selected) = (0u128, 0usize, false);
    for (index, child) in children(tree, node) {
        let width = child.inclusive as f64 * scale;
        // Most children of a wide node are narrow: they cost one multiplication.
        if width >= 1.0 {
            let (x, end) = (column(start), column(start + width));
            if x < end {
                let exact = Span { start, width };
                out.push(FlameBox { x, width: end - x, content: Content::Node(index), exact });
                start += width;
                continue;
            }
        }
        rest += u128::from(child.inclusive);
        rest_count += 1;
        rest_selected |= selected.binary_search(&index).is_ok();
    }
    let mut x = column(start);
    if rest > 0 && x < right {
        let exact = Span { start, width: rest as f64 * scale };
        let end = column(start + exact.width).max(x + 1);
        let value = u64::try_from(rest).unwrap_or(u64::MAX);
        let content = Content::Rest { parent: node, count: rest_count, value, selected: rest_selected };
        out.push(FlameBox { x, width: end - x, content, exact });
        x = end;
    }
    let own = tree.nodes.get(node as usize).filter(|it| hides_frames && is_target(it.kind));
    if let Some(value) = own.map(|it| it.exclusive).filter(|value| *value as f64 * scale >= 1.0 && x < right)
    {
        let exact = Span { start: f64::from(x), width: f64::from(right - x) };
        out.push(FlameBox { x, width: right - x, content: Content::Hidden { of: node, value }, exact });
    }
}

/// Whether a frame is a process or a thread, which have no code of their own.
fn is_target(kind: FrameKind) -> bool {
    matches!(kind, FrameKind::Process | FrameKind::Thread)
}

#[cfg(test)]
mod tests {
    use deepctx_profile::view::snapshot::FlameNode;
    use proptest::prelude::*;

    use super::*;

    /// A tree from (parent, own value) pairs; parents are taken modulo the number of nodes, so that any list is a tree.
    fn tree(nodes: &[(u32, u64)]) -> FlameTree {
        let mut tree = FlameTree { nodes: vec![FlameNode::default()] };
        for &(parent, value) in nodes {
            let index = tree.nodes.len() as u32;
            let parent = parent % index;
            tree.nodes.push(FlameNode { parent, exclusive: value, inclusive: value, ..FlameNode::default() });
            tree.nodes[parent as usize].children.push(index);
        }
        for index in (1..tree.nodes.len()).rev() {
            let FlameNode { parent, inclusive, .. } = tree.nodes[index];
            tree.nodes[parent as usize].inclusive += inclusive;
        }
        tree
    }

    fn lay_out(
        tree: &FlameTree,
        zoom: u32,
        selected: u32,
        width: u16,
        first_row: usize,
        count: usize,
    ) -> FlameLayout {
        FlameLayout::of(View { tree, zoom, selected, hides_frames: false }, width, first_row, count)
    }

    /// Boxes as `first column + columns: content`.
    fn check(nodes: &[(u32, u64)], width: u16, row: usize, expected: &str) {
        let layout = lay_out(&tree(nodes), 0, 0, width, 0, 100);
        let boxes = layout.row(row).iter().map(|it| match it.content {
            Content::Node(node) => format!("{}+{}: {node}", it.x, it.width),
            Content::Rest { count, value, .. } => format!("{}+{}: {count} more, {value}", it.x, it.width),
            Content::Hidden { value, .. } => format!("{}+{}: hidden, {value}", it.x, it.width),
        });
        assert_eq!(boxes.collect::<Vec<_>>().join(" | "), expected);
    }

    #[test]
    fn boxes_share_the_width_of_their_caller() {
        check(&[(0, 1), (0, 1)], 10, 0, "0+10: 0");
        check(&[(0, 1), (0, 1)], 10, 1, "0+5: 1 | 5+5: 2");
        check(&[(0, 1), (0, 1), (0, 1)], 10, 1, "0+3: 1 | 3+4: 2 | 7+3: 3");
        check(&[(0, 1), (0, 3)], 4, 1, "0+1: 1 | 1+3: 2");
        check(&[], 10, 1, "");
        check(&[(0, 0)], 10, 1, "");
    }

    #[test]
    fn boxes_narrower_than_a_column_become_one() {
        check(&[(0, 90), (0, 3), (0, 3), (0, 4)], 10, 1, "0+9: 1 | 9+1: 3 more, 10");
        check(&[(0, 4), (0, 92), (0, 4)], 10, 1, "0+9: 2 | 9+1: 2 more, 8");
        check(&[(0, 1), (0, 1)], 1, 1, "0+1: 2 more, 2");
        // A tenth of a column each, but there is room for one box.
        check(&[(0, 50), (1, 1), (1, 1)], 4, 2, "0+1: 2 more, 2");
        // Less than half a column, and no room.
        check(&[(0, 97), (0, 1), (0, 1), (0, 1)], 10, 1, "0+10: 1");
    }

    #[test]
    fn own_time_stays_a_box_when_frames_are_hidden() {
        let mut tree = tree(&[(0, 60), (1, 40)]);
        let check = |tree: &FlameTree, hides_frames, expect: &[(u16, u16, u64)]| {
            let view = View { tree, zoom: 0, selected: 0, hides_frames };
            let layout = FlameLayout::of(view, 10, 2, 1);
            let hidden = layout.row(2).iter().filter_map(|it| match it.content {
                Content::Hidden { value, .. } => Some((it.x, it.width, value)),
                _ => None,
            });
            assert_eq!(hidden.collect::<Vec<_>>(), expect);
        };
        check(&tree, true, &[]);
        tree.nodes[1].kind = FrameKind::Process;
        check(&tree, true, &[(4, 6, 60)]);
        check(&tree, false, &[]);
    }

    #[test]
    fn a_deep_stack_keeps_its_width() {
        let deep: Vec<(u32, u64)> = (0..99).map(|index| (index, 1)).collect();
        check(&deep, 10, 50, "0+5: 50");
    }

    #[test]
    fn children_stay_inside_their_parents_box() {
        let mut tree = tree(&[(0, 5), (0, 5)]);
        tree.nodes[0].inclusive = 1;
        let layout = lay_out(&tree, 0, 0, 10, 0, 10);
        assert_eq!(layout.row(1).iter().map(|it| it.width).sum::<u16>(), 10);
    }

    #[test]
    fn a_tree_with_a_loop_is_followed_once() {
        let mut tree = tree(&[(0, 1), (1, 1)]);
        tree.nodes[2].children = vec![1, 2, 0, 77];
        tree.nodes[1].parent = 2;
        assert_eq!(lay_out(&tree, 2, 1, 10, 0, 50).rows.len(), 2);
        assert_eq!(path(&tree, 2), [1, 2]);
    }

    #[test]
    fn hidden_rows_are_left_out_but_counted() {
        let deep: Vec<(u32, u64)> = (0..50).map(|index| (index, u64::from(index == 49))).collect();
        let tree = tree(&deep);
        let layout = lay_out(&tree, 0, 0, 10, 20, 5);
        assert_eq!((layout.first_row, layout.rows.len(), layout.more_below), (20, 5, true));
        assert_eq!(layout.find(22), Some((22, 0)));
        assert_eq!(layout.find(19), None);
        let zoomed = lay_out(&tree, 40, 0, 10, 38, 30);
        assert_eq!((zoomed.zoom_row, zoomed.rows.len(), zoomed.more_below), (40, 13, false));
    }

    proptest! {
        #[test]
        fn boxes_are_inside_their_parents_box_and_do_not_overlap(
            nodes in prop::collection::vec((any::<u32>(), 0u64..1000), 0..80),
            zoom: u32, selected: u32, width in 0u16..120, first in 0usize..6, rows in 0usize..12,
        ) {
            let tree = tree(&nodes);
            let count = tree.nodes.len() as u32;
            let layout = lay_out(&tree, zoom % count, selected % count, width, first, rows);
            prop_assert!(layout.rows.len() <= rows);
            for (upper, boxes) in std::iter::once(None).chain(layout.rows.iter().map(Some)).zip(&layout.rows) {
                let mut end = 0;
                for it in boxes {
                    prop_assert!(it.width > 0 && it.x >= end && it.x + it.width <= width);
                    end = it.x + it.width;
                    let parent = match it.content {
                        Content::Node(node) => tree.nodes[node as usize].parent,
                        Content::Rest { parent, .. } => parent,
                        Content::Hidden { of, .. } => of,
                    };
                    let inside = upper.is_none_or(|upper| {
                        let above = upper.iter().find(|up| up.content == Content::Node(parent));
                        above.is_some_and(|up| up.x <= it.x && it.x + it.width <= up.x + up.width)
                    });
                    prop_assert!(inside);
                }
            }
        }

        #[test]
        fn callees_a_column_wide_get_boxes_and_others_share_one(
            values in prop::collection::vec(1u64..10_000, 1..60), width in 1u16..200,
        ) {
            let tree = tree(&values.iter().map(|&value| (0, value)).collect::<Vec<_>>());
            let whole = values.iter().sum::<u64>();
            let wide = values.iter().filter(|&&value| value * u64::from(width) > whole).count();
            let layout = lay_out(&tree, 0, 0, width, 1, 1);
            let (mut boxes, mut counted, mut value) = (0, 0, 0);
            for it in layout.row(1) {
                match it.content {
                    Content::Node(node) => (boxes, value) = (boxes + 1, value + tree.nodes[node as usize].inclusive),
                    Content::Rest { count, value: rest, .. } => (counted, value) = (count, value + rest),
                    Content::Hidden { .. } => {}
                }
            }
            prop_assert!(boxes >= wide);
            prop_assert!(boxes + counted == values.len() || counted == 0);
            // Nodes left out altogether take less than a column.
            prop_assert!((whole - value) * u64::from(width) <= whole);
        }
    }
}
