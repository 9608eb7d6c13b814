//! Recorder: single calls, work and waits of a window, with what caused them.
//!
//! Owns: the queue of recorded events, its account, and the order of streams and events that gives causes. Because:
//! the tree has sums, and why a device stood still at a moment is in the order of single events. Does not: run unless
//! a trace was asked for; write anything: whoever drains it does.
//!
//! A launch causes its work: exactly by the driver's number, by order where the records of another tool are read. The
//! record of an event causes a wait for that event (exact: the handle), and the last launch into a stream causes what
//! a wait for that stream waits for (by order).
//!
//! At the level of launches, no return is watched and no call is recorded that gives no work ([`TraceLevel`]).

use deepctx_common::activity::{Activity, kind};
use deepctx_events::{GpuCall, GraphCall, ModuleCall, Role, StreamCall, SyncScope};
use deepctx_profile::trace::{
    Basis, Cause, End, Lane, NotTraced, RecordedAccount, RecordedBatch, RecordedEvent, RecordedExchange,
    RecordedGaps, RecordedKind,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;
use rustc_hash::{FxHashMap, FxHashSet};

use super::communicators::Exchange;
use super::event_window::EventWindow;
use super::streams::StreamKey;
use super::window::Window;
use crate::spans::{Span, SpanEnd, SpanKind};
use crate::trace_window::{AwaitedBegin, TraceLevel, TraceWindow};

/// Events that wait to be taken: two ticks of a million a second, about 26 MiB.
const QUEUE_MAX: usize = 1 << 18;
/// Calls that wait for their return: far more than there are threads.
const PENDING_MAX: usize = 1 << 14;
/// Threads and streams of a recording; events of more are counted as left out.
const LANES_MAX: usize = 1 << 16;
/// Streams and events of which the last launch is remembered; beyond it they are forgotten, and causes are unknown.
const HANDLES_MAX: usize = 1 << 16;

/// A call that is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedCall {
    pub(super) kind: RecordedKind,
    pub(super) number: u64,
    pub(super) time_ns: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) node: NodeId,
    pub(super) stream: StreamKey,
    /// Handle of an event or of a launchable graph; 0 for none.
    pub(super) object: u64,
    /// It becomes part of a graph and gives no work.
    pub(super) is_captured: bool,
    /// Of a collective: which one it is, and the bytes that this rank gives into it.
    pub(super) exchange: Option<(Exchange, u64)>,
}

/// Work that a device did, at times of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedWork<'a> {
    pub(super) pid: u32,
    pub(super) node: NodeId,
    /// Number of the call that launched it, and when; `None` when that was not seen.
    pub(super) launch: Option<(u64, u64)>,
    /// How sure it is that this was the launch.
    pub(super) basis: Basis,
    /// Begin on the host's clock and length; `None` when they are not known.
    pub(super) times: Option<(u64, Nanos)>,
    /// Of a node of a graph: its number in the order of what was recorded; 0 for none.
    pub(super) order: u64,
    /// The numbers of those that it comes after; `None` when they are not known.
    pub(super) after: Option<&'a [u64]>,
}

/// Nodes of graphs whose edges were recorded; beyond it they are forgotten, and recorded once more.
const NODES_MAX: usize = 1 << 18;

/// Where a stream was when something happened.
#[derive(Clone, Copy, Debug, Default)]
struct StreamPosition {
    /// Launches and records up to then.
    position: u64,
    /// The last launch; 0 before the first.
    launch: u64,
}

/// Records events of a window.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Begin of the capture, `CLOCK_MONOTONIC` nanoseconds.
    started_ns: u64,
    window: EventWindow,
    level: TraceLevel,
    pending: Window<u64, RecordedEvent>,
    events: Vec<RecordedEvent>,
    lanes: Vec<Lane>,
    lane_numbers: FxHashMap<Lane, u32>,
    /// Lanes that were taken already.
    lanes_taken: usize,
    streams: FxHashMap<(u32, StreamKey), StreamPosition>,
    /// The call that recorded each event last.
    recorded: FxHashMap<(u32, u64), u64>,
    /// Nodes of graphs, by process and number, whose edges were recorded.
    nodes: FxHashSet<(u32, u64)>,
    lost: RecordedGaps,
    account: RecordedAccount,
}

impl Recorder {
    /// Records what begins within the window of a capture that began at a time, `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) fn new(started_ns: u64, window: TraceWindow, level: TraceLevel) -> Self {
        Self {
            started_ns,
            window: EventWindow::new(started_ns, window),
            level,
            pending: Window::new(PENDING_MAX),
            events: Vec::new(),
            lanes: Vec::new(),
            lane_numbers: FxHashMap::default(),
            lanes_taken: 0,
            streams: FxHashMap::default(),
            recorded: FxHashMap::default(),
            nodes: FxHashSet::default(),
            lost: RecordedGaps::default(),
            account: RecordedAccount::default(),
        }
    }

    /// Which events are recorded.
    pub(crate) fn level(&self) -> TraceLevel {
        self.level
    }

    /// Whether calls of a kind are recorded.
    pub(super) fn records(&self, kind: RecordedKind) -> bool {
        self.level > TraceLevel::Launches || matches!(kind, RecordedKind::Launch | RecordedKind::Transfer)
    }

    /// Whether a time is within the window.
    pub(super) fn is_open(&self, time_ns: u64) -> bool {
        self.window.contains(time_ns)
    }

    /// What the window waits for, while it has not begun.
    pub(crate) fn awaited(&self) -> Option<AwaitedBegin> {
        self.window.awaited()
    }

    /// The window is requested; false when it has ended, or is not one on request.
    pub(crate) fn request_window(&mut self, at_ns: u64) -> bool {
        self.window.request(at_ns)
    }

    /// A call was entered.
    pub(super) fn called(&mut self, call: &RecordedCall) {
        if !self.is_open(call.time_ns) || !self.records(call.kind) {
            return;
        }
        let (position, cause) = self.place(call);
        let (stream, _) = call.stream.parts();
        let Some(lane) = self.lane(Lane::Thread { pid: call.pid, tid: call.tid }) else { return };
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
            return self.keep(RecordedEvent { end: End::NotWatched, ..event });
        }
        if let Some(oldest) = self.pending.put(call.time_ns, call.number, event) {
            self.keep(oldest);
        }
    }

    /// Where in its stream a call is, and what caused it.
    fn place(&mut self, call: &RecordedCall) -> (u64, Option<Cause>) {
        if self.streams.len() >= HANDLES_MAX {
            self.streams.clear();
        }
        if self.recorded.len() >= HANDLES_MAX {
            self.recorded.clear();
        }
        let by_order = |launch| (launch != 0).then_some(Cause { id: launch, basis: Basis::ByOrder });
        let exactly = |call: &u64| Cause { id: *call, basis: Basis::Exact };
        let key = (call.pid, call.stream);
        match call.kind {
            RecordedKind::Launch | RecordedKind::Transfer | RecordedKind::Record if call.is_captured => {
                (0, None)
            }
            RecordedKind::Launch | RecordedKind::Transfer => {
                let place = self.streams.entry(key).or_default();
                *place = StreamPosition { position: place.position + 1, launch: call.number };
                (place.position, None)
            }
            RecordedKind::Record => {
                self.recorded.insert((call.pid, call.object), call.number);
                let place = self.streams.entry(key).or_default();
                place.position += 1;
                (place.position, by_order(place.launch))
            }
            RecordedKind::StreamWait | RecordedKind::EventSync => {
                let position = self.streams.get(&key).map_or(0, |place| place.position);
                (position, self.recorded.get(&(call.pid, call.object)).map(exactly))
            }
            RecordedKind::StreamSync => {
                let place = self.streams.get(&key).copied().unwrap_or_default();
                (place.position, by_order(place.launch))
            }
            _ => (0, None),
        }
    }

    /// A call returned. All of these libraries return 32 bits, 0 for success.
    pub(super) fn returned(&mut self, number: u64, result: u32, time_ns: u64) {
        if let Some(event) = self.pending.take(number) {
            let took = time_ns.saturating_sub(self.started_ns).saturating_sub(event.start.0);
            self.keep(event.returned(result, Nanos(took)));
        }
    }

    /// A device did something.
    pub(super) fn worked(&mut self, work: &RecordedWork<'_>, activity: &Activity) {
        let launched_within = work.launch.is_some_and(|(_, time_ns)| self.is_open(time_ns));
        let Some((begin_ns, took)) = work.times else {
            if launched_within {
                self.account.received += 1;
                self.account.leave_out(NotTraced::WithoutTimes, 1);
            }
            return;
        };
        if !launched_within && !self.is_open(begin_ns) {
            return;
        }
        let Activity { device, context, stream, .. } = *activity;
        let Some(lane) = self.lane(Lane::Stream { pid: work.pid, device, context, stream }) else { return };
        self.keep(RecordedEvent {
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
        if let Some(after) = work.after {
            let start = Nanos(begin_ns.saturating_sub(self.started_ns));
            self.edges(work.pid, RecordedEvent::graph_edge(lane, start, activity.node, 0), after);
        }
    }

    /// Which nodes a node of a graph comes after: once, since that is the same at each launch. `first` is the one that
    /// comes after none.
    fn edges(&mut self, pid: u32, first: RecordedEvent, after: &[u64]) {
        if self.nodes.len() >= NODES_MAX {
            self.nodes.clear();
        }
        if !self.nodes.insert((pid, first.graph_node)) {
            return;
        }
        if after.is_empty() {
            self.keep(first);
        }
        for before in after {
            self.keep(RecordedEvent { position: *before, ..first });
        }
    }

    /// A range, a training step or time off the CPU ended, or its end will not be known. Those that began in the window
    /// are kept, however late they end.
    pub(crate) fn span(&mut self, span: &Span) {
        if let SpanKind::StepBegins(number) = span.kind {
            return self.window.step_begins(span.node, number, span.began_ns);
        }
        if !self.is_open(span.began_ns) {
            return;
        }
        let Some(lane) = self.lane(Lane::Thread { pid: span.of.pid, tid: span.of.tid }) else { return };
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
                return self.keep(RecordedEvent { kind, end, node: span.node, ..gap });
            }
            SpanKind::OffCpu(wake_up) => {
                return self.keep(RecordedEvent::off_cpu(lane, start, end, span.node, wake_up));
            }
        };
        self.keep(RecordedEvent {
            kind,
            end,
            node: span.node,
            ..RecordedEvent::gap(lane, start, start, position)
        });
    }

    /// Whatever has not returned by now never will.
    pub(super) fn finish(&mut self, pid: Option<u32>) {
        let lanes = &self.lanes;
        let of = |event: &RecordedEvent| match lanes.get(event.lane as usize) {
            Some(Lane::Thread { pid: of, .. }) => pid.is_none_or(|pid| pid == *of),
            _ => true,
        };
        for event in self.pending.take_if(of) {
            self.keep(RecordedEvent { end: End::NotReturned, ..event });
        }
        if let Some(pid) = pid {
            self.streams.retain(|(of, _), _| *of != pid);
            self.recorded.retain(|(of, _), _| *of != pid);
            self.nodes.retain(|(of, _)| *of != pid);
        }
    }

    /// Takes what was recorded since the last time; `None` when nothing was.
    pub(crate) fn take(&mut self) -> Option<RecordedBatch> {
        self.events.extend(self.lost.take());
        if self.events.is_empty() && self.lanes_taken == self.lanes.len() {
            return None;
        }
        let first_lane = self.lanes_taken as u32;
        let lanes = self.lanes[self.lanes_taken..].to_vec();
        self.lanes_taken = self.lanes.len();
        Some(RecordedBatch { lanes, first_lane, events: std::mem::take(&mut self.events) })
    }

    /// What became of the events so far.
    pub(crate) fn account(&self) -> RecordedAccount {
        self.account
    }

    fn lane(&mut self, lane: Lane) -> Option<u32> {
        if let Some(number) = self.lane_numbers.get(&lane) {
            return Some(*number);
        }
        if self.lanes.len() >= LANES_MAX {
            self.account.received += 1;
            self.account.leave_out(NotTraced::QueueFull, 1);
            return None;
        }
        let number = self.lanes.len() as u32;
        self.lanes.push(lane);
        self.lane_numbers.insert(lane, number);
        Some(number)
    }

    fn keep(&mut self, event: RecordedEvent) {
        self.account.received += 1;
        if self.events.len() < QUEUE_MAX {
            self.account.kept += 1;
            self.events.push(event);
            return;
        }
        self.account.leave_out(NotTraced::QueueFull, 1);
        self.lost.add(&event);
    }
}

/// What a call is recorded as; `None` for what compiled programs say of themselves as they start, which returns no
/// result.
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

/// The argument of a call that names its event or its launchable graph.
pub(super) fn object_role(kind: RecordedKind) -> Option<Role> {
    match kind {
        RecordedKind::Record | RecordedKind::StreamWait | RecordedKind::EventSync => Some(Role::Event),
        RecordedKind::Launch => Some(Role::GraphExec),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spans::SpanThread;

    const STARTED_NS: u64 = 1_000;

    fn recorder() -> Recorder {
        Recorder::new(STARTED_NS, TraceWindow::First(Nanos(100_000)), TraceLevel::Calls)
    }

    fn call(kind: RecordedKind, number: u64, stream: u64, object: u64) -> RecordedCall {
        RecordedCall {
            kind,
            number,
            time_ns: STARTED_NS + number * 10,
            pid: 7,
            tid: 8,
            node: NodeId::ROOT,
            stream: StreamKey::new(stream, 8, false),
            object,
            is_captured: false,
            exchange: None,
        }
    }

    fn work(launch: u64, begin_ns: u64) -> RecordedWork<'static> {
        let launch = Some((launch, STARTED_NS + launch * 10));
        let times = Some((begin_ns, Nanos(5)));
        RecordedWork { pid: 7, node: NodeId::ROOT, launch, basis: Basis::Exact, times, order: 0, after: None }
    }

    fn kernel() -> Activity {
        Activity { kind: kind::KERNEL, stream: 13, correlation: 70, ..Activity::default() }
    }

    /// Calls as (kind, stream, object), numbered from 1, each returning 4 ns later; what comes of them as
    /// `kind position <cause`.
    fn check(calls: &[(RecordedKind, u64, u64)], expect: &[&str]) {
        let mut recorder = recorder();
        for (number, (kind, stream, object)) in (1..).zip(calls) {
            let call = call(*kind, number, *stream, *object);
            recorder.called(&call);
            recorder.returned(number, 0, call.time_ns + 4);
        }
        let events = recorder.take().unwrap().events;
        let shown: Vec<String> = events
            .iter()
            .map(|event| {
                assert_eq!(event.end, End::After(Nanos(4)));
                let cause = event.cause.map_or(String::new(), |c| format!(" <{} {:?}", c.id, c.basis));
                format!("{} {}{cause}", event.kind.name(), event.position)
            })
            .collect();
        assert_eq!(shown, expect, "{calls:?}");
    }

    #[test]
    fn a_wait_for_an_event_is_caused_by_its_record() {
        use RecordedKind::{EventSync, Launch, Record, StreamWait};
        check(
            &[
                (Launch, 10, 0),
                (Record, 10, 70),
                (StreamWait, 11, 70),
                (EventSync, 0, 70),
                (EventSync, 0, 71),
            ],
            &[
                "launch 1",
                "record 2 <1 ByOrder",
                "stream-wait 0 <2 Exact",
                "event-sync 0 <2 Exact",
                "event-sync 0",
            ],
        );
    }

    #[test]
    fn a_stream_wait_is_caused_by_its_last_launch() {
        use RecordedKind::{ContextSync, Launch, StreamSync, Transfer};
        check(
            &[(StreamSync, 10, 0), (Launch, 10, 0), (Transfer, 10, 0), (Launch, 11, 0), (StreamSync, 10, 0)],
            &["stream-sync 0", "launch 1", "transfer 2", "launch 1", "stream-sync 2 <3 ByOrder"],
        );
        check(&[(Launch, 10, 0), (ContextSync, 0, 0)], &["launch 1", "context-sync 0"]);
    }

    #[test]
    fn captured_launches_have_no_place_in_their_stream() {
        let mut recorder = recorder();
        recorder.called(&RecordedCall { is_captured: true, ..call(RecordedKind::Launch, 1, 10, 0) });
        recorder.called(&call(RecordedKind::StreamSync, 2, 10, 0));
        recorder.finish(None);
        let events = recorder.take().unwrap().events;
        assert!(events.iter().all(|event| event.position == 0 && event.cause.is_none()), "{events:?}");
        assert!(events.iter().all(|event| event.end == End::NotReturned));
    }

    #[test]
    fn work_is_caused_by_its_launch_also_behind_the_window() {
        let mut recorder = recorder();
        recorder.worked(&work(1, STARTED_NS + 200_000), &kernel());
        recorder.worked(&RecordedWork { launch: None, ..work(1, STARTED_NS + 200_000) }, &kernel());
        recorder.worked(&RecordedWork { times: None, ..work(1, 0) }, &kernel());
        let events = recorder.take().unwrap().events;
        let [event] = events[..] else { panic!("{events:?}") };
        assert_eq!(event.cause, Some(Cause { id: 1, basis: Basis::Exact }));
        let account = recorder.account();
        assert_eq!((account.received, account.kept, account.left_out(NotTraced::WithoutTimes)), (2, 1, 1));
    }

    #[test]
    fn calls_outside_the_window_are_not_recorded() {
        let mut recorder = recorder();
        recorder.called(&RecordedCall { time_ns: STARTED_NS - 1, ..call(RecordedKind::Launch, 1, 10, 0) });
        recorder
            .called(&RecordedCall { time_ns: STARTED_NS + 100_000, ..call(RecordedKind::Launch, 2, 10, 0) });
        recorder.finish(None);
        assert_eq!((recorder.take(), recorder.account().received), (None, 0));
    }

    #[test]
    fn spans_that_begin_in_the_window_keep_their_end() {
        let mut recorder = recorder();
        let of = SpanThread { pid: 7, tid: 8 };
        let mut span = |kind, began_ns, end| {
            recorder.span(&Span { kind, of, node: NodeId::ROOT, began_ns, end });
        };
        span(SpanKind::Range, STARTED_NS - 1, SpanEnd::At(STARTED_NS + 5));
        span(SpanKind::Range, STARTED_NS + 1, SpanEnd::At(STARTED_NS + 200_000));
        span(SpanKind::Step(3), STARTED_NS + 2, SpanEnd::Lost);
        span(SpanKind::Step(4), STARTED_NS + 3, SpanEnd::Open);
        span(SpanKind::Step(5), STARTED_NS + 100_000, SpanEnd::Open);
        let events = recorder.take().unwrap().events;
        let shown: Vec<_> = events
            .iter()
            .map(|event| (event.kind.name(), event.start.0, event.end, event.position))
            .collect();
        let expect = [
            ("range", 1, End::After(Nanos(199_999)), 0),
            ("step", 2, End::ReturnLost, 3),
            ("step", 3, End::NotReturned, 4),
        ];
        assert_eq!(shown, expect);
        assert_eq!((recorder.account().received, recorder.account().kept), (3, 3));
    }

    #[test]
    fn levels_record_what_they_say() {
        use RecordedKind::{Call, Launch, Operator, StreamSync, Transfer};
        let check = |level, expect: &[(RecordedKind, End)]| {
            let mut recorder = Recorder::new(STARTED_NS, TraceWindow::First(Nanos(100_000)), level);
            for (number, kind) in (1..).zip([Launch, Transfer, StreamSync, Call]) {
                recorder.called(&call(kind, number, 10, 0));
                recorder.returned(number, 0, STARTED_NS + number * 10 + 4);
            }
            let of = SpanThread { pid: 7, tid: 8 };
            let (node, began_ns, end) = (NodeId::ROOT, STARTED_NS + 70, SpanEnd::Open);
            // Stages give the recorder what they were asked for.
            if recorder.level() == TraceLevel::Context {
                recorder.span(&Span { kind: SpanKind::Operator, of, node, began_ns, end });
            }
            let events = recorder.take().unwrap().events;
            let found: Vec<_> = events.iter().map(|event| (event.kind, event.end)).collect();
            assert_eq!(found, expect, "{level:?}");
        };
        let known = End::After(Nanos(4));
        check(TraceLevel::Launches, &[(Launch, End::NotWatched), (Transfer, End::NotWatched)]);
        let calls = [(Launch, known), (Transfer, known), (StreamSync, known), (Call, known)];
        check(TraceLevel::Calls, &calls);
        check(TraceLevel::Context, &[&calls[..], &[(Operator, End::NotWatched)]].concat());
    }

    #[test]
    fn a_window_of_steps_ends_where_it_began() {
        let window = TraceWindow::Steps { from: 5, until: 7 };
        let mut recorder = Recorder::new(STARTED_NS, window, TraceLevel::Calls);
        let of = SpanThread { pid: 7, tid: 8 };
        let mut number = 0;
        let mut begins = |recorder: &mut Recorder, place, step, at_ns| {
            let kind = SpanKind::StepBegins(step);
            let node = NodeId::from_number(place);
            recorder.span(&Span { kind, of, node, began_ns: at_ns, end: SpanEnd::Open });
            number += 1;
            recorder.called(&RecordedCall { time_ns: at_ns, ..call(RecordedKind::Launch, number, 10, 0) });
        };
        begins(&mut recorder, 1, 4, 2_000);
        assert_eq!(recorder.awaited(), Some(AwaitedBegin::Step(5)));
        // Steps of another place neither begin nor end it.
        for (place, step, at_ns) in
            [(1, 5, 2_100), (2, 7, 2_200), (1, 6, 2_300), (1, 7, 2_400), (1, 8, 2_500)]
        {
            begins(&mut recorder, place, step, at_ns);
        }
        recorder.finish(None);
        assert_eq!(recorder.awaited(), None);
        let times: Vec<u64> = recorder.take().unwrap().events.iter().map(|event| event.start.0).collect();
        assert_eq!(times, [1_100, 1_200, 1_300]);
    }

    #[test]
    fn a_full_queue_leaves_a_gap_in_its_lane() {
        let mut recorder = recorder();
        for _ in 0..QUEUE_MAX + 3 {
            recorder.worked(&work(1, STARTED_NS + 50), &kernel());
        }
        let batch = recorder.take().unwrap();
        let last = batch.events.last().unwrap();
        assert_eq!((last.kind, last.position, last.start), (RecordedKind::Gap, 3, Nanos(50)));
        assert_eq!(recorder.account().left_out(NotTraced::QueueFull), 3);
    }

    proptest! {
        #[test]
        fn every_event_is_kept_or_left_out(
            steps in prop::collection::vec((0u8..5, 1u64..40), 0..300),
        ) {
            let mut recorder = recorder();
            let (mut events, mut expected) = (0u64, std::collections::BTreeSet::new());
            let mut works = 0u64;
            for (step, number) in steps {
                match step {
                    0 | 1 if !expected.contains(&number) => {
                        expected.insert(number);
                        recorder.called(&call(RecordedKind::Launch, number, number % 3, 0));
                    }
                    2 => recorder.returned(number, 0, STARTED_NS + 1000),
                    3 => {
                        works += 1;
                        recorder.worked(&work(number, STARTED_NS + number), &kernel());
                    }
                    _ => events += recorder.take().map_or(0, |batch| batch.events.len() as u64),
                }
            }
            recorder.finish(None);
            events += recorder.take().map_or(0, |batch| batch.events.len() as u64);
            let account = recorder.account();
            prop_assert_eq!(account.received, account.kept + account.lost());
            prop_assert_eq!((account.kept, events), (expected.len() as u64 + works, account.kept));
        }
    }
}
