//! Chrome trace events, in the dialect of PyTorch's profiler: for Perfetto's page, `chrome://tracing` and trace tools.
//!
//! Owns: [`write()`]. Because: people who train models have such a viewer open already. Does not: invent times. A
//! capture holds sums per context, so each process (or thread) is a row of contexts side by side, as wide as their
//! values; it starts at 0, and the left-to-right order means nothing. Counters (`cpu-time`: CPUs in use,
//! `off-cpu-time`: threads that wait) are the exception: they stand at their times since the capture began.
//!
//! Widths are those of the selected metric, one nanosecond for each of its units; the arguments of an event hold the
//! context's own values of every metric. Python functions are `python_function` and operators `cpu_op`, as PyTorch
//! calls them; `native`, `kernel_code`, `gpu_api`, `gpu_kernel` and the rest are ours: PyTorch's own categories for
//! device work stand for single launches, which a sum is not.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::counters::{Counter, counters};
use super::devices::{Devices, Launch, Line, category};
use super::json_text::{field, list, value};
use super::outline::{Lane, Layout, Outline};
use super::{Source, kind_name, shortened_note};
use deepctx_profile::device::activity::ActivityKind;
use deepctx_profile::frame::Frame;
use deepctx_profile::frame::FrameKind;
use deepctx_profile::tree::NodeId;

/// Writes the JSON document.
///
/// # Errors
/// Writing to `out` failed.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    let layout = outline.layout(source.selection.metric);
    let meta = &source.profile.meta;
    out.write_all(b"{\"schemaVersion\":1,\"deviceProperties\":[],\"displayTimeUnit\":\"ms\",\n")?;
    field(out, "baseTimeNanoseconds", &meta.started.as_nanos())?;
    out.write_all(b",\n")?;
    field(out, "traceName", &deepctx_profile::frame::clean(&meta.target))?;
    out.write_all(b",\n")?;
    let mut about = json!({
        "host": meta.host, "version": meta.version, "frequency_hz": meta.frequency_hz,
        "metric": source.selection.metric.name(), "view": source.selection.view.name(),
        "layout": "sums by calling context, side by side; one nanosecond is one unit of the metric",
    });
    if let Some(note) = shortened_note(source.profile) {
        about["note"] = note.into();
    }
    field(out, "deepctx", &about)?;
    out.write_all(b",\n\"traceEvents\":")?;
    let boxes = outline.order.iter().map(|(node, _)| *node);
    let boxes = boxes.filter(|node| layout.lengths[node.index()] > 0);
    let counters = counters(source);
    let is_loose =
        layout.lengths[NodeId::ROOT.index()] > 0 || counters.iter().any(|counter| counter.pid == 0);
    let lanes = is_loose.then(no_process).into_iter().chain(outline.lanes.iter().flat_map(names));
    let counters = counters.iter().flat_map(|counter| counter.steps.iter().map(move |step| (counter, *step)));
    let counters = counters.map(|(counter, step)| Event::Step(counter, step));
    let devices = Devices::of(source.profile);
    let rows = row_numbers(&devices);
    let lines = device_names(&devices, &rows).into_iter().map(Event::Name);
    let work = (0..devices.events.len()).map(Event::Work).chain(devices.launches.iter().map(Event::Launch));
    let events = lanes.map(Event::Name).chain(boxes.map(Event::Box)).chain(counters).chain(lines).chain(work);
    list(out, events, |out, event| match event {
        Event::Name(name) => value(out, &name),
        Event::Work(number) => device_work(&devices, &rows, number, out),
        Event::Launch(launch) => device_launch(&devices, launch, out),
        Event::Step(Counter { pid, name, .. }, (at, of)) => {
            out.write_all(b"{\"ph\":\"C\",")?;
            field(out, "name", name)?;
            write!(out, ",\"pid\":{},\"tid\":{pid},\"ts\":{},", process_number(*pid), Micros(at))?;
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
    Work(usize),
    Launch(&'a Launch),
    Box(NodeId),
}

/// Number of what is of no process, such as the machine: no system has such a process, and 0 is the first device.
const NO_PROCESS: u32 = 1 << 23;

fn process_number(pid: u32) -> u32 {
    if pid == 0 { NO_PROCESS } else { pid }
}

/// The name of [`NO_PROCESS`].
fn no_process() -> Value {
    json!({ "ph": "M", "name": "process_name", "pid": NO_PROCESS, "tid": 0, "ts": 0, "args": { "name": "of no process" } })
}

/// Names of processes and threads.
fn names(lane: &Lane) -> Vec<Value> {
    let pid = process_number(lane.pid());
    let name = |what: &str, name: &str| json!({ "ph": "M", "name": what, "pid": pid, "tid": lane.tid(), "ts": 0, "args": { "name": name } });
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
        FrameKind::Operator if matches!(frame, Frame::Range { .. }) => "user_annotation",
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
    write!(out, "\"pid\":{},\"tid\":{},", process_number(lane.pid()), lane.tid())?;
    let (start, length) = (layout.starts[node.index()], layout.lengths[node.index()]);
    write!(out, "\"ts\":{},\"dur\":{},", Micros(start), Micros(length))?;
    field(out, "args", &arguments)?;
    out.write_all(b"}")
}

/// Numbers of the launch rows, beside their threads: above all thread ids.
const LAUNCHES: u32 = 1 << 24;

/// Numbers of the rows that cannot have that of their stream: above those of streams, and within the 32 bits that
/// Perfetto reads.
const FURTHER_ROWS: u64 = 1 << 30;

/// The numbers of the rows of streams. As in PyTorch's traces the process of a row is the device and its thread the
/// stream, if that identifies it: several processes may have the same stream of a device, and work of one may overlap.
fn row_numbers(devices: &Devices) -> BTreeMap<Line, u64> {
    let mut taken = BTreeSet::new();
    let numbered = (0u64..).zip(devices.lines()).map(|(place, line)| {
        let is_own = u64::from(line.stream) < FURTHER_ROWS && taken.insert((line.card, line.stream));
        (line, if is_own { u64::from(line.stream) } else { FURTHER_ROWS | place })
    });
    numbered.collect()
}

/// Names of devices, streams and rows of launches.
fn device_names(devices: &Devices, rows: &BTreeMap<Line, u64>) -> Vec<Value> {
    let name = |what: &str, (pid, tid): (u32, u64), args: Value| json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args });
    let mut names = Vec::new();
    let mut known = None;
    let has_several = rows.keys().map(|line| line.pid).collect::<BTreeSet<_>>().len() > 1;
    for (line, number) in rows {
        let at = (line.card, *number);
        if known.replace(line.card) != Some(line.card) {
            let label = devices.name(*line);
            // Several devices of one number are kept apart.
            let short = if line.card == line.device { format!("GPU {}", line.device) } else { label.clone() };
            names.push(name("process_name", at, json!({ "name": short })));
            names.push(name("process_labels", at, json!({ "labels": label })));
        }
        let of = if has_several { format!(" of process {}", line.pid) } else { String::new() };
        names.push(name("thread_name", at, json!({ "name": format!("stream {}{of}", line.stream) })));
    }
    let mut threads = BTreeMap::new();
    for launch in &devices.launches {
        let activity = &devices.events[launch.first()].activity;
        if let Some((name, tid)) = &devices.place(activity).thread {
            threads.insert((activity.pid, *tid), name);
        }
    }
    names.extend(threads.into_iter().map(|((pid, tid), text)| {
        name("thread_name", (pid, u64::from(tid | LAUNCHES)), json!({ "name": format!("{text} launches") }))
    }));
    names
}

/// An activity, with the end of the arrow from its launch.
fn device_work(
    devices: &Devices,
    rows: &BTreeMap<Line, u64>,
    number: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let event = &devices.events[number];
    let (line, activity, place) = (event.line, &event.activity, devices.place(&event.activity));
    let mut arguments = Map::new();
    let mut put = |key: &str, value: Value| arguments.insert(key.to_owned(), value);
    put("correlation", activity.correlation.into());
    put("device", activity.device.into());
    put("context", activity.context.into());
    put("stream", activity.stream.into());
    put("External id", 0.into());
    if activity.bytes > 0 {
        put("bytes", activity.bytes.into());
    }
    if !place.caller.is_empty() {
        put("called by", place.caller.as_str().into());
    }
    if let (ActivityKind::Kernel, Some(shape)) = (activity.kind, &place.shape) {
        put("grid", json!(shape.grid.map(|of| of.last)));
        put("block", json!(shape.block.map(|of| of.last)));
        let shared = shape.dynamic_shared.last.saturating_add(shape.static_shared.map_or(0, |of| of.last));
        put("shared memory", shared.into());
        if let Some(registers) = shape.registers {
            put("registers per thread", registers.last.into());
        }
        if let Some(occupancy) = shape.occupancy() {
            let share = f64::from(occupancy.warps) * 100.0 / f64::from(occupancy.warps_max);
            put("est. achieved occupancy %", share.round().into());
        }
    }
    // Every row of `devices` has a number.
    let (pid, tid) = (line.card, rows[&line]);
    let (start, length) = (activity.start.0, activity.end.0.saturating_sub(activity.start.0));
    write!(out, "{{\"ph\":\"X\",\"cat\":\"{}\",", category(activity.kind))?;
    field(out, "name", &as_in_pytorch(activity.kind, &place.name))?;
    write!(out, ",\"pid\":{pid},\"tid\":{tid},\"ts\":{},\"dur\":{},", Micros(start), Micros(length))?;
    field(out, "args", &arguments)?;
    out.write_all(b"}")?;
    if activity.launched.is_some() {
        let arrow = "\"cat\":\"ac2g\",\"name\":\"ac2g\"";
        write!(out, ",\n{{\"ph\":\"f\",\"bp\":\"e\",{arrow},\"id\":{},", number + 1)?;
        write!(out, "\"pid\":{pid},\"tid\":{tid},\"ts\":{}}}", Micros(start))?;
    }
    Ok(())
}

/// Trace tools distinguish copies from kernels by names such as `Memcpy HtoD` and `Memset`.
fn as_in_pytorch(kind: ActivityKind, name: &str) -> Cow<'_, str> {
    let moves = matches!(kind, ActivityKind::Copy | ActivityKind::Fill);
    match name.strip_prefix("mem").filter(|_| moves) {
        Some(rest) => format!("Mem{rest}").into(),
        None => name.into(),
    }
}

/// A launch: a moment, drawn as short as possible, and the beginnings of the arrows to its work.
fn device_launch(devices: &Devices, launch: &Launch, out: &mut dyn Write) -> io::Result<()> {
    let first = &devices.events[launch.first()].activity;
    let place = devices.place(first);
    let tid = place.thread.as_ref().map_or(first.pid, |(_, tid)| *tid) | LAUNCHES;
    let (pid, at) = (first.pid, Micros(launch.at.0));
    let name = if place.api.is_empty() { "[launch]" } else { &place.api };
    let category =
        if name.starts_with("cuda") || name.starts_with("hip") { "cuda_runtime" } else { "cuda_driver" };
    write!(out, "{{\"ph\":\"X\",\"cat\":\"{category}\",")?;
    field(out, "name", name)?;
    write!(out, ",\"pid\":{pid},\"tid\":{tid},\"ts\":{at},\"dur\":{},", Micros(1))?;
    let arguments = json!({ "correlation": first.correlation, "External id": 0 });
    field(out, "args", &arguments)?;
    out.write_all(b"}")?;
    for number in &launch.events {
        let arrow = "\"cat\":\"ac2g\",\"name\":\"ac2g\"";
        write!(out, ",\n{{\"ph\":\"s\",{arrow},\"id\":{},", number + 1)?;
        write!(out, "\"pid\":{pid},\"tid\":{tid},\"ts\":{at}}}")?;
    }
    Ok(())
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

/// Nanoseconds as microseconds with three decimals. A binary fraction would lose precision.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
