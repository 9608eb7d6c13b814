//! A trace of the simulated device beside the device's own log.
//!
//! Owns: the comparison of each piece of work, its call, and the waits for streams. Because: traces of all levels and
//! programs must equal the log in the same way. Does not: record programs, or know what they say themselves.

use std::collections::{BTreeMap, BTreeSet};

use deepctx_profile::intern::Id;
use deepctx_profile::trace::{Basis, Call, DeviceKind, DeviceOp, HostOp, Launch, RankTrace, Stream, Thread};

use crate::simulated::{Capture, Line};

/// A device's work by stream, in order: kind and name, nanoseconds, bytes.
type ByStream = BTreeMap<u64, Vec<(String, u64, u64)>>;

/// How wide a reading of the device's clock may be that is not the best one: each is the narrowest of eight.
const READING_NS: u64 = 10_000;

/// The device's log beside the trace.
pub(crate) struct Account<'c> {
    /// Each piece of work.
    pub(crate) work: Vec<(&'c Line, Id<DeviceOp>)>,
    /// Each thread that launched some.
    pub(crate) threads: BTreeMap<u32, Id<Thread>>,
}

pub(crate) fn only_rank(capture: &Capture) -> &RankTrace {
    let [rank] = capture.job.as_ref().unwrap().ranks() else { panic!("one process was traced") };
    rank
}

/// The work of the device's log, by stream, in order. Nodes of a graph may begin at one time.
pub(crate) fn done(capture: &Capture) -> BTreeMap<u64, Vec<&Line>> {
    let mut all: BTreeMap<u64, Vec<&Line>> = BTreeMap::new();
    let is_work = |line: &&Line| ["kernel", "copy", "fill"].contains(&line.what.as_str());
    for line in capture.account.iter().filter(is_work) {
        all.entry(line.stream).or_default().push(line);
    }
    all.values_mut().for_each(|work| work.sort_by_key(|line| (line.start, line.end, line.node)));
    all
}

/// The same from the recording.
fn recorded(rank: &RankTrace) -> BTreeMap<u64, Vec<Id<DeviceOp>>> {
    let order = |id: &Id<DeviceOp>| rank.trace.device.get(*id).map(|op| (op.begin, op.end(), op.graph_node));
    let of = |(stream, ops): (&Stream, &Vec<Id<DeviceOp>>)| {
        let mut ops = ops.clone();
        ops.sort_by_key(order);
        (stream.stream.unwrap(), ops)
    };
    rank.trace.streams().iter().zip(rank.links.streams()).map(of).collect()
}

/// All work is that of the device's log: in kind, name, bytes and times, and launched by the same calls.
pub(crate) fn is_the_account(capture: &Capture) -> Account<'_> {
    let rank = only_rank(capture);
    let (done, recorded) = (done(capture), recorded(rank));
    let of_log = |line: &&Line| {
        let name = match line.what.as_str() {
            "kernel" => format!("kernel {}", line.name),
            "copy" => format!("Memcpy {}", line.name),
            _ => "Memset".to_owned(),
        };
        (name, line.end - line.start, line.bytes)
    };
    let of_trace = |id: &Id<DeviceOp>| {
        let op = rank.trace.device.get(*id).unwrap();
        let name = rank.trace.name(op.name);
        let (name, bytes) = match op.kind {
            DeviceKind::Kernel => (format!("kernel {name}"), 0),
            // The kind of the host's memory may follow.
            DeviceKind::Copy => (name.split(' ').take(2).collect::<Vec<_>>().join(" "), op.bytes.0),
            DeviceKind::Fill => (name.to_owned(), op.bytes.0),
        };
        (name, op.duration.0, bytes)
    };
    let expect: ByStream =
        done.iter().map(|(stream, work)| (*stream, work.iter().map(of_log).collect())).collect();
    let found: ByStream =
        recorded.iter().map(|(stream, work)| (*stream, work.iter().map(of_trace).collect())).collect();
    assert_eq!(found, expect);
    let work: Vec<_> = done.into_values().flatten().zip(recorded.into_values().flatten()).collect();
    begins_are_those_of_the_device(capture, &work);
    let threads = launches_are_those_of_the_device(capture, &work);
    Account { work, threads }
}

/// How far a time of the device may be off on the host's clock.
pub(crate) fn clock_error_ns(rank: &RankTrace) -> u64 {
    let clock = rank.trace.device_clock.unwrap();
    clock.uncertainty.0 + clock.drift_ns.unsigned_abs() + READING_NS
}

/// All work begins when the device's log says, on the host's clock.
fn begins_are_those_of_the_device(capture: &Capture, work: &[(&Line, Id<DeviceOp>)]) {
    let rank = only_rank(capture);
    // The log has the begin of a wait on both clocks.
    let wait = capture.account.iter().find(|line| line.what == "sync").unwrap();
    let zero_ns = capture.profile.meta.started_monotonic.as_nanos() + (wait.start - wait.submitted);
    for (line, id) in work {
        let op = rank.trace.device.get(*id).unwrap();
        let off_ns = op.begin.as_nanos().abs_diff(line.start - zero_ns);
        assert!(off_ns <= clock_error_ns(rank), "{off_ns}: {line:?} {op:?} {:?}", rank.trace.device_clock);
    }
}

/// Calls of each thread in order, with their begins by the host's clock.
struct Called(Vec<Vec<(u64, Id<HostOp>)>>);

impl Called {
    fn of(capture: &Capture) -> Self {
        let rank = only_rank(capture);
        let started_ns = capture.profile.meta.started_monotonic.as_nanos();
        let begin = |id: &Id<HostOp>| {
            let op = rank.trace.host.get(*id).filter(|op| op.kind.is_call())?;
            Some((started_ns + op.begin.as_nanos(), *id))
        };
        Called(rank.links.threads().iter().map(|ops| ops.iter().filter_map(begin).collect()).collect())
    }

    /// The last call that a thread began by a time.
    fn at(&self, thread: Id<Thread>, time_ns: u64) -> Option<Id<HostOp>> {
        let calls = &self.0[thread.index()];
        let at = calls.partition_point(|(begin_ns, _)| *begin_ns <= time_ns).checked_sub(1)?;
        Some(calls[at].1)
    }
}

/// All work is launched by the call in which the device got it; other numbers of calls and threads are other ones.
fn launches_are_those_of_the_device(
    capture: &Capture,
    work: &[(&Line, Id<DeviceOp>)],
) -> BTreeMap<u32, Id<Thread>> {
    let (rank, called) = (only_rank(capture), Called::of(capture));
    let started_ns = capture.profile.meta.started_monotonic.as_nanos();
    let (mut calls, mut threads) = (BTreeMap::new(), BTreeMap::new());
    for (line, id) in work {
        let launch = rank.links.launch(*id);
        let Launch::Exact(call) = launch else { panic!("{launch:?}: {line:?}") };
        let op = rank.trace.host.get(call).unwrap();
        assert_eq!(called.at(op.thread, line.submitted), Some(call), "{line:?} {op:?}");
        // At the level of launches, no call has an end.
        let end_ns = started_ns + op.end().as_nanos();
        assert!(op.duration.0 == 0 || line.submitted <= end_ns, "{line:?} {op:?}");
        assert_eq!(*calls.entry(line.correlation).or_insert(call), call, "{line:?}");
        assert_eq!(*threads.entry(line.thread).or_insert(op.thread), op.thread, "{line:?}");
    }
    assert_eq!(calls.values().collect::<BTreeSet<_>>().len(), calls.len());
    assert_eq!(threads.values().collect::<BTreeSet<_>>().len(), threads.len());
    threads
}

/// Each wait for a stream is for the last work that the device had got for it.
pub(crate) fn waits_are_for_the_last_work(capture: &Capture, account: &Account<'_>) {
    let (rank, called) = (only_rank(capture), Called::of(capture));
    let is_wait = |line: &&Line| line.what == "sync" && line.name == "stream";
    let waits: Vec<&Line> = capture.account.iter().filter(is_wait).collect();
    for wait in &waits {
        let call = called.at(account.threads[&wait.thread], wait.submitted).unwrap();
        let is_before = |work: &Line| work.stream == wait.stream && work.submitted < wait.submitted;
        let before = account.work.iter().filter(|(work, _)| is_before(work));
        let (_, last) = before.max_by_key(|(work, _)| (work.submitted, work.start)).unwrap();
        let found = rank.links.host_wait(call).map(|wait| (wait.on, wait.basis));
        assert_eq!(found, Some((*last, Basis::Exact)), "{wait:?}");
    }
    let calls = rank.trace.host.iter().filter(|(_, op)| is_stream_sync(rank, op)).count();
    assert!(calls > 0 && calls == waits.len(), "{calls} of {}", waits.len());
}

pub(crate) fn is_stream_sync(rank: &RankTrace, op: &HostOp) -> bool {
    Call::of(rank.trace.name(op.name)) == Call::StreamSync
}
