//! Layout: which part of the screen shows what, and where each box of the flame graph lies.
//!
//! Owns: geometry. Because: drawing, keys that move the selection and the mouse must agree on it to the cell. Does not:
//! know styles, labels or the model.

use deepctx_profile::snapshot::{FlameNode, FlameTree};
use ratatui::layout::Rect;

/// The screen from top to bottom; parts that find no room are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Areas {
    /// Target, figures and tabs: up to three lines.
    pub(crate) header: Rect,
    /// The view itself.
    pub(crate) body: Rect,
    /// Selection and key hints: up to two lines.
    pub(crate) footer: Rect,
}

impl Areas {
    /// Divides a screen; `footer` is false for still pictures.
    pub(crate) fn of(screen: Rect, footer: bool) -> Self {
        let header = match screen.height {
            12.. => 3,
            8.. => 2,
            4.. => 1,
            _ => 0,
        };
        let footer = match screen.height {
            _ if !footer => 0,
            10.. => 2,
            3.. => 1,
            _ => 0,
        };
        let body = screen.height - header - footer;
        Self {
            header: Rect { height: header, ..screen },
            body: Rect { y: screen.y + header, height: body, ..screen },
            footer: Rect { y: screen.y + header + body, height: footer, ..screen },
        }
    }

    /// Line of the header that shows the tabs, if it has room for them.
    pub(crate) fn tabs(&self) -> Option<Rect> {
        (self.header.height == 3).then(|| Rect { y: self.header.y + 2, height: 1, ..self.header })
    }
}

/// Children of a node that are safe to follow: in range and after their parent, so that no walk can turn in a circle.
pub(crate) fn children(tree: &FlameTree, parent: u32) -> impl Iterator<Item = (u32, &FlameNode)> {
    let listed = tree.nodes.get(parent as usize).map_or(&[][..], |node| &node.children);
    listed
        .iter()
        .filter(move |&&child| child > parent)
        .filter_map(|&child| tree.nodes.get(child as usize).map(|node| (child, node)))
}

/// Parent of a node; `None` for the root, for an index out of range and for a parent that does not stand before it.
pub(crate) fn parent(tree: &FlameTree, node: u32) -> Option<u32> {
    let parent = tree.nodes.get(node as usize)?.parent;
    (parent < node).then_some(parent)
}

/// Nodes from the root down to `node`, both included; ascending.
pub(crate) fn path(tree: &FlameTree, node: u32) -> Vec<u32> {
    let mut path = vec![node];
    while let Some(above) = parent(tree, path[path.len() - 1]) {
        path.push(above);
    }
    path.reverse();
    path
}

/// What a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// One node.
    Node(u32),
    /// Children of `parent` that are narrower than a cell, together.
    Rest {
        /// Node whose children they are.
        parent: u32,
        /// How many.
        count: usize,
        /// Sum of their values.
        value: u64,
        /// Whether the selection is one of them or below one.
        selected: bool,
    },
}

/// A box: columns relative to the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlameBox {
    /// First column.
    pub(crate) x: u16,
    /// Columns; never 0.
    pub(crate) width: u16,
    /// What it stands for.
    pub(crate) content: Content,
}

/// The boxes of the rows that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlameLayout {
    /// Row of the first entry of `rows`; row 0 is the root.
    pub(crate) first_row: usize,
    /// Boxes by row, left to right; ends with the deepest row that has a box.
    pub(crate) rows: Vec<Vec<FlameBox>>,
    /// Row of the node that fills the width; rows above it are its ancestors.
    pub(crate) zoom_row: usize,
    /// Whether there are boxes below the last row asked for.
    pub(crate) more_below: bool,
}

impl FlameLayout {
    /// Lays out rows `first_row..first_row + count` with `zoom` at full width. Visits only boxes of a cell or more.
    pub(crate) fn of(
        tree: &FlameTree,
        zoom: u32,
        selected: u32,
        width: u16,
        first_row: usize,
        count: usize,
    ) -> Self {
        let mut layout = Self { first_row, ..Self::default() };
        if tree.nodes.is_empty() || width == 0 {
            return layout;
        }
        let above = path(tree, zoom);
        let selected = path(tree, selected);
        layout.zoom_row = above.len() - 1;
        let end = first_row.saturating_add(count);
        let mut row = layout.zoom_row;
        for (index, &node) in above.iter().enumerate().take(end).skip(first_row) {
            debug_assert!(index >= first_row);
            layout.rows.push(vec![FlameBox { x: 0, width, content: Content::Node(node) }]);
        }
        if end <= layout.zoom_row {
            layout.more_below = true;
            return layout;
        }
        let mut boxes = vec![FlameBox { x: 0, width, content: Content::Node(zoom) }];
        loop {
            let mut below = Vec::new();
            for upper in &boxes {
                if let Content::Node(node) = upper.content {
                    divide(tree, node, upper, &selected, &mut below);
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

    /// Row and place in that row of a node's box.
    pub(crate) fn find(&self, node: u32) -> Option<(usize, usize)> {
        self.rows.iter().enumerate().find_map(|(row, boxes)| {
            let place = boxes.iter().position(|it| it.content == Content::Node(node))?;
            Some((self.first_row + row, place))
        })
    }
}

/// Appends the boxes of a node's children: those of a cell or more in their order, then the rest as one box. What
/// remains free on the right is the node's own value.
fn divide(tree: &FlameTree, node: u32, upper: &FlameBox, selected: &[u32], out: &mut Vec<FlameBox>) {
    let own = tree.nodes.get(node as usize).map_or(0, |it| it.inclusive);
    let sum = children(tree, node).map(|(_, child)| u128::from(child.inclusive)).sum::<u128>();
    // A tree whose children outweigh their parent would overflow the box.
    let whole = u128::from(own).max(sum);
    if whole == 0 {
        return;
    }
    let width = u128::from(upper.width);
    let cells = |value: u128| (value * width / whole) as u16;
    let (mut before, mut edge) = (0u128, 0u16);
    let (mut rest, mut rest_count, mut rest_selected) = (0u128, 0usize, false);
    for (index, child) in children(tree, node) {
        let value = u128::from(child.inclusive);
        if value * width >= whole {
            let end = cells(before + value);
            out.push(FlameBox { x: upper.x + edge, width: end - edge, content: Content::Node(index) });
            before += value;
            edge = end;
        } else {
            rest += value;
            rest_count += 1;
            rest_selected |= selected.binary_search(&index).is_ok();
        }
    }
    if rest == 0 || edge >= upper.width {
        return;
    }
    let end = cells(before + rest).max(edge + 1);
    let content = Content::Rest {
        parent: node,
        count: rest_count,
        value: u64::try_from(rest).unwrap_or(u64::MAX),
        selected: rest_selected,
    };
    out.push(FlameBox { x: upper.x + edge, width: end - edge, content });
}
