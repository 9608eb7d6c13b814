//! Assembly: the recorded events of a capture, as the trace of each process.
//!
//! Owns: [`assemble`]. Because: analyses read traces of any tool, which know calls, work and synchronisations by their
//! correlation ids, while a recording has numbers of calls, handles of streams and contexts of a tree. Does not: read
//! files, or guess: a handle is a stream because work of a launch into it ran there.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::basis::Basis;
use super::event::{
    DeviceKind, DeviceOp, HostKind, HostOp, Status, Stream, Sync, SyncKind, Thread, WakeUpEvent, Waker,
};
use super::exchanges::Exchanges;
use super::graph_edges::RecordedGraphs;
use super::recorded::{
    CALL_END_MISSING, End, Lane, NotTraced, OFF_CPU_END_MISSING, RANGE_END_MISSING, RecordedEvent,
    RecordedKind, WokenBy,
};
use super::stream_handles::{Handle, PendingSync, StreamsByHandle};
use super::{Trace, TraceTime};
use crate::context::phase::{Phase, phases};
use crate::frame::Frame;
use crate::intern::{Id, StrId};
use crate::ledger::Stage;
use crate::profile::Profile;
use crate::tree::NodeId;
use crate::units::Bytes;

/// The handle that means the default stream of the calling thread.
const PER_THREAD: u64 = 2;

/// The traces of the processes of a recording, by process id. `profile` has the contexts that events refer to.
///
/// An event whose lane is missing is counted in the ledger of the first trace as unreadable.
pub fn assemble(
    profile: &Profile,
    lanes: &[Lane],
    events: impl IntoIterator<Item = RecordedEvent>,
) -> Vec<(u32, Trace)> {
    let shared = shared_streams(lanes);
    let phases = phases(profile);
    let recorded = Recorded { profile, phases: &phases };
    let mut processes: BTreeMap<u32, Assembly> = BTreeMap::new();
    let mut without_lane = 0;
    for event in events {
        match lanes.get(event.lane as usize) {
            Some(&lane @ (Lane::Thread { pid, .. } | Lane::Stream { pid, .. })) => {
                processes.entry(pid).or_default().take(recorded, lane, &shared, &event);
            }
            None => without_lane += 1,
        }
    }
    let mut traces: Vec<_> = processes.into_iter().map(|(pid, of)| (pid, of.finish(profile))).collect();
    if let Some((_, first)) = traces.first_mut() {
        first.ledger.dropped(Stage::Store, NotTraced::Unreadable.reason(), without_lane);
    }
    traces
}

/// The profile that events refer to.
#[derive(Clone, Copy)]
struct Recorded<'p> {
    profile: &'p Profile,
    /// By node.
    phases: &'p [Phase],
}

/// Streams of a process and device that have the same number in several contexts.
fn shared_streams(lanes: &[Lane]) -> FxHashMap<(u32, u32, u32), bool> {
    let mut contexts: FxHashMap<(u32, u32, u32), (u32, bool)> = FxHashMap::default();
    for lane in lanes {
        if let Lane::Stream { pid, device, context, stream } = *lane {
            let (first, several) = contexts.entry((pid, device, stream)).or_insert((context, false));
            *several |= *first != context;
        }
    }
    contexts.into_iter().map(|(key, (_, several))| (key, several)).collect()
}

/// A thread, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ThreadKey {
    pid: u32,
    tid: u32,
}

impl ThreadKey {
    /// Its number in a trace.
    fn add_to(self, trace: &mut Trace) -> Id<Thread> {
        trace.thread(&self.pid.to_string(), &self.tid.to_string())
    }
}

/// A training step, and the process and thread that it is of.
type StepOf = (ThreadKey, RecordedEvent);

/// The trace of one process that is being made.
#[derive(Default)]
struct Assembly {
    trace: Trace,
    names: FxHashMap<NodeId, StrId>,
    /// Calls that give a stream work and whose work did not come yet: when, and into which.
    launches: FxHashMap<u64, (Handle, TraceTime)>,
    /// Where work ran whose call did not come yet, as clocks that are not quite aligned have it, or came with more
    /// work than this.
    ran: FxHashMap<u64, Id<Stream>>,
    streams: StreamsByHandle,
    /// Where events were recorded, by the number of the call.
    records: FxHashMap<u64, (Handle, TraceTime)>,
    syncs: Vec<PendingSync>,
    exchanges: Exchanges,
    graphs: RecordedGraphs,
    /// Training steps and their threads, by the place that they end at.
    steps: BTreeMap<NodeId, Vec<StepOf>>,
}

impl Assembly {
    fn take(
        &mut self,
        recorded: Recorded<'_>,
        lane: Lane,
        shared: &FxHashMap<(u32, u32, u32), bool>,
        event: &RecordedEvent,
    ) {
        let profile = recorded.profile;
        match lane {
            _ if event.kind == RecordedKind::Gap => {
                let lost = NotTraced::QueueFull.reason();
                self.trace.ledger.dropped(Stage::Store, lost, event.position);
            }
            Lane::Thread { pid, tid } => match event.kind {
                RecordedKind::Range | RecordedKind::Step => {
                    self.range(profile, ThreadKey { pid, tid }, event)
                }
                RecordedKind::OffCpu => self.off_cpu(profile, ThreadKey { pid, tid }, event),
                RecordedKind::Operator => {
                    self.note_context(recorded, event.node);
                    let name = self.name(profile, event.node);
                    self.named(ThreadKey { pid, tid }, HostKind::Operator, name, event);
                }
                _ => self.call(recorded, ThreadKey { pid, tid }, event),
            },
            Lane::Stream { .. } if event.kind == RecordedKind::GraphEdge => self.graphs.edge(event),
            Lane::Stream { pid, device, context, stream } => {
                self.graphs.ran(event);
                let several = shared.get(&(pid, device, stream)).copied().unwrap_or(false);
                let above = if several { u64::from(context) << 32 } else { 0 };
                let stream = self.trace.stream(device, Some(above | u64::from(stream)));
                self.work(profile, stream, event);
            }
        }
    }

    fn call(&mut self, recorded: Recorded<'_>, thread: ThreadKey, event: &RecordedEvent) {
        let handle = (event.stream, if event.stream == PER_THREAD { thread.tid } else { 0 });
        let begin = TraceTime::from_nanos(event.start.0);
        match event.kind {
            RecordedKind::Launch | RecordedKind::Transfer => match self.ran.remove(&event.id) {
                Some(stream) => self.streams.add(handle, begin, stream),
                None => _ = self.launches.insert(event.id, (handle, begin)),
            },
            RecordedKind::Record => _ = self.records.insert(event.id, (handle, begin)),
            RecordedKind::Call | RecordedKind::Collective => {}
            _ => self.syncs.push(PendingSync::new(handle, event)),
        }
        if matches!(event.end, End::ReturnLost | End::NotReturned) {
            self.trace.ledger.gap(Stage::Store, CALL_END_MISSING, 1);
        }
        self.note_context(recorded, event.node);
        let name = self.name(recorded.profile, event.node);
        let kind = match self.trace.name(name) {
            text if is_driver_call(text) => HostKind::DriverCall,
            _ => HostKind::RuntimeCall,
        };
        let thread = thread.add_to(&mut self.trace);
        self.note_exchange(thread, name, event);
        let op = HostOp {
            thread,
            kind,
            begin,
            duration: event.end.duration(),
            name,
            correlation: event.id,
            status: event.status(),
            context: event.node,
        };
        let pushed = self.trace.host.push(op).is_some();
        self.count_pushed(pushed);
    }

    /// Keeps what a call exchanges, until the work is known that it launched.
    fn note_exchange(&mut self, thread: Id<Thread>, name: StrId, event: &RecordedEvent) {
        let begin = TraceTime::from_nanos(event.start.0);
        let end = begin + event.end.duration();
        match event.exchange() {
            Some(exchange) => {
                let operation = self.trace.name(name);
                let operation = operation.strip_prefix("nccl").unwrap_or(operation).to_ascii_lowercase();
                let operation = self.trace.text(&operation);
                self.exchanges.collective(thread, begin, end, operation, exchange);
            }
            None if event.kind == RecordedKind::Call => {
                self.exchanges.other(thread, begin, end, self.trace.strings.get(name));
            }
            None => {}
        }
    }

    /// Keeps what the stack of a call says.
    fn note_context(&mut self, Recorded { profile, phases }: Recorded<'_>, node: NodeId) {
        self.trace.contexts.note(profile, phases, node, &mut self.trace.strings);
    }

    /// A range or a step; one whose end is not known has no length that any table could use.
    fn range(&mut self, profile: &Profile, thread: ThreadKey, event: &RecordedEvent) {
        if !matches!(event.end, End::After(_)) {
            self.trace.ledger.gap(Stage::Store, RANGE_END_MISSING, 1);
        } else if event.kind == RecordedKind::Step {
            self.steps.entry(event.node).or_default().push((thread, *event));
        } else {
            let name = self.name(profile, event.node);
            self.named(thread, HostKind::Annotation, name, event);
        }
    }

    /// Time off the CPU, and who ended it.
    fn off_cpu(&mut self, profile: &Profile, thread: ThreadKey, event: &RecordedEvent) {
        if !matches!(event.end, End::After(_)) {
            self.trace.ledger.gap(Stage::Store, OFF_CPU_END_MISSING, 1);
            return;
        }
        let name = self.name(profile, event.node);
        let ends = self.named(thread, HostKind::OffCpu, name, event);
        let (Some(ends), Some(wake_up)) = (ends, event.wake_up()) else { return };
        let by = match wake_up.by {
            WokenBy::Thread { pid, tid } if pid == thread.pid => {
                Waker::Thread(ThreadKey { pid, tid }.add_to(&mut self.trace))
            }
            WokenBy::Thread { pid, tid } => Waker::OtherProcess { pid, tid },
            WokenBy::ThreadOutside => Waker::Outside,
            WokenBy::Interrupt => Waker::Interrupt,
        };
        let at = TraceTime::from_nanos(event.start.0) + wake_up.after;
        let pushed = self.trace.wake_ups.push(WakeUpEvent { ends, at, by }).is_some();
        self.count_pushed(pushed);
    }

    /// Steps of a process follow each other at one place: the one with most of them (the first of several). Steps at
    /// other places, of a second optimizer or thread, are ranges.
    fn place_steps(&mut self, profile: &Profile) {
        let steps = std::mem::take(&mut self.steps);
        let most = steps.iter().max_by_key(|(_, steps)| (steps.len(), std::cmp::Reverse(steps[0].1.start)));
        let Some(most) = most.map(|(place, _)| *place) else { return };
        for (place, steps) in steps {
            let name = self.name(profile, place);
            let kind = if place == most { HostKind::Step } else { HostKind::Annotation };
            for (thread, event) in steps {
                let name = format!("{}#{}", self.trace.name(name), event.position);
                let name = self.trace.strings.intern(&name);
                self.named(thread, kind, name, &event);
            }
        }
    }

    fn named(
        &mut self,
        thread: ThreadKey,
        kind: HostKind,
        name: StrId,
        event: &RecordedEvent,
    ) -> Option<Id<HostOp>> {
        let op = HostOp {
            thread: thread.add_to(&mut self.trace),
            kind,
            begin: TraceTime::from_nanos(event.start.0),
            duration: event.end.duration(),
            name,
            correlation: 0,
            status: Status::Unknown,
            context: event.node,
        };
        let pushed = self.trace.host.push(op);
        self.count_pushed(pushed.is_some());
        pushed
    }

    fn work(&mut self, profile: &Profile, stream: Id<Stream>, event: &RecordedEvent) {
        let call = event.cause.map_or(0, |cause| cause.id);
        match self.launches.remove(&call) {
            Some((handle, at)) => self.streams.add(handle, at, stream),
            None if call != 0 => _ = self.ran.insert(call, stream),
            None => {}
        }
        let op = DeviceOp {
            stream,
            kind: match event.kind {
                RecordedKind::Copy => DeviceKind::Copy,
                RecordedKind::Fill => DeviceKind::Fill,
                _ => DeviceKind::Kernel,
            },
            begin: TraceTime::from_nanos(event.start.0),
            duration: event.end.duration(),
            name: self.work_name(profile, event),
            correlation: call,
            launched_by: event.cause.map_or(Basis::Exact, |cause| cause.basis),
            bytes: Bytes(event.bytes),
            graph_node: event.graph_node,
        };
        let pushed = self.trace.device.push(op).is_some();
        self.count_pushed(pushed);
    }

    /// Counts what a table has no room for.
    fn count_pushed(&mut self, pushed: bool) {
        if !pushed {
            self.trace.ledger.dropped(Stage::Store, NotTraced::QueueFull.reason(), 1);
        }
    }

    /// The name of work: of copies and fills as traces of all tools have it (`Memcpy HtoD`), since those tell them from
    /// kernels by it.
    fn work_name(&mut self, profile: &Profile, event: &RecordedEvent) -> StrId {
        let name = self.name(profile, event.node);
        if !matches!(event.kind, RecordedKind::Copy | RecordedKind::Fill) {
            return name;
        }
        match self.trace.name(name).strip_prefix("mem") {
            Some(rest) => {
                let capital = format!("Mem{rest}");
                self.trace.text(&capital)
            }
            None => name,
        }
    }

    /// The name of the innermost frame of a context.
    fn name(&mut self, profile: &Profile, node: NodeId) -> StrId {
        if let Some(name) = self.names.get(&node) {
            return *name;
        }
        let frame = profile.frames.get(profile.tree.node(node).frame);
        let name = match frame {
            Frame::GpuApi { name } | Frame::GpuKernel { name } | Frame::Range { name } => {
                self.trace.strings.intern(profile.strings.get(name))
            }
            other => self.trace.strings.intern(&other.label(&profile.strings, false)),
        };
        self.names.insert(node, name);
        name
    }

    fn finish(mut self, profile: &Profile) -> Trace {
        // Of a profile that does not say when it began, 1970 is no answer.
        self.trace.clock.epoch_ns = Some(profile.meta.started.as_nanos()).filter(|began| *began > 0);
        self.place_steps(profile);
        std::mem::take(&mut self.exchanges).note(&mut self.trace);
        std::mem::take(&mut self.graphs).note(&mut self.trace);
        let streams = std::mem::take(&mut self.streams).sorted();
        for PendingSync { handle, kind, begin, duration, call, record } in std::mem::take(&mut self.syncs) {
            let stream = match kind {
                SyncKind::Stream | SyncKind::StreamWait => streams.at(handle, begin),
                SyncKind::Event | SyncKind::Context => None,
            };
            if kind == SyncKind::Stream && stream.is_none() {
                // Nothing that was seen ran in it: the call waits for no work of this trace.
                continue;
            }
            let recorded_on =
                record.and_then(|call| self.records.get(&call)).and_then(|(on, at)| streams.at(*on, *at));
            let sync = Sync { kind, stream, begin, duration, correlation: call, record, recorded_on };
            self.trace.syncs.push(sync);
        }
        self.trace
    }
}

/// Calls of the driver are named `cu` and a capital letter.
fn is_driver_call(name: &str) -> bool {
    name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::super::recorded::{Cause, WakeUp};
    use super::super::{Launch, Links, Waiter};
    use super::*;
    use crate::profile::{Limits, Meta};
    use crate::units::Nanos;

    const LANES: [Lane; 4] = [
        Lane::Thread { pid: 7, tid: 8 },
        Lane::Stream { pid: 7, device: 0, context: 1, stream: 13 },
        Lane::Stream { pid: 7, device: 0, context: 1, stream: 14 },
        Lane::Thread { pid: 9, tid: 9 },
    ];

    /// `launch 0 10+2 #5 s700 <4 =0 launch`: kind, lane, start and length, number, stream, cause (`~4` by order),
    /// result, name.
    fn event(profile: &mut Profile, line: &str) -> RecordedEvent {
        let words: Vec<&str> = line.split_whitespace().collect();
        let find = |mark: &str| words[3..].iter().find_map(|word| word.strip_prefix(mark)?.parse().ok());
        let cause = |mark, basis| find(mark).map(|id| Cause { id, basis });
        let (start, length) = words[2].split_once('+').unwrap();
        let name = profile.text(words[words.len() - 1]);
        let frame = profile.frame(Frame::GpuApi { name });
        let result: Option<u32> = words[3..].iter().find_map(|word| word.strip_prefix('=')?.parse().ok());
        let event = RecordedEvent {
            kind: RecordedKind::from_name(words[0]).unwrap(),
            lane: words[1].parse().unwrap(),
            start: Nanos(start.parse().unwrap()),
            end: length.parse().map_or(End::NotReturned, |length| End::After(Nanos(length))),
            node: profile.tree.child(NodeId::ROOT, frame),
            id: find("#").unwrap_or(0),
            cause: cause("<", Basis::Exact).or_else(|| cause("~", Basis::ByOrder)),
            correlation: 0,
            stream: find("s").unwrap_or(0),
            object: 0,
            position: find("p").unwrap_or(0),
            bytes: 0,
            graph_node: find("n").unwrap_or(0),
        };
        result.map_or(event, |result| event.returned(result, event.end.duration()))
    }

    fn assembled(lines: &str) -> Vec<(u32, Trace)> {
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
        let events: Vec<RecordedEvent> = lines.map(|line| event(&mut profile, line)).collect();
        assemble(&profile, &LANES, events)
    }

    /// Waits of the trace of process 7: who waits for what, and how sure that is.
    fn check(lines: &str, expect: &[&str]) {
        let traces = assembled(lines);
        let trace = &traces[0].1;
        let links = Links::of(trace);
        let device = |id| trace.name(trace.device.get(id).unwrap().name);
        let mut found: Vec<String> = links
            .waits()
            .map(|wait| {
                let waiter = match wait.waiter {
                    Waiter::Host(call) => trace.name(trace.host.get(call).unwrap().name),
                    Waiter::Device(op) => device(op),
                };
                format!("{waiter} waits for {} {:?}", device(wait.on), wait.basis)
            })
            .collect();
        found.sort();
        assert_eq!(found, expect, "{lines}");
    }

    #[test]
    fn waits_refer_to_the_streams_of_their_handles() {
        check(
            "launch 0 10+2 #1 s700 cuLaunchKernel
             launch 0 14+2 #2 s701 cuLaunchKernel
             kernel 1 20+10 <1 first
             kernel 2 20+90 <2 second
             stream-sync 0 25+6 #3 s700 cuStreamSynchronize",
            &["cuStreamSynchronize waits for first Exact"],
        );
    }

    #[test]
    fn work_that_was_joined_by_order_says_so() {
        let traces = assembled(
            "launch 0 10+1 #1 s700 cuLaunchKernel
             transfer 0 12+9 #2 s700 cuMemcpyHtoD
             launch 0 30+1 #3 s700 cuLaunchKernel
             kernel 1 11+1 ~1 by-order
             copy 1 13+5 ~2 blocking
             kernel 1 31+1 <3 exact",
        );
        let trace = &traces[0].1;
        let links = Links::of(trace);
        let is_exact = |(id, _)| matches!(links.launch(id), Launch::Exact(_));
        let is_by_order = |(id, _)| matches!(links.launch(id), Launch::ByOrder(_));
        assert!(trace.device.iter().map(is_exact).eq([false, false, true]));
        assert!(trace.device.iter().map(is_by_order).eq([true, true, false]));
        // A call that outlasts its copy waits for it; that this is its copy follows from the order.
        assert!(links.waits().map(|wait| wait.basis).eq([Basis::ByOrder]));
    }

    #[test]
    fn work_behind_a_stream_wait_waits_for_recorded_work() {
        check(
            "launch 0 10+1 #1 s700 cuLaunchKernel
             record 0 12+1 #2 s700 cuEventRecord
             launch 0 13+1 #3 s700 cuLaunchKernel
             stream-wait 0 14+1 #4 s701 <2 cuStreamWaitEvent
             launch 0 16+1 #5 s701 cuLaunchKernel
             kernel 1 20+10 <1 recorded
             kernel 1 30+90 <3 later
             kernel 2 30+5 <5 behind",
            &["behind waits for recorded Exact"],
        );
    }

    #[test]
    fn work_of_graphs_waits_for_the_nodes_before_it() {
        // Two copies of one graph: first, two branches, and what comes after both. The second branch ends last in the
        // first launch, the first one in the second.
        check(
            "launch 0 10+1 #1 s700 cuGraphLaunch
             kernel 1 20+10 <1 p1 n91 first
             graph-edge 1 20+0 p0 n91 -
             kernel 1 31+5 <1 p2 n92 short
             graph-edge 1 31+0 ~0 p1 n92 -
             kernel 1 31+9 <1 p3 n93 long
             graph-edge 1 31+0 ~0 p1 n93 -
             kernel 1 41+5 <1 p4 n94 last
             graph-edge 1 41+0 ~0 p2 n94 -
             graph-edge 1 41+0 ~0 p3 n94 -
             launch 0 50+1 #2 s700 cuGraphLaunch
             kernel 1 61+1 <2 p1 n91 FIRST
             kernel 1 63+9 <2 p2 n92 SHORT
             kernel 1 63+4 <2 p3 n93 LONG
             kernel 1 73+1 <2 p4 n94 LAST
             launch 0 80+1 #3 s700 cuGraphLaunch
             kernel 1 91+1 <3 p1 n81 copied
             kernel 1 93+9 <3 p2 n82 alone
             graph-edge 1 93+0 ~0 p1 n82 -",
            &[
                "LAST waits for SHORT ByOrder",
                "LONG waits for FIRST ByOrder",
                "SHORT waits for FIRST ByOrder",
                "alone waits for copied ByOrder",
                "last waits for long ByOrder",
                "long waits for first ByOrder",
                "short waits for first ByOrder",
            ],
        );
        // Where the work of a node is missing, nobody knows what the next one waited for.
        check(
            "kernel 1 20+10 <1 p2 n92 one
             kernel 1 40+10 <1 p4 n94 last
             graph-edge 1 41+0 ~0 p2 n94 -
             graph-edge 1 41+0 ~0 p3 n94 -
             kernel 1 60+10 <2 p2 n92 two
             kernel 1 61+10 <2 p3 n93 three
             kernel 1 80+10 <2 p4 n94 end",
            &["end waits for three ByOrder"],
        );
    }

    #[test]
    fn a_handle_that_came_again_is_another_stream() {
        check(
            "launch 0 10+1 #1 s700 cuLaunchKernel
             kernel 1 12+3 <1 old
             launch 0 20+1 #2 s700 cuLaunchKernel
             kernel 2 22+3 <2 new
             stream-sync 0 23+4 #3 s700 cuStreamSynchronize",
            &["cuStreamSynchronize waits for new Exact"],
        );
    }

    #[test]
    fn each_process_has_its_own_trace() {
        let traces = assembled("launch 0 1+1 #1 s1 cuLaunchKernel\nlaunch 3 2+1 #2 s1 cudaLaunchKernel");
        let pids: Vec<u32> = traces.iter().map(|(pid, _)| *pid).collect();
        assert_eq!(pids, [7, 9]);
        let kinds = traces.iter().map(|(_, trace)| trace.host.iter().next().unwrap().1.kind);
        assert_eq!(kinds.collect::<Vec<_>>(), [HostKind::DriverCall, HostKind::RuntimeCall]);
    }

    #[test]
    fn copies_are_called_as_other_tools_call_them() {
        let traces =
            assembled("copy 1 1+1 memcpy\n fill 1 2+1 memset\n kernel 1 3+1 memcpy\n copy 1 4+1 [x]");
        let trace = &traces[0].1;
        let names = trace.device.iter().map(|(_, op)| trace.name(op.name));
        assert!(names.eq(["Memcpy", "Memset", "memcpy", "[x]"]));
    }

    #[test]
    fn what_is_missing_is_counted() {
        let check = |line: &str, key: &str, count: u64| {
            let trace = &assembled(&format!("launch 0 1+1 #1 s1 x\n{line}"))[0].1;
            let store = trace.ledger.stage(Stage::Store);
            assert_eq!(store.dropped.count(key) + store.gaps.count(key), count, "{line}");
        };
        check("gap 0 5+5 p42 lost", NotTraced::QueueFull.reason().key, 42);
        check("launch 99 5+5 #2 s1 x", NotTraced::Unreadable.reason().key, 1);
        check("launch 0 5+? #2 s1 x", CALL_END_MISSING.key, 1);
        check("range 0 5+? x", RANGE_END_MISSING.key, 1);
        check("step 0 5+? p3 x", RANGE_END_MISSING.key, 1);
        check("off-cpu 0 5+? x", OFF_CPU_END_MISSING.key, 1);
    }

    #[test]
    fn calls_say_what_they_returned() {
        let trace = &assembled(
            "launch 0 10+2 #1 s700 =0 cuLaunchKernel
             stream-sync 0 14+2 #2 s700 =719 cuStreamSynchronize
             transfer 0 20+2 #3 s700 cuMemcpyHtoD",
        )[0]
        .1;
        let status = trace.host.iter().map(|(_, op)| op.status);
        assert!(status.eq([Status::Returned(0), Status::Returned(719), Status::Unknown]));
    }

    #[test]
    fn who_ended_time_off_the_cpu_is_kept() {
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let mut events = vec![event(&mut profile, "launch 0 1+1 #1 s1 x")];
        let wakers = [
            None,
            Some(WokenBy::Thread { pid: 7, tid: 8 }),
            Some(WokenBy::Thread { pid: 9, tid: 9 }),
            Some(WokenBy::ThreadOutside),
            Some(WokenBy::Interrupt),
        ];
        for by in wakers {
            let wake_up = by.map(|by| WakeUp { after: Nanos(3), by });
            let event =
                RecordedEvent::off_cpu(0, Nanos(10), End::After(Nanos(5)), NodeId::from_number(1), wake_up);
            assert_eq!(event.wake_up(), wake_up);
            events.push(event);
        }
        let trace = &assemble(&profile, &LANES, events)[0].1;
        let waits = trace.host.iter().filter(|(_, op)| op.kind == HostKind::OffCpu);
        assert!(waits.map(|(_, op)| (op.begin.as_nanos(), op.duration.0)).eq([(10, 5); 5]));
        let by: Vec<_> = trace.wake_ups.iter().map(|(_, event)| (event.at.as_nanos(), event.by)).collect();
        let own = Waker::Thread(Id::from_number(0));
        let expect = [own, Waker::OtherProcess { pid: 9, tid: 9 }, Waker::Outside, Waker::Interrupt];
        assert_eq!(by, expect.map(|by| (13, by)));
    }

    #[test]
    fn steps_of_the_busiest_place_are_the_steps() {
        let traces = assembled(
            "range 0 2+9 outer
             step 0 3+4 p1 optimizer
             step 0 7+3 p2 optimizer
             step 0 5+4 p1 other",
        );
        let trace = &traces[0].1;
        let shown = |kind| -> Vec<_> {
            let of_kind = trace.host.iter().filter(|(_, op)| op.kind == kind);
            of_kind.map(|(_, op)| (trace.name(op.name), op.begin.as_nanos(), op.duration.0)).collect()
        };
        assert_eq!(shown(HostKind::Step), [("optimizer#1", 3, 4), ("optimizer#2", 7, 3)]);
        assert_eq!(shown(HostKind::Annotation), [("outer", 2, 9), ("other#1", 5, 4)]);
    }
}
