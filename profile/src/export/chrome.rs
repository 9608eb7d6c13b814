//! Chrome trace events, in the dialect of PyTorch's profiler: for Perfetto's page, `chrome://tracing` and trace tools.
//!
//! Owns: [`write`]. Because: whoever trains models has such a viewer open already. Does not: invent times. What was captured
//! is sums per context, so each process (or thread) is a line on which the contexts lie side by side, as wide as their
//! values; it starts at 0, and left or right of each other means nothing. Counters (`cpu-time`: CPUs in use, `off-cpu-time`:
//! threads that wait) are the exception: they stand at their times since the capture began.
//!
//! Widths are those of the selected metric, one nanosecond for each of its units; the arguments of an event hold the
//! context's own values of every metric. Python functions are `python_function` and operators `cpu_op`, as PyTorch calls
//! them; `native`, `kernel_code`, `gpu_api`, `gpu_kernel` and the rest are ours: PyTorch's own categories for device work
//! stand for single launches, which a sum is not.

use std::fmt;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::course::{Counter, counters};
use super::json_text::{field, list, value};
use super::outline::{Lane, Layout, Outline};
use super::{Source, kind_name};
use crate::snapshot::FrameKind;
use crate::tree::NodeId;

/// Writes the JSON document.
///
/// # Errors
/// Those of `out`.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    let layout = outline.layout(source.selection.metric);
    let meta = &source.profile.meta;
    out.write_all(b"{\"schemaVersion\":1,\"deviceProperties\":[],\"displayTimeUnit\":\"ms\",\n")?;
    field(out, "baseTimeNanoseconds", &meta.started.as_nanos())?;
    out.write_all(b",\n")?;
    field(out, "traceName", &crate::frame::clean(&meta.target))?;
    out.write_all(b",\n")?;
    let about = json!({
        "host": meta.host, "version": meta.version, "frequency_hz": meta.frequency_hz,
        "metric": source.selection.metric.name(), "view": source.selection.view.name(),
        "layout": "sums by calling context, side by side; one nanosecond is one unit of the metric",
    });
    field(out, "deepctx", &about)?;
    out.write_all(b",\n\"traceEvents\":")?;
    let lanes = outline.lanes.iter().flat_map(names);
    let boxes = outline.order.iter().map(|(node, _)| *node);
    let boxes = boxes.filter(|node| layout.lengths[node.index()] > 0);
    let counters = counters(source);
    let counters = counters.iter().flat_map(|counter| counter.steps.iter().map(move |step| (counter, *step)));
    let counters = counters.map(|(counter, step)| Event::Step(counter, step));
    let events = lanes.map(Event::Name).chain(boxes.map(Event::Box)).chain(counters);
    list(out, events, |out, event| match event {
        Event::Name(name) => value(out, &name),
        Event::Step(Counter { pid, name, .. }, (at, of)) => {
            out.write_all(b"{\"ph\":\"C\",")?;
            field(out, "name", name)?;
            write!(out, ",\"pid\":{pid},\"tid\":{pid},\"ts\":{},", Micros(at))?;
            field(out, "args", &json!({ "value": of }))?;
            out.write_all(b"}")
        }
        Event::Box(node) => slice(source, &outline, &layout, node, out),
    })?;
    out.write_all(b"}\n")?;
    out.flush()
}

enum Event<'a> {
    Name(Value),
    Step(&'a Counter, (u64, f64)),
    Box(NodeId),
}

/// What processes and threads are called.
fn names(lane: &Lane) -> Vec<Value> {
    let name = |what: &str, name: &str| json!({ "ph": "M", "name": what, "pid": lane.pid(), "tid": lane.tid(), "ts": 0, "args": { "name": name } });
    let process = lane.process.iter().map(|(comm, _)| name("process_name", comm));
    let thread = (lane.process.is_some()).then(|| name("thread_name", lane.thread_name()));
    process.chain(thread).collect()
}

fn slice(
    source: &Source<'_>,
    outline: &Outline<'_>,
    layout: &Layout,
    node: NodeId,
    out: &mut dyn Write,
) -> io::Result<()> {
    let frame = outline.frame(node);
    let lane = &outline.lanes[outline.lane(node)];
    let mut arguments = Map::new();
    let place = frame.detail(outline.contexts.strings, source.selection.lines);
    if !place.is_empty() {
        arguments.insert("where".to_owned(), place.into());
    }
    let category = match frame.kind() {
        FrameKind::Python => {
            arguments.insert("Python id".to_owned(), node.number().into());
            arguments.insert("Python parent id".to_owned(), python_caller(outline, node));
            "python_function"
        }
        FrameKind::Operator => "cpu_op",
        FrameKind::Kernel => "kernel_code",
        other => kind_name(other),
    };
    for &metric in &outline.metrics {
        let cell = outline.contexts.tree.exclusive(node, metric);
        if !cell.is_empty() {
            arguments.insert(format!("own {metric}"), cell.sum.into());
        }
    }
    let kind = [("cat", category), ("name", outline.label(node))];
    out.write_all(b"{\"ph\":\"X\",")?;
    for (key, text) in kind {
        field(out, key, text)?;
        out.write_all(b",")?;
    }
    write!(out, "\"pid\":{},\"tid\":{},", lane.pid(), lane.tid())?;
    let (start, length) = (layout.starts[node.index()], layout.lengths[node.index()]);
    write!(out, "\"ts\":{},\"dur\":{},", Micros(start), Micros(length))?;
    field(out, "args", &arguments)?;
    out.write_all(b"}")
}

fn python_caller(outline: &Outline<'_>, mut node: NodeId) -> Value {
    while node != NodeId::ROOT {
        node = outline.contexts.tree.node(node).parent;
        if outline.frame(node).kind() == FrameKind::Python {
            return node.number().into();
        }
    }
    Value::Null
}

/// Nanoseconds as microseconds with three decimals. A binary fraction would lose some.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
