//! Assembly: turns the recorded events of a capture into one trace per process.
//!
//! Owns: [`assemble`]. Because: analyses read traces of any tool, in which calls, device work and synchronizations
//! share correlation ids, while a recording has call numbers, stream handles and tree contexts. Does not: read files,
//! or guess: a handle is a stream because work launched into it ran there.

mod counters;
mod names;
mod spans;
mod tables;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::basis::Basis;
use super::event::{DeviceKind, DeviceOp, HostKind, HostOp, Stream, Sync, SyncKind, Thread};
use super::exchanges::Exchanges;
use super::graph_edges::RecordedGraphs;
use super::recorded::{CALL_END_MISSING, End, Lane, NotTraced, RecordedEvent, RecordedGaps, RecordedKind};
use super::stream_handles::{Handle, PendingSync, StreamsByHandle};
use super::{Trace, TraceTime, UNKNOWN_LANE};
use crate::context::phase::{Phase, phases};
use crate::intern::{Id, StrId};
use crate::ledger::Stage;
use crate::profile::Profile;
use crate::tree::NodeId;
use crate::units::Bytes;
use counters::RecordedCounters;
use names::ContextNames;
use spans::RecordedSteps;
use tables::{ThreadKey, count_pushed};

/// The handle of the calling thread's default stream.
const PER_THREAD: u64 = 2;

/// The traces of the processes of a recording, by process id. `profile` has the contexts that events refer to.
///
/// An event without its lane is counted in the ledger of the first trace as unreadable, and noted as lost in all of
/// them. Rows for lost events say when, not why: the recorder's account has their counts. Counters of the machine, and
/// of processes without any other event, are in the first trace: counters alone make none.
pub fn assemble(
    profile: &Profile,
    lanes: &[Lane],
    events: impl IntoIterator<Item = RecordedEvent>,
) -> Vec<(u32, Trace)> {
    let shared = shared_streams(lanes);
    let phases = phases(profile);
    let recorded = PhasedProfile { profile, phases: &phases };
    let mut processes: BTreeMap<u32, Assembly> = BTreeMap::new();
    let mut counters = RecordedCounters::default();
    let mut without_lane = UnknownLanes::default();
    for event in events {
        match lanes.get(event.lane as usize).filter(|lane| **lane != LOST_LANE) {
            Some(&lane @ (Lane::Thread { pid, .. } | Lane::Stream { pid, .. })) => {
                processes.entry(pid).or_default().take(recorded, lane, &shared, &event);
            }
            Some(Lane::Counter { pid, metric, node }) => counters.add(*pid, *metric, *node, event),
            None => without_lane.add(&event),
        }
    }
    let mut traces: Vec<_> = processes.into_iter().map(|(pid, of)| (pid, of.finish(profile))).collect();
    for (pid, trace) in &mut traces {
        let process = profile.gpu.processes.iter().find(|process| process.pid == *pid);
        trace.device_clock = process.and_then(|process| process.clock);
    }
    counters.place(profile, &mut traces);
    without_lane.place(&mut traces);
    traces
}

/// Stands for a lane whose file could not be read: no thread of a program has these numbers.
pub const LOST_LANE: Lane = Lane::Thread { pid: 0, tid: 0 };

/// Rows for events without a lane, in each trace: a file may have as many lanes as events.
const UNKNOWN_LANES_MAX: u32 = 1 << 8;

/// Events whose lanes could not be read: they may be of any process.
#[derive(Default)]
struct UnknownLanes {
    count: u64,
    times: RecordedGaps,
}

impl UnknownLanes {
    fn add(&mut self, event: &RecordedEvent) {
        // A row for lost events is none.
        self.count += u64::from(event.kind != RecordedKind::Gap);
        if event.kind != RecordedKind::Counter {
            self.times.add(&RecordedEvent { lane: event.lane % UNKNOWN_LANES_MAX, ..*event });
        }
    }

    fn place(mut self, traces: &mut [(u32, Trace)]) {
        for RecordedEvent { start, end, position, .. } in self.times.take() {
            let from = TraceTime::from_nanos(start.0);
            for (_, trace) in &mut *traces {
                let pushed = trace.lose(UNKNOWN_LANE, from, from + end.duration(), position);
                count_pushed(trace, pushed);
            }
        }
        if let Some((_, first)) = traces.first_mut() {
            first.ledger.dropped(Stage::Store, NotTraced::Unreadable.reason(), self.count);
        }
    }
}

/// The profile that events refer to.
#[derive(Clone, Copy)]
struct PhasedProfile<'p> {
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

/// The trace of one process under construction.
#[derive(Default)]
struct Assembly {
    trace: Trace,
    names: ContextNames,
    /// Calls that give a stream work that has not come yet: when, and which stream.
    launches: FxHashMap<u64, (Handle, TraceTime)>,
    /// Streams of work whose call has not come yet (the clocks are not exactly aligned), or came with more work than
    /// this.
    ran: FxHashMap<u64, Id<Stream>>,
    streams: StreamsByHandle,
    /// Where events were recorded, by the number of the call.
    records: FxHashMap<u64, (Handle, TraceTime)>,
    syncs: Vec<PendingSync>,
    exchanges: Exchanges,
    graphs: RecordedGraphs,
    steps: RecordedSteps,
}

impl Assembly {
    fn take(
        &mut self,
        recorded: PhasedProfile<'_>,
        lane: Lane,
        shared: &FxHashMap<(u32, u32, u32), bool>,
        event: &RecordedEvent,
    ) {
        let profile = recorded.profile;
        match lane {
            _ if event.kind == RecordedKind::Gap => self.lost(lane, event),
            Lane::Counter { .. } => {}
            Lane::Thread { pid, tid } => self.on_thread(recorded, ThreadKey { pid, tid }, event),
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

    fn lost(&mut self, lane: Lane, event: &RecordedEvent) {
        let lane = match lane {
            Lane::Thread { tid, .. } => format!("thread {tid}"),
            Lane::Stream { device, stream, .. } => format!("gpu{device} stream {stream}"),
            // Lost values of a counter are not lost work of a step.
            Lane::Counter { .. } => return,
        };
        let from = TraceTime::from_nanos(event.start.0);
        let pushed = self.trace.lose(&lane, from, from + event.end.duration(), event.position);
        count_pushed(&mut self.trace, pushed);
    }

    fn on_thread(&mut self, recorded: PhasedProfile<'_>, thread: ThreadKey, event: &RecordedEvent) {
        match event.kind {
            RecordedKind::Step => return self.steps.take(&mut self.trace, thread, event),
            RecordedKind::Operator => self.note_context(recorded, event.node),
            RecordedKind::Range | RecordedKind::OffCpu => {}
            _ => return self.call(recorded, thread, event),
        }
        let name = self.names.name(&mut self.trace, recorded.profile, event.node);
        match event.kind {
            RecordedKind::Operator => spans::operator(&mut self.trace, thread, name, event),
            RecordedKind::OffCpu => spans::off_cpu(&mut self.trace, thread, name, event),
            _ => spans::range(&mut self.trace, thread, name, event),
        }
    }

    fn call(&mut self, recorded: PhasedProfile<'_>, thread: ThreadKey, event: &RecordedEvent) {
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
        let name = self.names.name(&mut self.trace, recorded.profile, event.node);
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
        let pushed = self.trace.host.push(op);
        count_pushed(&mut self.trace, pushed);
    }

    /// Keeps a call's exchange until the work that it launched is known.
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

    /// Keeps the facts from a call's stack.
    fn note_context(&mut self, PhasedProfile { profile, phases }: PhasedProfile<'_>, node: NodeId) {
        self.trace.contexts.note(profile, phases, node, &mut self.trace.strings);
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
            name: self.names.work(&mut self.trace, profile, event),
            correlation: call,
            launched_by: event.cause.map_or(Basis::Exact, |cause| cause.basis),
            bytes: Bytes(event.bytes),
            graph_node: event.graph_node,
        };
        let pushed = self.trace.device.push(op);
        count_pushed(&mut self.trace, pushed);
    }

    fn finish(mut self, profile: &Profile) -> Trace {
        // If the profile does not have its begin, 1970 is not an answer.
        self.trace.clock.epoch_ns = Some(profile.meta.started.as_nanos()).filter(|began| *began > 0);
        let Self { trace, names, steps, .. } = &mut self;
        std::mem::take(steps).place(trace, names, profile);
        std::mem::take(&mut self.exchanges).note(&mut self.trace);
        std::mem::take(&mut self.graphs).note(&mut self.trace);
        let streams = std::mem::take(&mut self.streams).sorted();
        for PendingSync { handle, kind, begin, duration, call, record } in std::mem::take(&mut self.syncs) {
            let stream = match kind {
                SyncKind::Stream | SyncKind::StreamWait => streams.at(handle, begin),
                SyncKind::Event | SyncKind::Context => None,
            };
            if kind == SyncKind::Stream && stream.is_none() {
                // No known work ran in it: the call waits for no work of this trace.
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

/// Names of driver calls are `cu` and a capital letter.
fn is_driver_call(name: &str) -> bool {
    name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests;
