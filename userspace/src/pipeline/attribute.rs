//! Attribute: a stack and what it weighs → the tree.
//!
//! Owns: which metrics a sample feeds. Because: the next sources (time off the CPU, GPU work) attribute to the same
//! contexts by other metrics. Does not: know words, addresses or names.

use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::{NodeId, Tree};

/// The context of a stack below its thread.
#[inline]
pub fn node(tree: &mut Tree, thread: NodeId, frames: &[FrameId]) -> NodeId {
    tree.path(thread, frames.iter().copied())
}

/// Adds a timer sample that stands for `period_ns` of CPU time; with `wall`, which is time on and off the CPU.
#[inline]
pub fn add(tree: &mut Tree, node: NodeId, period_ns: u64, wall: bool) {
    tree.add(node, Metric::Samples, 1);
    tree.add(node, Metric::CpuTime, period_ns);
    if wall {
        tree.add(node, Metric::WallTime, period_ns);
    }
}
