//! Recorder: single calls, work and waits of a window, with their causes.
//!
//! Owns: which calls, work and spans are events of the window, and the fields of each. Because: the tree has sums;
//! why a device was idle at some moment only shows in the order of single events. Does not: run unless a trace was
//! requested; write anything: its consumer drains it; know what a wait waits for (`causes`), which counter values are
//! events (`counters`), or what did not fit (`queue`).
//!
//! A launch causes its work: exactly, by correlation id; by order where the records come from another tool. Recording
//! an event causes a wait for that event (exact, by handle), and the last launch into a stream causes what a wait for
//! that stream waits for (by order).
//!
//! At the level of launches, no returns are probed and calls that submit no work are not recorded ([`TraceLevel`]).

mod call;
mod causes;
mod counters;
mod queue;

use deepctx_common::activity::{Activity, kind};
use deepctx_events::{GpuCall, GraphCall, ModuleCall, Role, StreamCall, SyncScope};
use deepctx_profile::trace::{
    Basis, Cause, End, Lane, NotTraced, RecordedAccount, RecordedBatch, RecordedEvent, RecordedExchange,
    RecordedKind,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;
use rustc_hash::FxHashSet;

use super::event_window::EventWindow;
use super::window::Window;
use crate::spans::{CounterValue, SingleEvent, Span, SpanEnd, SpanKind};
use crate::trace_window::{AwaitedBegin, TraceLevel, TraceWindow};
pub(super) use call::RecordedCall;
use causes::Causes;
use counters::{CounterSink, CounterStates};
use queue::RecordQueue;

/// Calls that wait for their return: far more than there are threads.
const PENDING_MAX: usize = 1 << 14;

/// Device work, at times of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedWork<'a> {
    pub(super) pid: u32,
    pub(super) node: NodeId,
    /// Number and time of the call that launched it; `None` if not seen.
    pub(super) launch: Option<(u64, u64)>,
    /// How certain that launch is.
    pub(super) basis: Basis,
    /// Begin on the host's clock and duration; `None` if unknown.
    pub(super) times: Option<(u64, Nanos)>,
    /// For a graph node: its number in recording order; 0 for none.
    pub(super) order: u64,
    /// Its predecessors; `None` if unknown.
    pub(super) after: Option<Predecessors<'a>>,
}

/// The predecessors of a graph node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predecessors<'a> {
    /// Numbers in recording order.
    pub(super) nodes: &'a [u64],
    /// How certain they are.
    pub(super) basis: Basis,
}

/// Graph nodes whose edges were recorded; beyond it all are dropped, and recorded once more.
const NODES_MAX: usize = 1 << 18;

/// Records events of a window.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Begin of the capture, `CLOCK_MONOTONIC` nanoseconds.
    started_ns: u64,
    window: EventWindow,
    level: TraceLevel,
    pending: Window<u64, RecordedEvent>,
    queue: RecordQueue,
    causes: Causes,
    /// Nodes of graphs, by process and number, whose edges were recorded.
    nodes: FxHashSet<(u32, u64)>,
    counters: CounterStates,
}

impl Recorder {
    /// Records what begins within the window of a capture that began at a time, `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) fn new(started_ns: u64, window: TraceWindow, level: TraceLevel) -> Self {
        Self {
            started_ns,
            window: EventWindow::new(started_ns, window),
            level,
            pending: Window::new(PENDING_MAX),
            queue: RecordQueue::default(),
            causes: Causes::default(),
            nodes: FxHashSet::default(),
            counters: CounterStates::default(),
        }
    }

    /// Which events are recorded.
    pub(crate) fn trace_level(&self) -> TraceLevel {
        self.level
    }

    /// Whether a call of this kind is recorded. Must be asked for each call, since one may begin or end the window.
    pub(super) fn takes(&mut self, kind: RecordedKind, pid: u32, time_ns: u64) -> bool {
        if matches!(kind, RecordedKind::Launch | RecordedKind::Collective) {
            self.window.works(time_ns);
        }
        if kind == RecordedKind::Launch {
            self.window.launched(pid, time_ns);
        }
        self.is_open(time_ns) && self.records(kind)
    }

    /// Whether calls of a kind are recorded.
    fn records(&self, kind: RecordedKind) -> bool {
        self.level > TraceLevel::Launches || matches!(kind, RecordedKind::Launch | RecordedKind::Transfer)
    }

    /// Whether a time is within the window, and not before the capture: a wait that opens the window may be older.
    fn is_open(&self, time_ns: u64) -> bool {
        time_ns >= self.started_ns && self.window.contains(time_ns)
    }

    /// What the window waits for, while it has not begun.
    pub(crate) fn awaited(&self) -> Option<AwaitedBegin> {
        self.window.awaited()
    }

    /// The window is requested; false if it has ended, or does not open on request.
    pub(crate) fn request_window(&mut self, at_ns: u64) -> bool {
        self.window.request(at_ns)
    }

    /// A call was entered.
    pub(super) fn called(&mut self, call: &RecordedCall) {
        if !self.is_open(call.time_ns) || !self.records(call.kind) {
            return;
        }
        let (position, cause) = self.causes.place(call);
        let (stream, _) = call.stream.parts();
        let Some(lane) = self.queue.lane(Lane::Thread { pid: call.pid, tid: call.tid }) else { return };
        let exchange = call.exchange.map(|(exchange, bytes)| RecordedExchange {
            communicator: exchange.of.id,
            ordinal: exchange.ordinal,
            ranks: exchange.of.ranks,
            rank: exchange.of.rank,
            bytes,
        });
        let event = RecordedEvent {
            kind: call.kind,
            lane,
            start: Nanos(call.time_ns - self.started_ns),
            end: End::ReturnLost,
            node: call.node,
            id: call.number,
            cause,
            correlation: 0,
            stream: match call.kind {
                RecordedKind::ContextSync | RecordedKind::Call => 0,
                _ => stream,
            },
            object: call.object,
            position,
            bytes: 0,
            graph_node: 0,
        };
        let event = exchange.map_or(event, |exchange| event.exchanging(exchange));
        if self.level == TraceLevel::Launches {
            return self.queue.keep(RecordedEvent { end: End::NotWatched, ..event });
        }
        if let Some(oldest) = self.pending.put(call.time_ns, call.number, event) {
            self.queue.keep(oldest);
        }
    }

    /// A call returned. All of these libraries return 32 bits, 0 for success.
    pub(super) fn returned(&mut self, number: u64, result: u32, time_ns: u64) {
        if let Some(event) = self.pending.take(number) {
            let took = time_ns.saturating_sub(self.started_ns).saturating_sub(event.start.0);
            self.queue.keep(event.returned(result, Nanos(took)));
        }
    }

    /// A device did something.
    pub(super) fn worked(&mut self, work: &RecordedWork<'_>, activity: &Activity) {
        let launched_within =
            work.launch.map(|(_, time_ns)| time_ns).filter(|time_ns| self.is_open(*time_ns));
        let Activity { device, context, stream, .. } = *activity;
        let lane = Lane::Stream { pid: work.pid, device, context, stream };
        let Some((begin_ns, took)) = work.times else {
            if let Some(time_ns) = launched_within {
                // The step that launched it lacks it, whenever it ran.
                let at = Nanos(time_ns.saturating_sub(self.started_ns));
                self.queue.lose(NotTraced::WithoutTimes, lane, at);
            }
            return;
        };
        if launched_within.is_none() && !self.is_open(begin_ns) {
            return;
        }
        let Some(lane) = self.queue.lane(lane) else { return };
        self.queue.keep(RecordedEvent {
            kind: match activity.kind {
                kind::KERNEL => RecordedKind::Kernel,
                kind::FILL => RecordedKind::Fill,
                kind::GRAPH => RecordedKind::Graph,
                _ => RecordedKind::Copy,
            },
            lane,
            start: Nanos(begin_ns.saturating_sub(self.started_ns)),
            end: End::After(took),
            node: work.node,
            id: 0,
            cause: work.launch.map(|(id, _)| Cause { id, basis: work.basis }),
            correlation: activity.correlation,
            stream: 0,
            object: 0,
            position: work.order,
            bytes: activity.bytes,
            graph_node: activity.node,
        });
        if let Some(Predecessors { nodes, basis }) = work.after {
            let start = Nanos(begin_ns.saturating_sub(self.started_ns));
            self.edges(work.pid, RecordedEvent::graph_edge(lane, start, activity.node, 0, basis), nodes);
        }
    }

    /// Records the predecessors of a graph node: once, since they are the same at each launch. `first`: with none.
    fn edges(&mut self, pid: u32, first: RecordedEvent, after: &[u64]) {
        if self.nodes.len() >= NODES_MAX {
            self.nodes.clear();
        }
        if !self.nodes.insert((pid, first.graph_node)) {
            return;
        }
        if after.is_empty() {
            self.queue.keep(first);
        }
        for before in after {
            self.queue.keep(RecordedEvent { position: *before, ..first });
        }
    }

    /// A range, a training step or time off the CPU ended, or its end stays unknown. Those that began in the window are
    /// kept, however late they end.
    fn span(&mut self, span: &Span) {
        if let SpanKind::StepBegins(number) = span.kind {
            return self.window.step_begins(span.node, number, span.began_ns);
        }
        self.window.works(span.began_ns);
        if !self.is_open(span.began_ns) {
            return;
        }
        let Some(lane) = self.queue.lane(Lane::Thread { pid: span.of.pid, tid: span.of.tid }) else { return };
        let end = match span.end {
            SpanEnd::At(end_ns) => End::After(Nanos(end_ns.saturating_sub(span.began_ns))),
            SpanEnd::Lost => End::ReturnLost,
            SpanEnd::Open => End::NotReturned,
        };
        let start = Nanos(span.began_ns - self.started_ns);
        let (kind, position) = match span.kind {
            SpanKind::Range => (RecordedKind::Range, 0),
            SpanKind::Step(number) | SpanKind::StepBegins(number) => (RecordedKind::Step, number),
            SpanKind::Operator => {
                let gap = RecordedEvent::gap(lane, start, start, 0);
                let (kind, end) = (RecordedKind::Operator, End::NotWatched);
                return self.queue.keep(RecordedEvent { kind, end, node: span.node, ..gap });
            }
            SpanKind::OffCpu(wake_up) => {
                return self.queue.keep(RecordedEvent::off_cpu(lane, start, end, span.node, wake_up));
            }
        };
        self.queue.keep(RecordedEvent {
            kind,
            end,
            node: span.node,
            ..RecordedEvent::gap(lane, start, start, position)
        });
    }

    /// Resource usage of the machine between two times, which the records may not have reached.
    pub(crate) fn machine(&mut self, value: CounterValue) {
        let (counters, mut out) = self.counters();
        counters.read(value, &mut out);
    }

    /// A level of a process has another value.
    fn level(&mut self, value: CounterValue) {
        let (counters, mut out) = self.counters();
        counters.changed(value, &mut out);
    }

    /// Records what a stage found.
    pub(crate) fn event(&mut self, event: SingleEvent) {
        match event {
            SingleEvent::Span(span) => self.span(&span),
            SingleEvent::Counter(value) => self.level(value),
        }
    }

    /// The records have come to a time.
    pub(crate) fn advance(&mut self, until_ns: u64) {
        let (counters, mut out) = self.counters();
        counters.advance(until_ns, &mut out);
    }

    fn counters(&mut self) -> (&mut CounterStates, CounterSink<'_>) {
        let Self { started_ns, window, queue, counters, .. } = self;
        (counters, CounterSink { started_ns: *started_ns, window, queue })
    }

    /// Calls that have not returned by now never will.
    pub(super) fn finish(&mut self, pid: Option<u32>) {
        let queue = &self.queue;
        let of = |event: &RecordedEvent| match queue.lane_of(event) {
            Some(Lane::Thread { pid: of, .. }) => pid.is_none_or(|pid| pid == of),
            _ => true,
        };
        for event in self.pending.take_if(of) {
            self.queue.keep(RecordedEvent { end: End::NotReturned, ..event });
        }
        if let Some(pid) = pid {
            self.window.ended(pid);
            self.causes.forget(pid);
            self.nodes.retain(|(of, _)| *of != pid);
            let (counters, mut out) = self.counters();
            counters.forget(pid, &mut out);
        }
    }

    /// Takes the events recorded since the last time; `None` if there are none.
    pub(crate) fn take(&mut self) -> Option<RecordedBatch> {
        self.queue.take()
    }

    /// Counts of the events so far.
    pub(crate) fn account(&self) -> RecordedAccount {
        self.queue.account()
    }
}

/// How a call is recorded; `None` for what compiled programs register as they start, which returns no result.
pub(super) fn kind_of(call: GpuCall) -> Option<RecordedKind> {
    match call {
        GpuCall::Launch(_) | GpuCall::Graph(GraphCall::Launch) => Some(RecordedKind::Launch),
        GpuCall::Transfer(_) => Some(RecordedKind::Transfer),
        GpuCall::Stream(StreamCall::EventRecord) => Some(RecordedKind::Record),
        GpuCall::Stream(StreamCall::Wait) => Some(RecordedKind::StreamWait),
        GpuCall::Sync(SyncScope::Stream) => Some(RecordedKind::StreamSync),
        GpuCall::Sync(SyncScope::Event) => Some(RecordedKind::EventSync),
        GpuCall::Sync(SyncScope::Context | SyncScope::Device) => Some(RecordedKind::ContextSync),
        GpuCall::Module(ModuleCall::FatBinary | ModuleCall::FatBinaryUnload | ModuleCall::FunctionStub) => {
            None
        }
        _ => Some(RecordedKind::Call),
    }
}

/// The meaning of the argument that is the event or the launchable graph.
pub(super) fn object_role(kind: RecordedKind) -> Option<Role> {
    match kind {
        RecordedKind::Record | RecordedKind::StreamWait | RecordedKind::EventSync => Some(Role::Event),
        RecordedKind::Launch => Some(Role::GraphExec),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
