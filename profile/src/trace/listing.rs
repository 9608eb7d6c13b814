//! Every row of a trace as a line of text, for tests: two traces with the same lines are equivalent.
//!
//! Owns: [`listing`]. Because: handles may differ after a trace is written and read back, but the things they refer
//! to must not. Does not: know a format.

use std::fmt::Debug;

use super::{HostOp, Stream, Thread, Trace, Waker};
use crate::intern::Id;

/// The clock, the rank, and every row of every table with names in place of handles; rows are sorted. Calling contexts
/// of events are omitted, since they belong to a profile.
pub fn listing(trace: &Trace) -> Vec<String> {
    let of = Names { trace };
    let mut rows = Vec::new();
    of.host(&mut rows);
    of.device(&mut rows);
    for (_, event) in trace.memory.iter() {
        let (thread, at) = (of.thread(event.thread), event.at.as_nanos());
        let bytes = (event.bytes, event.allocated, event.reserved);
        rows.push(format!("memory {thread} {at} {:?} {} {bytes:?}", event.device, event.address));
    }
    for (_, step) in trace.counters.iter() {
        let names = (trace.name(step.process), trace.name(step.name), trace.name(step.series));
        rows.push(format!("counter {names:?} {} {:?}", step.at.as_nanos(), step.value.get()));
    }
    rows.sort();
    let (clock, rank) = (&trace.clock as &dyn Debug, &trace.rank as &dyn Debug);
    rows.splice(0..0, [format!("{clock:?}"), format!("{rank:?}")]);
    rows
}

struct Names<'t> {
    trace: &'t Trace,
}

impl Names<'_> {
    fn thread(&self, id: Id<Thread>) -> String {
        let of = self.trace.threads()[id.index()];
        format!("{:?}", (self.trace.name(of.process), self.trace.name(of.thread)))
    }

    fn stream(&self, id: Id<Stream>) -> String {
        let of = self.trace.streams()[id.index()];
        format!("{}/{:?}", of.device, of.stream)
    }

    fn op(&self, op: &HostOp) -> String {
        let (thread, name) = (self.thread(op.thread), self.trace.name(op.name));
        let time = (op.begin.as_nanos(), op.duration.0);
        format!("{} {thread} {time:?} {name:?} #{} {:?}", op.kind.name(), op.correlation, op.status)
    }

    fn host(&self, rows: &mut Vec<String>) {
        let trace = self.trace;
        let of = |id: Id<HostOp>| trace.host.get(id).map_or_else(String::new, |op| self.op(&op));
        rows.extend(trace.host.iter().map(|(_, op)| self.op(&op)));
        let categories = trace.categories.iter();
        rows.extend(
            categories.map(|(_, row)| format!("category {:?} of {}", trace.name(row.category), of(row.op))),
        );
        for (_, event) in trace.wake_ups.iter() {
            let by = match event.by {
                Waker::Thread(thread) => self.thread(thread),
                other => format!("{other:?}"),
            };
            rows.push(format!("woken {} by {by}: {}", event.at.as_nanos(), of(event.ends)));
        }
    }

    fn device(&self, rows: &mut Vec<String>) {
        let trace = self.trace;
        let shown = |op: super::DeviceOp| {
            let (stream, name) = (self.stream(op.stream), trace.name(op.name));
            let time = (op.begin.as_nanos(), op.duration.0);
            let rest = (op.correlation, op.launched_by, op.bytes.0, op.graph_node);
            format!("{:?} {stream} {time:?} {name:?} {rest:?}", op.kind)
        };
        rows.extend(trace.device.iter().map(|(_, op)| shown(op)));
        for (_, sync) in trace.syncs.iter() {
            let streams = (sync.stream.map(|id| self.stream(id)), sync.recorded_on.map(|id| self.stream(id)));
            let time = (sync.begin.as_nanos(), sync.duration.0);
            rows.push(format!("{:?} {streams:?} {time:?} {:?}", sync.kind, (sync.correlation, sync.record)));
        }
        for (_, range) in trace.device_ranges.iter() {
            let time = (range.begin.as_nanos(), range.duration.0);
            rows.push(format!("range {} {time:?} {:?}", self.stream(range.stream), trace.name(range.name)));
        }
        for (_, note) in trace.collectives.iter() {
            let op = trace.device.get(note.op).map_or_else(String::new, shown);
            let names = [note.operation, note.communicator, note.element].map(|name| trace.name(name));
            let numbers = (note.group_size, note.elements_in, note.ordinal, note.peer);
            rows.push(format!("{names:?} {numbers:?}: {op}"));
        }
        for (_, group) in trace.communicator_groups.iter() {
            let [communicator, ranks] = [group.communicator, group.ranks].map(|name| trace.name(name));
            rows.push(format!("ranks of {communicator:?}: {ranks}"));
        }
    }
}
