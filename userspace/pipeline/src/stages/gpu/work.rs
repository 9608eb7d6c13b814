//! Launched work whose activities have not all arrived.
//!
//! Owns: [`Work`], its kind, and what it waits for. Because: calls and activities of a launch arrive separately, in
//! either order. Does not: join them.

use deepctx_common::activity;
use deepctx_profile::device::activity::Launch;
use deepctx_profile::tree::NodeId;

use super::streams::StreamKey;

/// What kind of work was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    /// One kernel.
    Kernel,
    /// Several, one on each device.
    Kernels,
    /// Copies or a fill; whether the number of bytes was known.
    Transfer { sized: bool },
    /// A graph, by its launchable handle.
    Graph { launchable: u64 },
    /// Nothing ran: it was recorded into a graph. It still gets a correlation id.
    Recorded,
}

impl WorkKind {
    /// Whether an activity of this kind can be because of it.
    pub(super) fn does(self, kind: u8) -> bool {
        match self {
            Self::Kernel | Self::Kernels => kind == activity::kind::KERNEL,
            // Some fills are kernels of the driver's.
            Self::Transfer { .. } => kind != activity::kind::GRAPH,
            Self::Graph { .. } => true,
            Self::Recorded => false,
        }
    }
}

/// Work whose activities have not all come.
#[derive(Debug)]
pub(super) struct Work {
    /// The number of its call.
    pub(super) number: u64,
    pub(super) pid: u32,
    /// When it was launched.
    pub(super) time_ns: u64,
    pub(super) kind: WorkKind,
    /// The call, as a context.
    pub(super) api: NodeId,
    /// What was launched, as a context; the call itself while that is not known.
    pub(super) node: NodeId,
    /// Kernels that are not counted yet, since no one has named them; with the handle that may learn it.
    pub(super) held: Option<HeldLaunch>,
    /// The id; 0 until there is one.
    pub(super) correlation: u32,
    /// What it runs is counted already, whether or not activities come.
    pub(super) counted: bool,
    /// Activities that came.
    pub(super) seen: u32,
    /// Activities that are expected, as far as that is known.
    pub(super) expected: u32,
}

/// A launch that waits for a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLaunch {
    pub(super) handle: u64,
    pub(super) launch: Launch,
}

/// Where a launch goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) stream: StreamKey,
    pub(super) context: u64,
}
