//! Process: the state that the calls of one process share.
//!
//! Owns: [`Process`]. Because: handles, streams and clocks are meaningful within one process only. Does not:
//! interpret calls.

use deepctx_profile::device::activity::GpuProcess;
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use super::built_graphs::BuiltGraphs;
use super::clock::DeviceClock;
use super::communicators::Communicators;
use super::counts::{Counts, Gap};
use super::foreign_collection::ForeignCollection;
use super::graph_order::GraphOrder;
use super::graphs::Graphs;
use super::memory::Memory;
use super::names::Names;
use super::origins::Origins;
use super::samples::Samples;
use super::streams::Streams;

/// Threads of a process whose context is remembered; when full, the table is cleared and contexts are unknown again.
const THREADS_MAX: usize = 1 << 14;
/// Streams of a device that have a lane.
const LANES_MAX: usize = 256;

/// One process.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Its entry in the profile.
    pub(super) info: GpuProcess,
    /// Its node; `None` until something needs it.
    pub(super) node: Option<NodeId>,
    pub(super) names: Names,
    pub(super) origins: Origins,
    pub(super) memory: Memory,
    pub(super) streams: Streams,
    pub(super) graphs: Graphs,
    pub(super) graph_order: GraphOrder,
    pub(super) built_graphs: BuiltGraphs,
    pub(super) communicators: Communicators,
    pub(super) clock: DeviceClock,
    /// Kernels by the collector's ids of their names.
    pub(super) reported_kernels: FxHashMap<u64, FrameId>,
    /// A collector is active: launches will have activities.
    pub(super) collecting: bool,
    pub(super) foreign: ForeignCollection,
    pub(super) samples: Samples,
    /// When its first record came: `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) first_ns: u64,
    /// It began while it was watched.
    pub(super) from_start: bool,
    /// A context was created during the capture.
    pub(super) context_seen: bool,
    contexts: FxHashMap<u32, u64>,
    lanes: FxHashMap<(u32, u32), NodeId>,
    /// By device and stream: the frame that distinguishes them.
    stream_frames: FxHashMap<(u32, u32), FrameId>,
}

impl Process {
    /// A process of which nothing is known, or only that it began while it was watched.
    pub(super) fn new(pid: u32, first_ns: u64, from_start: bool) -> Self {
        let info = GpuProcess { pid, ..GpuProcess::default() };
        Self { info, first_ns, from_start, ..Self::default() }
    }

    /// All of its pinned memory was seen being allocated.
    pub(super) fn host_memory_known(&self) -> bool {
        self.from_start && self.context_seen
    }

    /// The context that a thread has chosen, 0 for an unknown one; `None` if it was not seen choosing one.
    pub(super) fn context(&self, tid: u32) -> Option<u64> {
        self.contexts.get(&tid).copied()
    }

    /// A thread chooses a context.
    pub(super) fn choose_context(&mut self, tid: u32, context: u64) {
        if self.contexts.len() >= THREADS_MAX {
            self.contexts.clear();
        }
        self.contexts.insert(tid, context);
    }

    /// Its entry in the profile.
    pub(super) fn info(&self) -> GpuProcess {
        GpuProcess { clock: self.clock.offset(), ..self.info.clone() }
    }

    /// Counts the gaps so far, besides those counted when they occurred.
    pub(super) fn count_gaps(&self, counts: &mut Counts) {
        counts.gap(Gap::BoundUnknown, self.streams.unbounded());
        let left_out = [self.graphs.left_out(), self.graph_order.left_out(), self.built_graphs.left_out()];
        counts.gap(Gap::StateFull, left_out.iter().sum());
    }

    /// The process is gone: returns its entry for the profile.
    pub(super) fn finished(mut self, counts: &mut Counts) -> GpuProcess {
        self.streams.close();
        self.count_gaps(counts);
        self.info()
    }

    /// The frame of a stream; `None` if there are too many; their work is then not distinguished.
    pub(super) fn stream_frame(
        &mut self,
        device: u32,
        stream: u32,
        profile: &mut Profile,
    ) -> Option<FrameId> {
        if let Some(frame) = self.stream_frames.get(&(device, stream)) {
            return Some(*frame);
        }
        if self.stream_frames.len() >= LANES_MAX {
            return None;
        }
        let name = self.device_label(device, profile);
        let frame = profile.frame(Frame::Stream { device, stream: Some(stream), name });
        self.stream_frames.insert((device, stream), frame);
        Some(frame)
    }

    /// Frames of streams must be created again.
    pub(super) fn forget_stream_frames(&mut self) {
        self.stream_frames.clear();
    }

    /// The lane of a stream in the timeline; `None` if there are too many.
    pub(super) fn lane(
        &mut self,
        device: u32,
        stream: u32,
        process: NodeId,
        profile: &mut Profile,
    ) -> Option<NodeId> {
        if let Some(lane) = self.lanes.get(&(device, stream)) {
            return Some(*lane);
        }
        if self.lanes.len() >= LANES_MAX {
            return None;
        }
        let name = profile.text(&format!("[device {device}] stream {stream}"));
        let frame = profile.frame(Frame::GpuApi { name });
        let lane = profile.tree.child(process, frame);
        self.lanes.insert((device, stream), lane);
        Some(lane)
    }
}
