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
    /// Copies or a fill; `sized`: the number of bytes was known.
    Transfer { sized: bool },
    /// A graph, by its launchable handle.
    Graph { launchable: u64 },
    /// Nothing ran: the work was recorded into a graph. It still gets a correlation id.
    Recorded,
}

impl WorkKind {
    /// Whether it can cause an activity of this kind.
    pub(super) fn does(self, kind: u8) -> bool {
        match self {
            Self::Kernel | Self::Kernels => kind == activity::kind::KERNEL,
            // Some fills are kernels of the driver.
            Self::Transfer { .. } => kind != activity::kind::GRAPH,
            Self::Graph { .. } => true,
            Self::Recorded => false,
        }
    }
}

/// Work that still expects activities.
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
    /// The launched work as a context; the call itself while the work is unknown.
    pub(super) node: NodeId,
    /// Kernels not counted yet, since they have no name so far; with the handle that may get it.
    pub(super) held: Option<HeldLaunch>,
    /// The correlation id; 0 until there is one.
    pub(super) correlation: u32,
    /// Its kernels are counted already, whether or not activities come.
    pub(super) counted: bool,
    /// Number of activities so far.
    pub(super) seen: u32,
    /// Number of expected activities, as far as known.
    pub(super) expected: u32,
}

/// A launch that waits for a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLaunch {
    pub(super) handle: u64,
    pub(super) launch: Launch,
}

/// The target of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) stream: StreamKey,
    pub(super) context: u64,
}
