//! Traces: every event with its time, as another tool or this project's recorder saw it.
//!
//! Owns: the tables of one process's trace ([`Trace`]), the connections between their events ([`Links`]), and the
//! traces of the ranks of one job ([`Job`]). Because: a calling context tree has sums; only single events can tell
//! why a device was idle at a moment, or which rank was late. It is a module of this crate rather than a separate
//! crate because events share strings, units and nodes with the tree, and readers of a trace want the profile as
//! well. Does not: read or write files, know a format, or compute figures (`deepctx-analysis` does).
//!
//! Times are whole nanoseconds of one clock, [`clock::TraceClock`]. Formats that write microseconds, with or without
//! decimals, lose nothing; [`ClockInfo::resolution`] is the resolution of the source.

mod assemble;
mod at_zero;
mod basis;
mod call_context;
mod calls;
mod columns;
mod communicators;
mod counter_lanes;
mod counter_unit;
mod event;
mod exchanges;
mod graph_edges;
mod job;
mod job_time;
mod lane_builder;
mod lane_events;
mod lanes;
mod last_ends;
mod link;
#[cfg(any(test, feature = "testing"))]
mod listing;
mod name;
mod packed;
mod recorded;
mod stream_handles;
#[cfg(any(test, feature = "testing"))]
pub mod text;
mod wait;

use rustc_hash::FxHashMap;

use crate::device::activity::ClockOffset;
use crate::intern::{Id, StrId, Strings};
use crate::ledger::Ledger;
use crate::units::{Nanos, Time, clock};

pub use assemble::{LOST_LANE, assemble};
pub use basis::Basis;
pub use call_context::{CallContext, CallContexts};
pub use communicators::{GroupRanks, name_with_ranks};
pub use counter_lanes::CounterLane;
pub use counter_unit::{CounterUnit, counter_process, counter_value_in_words};
pub use event::{
    CollectiveNote, CollectiveNotes, CommunicatorGroup, CommunicatorGroups, CounterStep, CounterSteps,
    CounterValue, DeviceKind, DeviceOp, DeviceOps, DeviceRange, DeviceRanges, GraphEdge, GraphEdges,
    HostCategories, HostCategory, HostKind, HostOp, HostOps, LostEvents, LostTimes, MemoryEvent,
    MemoryEvents, Status, Stream, Sync, SyncKind, Syncs, Thread, WakeUpEvent, WakeUpEvents, Waker,
};
pub use graph_edges::GraphOrder;
pub use job::{Job, RankTrace, SameRank};
pub use lane_events::LaneEvent;
pub use lanes::{
    ClassTimes, Event, EventClass, EventFacts, EventLane, EventLanes, LaunchFacts, RangeRow, RangeTables,
    Segment, busy,
};
pub use link::{Launch, Links};
#[cfg(any(test, feature = "testing"))]
pub use listing::listing;
pub use name::{Call, KernelClass, communicates};
pub use recorded::{
    CALL_END_MISSING, COUNTER_VALUES_MERGED, Cause, End, Lane, NotTraced, OFF_CPU_END_MISSING,
    RANGE_END_MISSING, RecordedAccount, RecordedBatch, RecordedEvent, RecordedExchange, RecordedGaps,
    RecordedKind, RecordedValue, WakeSource, WakeUp,
};
pub use wait::{Wait, Waiter};

/// A point in time of a trace.
pub type TraceTime = Time<clock::TraceClock>;
/// A length of time of a trace.
pub type Duration = Nanos;

/// The lane of losses whose lane is not known.
pub const UNKNOWN_LANE: &str = "unknown lanes";

/// Most bytes of names: a trace of millions of events has some thousand distinct ones.
const NAMES_MAX: usize = 1 << 28;

/// The clock of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockInfo {
    /// Nanoseconds from 1970 UTC to the clock's zero; `None` if the trace does not state it.
    pub epoch_ns: Option<u64>,
    /// How far `epoch_ns` may be off; `None` if it was not measured.
    pub uncertainty: Option<Nanos>,
    /// The smallest difference that the source can express: 1 µs for whole microseconds.
    pub resolution: Nanos,
    /// Traces of a job with the same clock domain share a clock; `None` if nothing is known about the others'.
    pub domain: Option<u32>,
}

impl Default for ClockInfo {
    fn default() -> Self {
        ClockInfo { epoch_ns: None, uncertainty: None, resolution: Nanos(1), domain: None }
    }
}

/// A trace's place in a distributed job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankInfo {
    /// Its rank; `None` if the trace does not state it.
    pub rank: Option<u32>,
    /// Ranks of the job; `None` if the trace does not state it.
    pub world_size: Option<u32>,
}

/// The trace of one process.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Names.
    pub strings: Strings,
    /// The clock of every time in it.
    pub clock: ClockInfo,
    /// Offset of its devices' clock from that clock, for a recorder that aligned them: each time of a device may be off
    /// by that uncertainty.
    pub device_clock: Option<ClockOffset>,
    /// Its place in a job.
    pub rank: RankInfo,
    /// Operations of threads.
    pub host: HostOps,
    /// Operations of devices.
    pub device: DeviceOps,
    /// Order of graph nodes.
    pub graph_edges: GraphEdges,
    /// Synchronizations that the tool draws on a device's rows.
    pub syncs: Syncs,
    /// The tool's names for operations of unknown kinds.
    pub categories: HostCategories,
    /// Values over time.
    pub counters: CounterSteps,
    /// When events were lost, by lane.
    pub lost: LostTimes,
    /// What ended times off the CPU.
    pub wake_ups: WakeUpEvents,
    /// Facts about collectives.
    pub collectives: CollectiveNotes,
    /// Ranks of their communicators, as far as they are known.
    pub communicator_groups: CommunicatorGroups,
    /// Allocations and frees.
    pub memory: MemoryEvents,
    /// Ranges of the program on device rows.
    pub device_ranges: DeviceRanges,
    /// Facts from the stacks of calls, by [`HostOp::context`].
    pub contexts: CallContexts,
    /// Content of the source that is missing here, by reason.
    pub ledger: Ledger,
    /// Losses before the recorder of this trace, of the whole capture; the first trace of a capture has them.
    pub lost_before: Ledger,
    threads: Lanes<Thread>,
    streams: Lanes<Stream>,
}

/// Threads or streams, each once.
#[derive(Clone, Debug)]
struct Lanes<L> {
    lanes: Vec<L>,
    ids: FxHashMap<L, Id<L>>,
}

impl<L> Default for Lanes<L> {
    fn default() -> Self {
        Lanes { lanes: Vec::new(), ids: FxHashMap::default() }
    }
}

impl<L: Copy + Eq + std::hash::Hash> Lanes<L> {
    fn id(&mut self, lane: L) -> Id<L> {
        *self.ids.entry(lane).or_insert_with(|| {
            self.lanes.push(lane);
            Id::from_number(self.lanes.len() as u32 - 1)
        })
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

impl Trace {
    /// An empty trace.
    pub fn new() -> Self {
        Trace {
            strings: Strings::new(NAMES_MAX),
            clock: ClockInfo::default(),
            device_clock: None,
            rank: RankInfo::default(),
            host: HostOps::default(),
            device: DeviceOps::default(),
            graph_edges: GraphEdges::default(),
            syncs: Syncs::default(),
            categories: HostCategories::default(),
            counters: CounterSteps::default(),
            lost: LostTimes::default(),
            wake_ups: WakeUpEvents::default(),
            collectives: CollectiveNotes::default(),
            communicator_groups: CommunicatorGroups::default(),
            memory: MemoryEvents::default(),
            device_ranges: DeviceRanges::default(),
            contexts: CallContexts::default(),
            ledger: Ledger::default(),
            lost_before: Ledger::default(),
            threads: Lanes::default(),
            streams: Lanes::default(),
        }
    }

    /// The handle of a name.
    pub fn text(&mut self, text: &str) -> StrId {
        self.strings.intern(text)
    }

    /// The name of a handle.
    pub fn name(&self, id: StrId) -> &str {
        self.strings.get(id)
    }

    /// The handle of a thread.
    pub fn thread(&mut self, process: &str, thread: &str) -> Id<Thread> {
        let (process, thread) = (self.text(process), self.text(thread));
        self.threads.id(Thread { process, thread })
    }

    /// The handle of a stream.
    pub fn stream(&mut self, device: u32, stream: Option<u64>) -> Id<Stream> {
        self.streams.id(Stream { device, stream })
    }

    /// Notes when events of a lane were lost. `None` if there is no room.
    pub fn lose(
        &mut self,
        lane: &str,
        from: TraceTime,
        to: TraceTime,
        events: u64,
    ) -> Option<Id<LostEvents>> {
        let lane = self.text(lane);
        self.lost.push(LostEvents { lane, from, to, events })
    }

    /// Every thread, in the order of their handles.
    pub fn threads(&self) -> &[Thread] {
        &self.threads.lanes
    }

    /// Every stream, in the order of their handles.
    pub fn streams(&self) -> &[Stream] {
        &self.streams.lanes
    }

    /// First begin and last end of everything but counters, which may have been read long before or after; `None`
    /// without any.
    pub fn span(&self) -> Option<(TraceTime, TraceTime)> {
        let host = self.host.iter().map(|(_, op)| (op.begin, op.end()));
        let device = self.device.iter().map(|(_, op)| (op.begin, op.end()));
        let syncs = self.syncs.iter().map(|(_, sync)| (sync.begin, sync.end()));
        let ranges = self.device_ranges.iter().map(|(_, range)| (range.begin, range.end()));
        let memory = self.memory.iter().map(|(_, event)| (event.at, event.at));
        let all = host.chain(device).chain(syncs).chain(ranges).chain(memory);
        all.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        let host = self.host.len() + self.syncs.len() + self.memory.len();
        host + self.device.len() + self.device_ranges.len() + self.counters.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synchronisations_and_ranges_of_devices_are_in_the_span() {
        let mut trace = text::parse("op m 10..20 f\n sync context - 5..30 #1").unwrap();
        let span = |trace: &Trace| trace.span().map(|(first, last)| (first.as_nanos(), last.as_nanos()));
        assert_eq!(span(&trace), Some((5_000, 30_000)));
        let (stream, name) = (trace.stream(0, Some(7)), trace.text("forward"));
        let begin = TraceTime::from_nanos(1_000);
        trace.device_ranges.push(DeviceRange { stream, begin, duration: Nanos(50_000), name });
        assert_eq!(span(&trace), Some((1_000, 51_000)));
    }
}
