//! Hot paths: the few contexts with most of the time, as an indented list.
//!
//! Owns: [`hot_paths`]. Because: a screen of twenty rows should show twenty different things: a chain of calls
//! without exclusive time is one row. Does not: draw, or know how wide a row is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use deepctx_profile::frame::short_labels;
use deepctx_profile::view::fold::names_work;
use deepctx_profile::view::snapshot::{FlameNode, FlameTree, FrameKind};

/// A frame with at least this percentage of its chain's first frame is on the same row. Less than for boxes, because
/// rows are few and a row shows the share of its first frame.
const SAME_PERCENT: u128 = 90;

/// Frames named in a row before its last.
const NAMED_BEFORE: usize = 2;

/// A chain of calls that pass on nearly all of their value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HotPath {
    /// Number of enclosing paths.
    pub(crate) depth: usize,
    /// Its nodes, the outermost first; never empty.
    pub(crate) nodes: Vec<u32>,
    /// The node that names it: the last one that shows what the program does, or where the time is spent.
    pub(crate) named: u32,
    /// Name of that node, and the most informative ones before it.
    pub(crate) label: String,
}

impl HotPath {
    /// The last node of the path.
    pub(crate) fn last(&self) -> u32 {
        self.nodes.last().copied().unwrap_or(0)
    }

    /// Value of the path.
    pub(crate) fn value(&self, tree: &FlameTree) -> u64 {
        let first = self.nodes.first().and_then(|&first| tree.nodes.get(first as usize));
        first.map_or(0, |first| first.inclusive)
    }
}

/// The `rows` hottest paths of a tree, each below its enclosing path, hottest first; paths below one percent of the
/// total are left out.
pub(crate) fn hot_paths(tree: &FlameTree, rows: usize) -> Vec<HotPath> {
    let value = |node: u32| tree.nodes[node as usize].inclusive;
    let Some(root) = tree.nodes.first() else { return Vec::new() };
    let least = (root.inclusive / 100).max(1);
    // By value; of equal ones, the smaller number is the outer one.
    let mut open: BinaryHeap<(u64, Reverse<u32>, Option<usize>)> = BinaryHeap::new();
    let worth = |parent: u32| tree.own_children(parent).filter(|&child| value(child) >= least);
    let processes: Vec<u32> = tree.own_children(0).collect();
    // A row for everything would be useless.
    let alone = matches!(processes[..], [one] if tree.nodes[one as usize].kind == FrameKind::Process);
    let top = if alone { processes[0] } else { 0 };
    open.extend(worth(top).map(|child| (value(child), Reverse(child), None)));
    let (mut found, mut below): (Vec<HotPath>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
    let mut outermost = Vec::new();
    while let Some((whole, Reverse(first), within)) = open.pop().filter(|_| found.len() < rows) {
        let nodes: Vec<u32> = std::iter::successors(Some(first), |&at| same(tree, at, whole)).collect();
        let depth = within.map_or(0, |path| found[path].depth + 1);
        let place = found.len();
        within.map_or(&mut outermost, |path| &mut below[path]).push(place);
        let named = named(tree, &nodes);
        let path = HotPath { depth, named: nodes[named], label: String::new(), nodes };
        open.extend(worth(path.last()).map(|child| (value(child), Reverse(child), Some(place))));
        found.push(path);
        below.push(Vec::new());
    }
    let node = |path: &HotPath| &tree.nodes[path.named as usize];
    let names = short_labels(found.iter().map(node).map(|node| (node.kind, node.label.as_str())));
    for (path, name) in found.iter_mut().zip(&names) {
        path.label = label(tree, path, name, alone);
    }
    let mut order = Vec::with_capacity(found.len());
    let mut stack: Vec<usize> = outermost.into_iter().rev().collect();
    while let Some(place) = stack.pop() {
        stack.extend(below[place].iter().rev());
        order.push(place);
    }
    order.into_iter().map(|place| found[place].clone()).collect()
}

/// The callee that has nearly the value of its chain.
fn same(tree: &FlameTree, node: u32, whole: u64) -> Option<u32> {
    let is_same = |value: u64| u128::from(value) * 100 >= u128::from(whole) * SAME_PERCENT && value > 0;
    tree.own_children(node).find(|&child| is_same(tree.nodes[child as usize].inclusive))
}

/// Index of the node that names a chain: nodes that only pass their time on are skipped.
fn named(tree: &FlameTree, nodes: &[u32]) -> usize {
    let last = nodes.len() - 1;
    let frame = |at: usize| &tree.nodes[nodes[at] as usize];
    let spends = frame(last).exclusive > frame(last).inclusive / 2;
    let telling = (0..last).rev().find(|&at| names_work(frame(at)));
    telling.filter(|_| !spends && !names_work(frame(last))).unwrap_or(last)
}

/// `name` is that of the node that names the path. `alone`: there is one process, which need not be named.
fn label(tree: &FlameTree, path: &HotPath, name: &str, alone: bool) -> String {
    let before: Vec<&FlameNode> = path
        .nodes
        .iter()
        .take_while(|&&node| node != path.named)
        .map(|&node| &tree.nodes[node as usize])
        .collect();
    let is_process = |frame: &&FlameNode| matches!(frame.kind, FrameKind::Process | FrameKind::Thread);
    let process = before.first().filter(|frame| is_process(frame) && !alone);
    let telling: Vec<&FlameNode> = before.iter().copied().filter(|frame| names_work(frame)).collect();
    let from = telling.len().saturating_sub(NAMED_BEFORE);
    let mut parts: Vec<&str> = process.map(|frame| frame.label.as_str()).into_iter().collect();
    if before.len() > telling.len() - from + parts.len() {
        parts.push("…");
    }
    parts.extend(telling[from..].iter().map(|frame| frame.label.as_str()));
    parts.push(name);
    parts.join(" → ")
}

#[cfg(test)]
mod tests {
    use deepctx_profile::view::request::{Request, Resolution};
    use deepctx_profile::view::snapshot::Header;
    use deepctx_profile::{Metric, Viewer, text};

    use super::*;

    #[track_caller]
    fn check(stacks: &str, rows: usize, expect: &[&str]) {
        let profile = text::parse(stacks).unwrap();
        let request = Request::of(Metric::CpuTime);
        let flame =
            Viewer::new().snapshot(&profile, &request, Header::default(), Resolution::default()).flame;
        let lines: Vec<String> = hot_paths(&flame, rows)
            .iter()
            .map(|path| format!("{}{} {}", "  ".repeat(path.depth), path.label, path.value(&flame)))
            .collect();
        assert_eq!(lines, expect);
    }

    const TRAINING: &str = "
        P a-1 / n _start / n main / y t.py:main:1 / y t.py:step:2 / o aten::mm / n sgemm 500
        P a-1 / n _start / n main / y t.py:main:1 / y t.py:step:2 / o aten::add 300
        P a-1 / n _start / n main / y t.py:main:1 / y d.py:load:2 / n read 195
        P a-1 / n exit 5";

    #[test]
    fn rows_differ_from_the_row_they_are_within() {
        let expect = [
            "… → t.py:main 995",
            "  t.py:step 800",
            "    aten::mm → sgemm 500",
            "    aten::add 300",
            "  d.py:load → read 195",
        ];
        check(TRAINING, 10, &expect);
        check(TRAINING, 3, &expect[..3]);
        check(TRAINING, 0, &[]);
        check("", 5, &[]);
    }

    #[test]
    fn a_path_is_named_by_what_says_most() {
        let stacks =
            "P a-1 / y t.py:f:1 / n slot_tp_call / n x 6\nP a-1 / y t.py:f:1 / n slot_tp_call / n y 4";
        check(stacks, 10, &["t.py:f 10", "  x 6", "  y 4"]);
    }

    #[test]
    fn one_of_several_processes_is_named() {
        let stacks = "P a-1 / n _start / n f / n g 60\nP b-2 / n h 40";
        check(stacks, 10, &["a-1 → … → g 60", "b-2 → h 40"]);
    }
}
