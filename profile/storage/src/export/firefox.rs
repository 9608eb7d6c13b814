//! Firefox Profiler: the processed format of <https://profiler.firefox.com>, version 55, which newer viewers bring up
//! to date themselves.
//!
//! Owns: [`write()`]. Because: its call tree, its sandwich and its sharing are what many people know best. Does not:
//! give times of day: a capture holds sums, so samples are placed side by side in the order of their stacks.
//!
//! Each metric of each process (or thread) is a thread of its own, since a thread has one kind of weight:
//! milliseconds for times, bytes, or samples for counts.

use std::fmt;
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::json_text::{field, value};
use super::outline::Outline;
use super::source_location::SourceLocation;
use super::{Source, kind_name};
use deepctx_profile::frame::FrameKind;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::tree::NodeId;

/// The written version. Viewers upgrade older ones.
const VERSION: u32 = 55;

/// Writes the JSON document.
///
/// # Errors
/// Writing to `out` failed.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    let mut by_lane: Vec<Vec<NodeId>> = vec![Vec::new(); outline.lanes.len()];
    for &(node, _) in &outline.order {
        by_lane[outline.lane(node)].push(node);
    }
    out.write_all(b"{")?;
    field(out, "meta", &meta(source))?;
    out.write_all(b",\n\"libs\":[],\"pages\":[],\"profilerOverhead\":[],\"counters\":[],\n\"threads\":[")?;
    let mut first = true;
    for (lane, nodes) in by_lane.iter().enumerate() {
        for &metric in &outline.metrics {
            let samples: Vec<NodeId> =
                nodes.iter().copied().filter(|&node| outline.own(node, metric) > 0).collect();
            if samples.is_empty() {
                continue;
            }
            out.write_all(if first { b"\n" } else { b",\n" })?;
            first = false;
            thread(&outline, lane, metric, &samples, out)?;
        }
    }
    out.write_all(b"\n]}\n")?;
    out.flush()
}

fn meta(source: &Source<'_>) -> Value {
    let meta = &source.profile.meta;
    let categories: Vec<Value> = FrameKind::ALL
        .iter()
        .map(|&kind| json!({ "name": kind_name(kind), "color": colour(kind), "subcategories": ["Other"] }))
        .collect();
    json!({
        "version": 24,
        "preprocessedProfileVersion": VERSION,
        "product": format!("deepctx-bpf: {}", deepctx_profile::frame::clean(&meta.target)),
        "oscpu": deepctx_profile::frame::clean(&meta.host),
        "startTime": meta.started.as_nanos() / 1_000_000,
        "interval": if meta.frequency_hz > 0 { 1000.0 / f64::from(meta.frequency_hz) } else { 1.0 },
        "processType": 0,
        "symbolicated": true,
        "debug": false,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "categories": categories,
        "markerSchema": [],
        "pausedRanges": [],
        "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
        "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
    })
}

fn colour(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Python => "blue",
        FrameKind::Operator => "lightblue",
        FrameKind::Layer => "lightgreen",
        FrameKind::Native => "yellow",
        FrameKind::Kernel => "orange",
        FrameKind::GpuApi => "purple",
        FrameKind::GpuKernel => "green",
        FrameKind::Unresolved => "darkgray",
        FrameKind::Root | FrameKind::Process | FrameKind::Thread => "grey",
    }
}

fn thread(
    outline: &Outline<'_>,
    lane: usize,
    metric: Metric,
    samples: &[NodeId],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut tables = Tables::default();
    let stacks: Vec<u32> = samples.iter().map(|&node| tables.stack(outline, node)).collect();
    let lane = &outline.lanes[lane];
    let name = match lane.thread_name() {
        "" => metric.name().to_owned(),
        name => format!("{name} {metric}"),
    };
    out.write_all(b"{")?;
    field(out, "name", &name)?;
    let facts = json!({
        "isMainThread": lane.pid() == lane.tid(), "processType": "default", "processName": lane.process_name(),
        "pid": lane.pid().to_string(), "tid": format!("{} {metric}", lane.tid()),
        "processStartupTime": 0, "processShutdownTime": null, "registerTime": 0, "unregisterTime": null,
        "pausedRanges": [], "showMarkersInTimeline": false,
        "markers": {
            "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": [],
        },
        "resourceTable": { "length": 0, "lib": [], "name": [], "host": [], "type": [] },
        "nativeSymbols": { "length": 0, "address": [], "functionSize": [], "libIndex": [], "name": [] },
    });
    for (key, of) in facts.as_object().into_iter().flatten() {
        out.write_all(b",")?;
        field(out, key, of)?;
    }
    out.write_all(b",\n\"samples\":{")?;
    field(out, "length", &samples.len())?;
    out.write_all(b",")?;
    field(out, "weightType", weight_type(metric.unit()))?;
    out.write_all(b",")?;
    field(out, "stack", &stacks)?;
    let weights: Vec<u64> = samples.iter().map(|&node| outline.own(node, metric)).collect();
    // A sample begins where the previous ones end.
    numbers(out, "timeDeltas", std::iter::once(&0).chain(&weights).take(weights.len()), metric.unit())?;
    numbers(out, "weight", weights.iter(), metric.unit())?;
    out.write_all(b"},\n")?;
    tables.write(outline, out)?;
    out.write_all(b"}")
}

fn weight_type(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "tracing-ms",
        Unit::Bytes => "bytes",
        Unit::Count => "samples",
    }
}

fn numbers<'v>(
    out: &mut dyn Write,
    key: &str,
    numbers: impl Iterator<Item = &'v u64>,
    unit: Unit,
) -> io::Result<()> {
    write!(out, ",\n\"{key}\":[")?;
    for (place, &number) in numbers.enumerate() {
        if place > 0 {
            out.write_all(b",")?;
        }
        match unit {
            Unit::Nanoseconds => write!(out, "{}", Millis(number))?,
            Unit::Bytes | Unit::Count => write!(out, "{number}")?,
        }
    }
    out.write_all(b"]")
}

/// Nanoseconds as milliseconds with six decimals. A binary fraction would lose precision.
struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// The stacks and frames of one thread.
#[derive(Default)]
struct Tables {
    stack_of: FxHashMap<NodeId, u32>,
    prefixes: Vec<Option<u32>>,
    stack_frames: Vec<u32>,
    frame_of: FxHashMap<FrameId, u32>,
    frames: Vec<FrameId>,
}

impl Tables {
    /// Number of the stack that ends at a node.
    fn stack(&mut self, outline: &Outline<'_>, node: NodeId) -> u32 {
        // The new nodes, leaf first: there may be many thousand callers, so no recursion.
        let mut new = Vec::new();
        let mut at = node;
        let mut prefix = loop {
            if let Some(&known) = self.stack_of.get(&at) {
                break Some(known);
            }
            if at == NodeId::ROOT && !new.is_empty() {
                break None;
            }
            new.push(at);
            if at == NodeId::ROOT {
                break None;
            }
            at = outline.contexts.tree.node(at).parent;
        };
        for node in new.into_iter().rev() {
            let stack = self.prefixes.len() as u32;
            self.prefixes.push(prefix);
            let frame = outline.frame_id(node);
            let frames = &mut self.frames;
            let frame = *self.frame_of.entry(frame).or_insert_with(|| {
                frames.push(frame);
                frames.len() as u32 - 1
            });
            self.stack_frames.push(frame);
            self.stack_of.insert(node, stack);
            prefix = Some(stack);
        }
        prefix.unwrap_or(0)
    }

    fn write(&self, outline: &Outline<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut texts = Texts::default();
        let (mut names, mut files, mut lines, mut starts, mut kinds) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for &id in &self.frames {
            let frame = outline.contexts.frames.get(id);
            let strings = outline.contexts.strings;
            let SourceLocation { file, line, start, .. } = SourceLocation::of(&frame);
            let file = strings.get(file);
            names.push(texts.number(outline.frame_label(id)));
            files.push((!file.is_empty()).then(|| texts.number(&deepctx_profile::frame::clean(file))));
            lines.push(line);
            starts.push(start);
            kinds.push(FrameKind::ALL.iter().position(|&kind| kind == frame.kind()));
        }
        let n = self.frames.len();
        let none = vec![Value::Null; n];
        let range: Vec<usize> = (0..n).collect();
        out.write_all(b"\"stackTable\":")?;
        let stacks =
            json!({ "length": self.prefixes.len(), "prefix": self.prefixes, "frame": self.stack_frames });
        value(out, &stacks)?;
        out.write_all(b",\n\"frameTable\":")?;
        let frames = json!({
            "length": n, "address": vec![-1; n], "inlineDepth": vec![0; n], "category": kinds,
            "subcategory": vec![0; n], "func": range, "nativeSymbol": none, "innerWindowID": vec![0; n],
            "line": lines, "column": none,
        });
        value(out, &frames)?;
        out.write_all(b",\n\"funcTable\":")?;
        let functions = json!({
            "length": n, "name": names, "isJS": vec![false; n], "relevantForJS": vec![false; n],
            "resource": vec![-1; n], "fileName": files, "lineNumber": starts, "columnNumber": none,
        });
        value(out, &functions)?;
        out.write_all(b",\n\"stringArray\":")?;
        value(out, &texts.all)
    }
}

#[derive(Default)]
struct Texts {
    all: Vec<String>,
    numbers: FxHashMap<String, usize>,
}

impl Texts {
    fn number(&mut self, text: &str) -> usize {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }
}
