//! Attribute: a stack and its weight → the tree and the timeline.
//!
//! Owns: which metrics a sample feeds. Because: other sources (off-CPU time, GPU work) attribute other metrics to the
//! same contexts. Does not: know words, addresses or names.

use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::{NodeId, Tree};
use deepctx_profile::units::Time;

/// The context of a stack below its thread.
#[inline]
pub(crate) fn node(tree: &mut Tree, thread: NodeId, frames: &[FrameId]) -> NodeId {
    tree.path(thread, frames.iter().copied())
}

/// The frames of a context below its thread, root first.
pub(crate) fn below_thread(profile: &Profile, node: NodeId) -> Vec<FrameId> {
    let mut stack = profile.tree.stack(node);
    let is_thread = |frame: &FrameId| matches!(profile.frames.get(*frame), Frame::Thread { .. });
    let from = stack.iter().position(is_thread).map_or(0, |at| at + 1);
    stack.drain(..from);
    stack
}

/// The frames of a call's stack, root first, without the kernel frames, which run our own program; with `itself`,
/// without the probed function either.
pub(crate) fn without_probed<'a>(profile: &Profile, frames: &'a [FrameId], itself: bool) -> &'a [FrameId] {
    let kernel =
        |id: &FrameId| matches!(profile.frames.get(*id), Frame::Kernel { .. } | Frame::KernelUnnamed { .. });
    let user = frames.len() - frames.iter().rev().take_while(|id| kernel(id)).count();
    &frames[..user.saturating_sub(usize::from(itself))]
}

/// How many of an operator's frames, root first, locate it: those up to the last Python function or operator.
pub(crate) fn operator_path(frames: &[FrameId], profile: &Profile) -> usize {
    let says =
        |frame: &FrameId| matches!(profile.frames.get(*frame), Frame::Python { .. } | Frame::Operator { .. });
    frames.iter().rposition(says).map_or(0, |at| at + 1)
}

/// A timer sample without its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    /// When it was taken, `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) time_ns: u64,
    /// Its weight, in the unit of the timer's metric.
    pub(crate) period: u64,
}

/// Adds a sample of a thread whose timer measures `timer`; with `wall`, time on the CPU also counts as wall time.
#[inline]
pub(crate) fn add(
    profile: &mut Profile,
    thread: NodeId,
    node: NodeId,
    tick: Tick,
    timer: Metric,
    wall: bool,
) {
    profile.tree.add(node, Metric::Samples, 1);
    profile.tree.add(node, timer, tick.period);
    // Cycles are not time.
    if wall && timer == Metric::CpuTime {
        profile.tree.add(node, Metric::WallTime, tick.period);
    }
    let since_start = Time::from_nanos(tick.time_ns) - profile.meta.started_monotonic;
    profile.timeline.add(thread, timer, since_start, tick.period);
}
