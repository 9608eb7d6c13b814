//! The text form of a tree, for tests and for reading in a debugger.
//!
//! Owns: [`tree`]. Because: a golden must be readable in a review, so there is one such form. Does not: promise
//! anything to programs; that is what `export` is for.

use std::fmt::Write as _;

use crate::metric::Metric;
use crate::profile::Profile;
use crate::tree::NodeId;

/// One line per node, two spaces deeper than its parent, children sorted by label (with lines), and after the label
/// the node's own figures: `metric=sum` and, when there is more than one value, `/count[min..max]`.
///
/// ```text
/// python3-7
///   train.py:main:12
///     train.py:step:30  cpu-time=30/3[10..10]
/// ```
pub fn tree(profile: &Profile) -> String {
    let mut children: Vec<Vec<(String, NodeId)>> = vec![Vec::new(); profile.tree.len()];
    for (number, node) in (0u32..).zip(profile.tree.nodes()).skip(1) {
        let label = profile.frames.get(node.frame).label(&profile.strings, true);
        children[node.parent.index()].push((label, NodeId::from_number(number)));
    }
    children.iter_mut().for_each(|list| list.sort());

    let metrics: Vec<Metric> = profile.tree.metrics().collect();
    let mut text = String::new();
    let mut to_write: Vec<(usize, &str, NodeId)> = vec![(0, "all", NodeId::ROOT)];
    while let Some((depth, label, node)) = to_write.pop() {
        let mut line = format!("{:width$}{label} ", "", width = 2 * depth);
        for &metric in &metrics {
            let cell = profile.tree.exclusive(node, metric);
            match cell.count {
                0 => continue,
                1 => _ = write!(line, " {metric}={}", cell.sum),
                n => _ = write!(line, " {metric}={}/{n}[{}..{}]", cell.sum, cell.min, cell.max),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
        let below = children[node.index()].iter().rev();
        to_write.extend(below.map(|(label, child)| (depth + 1, label.as_str(), *child)));
    }
    text
}
