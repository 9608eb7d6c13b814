//! Single events as Chrome trace events, in the dialect of PyTorch's profiler.
//!
//! Owns: [`write`]. Because: people who train models have a viewer and scripts for it. Does not: name events;
//! [`arguments`](super::arguments) does.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};

use deepctx_profile::trace::{TraceTime, counter_process};
use serde_json::json;

use super::{Argument, DrawnEvent, Events, sums_by_time};
use crate::event_header::{HEADER, SUMS};
use crate::export::Source;
use crate::export::json_text::{field, value};

/// Writes the JSON document.
///
/// # Errors
/// Writing to `out` failed.
pub(super) fn write(source: &Source<'_>, events: &Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let header = &events.header;
    out.write_all(b"{\"schemaVersion\":1,\"deviceProperties\":[],\"displayTimeUnit\":\"ms\",\n")?;
    let first = header.ranks.iter().min_by_key(|rank| rank.shift_ns);
    if let Some(epoch_ns) = first.and_then(|rank| rank.epoch_ns) {
        field(out, "baseTimeNanoseconds", &epoch_ns)?;
        out.write_all(b",\n")?;
    }
    if let [rank] = &header.ranks[..]
        && let Some(number) = rank.rank
    {
        let world_size = rank.world_size.unwrap_or(number.saturating_add(1));
        field(out, "distributedInfo", &json!({ "rank": number, "world_size": world_size }))?;
        out.write_all(b",\n")?;
    }
    field(out, "traceName", &deepctx_profile::frame::clean(&source.profile.meta.target))?;
    out.write_all(b",\n")?;
    field(out, HEADER, header)?;
    out.write_all(b",\n\"traceEvents\":[")?;
    let mut list = List { out, is_first: true };
    names(events, &mut list)?;
    for rank in 0..events.sides.len() {
        for id in events.ids(rank) {
            let Some(event) = events.drawn(rank, id) else { continue };
            drawn(events, rank, &event, &mut list)?;
        }
        rank_counters(events, rank, &mut list)?;
    }
    for counter in sums_by_time(source, events) {
        let row = events.rows.of_process(counter.pid);
        let pid = row.map_or_else(|| counter_process(counter.pid), |row| row.header.pid.clone());
        let of = CounterRow { pid: &pid, name: &counter.name, category: Some(SUMS) };
        for (at, value) in counter.steps {
            let step = json!({ "value": value });
            counter_step(&of, events.at(0, TraceTime::from_nanos(at)), &step, &mut list)?;
        }
    }
    list.out.write_all(b"\n]}\n")?;
    list.out.flush()
}

/// A list of events with commas and newlines between them.
struct List<'o> {
    out: &'o mut dyn Write,
    is_first: bool,
}

impl List<'_> {
    fn next(&mut self) -> io::Result<&mut dyn Write> {
        self.out.write_all(if self.is_first { b"\n" } else { b",\n" })?;
        self.is_first = false;
        Ok(self.out)
    }
}

/// Names of processes, threads, devices and streams.
fn names(events: &Events<'_>, list: &mut List<'_>) -> io::Result<()> {
    let mut processes = BTreeSet::new();
    for (place, row) in events.rows.rows.iter().enumerate() {
        let (pid, tid) = (id(&row.header.pid), id(&row.header.tid));
        let name = |what: &str, args| json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args });
        if processes.insert(&row.header.pid) {
            value(list.next()?, &name("process_name", json!({ "name": row.process_name })))?;
            value(list.next()?, &name("process_sort_index", json!({ "sort_index": place })))?;
        }
        value(list.next()?, &name("thread_name", json!({ "name": row.name })))?;
    }
    Ok(())
}

fn drawn(events: &Events<'_>, rank: usize, event: &DrawnEvent<'_>, list: &mut List<'_>) -> io::Result<()> {
    let row = &events.rows.rows[event.row].header;
    let (pid, tid) = (id(&row.pid), id(&row.tid));
    let at = Micros(events.at(rank, event.begin));
    let out = list.next()?;
    out.write_all(if event.duration.is_some() { b"{\"ph\":\"X\"," } else { b"{\"ph\":\"i\",\"s\":\"t\"," })?;
    if !event.category.is_empty() {
        field(out, "cat", event.category)?;
        out.write_all(b",")?;
    }
    field(out, "name", event.name)?;
    write!(out, ",\"pid\":{pid},\"tid\":{tid},\"ts\":{at},")?;
    if let Some(duration) = event.duration {
        write!(out, "\"dur\":{},", Micros(duration.0.into()))?;
    }
    out.write_all(b"\"args\":{")?;
    for (place, (name, argument)) in event.arguments.iter().enumerate() {
        out.write_all(if place == 0 { b"" } else { b"," })?;
        match argument {
            Argument::Number(number) => field(out, name, number)?,
            Argument::Signed(number) => field(out, name, number)?,
            Argument::Text(text) => field(out, name, &**text)?,
        }
    }
    out.write_all(b"}}")?;
    let arrow = "\"cat\":\"ac2g\",\"name\":\"ac2g\"";
    for number in &event.flows_out {
        let out = list.next()?;
        write!(out, "{{\"ph\":\"s\",{arrow},\"id\":{number},\"pid\":{pid},\"tid\":{tid},\"ts\":{at}}}")?;
    }
    if let Some(number) = event.flow_in {
        let out = list.next()?;
        let end = "\"ph\":\"f\",\"bp\":\"e\"";
        write!(out, "{{{end},{arrow},\"id\":{number},\"pid\":{pid},\"tid\":{tid},\"ts\":{at}}}")?;
    }
    Ok(())
}

fn rank_counters(events: &Events<'_>, rank: usize, list: &mut List<'_>) -> io::Result<()> {
    let trace = &events.sides[rank].of.trace;
    for (_, step) in trace.counters.iter() {
        let process = trace.name(step.process);
        let pid = &events.rows.rows[events.rows.counters(rank, process)].header.pid;
        let values = json!({ trace.name(step.series): step.value.get() });
        let of = CounterRow { pid, name: trace.name(step.name), category: None };
        counter_step(&of, events.at(rank, step.at), &values, list)?;
    }
    Ok(())
}

/// The counter of a value.
struct CounterRow<'c> {
    pid: &'c str,
    name: &'c str,
    category: Option<&'static str>,
}

fn counter_step(
    of: &CounterRow<'_>,
    at: i128,
    values: &serde_json::Value,
    list: &mut List<'_>,
) -> io::Result<()> {
    let out = list.next()?;
    out.write_all(b"{\"ph\":\"C\",")?;
    if let Some(category) = of.category {
        field(out, "cat", category)?;
        out.write_all(b",")?;
    }
    field(out, "name", of.name)?;
    write!(out, ",\"pid\":{},\"tid\":0,\"ts\":{},", id(of.pid), Micros(at))?;
    field(out, "args", values)?;
    out.write_all(b"}")
}

/// A process or a thread: a number if it is written as one, otherwise text.
fn id(text: &str) -> serde_json::Value {
    let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
    number.map_or_else(|| text.into(), Into::into)
}

/// Nanoseconds as microseconds with three decimals. A binary fraction would lose precision.
struct Micros(i128);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
