//! Attribute: a stack and what it weighs → the tree.
//!
//! Owns: which metrics a sample feeds. Because: the next sources (time off the CPU, GPU work) attribute to the same
//! contexts by other metrics. Does not: know words, addresses or names.

use deepctx_profile::metric::Metric;
use deepctx_profile::tree::{NodeId, Tree};

use super::resolve::CallPath;

/// The context of a stack below its thread.
#[inline]
pub fn node(tree: &mut Tree, thread: NodeId, path: &CallPath<'_>) -> NodeId {
    tree.path(thread, path.frames.iter().copied())
}

/// Adds a timer sample that stands for `period_ns` of CPU time.
#[inline]
pub fn add(tree: &mut Tree, node: NodeId, period_ns: u64) {
    tree.add(node, Metric::Samples, 1);
    tree.add(node, Metric::CpuTime, period_ns);
}
