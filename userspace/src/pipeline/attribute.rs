//! Attribute: a stack and what it weighs → the tree and the timeline.
//!
//! Owns: which metrics a sample feeds. Because: the next sources (time off the CPU, GPU work) attribute to the same
//! contexts by other metrics. Does not: know words, addresses or names.

use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::{NodeId, Tree};
use deepctx_profile::units::Time;

/// The context of a stack below its thread.
#[inline]
pub fn node(tree: &mut Tree, thread: NodeId, frames: &[FrameId]) -> NodeId {
    tree.path(thread, frames.iter().copied())
}

/// Adds a timer sample that was taken at `time_ns` (`CLOCK_MONOTONIC`) in a thread and stands for `period_ns` of CPU time;
/// with `wall`, which is time on and off the CPU.
#[inline]
pub fn add(profile: &mut Profile, thread: NodeId, node: NodeId, time_ns: u64, period_ns: u64, wall: bool) {
    profile.tree.add(node, Metric::Samples, 1);
    profile.tree.add(node, Metric::CpuTime, period_ns);
    if wall {
        profile.tree.add(node, Metric::WallTime, period_ns);
    }
    let since_start = Time::from_nanos(time_ns) - profile.meta.started_monotonic;
    profile.timeline.add(thread, Metric::CpuTime, since_start, period_ns);
}
