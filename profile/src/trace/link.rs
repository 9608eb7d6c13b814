//! Links: what in a trace belongs together.
//!
//! Owns: the launch of each device operation, what each wait waits for, and the order of threads and streams.
//! Because: formats name some of these links, leave others to the order of events, and are silent about the rest; an
//! analysis must know which of the three it stands on. Does not: change the trace, or compute figures.
//!
//! | link | exact | by order | inferred |
//! |---|---|---|---|
//! | launch → device operation | same correlation id | – | – (an id used twice: the latest call before the work) |
//! | stream → host, of a synchronisation | the tool names stream or event | `DeviceSynchronize`: everything launched before | the last work that ended within the call |
//! | stream → stream, of an event | the tool names the record | – | last work of the same thread on another stream |

use rustc_hash::FxHashMap;

use super::event::{DeviceKind, DeviceOp, HostOp, Stream, Sync, SyncKind};
use super::name::Call;
use super::{Trace, TraceTime};
use crate::id::Id;

/// How sure a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// The trace names both ends.
    Exact,
    /// It follows from the order of calls, by the rules of the API.
    ByOrder,
    /// A guess, which may be wrong.
    Inferred,
}

/// What launched a device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Launch {
    /// The one call that has its correlation id.
    Exact(Id<HostOp>),
    /// Several calls have the id; this is the latest one that began before the operation, or else the first.
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
            Launch::Exact(call) | Launch::Ambiguous(call) => Some(call),
            Launch::BeforeTrace | Launch::Missing | Launch::NoCorrelation => None,
        }
    }
}

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiter {
    /// A call of the host, until its end.
    Host(Id<HostOp>),
    /// A device operation, before its begin.
    Device(Id<DeviceOp>),
}

/// One wait for a device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who waits.
    pub waiter: Waiter,
    /// The last operation that is waited for.
    pub on: Id<DeviceOp>,
    /// How sure that is.
    pub basis: Basis,
}

/// What belongs together in one trace.
#[derive(Clone, Debug, Default)]
pub struct Links {
    launches: Vec<Launch>,
    host_waits: FxHashMap<Id<HostOp>, Wait>,
    device_waits: FxHashMap<Id<DeviceOp>, Wait>,
    streams: Vec<Vec<Id<DeviceOp>>>,
    threads: Vec<Vec<Id<HostOp>>>,
    unlinked_waits: u64,
}

impl Links {
    /// Finds the links of a trace.
    pub fn of(trace: &Trace) -> Self {
        let mut links = Links { launches: launches(trace), ..Links::default() };
        links.streams = vec![Vec::new(); trace.streams().len()];
        let mut device: Vec<_> = trace.device.iter().collect();
        device.sort_by_key(|(id, op)| (op.begin, op.end(), *id));
        for (id, op) in device {
            links.streams[op.stream.index()].push(id);
        }
        links.threads = vec![Vec::new(); trace.threads().len()];
        let mut host: Vec<_> = trace.host.iter().collect();
        host.sort_by_key(|(id, op)| (op.begin, std::cmp::Reverse(op.end()), *id));
        for (id, op) in host {
            links.threads[op.thread.index()].push(id);
        }
        let queues = Queues::of(trace, &links.launches);
        let recorded = links.recorded_waits(trace, &queues);
        if !recorded {
            links.guessed_waits(trace, &queues);
        }
        links.blocking_copies(trace);
        links
    }

    /// What launched an operation.
    pub fn launch(&self, op: Id<DeviceOp>) -> Launch {
        self.launches.get(op.index()).copied().unwrap_or(Launch::NoCorrelation)
    }

    /// What a call waits for.
    pub fn host_wait(&self, call: Id<HostOp>) -> Option<Wait> {
        self.host_waits.get(&call).copied()
    }

    /// What an operation waits for, beside the order of its stream.
    pub fn device_wait(&self, op: Id<DeviceOp>) -> Option<Wait> {
        self.device_waits.get(&op).copied()
    }

    /// Every wait, in no order.
    pub fn waits(&self) -> impl Iterator<Item = Wait> + '_ {
        self.host_waits.values().chain(self.device_waits.values()).copied()
    }

    /// Synchronisations and waits for which nothing was found that they could have waited for.
    pub fn unlinked_waits(&self) -> u64 {
        self.unlinked_waits
    }

    /// The operations of each stream by begin, in the order of [`Trace::streams`].
    pub fn streams(&self) -> &[Vec<Id<DeviceOp>>] {
        &self.streams
    }

    /// The operations of each thread by begin, the outer ones first, in the order of [`Trace::threads`].
    pub fn threads(&self) -> &[Vec<Id<HostOp>>] {
        &self.threads
    }

    fn wait(&mut self, waiter: Waiter, on: Option<Id<DeviceOp>>, basis: Basis) {
        let Some(on) = on else {
            self.unlinked_waits += 1;
            return;
        };
        let wait = Wait { waiter, on, basis };
        match waiter {
            Waiter::Host(call) => drop(self.host_waits.insert(call, wait)),
            Waiter::Device(op) if op != on => drop(self.device_waits.insert(op, wait)),
            Waiter::Device(_) => self.unlinked_waits += 1,
        }
    }

    /// Waits that the tool names. Gives whether it names any.
    fn recorded_waits(&mut self, trace: &Trace, queues: &Queues) -> bool {
        let calls = calls_by_correlation(trace);
        let call = |correlation: u64| range(&calls, correlation).first().map(|(_, id)| *id);
        for (_, sync) in trace.syncs.iter() {
            let Some((id, op)) = call(sync.correlation).and_then(|id| Some((id, trace.host.get(id)?))) else {
                self.unlinked_waits += 1;
                continue;
            };
            let recorded = |sync: &Sync| {
                let record = trace.host.get(call(sync.record?)?)?;
                queues.last_before(sync.recorded_on?, record.begin)
            };
            match (sync.kind, sync.stream) {
                (SyncKind::Stream, Some(stream)) => {
                    self.wait(Waiter::Host(id), queues.last_before(stream, op.begin), Basis::Exact);
                }
                (SyncKind::Stream | SyncKind::Context, _) => {
                    self.wait(Waiter::Host(id), queues.last_to_end(trace, op.begin), Basis::Exact);
                }
                (SyncKind::Event, _) => self.wait(Waiter::Host(id), recorded(&sync), Basis::Exact),
                (SyncKind::StreamWait, Some(stream)) => match queues.first_after(stream, op.begin) {
                    Some(next) => self.wait(Waiter::Device(next), recorded(&sync), Basis::Exact),
                    None => self.unlinked_waits += 1,
                },
                (SyncKind::StreamWait, None) => self.unlinked_waits += 1,
            }
        }
        !trace.syncs.is_empty()
    }

    /// Waits of a trace that names calls alone.
    fn guessed_waits(&mut self, trace: &Trace, queues: &Queues) {
        let mut ends: Vec<(TraceTime, Id<DeviceOp>)> =
            trace.device.iter().map(|(id, op)| (op.end(), id)).collect();
        ends.sort_unstable();
        for (id, op) in trace.host.iter().filter(|(_, op)| op.kind.is_call()) {
            match Call::of(trace.name(op.name)) {
                Call::DeviceSync => {
                    self.wait(Waiter::Host(id), queues.last_to_end(trace, op.begin), Basis::ByOrder);
                }
                Call::StreamSync | Call::EventSync => {
                    let last = ends.partition_point(|(end, _)| *end <= op.end()).checked_sub(1);
                    let on = last.and_then(|at| ends.get(at)).filter(|(end, _)| *end >= op.begin);
                    self.wait(Waiter::Host(id), on.map(|(_, id)| *id), Basis::Inferred);
                }
                Call::StreamWait => match queues.around(trace, &op) {
                    Some((before, after)) => self.wait(Waiter::Device(after), Some(before), Basis::Inferred),
                    None => self.unlinked_waits += 1,
                },
                Call::Launch | Call::EventRecord | Call::Other => {}
            }
        }
    }

    /// A call that returns after its copy has ended has waited for it.
    fn blocking_copies(&mut self, trace: &Trace) {
        for (id, op) in trace.device.iter().filter(|(_, op)| op.kind == DeviceKind::Copy) {
            let Launch::Exact(call) = self.launch(id) else { continue };
            if trace.host.get(call).is_some_and(|call| call.end() >= op.end()) {
                self.wait(Waiter::Host(call), Some(id), Basis::Exact);
            }
        }
    }
}

fn calls_by_correlation(trace: &Trace) -> Vec<(u64, Id<HostOp>)> {
    let calls = trace.host.iter().filter(|(_, op)| op.kind.is_call() && op.correlation != 0);
    let mut calls: Vec<_> = calls.map(|(id, op)| (op.correlation, id)).collect();
    calls.sort_unstable();
    calls
}

fn range(calls: &[(u64, Id<HostOp>)], correlation: u64) -> &[(u64, Id<HostOp>)] {
    let begin = calls.partition_point(|(of, _)| *of < correlation);
    let length = calls[begin..].partition_point(|(of, _)| *of == correlation);
    &calls[begin..begin + length]
}

fn launches(trace: &Trace) -> Vec<Launch> {
    let calls = calls_by_correlation(trace);
    let least = calls.first().map_or(u64::MAX, |(correlation, _)| *correlation);
    let begin = |id: Id<HostOp>| trace.host.get(id).map(|op| op.begin);
    let of = |op: DeviceOp| match (op.correlation, range(&calls, op.correlation)) {
        (0, _) => Launch::NoCorrelation,
        (_, [(_, call)]) => Launch::Exact(*call),
        (_, several @ [(_, first), ..]) => {
            let before = several.iter().filter(|(_, id)| begin(*id) <= Some(op.begin));
            let latest = before.max_by_key(|(_, id)| (begin(*id), *id));
            Launch::Ambiguous(latest.map_or(*first, |(_, id)| *id))
        }
        (correlation, []) if correlation < least && !calls.is_empty() => Launch::BeforeTrace,
        (_, []) => Launch::Missing,
    };
    trace.device.iter().map(|(_, op)| of(op)).collect()
}

/// What was queued when: by stream, and by thread.
struct Queues {
    streams: Vec<Vec<(TraceTime, Id<DeviceOp>)>>,
    threads: Vec<Vec<(TraceTime, Id<DeviceOp>)>>,
}

/// Operations that are looked at for one on another stream.
const LOOK_BACK: usize = 4096;

impl Queues {
    fn of(trace: &Trace, launches: &[Launch]) -> Self {
        let mut queues = Queues {
            streams: vec![Vec::new(); trace.streams().len()],
            threads: vec![Vec::new(); trace.threads().len()],
        };
        for ((id, op), launch) in trace.device.iter().zip(launches) {
            let call = launch.call().and_then(|call| trace.host.get(call));
            // What was launched before the trace was queued before everything in it.
            let queued = call.map_or(TraceTime::default(), |call| call.begin);
            queues.streams[op.stream.index()].push((queued, id));
            if let Some(call) = call {
                queues.threads[call.thread.index()].push((queued, id));
            }
        }
        // Work of one graph has one launch: its order is that of its begins.
        let begin = |id: Id<DeviceOp>| trace.device.get(id).map(|op| op.begin);
        for queue in queues.streams.iter_mut().chain(&mut queues.threads) {
            queue.sort_by_key(|(queued, id)| (*queued, begin(*id), *id));
        }
        queues
    }

    fn last_before(&self, stream: Id<Stream>, time: TraceTime) -> Option<Id<DeviceOp>> {
        let queue = self.streams.get(stream.index())?;
        let at = queue.partition_point(|(queued, _)| *queued < time).checked_sub(1)?;
        Some(queue.get(at)?.1)
    }

    fn first_after(&self, stream: Id<Stream>, time: TraceTime) -> Option<Id<DeviceOp>> {
        let queue = self.streams.get(stream.index())?;
        Some(queue.get(queue.partition_point(|(queued, _)| *queued < time))?.1)
    }

    /// Of all that was queued before, what ends last.
    fn last_to_end(&self, trace: &Trace, time: TraceTime) -> Option<Id<DeviceOp>> {
        let last = self.streams.iter().filter_map(|queue| {
            let at = queue.partition_point(|(queued, _)| *queued < time).checked_sub(1)?;
            Some(queue.get(at)?.1)
        });
        last.max_by_key(|id| trace.device.get(*id).map(|op| op.end()))
    }

    /// What a thread launched next, and what it had launched last on another stream.
    fn around(&self, trace: &Trace, wait: &HostOp) -> Option<(Id<DeviceOp>, Id<DeviceOp>)> {
        let queue = self.threads.get(wait.thread.index())?;
        let at = queue.partition_point(|(queued, _)| *queued < wait.begin);
        let after = queue.get(at)?.1;
        let stream = trace.device.get(after)?.stream;
        let before = queue[..at].iter().rev().take(LOOK_BACK);
        let other =
            before.map(|(_, id)| *id).find(|id| trace.device.get(*id).is_some_and(|op| op.stream != stream));
        Some((other?, after))
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
