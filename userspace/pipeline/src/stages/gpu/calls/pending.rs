//! Pending: what a call leaves behind: device work, and what its return will complete.
//!
//! Owns: [`Outcome`], [`PendingCall`], [`ReturnAction`] and [`ReturnedCall`]. Because: handles, addresses and
//! durations of waits are known only when a call returns, and most calls leave nothing behind. Does not: decide what
//! a call means.

use deepctx_events::MemoryKind;
use deepctx_profile::intern::FrameId;
use deepctx_profile::tree::NodeId;

use super::super::built_graphs::AddedNode;
use super::super::communicators::Communicator;
use super::super::graphs::RecordedNode;
use super::super::streams::WaitTarget;
use super::super::work::Work;

/// The pending state of a call.
#[derive(Debug, Default)]
pub(in crate::stages::gpu) struct Outcome {
    /// Work that may get activities.
    pub(in crate::stages::gpu) launched: Option<Work>,
    /// The action for the call's return.
    pub(in crate::stages::gpu) on_return: Option<ReturnAction>,
}

impl Outcome {
    /// Only the return matters.
    pub(super) fn on_return(action: Option<ReturnAction>) -> Self {
        Self { launched: None, on_return: action }
    }
}

/// A call that waits for its return.
#[derive(Debug)]
pub(in crate::stages::gpu) struct PendingCall {
    pub(in crate::stages::gpu) pid: u32,
    pub(in crate::stages::gpu) tid: u32,
    pub(in crate::stages::gpu) entered_ns: u64,
    pub(in crate::stages::gpu) action: ReturnAction,
}

/// What to do when a call returns, by the group of the call.
#[derive(Debug)]
pub(in crate::stages::gpu) enum ReturnAction {
    /// Records how long the host was in a launch call.
    Launch { node: NodeId },
    /// Records the address of memory, or that it is pinned.
    Alloc(PendingAlloc),
    /// Records that the host has waited.
    Sync { node: NodeId, waited: Option<WaitTarget> },
    /// A graph.
    Graph(GraphReturn),
    /// The handle of a kernel.
    Module(ModuleReturn),
    /// Records the created context, and whether the thread uses it now.
    Context { current: bool },
    /// The handle of a communicator.
    Communicator(Communicator),
}

/// Memory that a call allocates or pins.
#[derive(Debug)]
pub(in crate::stages::gpu) struct PendingAlloc {
    pub(super) bytes: u64,
    pub(super) kind: MemoryKind,
    pub(super) node: NodeId,
    /// The address, if the caller gives it.
    pub(super) address: Option<u64>,
}

/// What to record when a call about graphs returns.
#[derive(Debug)]
pub(in crate::stages::gpu) enum GraphReturn {
    /// The graph that was recorded.
    Captured { recording: u64 },
    /// The launchable graph that was instantiated.
    Instantiated { graph: u64 },
    /// Whether the launchable graph now runs another graph.
    Updated { launchable: u64, graph: u64 },
    /// The copy of a graph.
    Cloned { of: u64 },
    /// The handle of a node that was added to a graph.
    NodeAdded { graph: u64, recorded: Option<RecordedNode>, added: AddedNode },
    /// Whether the edges were added: pairs of node and successor.
    Connected { graph: u64, edges: Vec<(u64, u64)> },
}

/// What to record when a call about device code returns.
#[derive(Clone, Copy, Debug)]
pub(in crate::stages::gpu) enum ModuleReturn {
    /// The handle of a kernel that was looked up by name.
    Named { frame: FrameId, module: u64 },
    /// A handle that means the same kernel as another.
    Alias { of: u64 },
}

/// A call has returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReturnedCall {
    pub(super) tid: u32,
    pub(super) entered_ns: u64,
    pub(super) end_ns: u64,
    /// It succeeded.
    pub(super) done: bool,
    /// The value written to its output pointer; `None` if it failed or wrote nothing.
    pub(super) out: Option<u64>,
}
