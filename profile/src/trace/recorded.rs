//! Recorded events: single events of a live capture, as its recorder sees them and as they are stored.
//!
//! Owns: the row of an event ([`RecordedEvent`]), its lane, what caused it, and why one is missing. Because: calls,
//! work and waits come from different records, are written as one table, and are read back to find what caused an
//! event. Does not: know files, or the recorder.
//!
//! Times are nanoseconds since the capture began, on the host's clock.

use std::collections::BTreeMap;

use deepctx_common::reasons;

use super::{Basis, Status};
use crate::metric::Metric;
use crate::tree::NodeId;
use crate::units::Nanos;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedKind {
    /// A call that launches kernels or a graph.
    Launch,
    /// A call that copies, fills or prefetches.
    Transfer,
    /// A call that records an event in a stream.
    Record,
    /// A call that lets a stream wait for an event; the host goes on.
    StreamWait,
    /// A call that waits for a stream.
    StreamSync,
    /// A call that waits for an event.
    EventSync,
    /// A call that waits for a context or a device.
    ContextSync,
    /// Any other call of an accelerator's library.
    Call,
    /// A call by which ranks exchange data; [`RecordedEvent::exchange`] has the details.
    Collective,
    /// An operator of a framework begins. Its end is unknown.
    Operator,
    /// A kernel.
    Kernel,
    /// A copy by a device.
    Copy,
    /// A fill by a device.
    Fill,
    /// A whole graph, whose nodes are not reported one by one.
    Graph,
    /// Not an event: a graph node and its predecessor, at each launch of the graph.
    GraphEdge,
    /// A range named by the program.
    Range,
    /// A training step. `position` is its number at its place: 1 is the first one whose begin was seen.
    Step,
    /// A thread was off its CPU. [`RecordedEvent::wake_up`] has the cause of its end.
    OffCpu,
    /// A value of a counter; see [`RecordedEvent::counted`].
    Counter,
    /// Not an event: events of this lane and time were lost. `position` is their number.
    Gap,
}

impl RecordedKind {
    /// Every kind.
    pub const ALL: [RecordedKind; 20] = [
        RecordedKind::Launch,
        RecordedKind::Transfer,
        RecordedKind::Record,
        RecordedKind::StreamWait,
        RecordedKind::StreamSync,
        RecordedKind::EventSync,
        RecordedKind::ContextSync,
        RecordedKind::Call,
        RecordedKind::Collective,
        RecordedKind::Operator,
        RecordedKind::Kernel,
        RecordedKind::Copy,
        RecordedKind::Fill,
        RecordedKind::Graph,
        RecordedKind::GraphEdge,
        RecordedKind::Range,
        RecordedKind::Step,
        RecordedKind::OffCpu,
        RecordedKind::Counter,
        RecordedKind::Gap,
    ];

    /// Stable name, which is stored.
    pub const fn name(self) -> &'static str {
        match self {
            RecordedKind::Launch => "launch",
            RecordedKind::Transfer => "transfer",
            RecordedKind::Record => "record",
            RecordedKind::StreamWait => "stream-wait",
            RecordedKind::StreamSync => "stream-sync",
            RecordedKind::EventSync => "event-sync",
            RecordedKind::ContextSync => "context-sync",
            RecordedKind::Call => "call",
            RecordedKind::Collective => "collective",
            RecordedKind::Operator => "operator",
            RecordedKind::Kernel => "kernel",
            RecordedKind::Copy => "copy",
            RecordedKind::Fill => "fill",
            RecordedKind::Graph => "graph",
            RecordedKind::GraphEdge => "graph-edge",
            RecordedKind::Range => "range",
            RecordedKind::Step => "step",
            RecordedKind::OffCpu => "off-cpu",
            RecordedKind::Counter => "counter",
            RecordedKind::Gap => "gap",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether a thread did it.
    pub const fn is_call(self) -> bool {
        matches!(
            self,
            RecordedKind::Launch
                | RecordedKind::Transfer
                | RecordedKind::Record
                | RecordedKind::StreamWait
                | RecordedKind::StreamSync
                | RecordedKind::EventSync
                | RecordedKind::ContextSync
                | RecordedKind::Call
                | RecordedKind::Collective
        )
    }
}

/// When an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// This long after its begin.
    After(Nanos),
    /// Unknown: the return of the call was lost, or records are missing in which the range or step may have ended.
    ReturnLost,
    /// Unknown: not watched at the level of the trace.
    NotWatched,
    /// Unknown: the call had not returned, or the range or step not ended, when the capture or its process ended.
    NotReturned,
}

impl End {
    /// The length; zero if unknown.
    pub const fn duration(self) -> Nanos {
        match self {
            End::After(duration) => duration,
            End::ReturnLost | End::NotWatched | End::NotReturned => Nanos(0),
        }
    }

    /// Stable name, which is stored.
    pub const fn name(self) -> &'static str {
        match self {
            End::After(_) => "known",
            End::ReturnLost => "return-lost",
            End::NotWatched => "not-watched",
            End::NotReturned => "not-returned",
        }
    }

    /// The end with this name.
    pub fn from_name(name: &str, duration: Nanos) -> Option<Self> {
        let ends = [End::After(duration), End::ReturnLost, End::NotWatched, End::NotReturned];
        ends.into_iter().find(|end| end.name() == name)
    }
}

/// What caused an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cause {
    /// [`RecordedEvent::id`] of a call: of the launch for work, of the record for a wait for an event, of the last
    /// launch for a wait for a stream.
    pub id: u64,
    /// How certain that is.
    pub basis: Basis,
}

/// Who woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WakeSource {
    /// A thread.
    Thread {
        /// Its process.
        pid: u32,
        /// Its thread id.
        tid: u32,
    },
    /// A thread without a number here, in another pid namespace.
    ThreadOutside,
    /// An interrupt: a timer, a device, a packet.
    Interrupt,
}

/// A thread that was off its CPU was woken: from then on it waited for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeUp {
    /// How long after it had left its CPU.
    pub after: Nanos,
    /// By whom.
    pub by: WakeSource,
}

/// A sequence of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// A thread.
    Thread {
        /// Its process.
        pid: u32,
        /// Its thread id.
        tid: u32,
    },
    /// A stream of a device, by the numbers in activities.
    Stream {
        /// The process that it belongs to.
        pid: u32,
        /// The device.
        device: u32,
        /// The context.
        context: u32,
        /// The stream in that context.
        stream: u32,
    },
    /// A counter.
    Counter {
        /// The process of the counter; 0 for the machine.
        pid: u32,
        /// What is counted.
        metric: Metric,
        /// The context of a part of the machine, or of the memory of a device.
        node: NodeId,
    },
}

/// The value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedValue {
    /// The increase from the begin of the event to its end; for a level, the value.
    pub value: u64,
    /// Earlier values merged into this one.
    pub merged: u32,
}

/// The exchange between ranks in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedExchange {
    /// The communicator, by an id that is the same on all of its ranks.
    pub communicator: u64,
    /// Number of its earlier collectives.
    pub ordinal: u64,
    /// Its ranks; 0 if unknown.
    pub ranks: u32,
    /// The own rank.
    pub rank: u32,
    /// Bytes that this rank contributes; 0 if unknown.
    pub bytes: u64,
}

/// One event of a live capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Its kind.
    pub kind: RecordedKind,
    /// Number of its lane, in order of first appearance.
    pub lane: u32,
    /// Begin.
    pub start: Nanos,
    /// End.
    pub end: End,
    /// Calling context.
    pub node: NodeId,
    /// Number of a call; 0 for everything else.
    pub id: u64,
    /// Its cause; `None` if there is none, or it was not seen.
    pub cause: Option<Cause>,
    /// Of work: the number that the driver gave its call; 0 for none. Of a call: one more than what it returned, 0 when
    /// that was not seen. Of time off the CPU: how it ended, 0 if nobody was seen to wake the thread. Of a counter:
    /// earlier values that this one stands for.
    pub correlation: u32,
    /// Of a call: handle of its stream, 1 for the default stream, 2 for the thread's own; 0 for none.
    pub stream: u64,
    /// Of a call: handle of the event or of the launchable graph; 0 for none. Of a collective: id of its communicator,
    /// which is the same on all ranks. Of time off the CPU: process and thread
    /// that ended it, 32 bits each; 0 for none.
    pub object: u64,
    /// Of a call: work and records that its stream got up to and with it; 0 when it is recorded into a graph. Of a
    /// collective: how many its communicator had before. Of work of a graph: which recorded node it is; of an edge of
    /// it: which one comes before, 0 when none does. Of a gap: events lost. Of a step: its number. Of a counter: its
    /// value. Of time off the CPU: nanoseconds until the thread was woken.
    pub position: u64,
    /// Bytes copied or filled by work, or contributed to a collective; 0 if unknown.
    pub bytes: u64,
    /// Of work, and of an edge to it: node of the graph; 0 for none. Of a collective: ranks of its communicator, and
    /// the own one, 32 bits each.
    pub graph_node: u64,
}

impl RecordedEvent {
    /// A row for lost events of a lane between two times.
    pub fn gap(lane: u32, from: Nanos, to: Nanos, lost: u64) -> Self {
        RecordedEvent {
            kind: RecordedKind::Gap,
            lane,
            start: from,
            end: End::After(Nanos(to.0.saturating_sub(from.0))),
            node: NodeId::ROOT,
            id: 0,
            cause: None,
            correlation: 0,
            stream: 0,
            object: 0,
            position: lost,
            bytes: 0,
            graph_node: 0,
        }
    }

    /// An edge of a graph: the node with this number comes after a recorded one; 0: after none. By order, when it
    /// follows from the calls that recorded them; exact, when the program named it.
    pub fn graph_edge(lane: u32, start: Nanos, number: u64, before: u64, basis: Basis) -> Self {
        let event = Self::gap(lane, start, start, before);
        let cause = Some(Cause { id: 0, basis });
        RecordedEvent { kind: RecordedKind::GraphEdge, cause, graph_node: number, ..event }
    }

    /// A value of a counter: of one that grows between two times, or of a level from the first of them on.
    pub fn counter(lane: u32, from: Nanos, to: Nanos, node: NodeId, counted: RecordedValue) -> Self {
        let RecordedValue { value, merged } = counted;
        let event = Self::gap(lane, from, to, value);
        RecordedEvent { kind: RecordedKind::Counter, node, correlation: merged, ..event }
    }

    /// The value of a counter; `None` for other events.
    pub fn counted(&self) -> Option<RecordedValue> {
        let counted = RecordedValue { value: self.position, merged: self.correlation };
        (self.kind == RecordedKind::Counter).then_some(counted)
    }

    /// Time off the CPU.
    pub fn off_cpu(lane: u32, start: Nanos, end: End, node: NodeId, wake_up: Option<WakeUp>) -> Self {
        let (how, by) = match wake_up.map(|wake_up| wake_up.by) {
            None => (0, 0),
            Some(WakeSource::Thread { pid, tid }) => (1, u64::from(pid) << 32 | u64::from(tid)),
            Some(WakeSource::ThreadOutside) => (2, 0),
            Some(WakeSource::Interrupt) => (3, 0),
        };
        let position = wake_up.map_or(0, |wake_up| wake_up.after.0);
        let event = Self::gap(lane, start, start, position);
        RecordedEvent { kind: RecordedKind::OffCpu, end, node, correlation: how, object: by, ..event }
    }

    /// The call with its result (0 is success) and duration.
    #[must_use]
    pub fn returned(self, result: u32, after: Nanos) -> Self {
        RecordedEvent { end: End::After(after), correlation: result.wrapping_add(1), ..self }
    }

    /// The call with its exchange.
    #[must_use]
    pub fn exchanging(self, exchange: RecordedExchange) -> Self {
        let RecordedExchange { communicator, ordinal, ranks, rank, bytes } = exchange;
        let graph_node = u64::from(ranks) << 32 | u64::from(rank);
        RecordedEvent { object: communicator, position: ordinal, bytes, graph_node, ..self }
    }

    /// The exchange of this call; `None` for anything but a collective.
    pub fn exchange(&self) -> Option<RecordedExchange> {
        (self.kind == RecordedKind::Collective).then_some(RecordedExchange {
            communicator: self.object,
            ordinal: self.position,
            ranks: (self.graph_node >> 32) as u32,
            rank: self.graph_node as u32,
            bytes: self.bytes,
        })
    }

    /// The result of a call.
    pub fn status(&self) -> Status {
        let returned = self.correlation.checked_sub(1).filter(|_| self.kind.is_call());
        returned.map_or(Status::Unknown, |result| Status::Returned(result.cast_signed()))
    }

    /// What ended this time off the CPU; `None` if not seen, and for all other events.
    pub fn wake_up(&self) -> Option<WakeUp> {
        let by = match self.correlation {
            1 => WakeSource::Thread { pid: (self.object >> 32) as u32, tid: self.object as u32 },
            2 => WakeSource::ThreadOutside,
            3 => WakeSource::Interrupt,
            _ => return None,
        };
        (self.kind == RecordedKind::OffCpu).then_some(WakeUp { after: Nanos(self.position), by })
    }
}

/// Events without room, by lane, until there is room for the rows that represent them.
#[derive(Debug, Default)]
pub struct RecordedGaps(BTreeMap<u32, Gap>);

#[derive(Debug)]
struct Gap {
    from: Nanos,
    to: Nanos,
    count: u64,
}

impl RecordedGaps {
    /// Adds an event; a row for lost ones adds their number.
    pub fn add(&mut self, event: &RecordedEvent) {
        let end = event.start.saturating_add(event.end.duration());
        let gap = self.0.entry(event.lane).or_insert(Gap { from: event.start, to: end, count: 0 });
        gap.from = gap.from.min(event.start);
        gap.to = gap.to.max(end);
        // A file may state any number.
        let lost = if event.kind == RecordedKind::Gap { event.position } else { 1 };
        gap.count = gap.count.saturating_add(lost);
    }

    /// Takes a row for each lane.
    pub fn take(&mut self) -> impl Iterator<Item = RecordedEvent> + use<> {
        let gaps = std::mem::take(&mut self.0).into_iter();
        gaps.map(|(lane, gap)| RecordedEvent::gap(lane, gap.from, gap.to, gap.count))
    }
}

/// Events recorded since the last time, and their new lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedBatch {
    /// Lanes, numbered from [`RecordedBatch::first_lane`].
    pub lanes: Vec<Lane>,
    /// Number of the first of them.
    pub first_lane: u32,
    /// Events, in no order.
    pub events: Vec<RecordedEvent>,
}

reasons! {
    class Loss, page "traces.md";
    /// Why an event of a live capture is not in its trace.
    pub enum NotTraced {
        QueueFull, "trace-queue-full", "events came faster than they were taken from the pipeline";
        WriterBehind, "trace-writer-behind", "events came faster than the disk took them",
            helps "a shorter window, or another disk (`-o`)";
        WithoutTimes, "trace-without-times", "work of a device has no times, or its clock is not known";
        Unreadable, "trace-unreadable", "events are in a file of the trace that could not be read";
        Unfinished, "trace-lost-unfinished",
            "events were lost, and the capture did not end well: the trace has their number, and not the cause";
    }
}

reasons! {
    class Gap, page "traces.md";
    /// The end of a call is missing.
    pub const CALL_END_MISSING = "trace-call-end-missing",
        "calls have a begin and no end: their return was lost, or had not come when the capture ended";
    /// The end of a range or a step is missing.
    pub const RANGE_END_MISSING = "trace-range-end-missing",
        "ranges and steps are left out: they were open when the capture or their process ended, or records were lost";
    /// The end of time off the CPU is missing.
    pub const OFF_CPU_END_MISSING = "trace-off-cpu-end-missing",
        "times off the CPU are left out: they lasted longer than the capture or the process, or records were lost";
    /// A counter changed more often than is recorded.
    pub const COUNTER_VALUES_MERGED = "trace-counter-values-merged",
        "values of counters are left out: others came within the same millisecond, of which the last one is recorded";
}

/// Counts of the events of a recording: received = kept + left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedAccount {
    /// Events seen in the window.
    pub received: u64,
    /// Events passed on.
    pub kept: u64,
    left_out: [u64; NotTraced::ALL.len()],
}

impl RecordedAccount {
    /// This many events were seen, and this many of them passed on.
    pub fn new(received: u64, kept: u64) -> Self {
        RecordedAccount { received, kept, ..Self::default() }
    }

    /// Counts events that are not in the trace.
    pub fn leave_out(&mut self, because: NotTraced, events: u64) {
        let count = &mut self.left_out[because as usize];
        *count = count.saturating_add(events);
    }

    /// Events that are not in the trace for this reason.
    pub fn left_out(&self, because: NotTraced) -> u64 {
        self.left_out[because as usize]
    }

    /// Events that are not in the trace.
    pub fn lost(&self) -> u64 {
        self.left_out.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}
