//! Links: connections between the events of a trace.
//!
//! Owns: the launch of each device operation, the target of each wait, and the order of threads and streams. Because:
//! formats state some of these links, leave others to the order of events, and omit the rest; an analysis must know
//! on which of the three it relies. Does not: change the trace, or compute figures.
//!
//! | link | exact | by order | inferred |
//! |---|---|---|---|
//! | launch → device operation | same correlation id | a recorder joined them by the order of their streams | – (an id used twice: the latest call before the work) |
//! | stream → host, of a synchronisation | the tool names stream or event | `DeviceSynchronize`: everything launched before | the last work that ended within the call; for one of several devices or an unnamed stream, of everything launched before the last that ended by then; the latest call before, of several with the id |
//! | stream → stream, of an event | the tool names the record | – | last work of the same thread on another stream; the latest call before, of several with the id |
//! | node → node, of a graph | – | the order of the calls that recorded the graph | – |

use std::cell::LazyCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::basis::Basis;
use super::calls::{Calls, latest_before};
use super::event::{DeviceKind, DeviceOp, HostOp, Stream, SyncKind};
use super::graph_edges::{GraphOrder, GraphWaits};
use super::last_ends::{LastEnds, last_ended};
use super::name::Call;
use super::packed::{Cell, Column, PackedColumn};
use super::wait::{Wait, Waiter};
use super::{Trace, TraceTime};
use crate::intern::Id;

/// What launched a device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Launch {
    /// The one call that has its correlation id.
    Exact(Id<HostOp>),
    /// The next call in the order of its stream: the recorder of the trace did not see the ids.
    ByOrder(Id<HostOp>),
    /// Several calls have the id; this is the latest one that began before the operation, otherwise the first.
    Ambiguous(Id<HostOp>),
    /// No call has the id, and all ids of the trace are higher: it was launched before the trace began.
    BeforeTrace,
    /// No call has the id.
    Missing,
    /// It has no correlation id.
    NoCorrelation,
}

impl Launch {
    /// The call, if there is one.
    pub fn call(self) -> Option<Id<HostOp>> {
        match self {
            Launch::Exact(call) | Launch::ByOrder(call) | Launch::Ambiguous(call) => Some(call),
            Launch::BeforeTrace | Launch::Missing | Launch::NoCorrelation => None,
        }
    }
}

impl Cell for Launch {
    fn to_word(self) -> u64 {
        let (id, which) = match self {
            Launch::Exact(id) => (id.number(), 0),
            Launch::Ambiguous(id) => (id.number(), 1),
            Launch::BeforeTrace => (0, 2),
            Launch::Missing => (0, 3),
            Launch::NoCorrelation => (0, 4),
            Launch::ByOrder(id) => (id.number(), 5),
        };
        u64::from(id) << 3 | which
    }

    fn from_word(word: u64) -> Self {
        let id = Id::from_number((word >> 3) as u32);
        match word & 7 {
            0 => Launch::Exact(id),
            1 => Launch::Ambiguous(id),
            2 => Launch::BeforeTrace,
            3 => Launch::Missing,
            5 => Launch::ByOrder(id),
            _ => Launch::NoCorrelation,
        }
    }
}

/// The links between events of one trace.
#[derive(Clone, Debug, Default)]
pub struct Links {
    launches: PackedColumn,
    host_waits: FxHashMap<Id<HostOp>, Wait>,
    device_waits: FxHashMap<Id<DeviceOp>, Wait>,
    graph_waits: GraphWaits,
    streams: Vec<Vec<Id<DeviceOp>>>,
    threads: Vec<Vec<Id<HostOp>>>,
    unlinked_waits: u64,
}

impl Links {
    /// Finds the links of a trace.
    pub fn of(trace: &Trace) -> Self {
        let calls = Calls::of(trace);
        let mut links = Links { launches: launches(trace, &calls), ..Links::default() };
        links.streams = by_lane(trace.streams().len(), trace.device.iter().map(|(id, op)| (op.stream, id)));
        for ids in &mut links.streams {
            ids.sort_by_key(|id| trace.device.get(*id).map(|op| (op.begin, op.end())));
        }
        links.threads = by_lane(trace.threads().len(), trace.host.iter().map(|(id, op)| (op.thread, id)));
        for ids in &mut links.threads {
            ids.sort_by_key(|id| trace.host.get(*id).map(|op| (op.begin, Reverse(op.end()))));
        }
        let queues = Queues::of(trace, &links);
        if trace.syncs.is_empty() {
            links.guessed_waits(&queues);
        } else {
            links.recorded_waits(&calls, &queues);
        }
        links.blocking_copies(trace);
        links.graph_waits = GraphWaits::of(trace);
        links
    }

    /// The launch of an operation.
    pub fn launch(&self, op: Id<DeviceOp>) -> Launch {
        if op.index() < Column::<Launch>::count(&self.launches) {
            self.launches.at(op.index())
        } else {
            Launch::NoCorrelation
        }
    }

    /// What a call waits for.
    pub fn host_wait(&self, call: Id<HostOp>) -> Option<Wait> {
        self.host_waits.get(&call).copied()
    }

    /// What an operation waits for, besides the order of its stream.
    pub fn device_wait(&self, op: Id<DeviceOp>) -> Option<Wait> {
        self.device_waits.get(&op).copied()
    }

    /// The order of an operation within its graph.
    pub fn graph_order(&self, op: Id<DeviceOp>) -> GraphOrder {
        self.graph_waits.get(op)
    }

    /// Every wait, in no order.
    pub fn waits(&self) -> impl Iterator<Item = Wait> + '_ {
        let of_graphs = self.graph_waits.iter();
        self.host_waits.values().chain(self.device_waits.values()).copied().chain(of_graphs)
    }

    /// Synchronizations and waits for which no possible target was found.
    pub fn unlinked_waits(&self) -> u64 {
        self.unlinked_waits
    }

    /// The operations of each stream by begin, in the order of [`Trace::streams`].
    pub fn streams(&self) -> &[Vec<Id<DeviceOp>>] {
        &self.streams
    }

    /// The operations of each thread by begin, outer ones first, in the order of [`Trace::threads`].
    pub fn threads(&self) -> &[Vec<Id<HostOp>>] {
        &self.threads
    }

    /// Adds a wait. Of several of one waiter the most certain counts, and of these the one for the work that ends last:
    /// it is what the waiter waited for, whatever their order in the file.
    fn wait(&mut self, trace: &Trace, waiter: Waiter, on: Id<DeviceOp>, basis: Basis) {
        let wait = Wait { waiter, on, basis };
        let known = match waiter {
            Waiter::Host(call) => self.host_waits.entry(call).or_insert(wait),
            Waiter::Device(op) if op != on => self.device_waits.entry(op).or_insert(wait),
            Waiter::Device(_) => {
                self.unlinked_waits += 1;
                return;
            }
        };
        let order = |of: Wait| (Reverse(of.basis as u8), trace.device.get(of.on).map(|op| op.end()), of.on);
        if order(wait) > order(*known) {
            *known = wait;
        }
    }

    /// Waits named by the tool.
    fn recorded_waits(&mut self, calls: &Calls, queues: &Queues<'_>) {
        let trace = queues.trace;
        let threads = LazyCell::new(|| queues.by_thread());
        let all = LazyCell::new(|| queues.by_queueing());
        let is_one_device = queues.are_of_one_device();
        let ended = LazyCell::new(|| {
            let found = trace.syncs.iter().map(|(_, sync)| calls.before(trace, sync.correlation, sync.begin));
            queues.last_ended(&all, found.filter_map(|found| trace.host.get(found?.0)))
        });
        for (_, sync) in trace.syncs.iter() {
            let found = calls.before(trace, sync.correlation, sync.begin);
            let Some((id, op, basis)) = found.and_then(|(id, basis)| Some((id, trace.host.get(id)?, basis)))
            else {
                self.unlinked_waits += 1;
                continue;
            };
            // What was recorded, on the weaker basis of both calls.
            let recorded = || {
                let (record, of_record) = calls.before(trace, sync.record?, op.begin)?;
                let on = queues.last_before(sync.recorded_on?, trace.host.get(record)?.begin)?;
                Some((on, if of_record == Basis::Exact { basis } else { of_record }))
            };
            let (waiter, on) = match (sync.kind, sync.stream) {
                (SyncKind::Stream, Some(stream)) => {
                    (Some(Waiter::Host(id)), queues.last_before(stream, op.begin).map(|on| (on, basis)))
                }
                (SyncKind::Stream | SyncKind::Context, _) => {
                    // Of several streams or devices, the tool does not say which one.
                    let is_known = sync.kind == SyncKind::Context && is_one_device;
                    let on = match is_known {
                        true => queues.last_to_end(&all, op.begin).map(|on| (on, basis)),
                        false => ended.get(&(op.begin, op.end())).map(|on| (*on, Basis::Inferred)),
                    };
                    (Some(Waiter::Host(id)), on)
                }
                (SyncKind::Event, _) => (Some(Waiter::Host(id)), recorded()),
                (SyncKind::StreamWait, Some(stream)) => {
                    // Without a record, the tool names the waiting stream, but not its target.
                    let elsewhere = || Some((queues.last_elsewhere(&threads, &op, stream)?, Basis::Inferred));
                    let on = if sync.record.is_none() { elsewhere() } else { recorded() };
                    (queues.first_after(stream, op.begin).map(Waiter::Device), on)
                }
                (SyncKind::StreamWait, None) => (None, None),
            };
            match (waiter, on) {
                (Some(waiter), Some((on, basis))) => self.wait(trace, waiter, on, basis),
                _ => self.unlinked_waits += 1,
            }
        }
    }

    /// Waits of a trace that only names calls.
    fn guessed_waits(&mut self, queues: &Queues<'_>) {
        let trace = queues.trace;
        let threads = queues.by_thread();
        let all = LazyCell::new(|| queues.by_queueing());
        let end = |id: Id<DeviceOp>| trace.device.get(id).map_or(TraceTime::default(), |op| op.end());
        let mut ends: Vec<Id<DeviceOp>> = trace.device.iter().map(|(id, _)| id).collect();
        ends.sort_by_key(|id| end(*id));
        let is_one_device = queues.are_of_one_device();
        let ended = LazyCell::new(|| {
            let calls = trace.host.iter().map(|(_, op)| op).filter(|op| op.kind.is_call());
            queues.last_ended(&all, calls.filter(|op| Call::of(trace.name(op.name)) == Call::DeviceSync))
        });
        for (id, op) in trace.host.iter().filter(|(_, op)| op.kind.is_call()) {
            let found = match Call::of(trace.name(op.name)) {
                Call::DeviceSync => {
                    // Of several devices, the name of a call does not say which one.
                    let on = match is_one_device {
                        true => queues.last_to_end(&all, op.begin).map(|on| (on, Basis::ByOrder)),
                        false => ended.get(&(op.begin, op.end())).map(|on| (*on, Basis::Inferred)),
                    };
                    on.map(|(on, basis)| (Waiter::Host(id), on, basis))
                }
                Call::StreamSync | Call::EventSync => {
                    let last = ends.partition_point(|id| end(*id) <= op.end()).checked_sub(1);
                    let on = last.and_then(|at| ends.get(at)).filter(|id| end(**id) >= op.begin);
                    on.map(|on| (Waiter::Host(id), *on, Basis::Inferred))
                }
                Call::StreamWait => {
                    let around = queues.around(&threads, &op);
                    around.map(|(before, after)| (Waiter::Device(after), before, Basis::Inferred))
                }
                Call::Launch | Call::EventRecord | Call::Other => continue,
            };
            match found {
                Some((waiter, on, basis)) => self.wait(trace, waiter, on, basis),
                None => self.unlinked_waits += 1,
            }
        }
    }

    /// A call that returns after its copy has ended has waited for it.
    fn blocking_copies(&mut self, trace: &Trace) {
        for (id, op) in trace.device.iter().filter(|(_, op)| op.kind == DeviceKind::Copy) {
            let (call, basis) = match self.launch(id) {
                Launch::Exact(call) => (call, Basis::Exact),
                Launch::ByOrder(call) => (call, Basis::ByOrder),
                _ => continue,
            };
            if trace.host.get(call).is_some_and(|call| call.end() >= op.end()) {
                self.wait(trace, Waiter::Host(call), id, basis);
            }
        }
    }
}

/// Rows of each lane, in their order.
fn by_lane<L, R>(lanes: usize, rows: impl Iterator<Item = (Id<L>, Id<R>)>) -> Vec<Vec<Id<R>>> {
    let mut of = vec![Vec::new(); lanes];
    rows.for_each(|(lane, id)| of[lane.index()].push(id));
    of
}

fn launches(trace: &Trace, calls: &Calls) -> PackedColumn {
    let least = calls.least();
    let mut place = 0;
    let mut of = |op: DeviceOp| match (op.correlation, calls.near(&mut place, op.correlation)) {
        (0, _) => Launch::NoCorrelation,
        (_, [call]) if op.launched_by == Basis::Exact => Launch::Exact(*call),
        (_, [call]) => Launch::ByOrder(*call),
        (_, several @ [first, ..]) => {
            Launch::Ambiguous(latest_before(trace, several, op.begin).unwrap_or(*first))
        }
        (correlation, []) if least.is_some_and(|least| correlation < least) => Launch::BeforeTrace,
        (_, []) => Launch::Missing,
    };
    let mut launches = PackedColumn::default();
    trace.device.iter().for_each(|(_, op)| launches.add(of(op)));
    launches
}

/// Work by queueing time.
struct Queues<'t> {
    trace: &'t Trace,
    /// The launch of each operation.
    launches: PackedColumn,
    /// The operations of each stream, in the order in which they were queued.
    streams: Vec<Vec<Id<DeviceOp>>>,
}

/// Operations searched for one on another stream.
const LOOK_BACK: usize = 4096;

impl<'t> Queues<'t> {
    fn of(trace: &'t Trace, links: &Links) -> Self {
        let queues = Queues { trace, launches: links.launches.clone(), streams: Vec::new() };
        let mut streams = links.streams.clone();
        streams.iter_mut().for_each(|queue| queues.sort(queue));
        Queues { streams, ..queues }
    }

    /// Whether all work ran on one device, so that a wait for a device is for that one.
    fn are_of_one_device(&self) -> bool {
        let with_work = self.trace.streams().iter().zip(&self.streams).filter(|(_, queue)| !queue.is_empty());
        let mut devices = with_work.map(|(stream, _)| stream.device);
        let first = devices.next();
        devices.all(|device| Some(device) == first)
    }

    /// The work that each thread launched, in that order.
    fn by_thread(&self) -> Vec<Vec<Id<DeviceOp>>> {
        let launched = self.trace.device.iter().filter_map(|(id, _)| Some((self.call(id)?.thread, id)));
        let mut threads = by_lane(self.trace.threads().len(), launched);
        threads.iter_mut().for_each(|queue| self.sort(queue));
        threads
    }

    /// The work of one graph has a single launch: it is ordered by begin.
    fn sort(&self, queue: &mut [Id<DeviceOp>]) {
        queue.sort_by_key(|id| self.order(*id));
    }

    fn order(&self, id: Id<DeviceOp>) -> (TraceTime, Option<TraceTime>, Id<DeviceOp>) {
        (self.queued(id), self.trace.device.get(id).map(|op| op.begin), id)
    }

    /// All work in that order, each with the one that ends last of those that streams had last then.
    fn by_queueing(&self) -> Vec<(Id<DeviceOp>, Id<DeviceOp>)> {
        let mut all: Vec<_> = self.trace.device.iter().map(|(id, _)| (id, id)).collect();
        all.sort_by_key(|(id, _)| self.order(*id));
        let mut ends = LastEnds::of(self.streams.len());
        for (id, last) in &mut all {
            let op = self.trace.device.get(*id);
            *last = op.and_then(|op| ends.add(*id, &op)).unwrap_or(*id);
        }
        all
    }

    fn call(&self, id: Id<DeviceOp>) -> Option<HostOp> {
        let launch: Launch = self.launches.at(id.index());
        self.trace.host.get(launch.call()?)
    }

    /// Queueing time: work launched before the trace precedes everything in it.
    fn queued(&self, id: Id<DeviceOp>) -> TraceTime {
        self.call(id).map_or(TraceTime::default(), |call| call.begin)
    }

    fn last_before(&self, stream: Id<Stream>, time: TraceTime) -> Option<Id<DeviceOp>> {
        let queue = self.streams.get(stream.index())?;
        let at = queue.partition_point(|id| self.queued(*id) < time).checked_sub(1)?;
        queue.get(at).copied()
    }

    fn first_after(&self, stream: Id<Stream>, time: TraceTime) -> Option<Id<DeviceOp>> {
        let queue = self.streams.get(stream.index())?;
        queue.get(queue.partition_point(|id| self.queued(*id) < time)).copied()
    }

    /// Of the work that each stream was given last before a moment, the one that ends last.
    fn last_to_end(&self, all: &[(Id<DeviceOp>, Id<DeviceOp>)], time: TraceTime) -> Option<Id<DeviceOp>> {
        let at = all.partition_point(|(id, _)| self.queued(*id) < time).checked_sub(1)?;
        all.get(at).map(|(_, last)| *last)
    }

    /// The same for each of these calls, by begin and end, without work that ends after the call.
    fn last_ended(
        &self,
        all: &[(Id<DeviceOp>, Id<DeviceOp>)],
        calls: impl Iterator<Item = HostOp>,
    ) -> BTreeMap<(TraceTime, TraceTime), Id<DeviceOp>> {
        let work = all.iter().map(|(id, _)| *id);
        let work = work.filter_map(|id| Some((self.queued(id), id, self.trace.device.get(id)?)));
        last_ended(self.streams.len(), work, calls.map(|call| (call.begin, call.end())).collect())
    }

    /// A thread's next launch, and its last one on another stream.
    fn around(&self, threads: &[Vec<Id<DeviceOp>>], wait: &HostOp) -> Option<(Id<DeviceOp>, Id<DeviceOp>)> {
        let queue = threads.get(wait.thread.index())?;
        let at = queue.partition_point(|id| self.queued(*id) < wait.begin);
        let after = *queue.get(at)?;
        let stream = self.trace.device.get(after)?.stream;
        Some((self.last_elsewhere(threads, wait, stream)?, after))
    }

    /// A thread's last launch on another stream than the waiting one.
    fn last_elsewhere(
        &self,
        threads: &[Vec<Id<DeviceOp>>],
        wait: &HostOp,
        stream: Id<Stream>,
    ) -> Option<Id<DeviceOp>> {
        let queue = threads.get(wait.thread.index())?;
        let at = queue.partition_point(|id| self.queued(*id) < wait.begin);
        let mut before = queue[..at].iter().rev().take(LOOK_BACK);
        before.find(|id| self.trace.device.get(**id).is_some_and(|op| op.stream != stream)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::text;

    fn check(input: &str, expect: &[&str]) {
        let trace = text::parse(input).unwrap();
        let links = Links::of(&trace);
        let device = |id: Id<DeviceOp>| trace.name(trace.device.get(id).unwrap().name).to_owned();
        let host = |id: Id<HostOp>| trace.name(trace.host.get(id).unwrap().name).to_owned();
        let mut shown: Vec<String> = Vec::new();
        for (id, _) in trace.device.iter() {
            let launch = links.launch(id);
            let call = launch.call().map_or_else(String::new, host);
            shown.push(format!("{} <- {launch:?} {call}", device(id)).replace("Id", ""));
        }
        let mut waits: Vec<_> = links.waits().collect();
        waits.sort_by_key(|wait| wait.on);
        for wait in waits {
            let waiter = match wait.waiter {
                Waiter::Host(call) => host(call),
                Waiter::Device(op) => device(op),
            };
            shown.push(format!("{waiter} waits for {} {:?}", device(wait.on), wait.basis));
        }
        assert_eq!(shown, expect);
    }

    #[test]
    fn launches_are_joined_by_correlation_or_say_why_not() {
        check(
            "call main 1..2 cudaLaunchKernel #10
             kernel 0/7 3..4 a #10
             kernel 0/7 5..6 early #9
             kernel 0/7 7..8 lost #11
             kernel 0/7 9..10 none",
            &[
                "a <- Exact(#0) cudaLaunchKernel",
                "early <- BeforeTrace ",
                "lost <- Missing ",
                "none <- NoCorrelation ",
            ],
        );
    }

    #[test]
    fn an_id_used_twice_is_ambiguous() {
        check(
            "call main 1..2 cudaLaunchKernel #10
             call main 11..12 cuLaunchKernel #10
             kernel 0/7 3..4 a #10
             kernel 0/7 13..14 b #10",
            &["a <- Ambiguous(#0) cudaLaunchKernel", "b <- Ambiguous(#1) cuLaunchKernel"],
        );
    }

    #[test]
    fn named_synchronisations_are_exact() {
        check(
            "call main 1..2 cudaLaunchKernel #1
             call main 3..4 cudaEventRecord #2
             call main 5..6 cudaStreamWaitEvent #3
             call main 7..8 cudaLaunchKernel #4
             call main 9..30 cudaStreamSynchronize #5
             kernel 0/7 3..10 a #1
             kernel 0/8 11..20 b #4
             sync wait 0/8 11..11 #3 record=2 on=0/7
             sync stream 0/8 9..20 #5",
            &[
                "a <- Exact(#0) cudaLaunchKernel",
                "b <- Exact(#3) cudaLaunchKernel",
                "b waits for a Exact",
                "cudaStreamSynchronize waits for b Exact",
            ],
        );
    }

    #[test]
    fn a_wait_for_an_unnamed_stream_is_inferred() {
        let check = |sync: &str, basis: &str| {
            check(
                &format!(
                    "call main 1..2 cudaLaunchKernel #1
                     call main 3..10 cudaStreamSynchronize #5
                     kernel 0/7 2..9 a #1
                     sync {sync} - 3..10 #5"
                ),
                &["a <- Exact(#0) cudaLaunchKernel", &format!("cudaStreamSynchronize waits for a {basis}")],
            );
        };
        check("stream", "Inferred");
        check("context", "Exact");
    }

    #[test]
    fn waits_of_an_id_used_twice_are_inferred() {
        check(
            "call main 1..2 cudaLaunchKernel #1
             call main 3..10 cudaStreamSynchronize #5
             call main 21..22 cudaLaunchKernel #2
             call main 23..40 cudaStreamSynchronize #5
             kernel 0/7 2..9 a #1
             kernel 0/7 24..39 b #2
             sync stream 0/7 23..40 #5",
            &[
                "a <- Exact(#0) cudaLaunchKernel",
                "b <- Exact(#2) cudaLaunchKernel",
                "cudaStreamSynchronize waits for b Inferred",
            ],
        );
        // The id of the record: the latest before the wait, of stream 7, is after its second kernel.
        check(
            "call main 1..2 cudaLaunchKernel #1
             call main 3..4 cudaEventRecord #2
             call main 5..6 cudaLaunchKernel #3
             call main 7..8 cudaEventRecord #2
             call main 9..10 cudaStreamWaitEvent #4
             call main 11..12 cudaLaunchKernel #5
             call main 13..14 cudaEventRecord #2
             kernel 0/7 3..10 a #1
             kernel 0/7 10..12 b #3
             kernel 0/8 13..20 c #5
             sync wait 0/8 9..9 #4 record=2 on=0/7",
            &[
                "a <- Exact(#0) cudaLaunchKernel",
                "b <- Exact(#2) cudaLaunchKernel",
                "c <- Exact(#5) cudaLaunchKernel",
                "c waits for b Inferred",
            ],
        );
    }

    #[test]
    fn a_named_wait_without_its_record_is_inferred() {
        check(
            "call main 1..2 cudaLaunchKernel #1
             call main 3..4 cudaLaunchKernel #2
             call main 5..6 cudaStreamWaitEvent #3
             call main 7..8 cudaLaunchKernel #4
             kernel 0/8 2..3 early #1
             kernel 0/7 4..10 a #2
             kernel 0/8 11..20 b #4
             sync wait 0/8 5..5 #3",
            &[
                "early <- Exact(#0) cudaLaunchKernel",
                "a <- Exact(#1) cudaLaunchKernel",
                "b <- Exact(#3) cudaLaunchKernel",
                "b waits for a Inferred",
            ],
        );
    }

    #[test]
    fn unnamed_waits_are_inferred_and_say_so() {
        check(
            "call main 1..2 cudaLaunchKernel #1
             call main 5..6 cudaStreamWaitEvent #3
             call main 7..8 cudaLaunchKernel #4
             call main 9..30 cudaStreamSynchronize #5
             call main 31..32 cudaDeviceSynchronize #6
             kernel 0/7 3..10 a #1
             kernel 0/8 11..20 b #4",
            &[
                "a <- Exact(#0) cudaLaunchKernel",
                "b <- Exact(#2) cudaLaunchKernel",
                "b waits for a Inferred",
                "cudaStreamSynchronize waits for b Inferred",
                "cudaDeviceSynchronize waits for b ByOrder",
            ],
        );
    }

    #[test]
    fn a_wait_for_one_of_several_devices_is_inferred() {
        let calls = "call main 1..2 cudaLaunchKernel #1
             call main 3..4 cudaLaunchKernel #2
             call main 5..30 cudaDeviceSynchronize #3
             kernel 0/7 3..10 a #1";
        let check_basis = |lines: &str, basis: &str| {
            let wait = format!("cudaDeviceSynchronize waits for b {basis}");
            let launches = ["a <- Exact(#0) cudaLaunchKernel", "b <- Exact(#1) cudaLaunchKernel"];
            check(&format!("{calls}\n{lines}"), &[launches[0], launches[1], &wait]);
        };
        check_basis("kernel 0/8 5..20 b #2", "ByOrder");
        check_basis("kernel 1/7 5..20 b #2", "Inferred");
        check_basis("kernel 0/8 5..20 b #2\n sync context - 5..29 #3", "Exact");
        check_basis("kernel 1/7 5..20 b #2\n sync context - 5..29 #3", "Inferred");
        // A wait for a stream that the tool does not name.
        check_basis("kernel 0/8 5..20 b #2\n sync stream - 5..29 #3", "Inferred");
    }

    #[test]
    fn of_several_waits_the_one_that_ends_last_counts() {
        let events = "call main 1..2 cudaLaunchKernel #1
             call main 3..4 cudaEventRecord #2
             call main 5..6 cudaLaunchKernel #3
             call main 7..8 cudaEventRecord #4
             call main 9..10 cudaStreamWaitEvent #5
             call main 11..12 cudaStreamWaitEvent #6
             call main 13..14 cudaLaunchKernel #7
             kernel 0/7 3..40 a #1
             kernel 0/8 7..20 b #3
             kernel 0/9 41..50 c #7";
        let syncs = ["sync wait 0/9 9..9 #5 record=2 on=0/7", "sync wait 0/9 11..11 #6 record=4 on=0/8"];
        for [first, second] in [syncs, [syncs[1], syncs[0]]] {
            check(
                &format!("{events}\n{first}\n{second}"),
                &[
                    "a <- Exact(#0) cudaLaunchKernel",
                    "b <- Exact(#2) cudaLaunchKernel",
                    "c <- Exact(#6) cudaLaunchKernel",
                    "c waits for a Exact",
                ],
            );
        }
    }

    #[test]
    fn copies_block_when_calls_outlast_them() {
        check(
            "call main 1..20 cudaMemcpyAsync #1
             call main 21..22 cudaMemcpyAsync #2
             copy 0/7 5..15 in #1
             copy 0/7 25..35 out #2",
            &[
                "in <- Exact(#0) cudaMemcpyAsync",
                "out <- Exact(#1) cudaMemcpyAsync",
                "cudaMemcpyAsync waits for in Exact",
            ],
        );
    }
}
