//! Chrome trace events, as PyTorch's profiler (Kineto) writes them, to a profile.
//!
//! Owns: [`read`]. Because: whoever trains models has such traces. Does not: keep the times of single events; they
//! become sums by calling context, and the profile's timeline stays empty.
//!
//! Complete events (`ph: X`) that lie within each other on a thread are a stack; what an event does not spend in
//! others is its wall time. Work on a device hangs below the call that launched it, found by `correlation`: kernels
//! with their time, their number and the delay from the launch, copies with their time and bytes. Without a launch
//! they hang below a node that says so.

use std::fmt;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{ImportError, Kind, NO_LAUNCH, NOT_UNDERSTOOD, gap, words};
use deepctx_profile::frame::{Frame, Origin};
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Nanos, Time};

/// Events that are read: an hour of training has some tens of millions, which no viewer opens either.
const EVENTS_MAX: usize = 8 << 20;
/// Events within each other.
const DEPTH_MAX: usize = 16 * 1024;

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Host,
    GpuApi,
    Kernel,
    Copy,
}

/// One event, without what is not needed of it.
#[derive(Clone, Copy)]
struct Event {
    what: What,
    frame: FrameId,
    name: StrId,
    thread: u32,
    start: u64,
    end: u64,
    correlation: u64,
    bytes: u64,
}

pub(super) fn read(bytes: &[u8], profile: &mut Profile) -> Result<Nanos, ImportError> {
    let mut reader = Reader {
        profile,
        threads: FxHashMap::default(),
        names: Vec::new(),
        events: Vec::new(),
        skipped: 0,
        base: 0,
        found: false,
    };
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = Document(&mut reader).deserialize(&mut json);
    if let Err(error) = read {
        if reader.events.len() > EVENTS_MAX {
            return Err(ImportError::TooLarge { most: EVENTS_MAX, what: "events of a trace" });
        }
        return Err(ImportError::damaged(Kind::Kineto, error.to_string()));
    }
    if !reader.found {
        return Err(ImportError::Unknown {
            because: "it is a JSON document without `traceEvents`".to_owned(),
        });
    }
    let Reader { mut events, names, skipped, base, .. } = reader;
    gap(profile, NOT_UNDERSTOOD, skipped);
    let first = events.iter().map(|event| event.start).min().unwrap_or(0);
    let last = events.iter().map(|event| event.end).max().unwrap_or(0);
    profile.meta.started = Time::from_nanos(base.saturating_add(first));
    events.sort_by_key(|event| (event.thread, event.start, std::cmp::Reverse(event.end)));
    let launches = host(&events, &names, profile);
    device(&events, &names, &launches, profile);
    Ok(Nanos(last.saturating_sub(first)))
}

/// A thread of the trace: its process and its id, which may be words.
type ThreadKey = (String, String);

struct Reader<'p> {
    profile: &'p mut Profile,
    threads: FxHashMap<ThreadKey, u32>,
    names: Vec<ThreadKey>,
    events: Vec<Event>,
    skipped: u64,
    base: u64,
    found: bool,
}

impl Reader<'_> {
    fn take(&mut self, raw: RawEvent<'_>) -> Result<(), &'static str> {
        // Names, flows, counters and marks have no length.
        if raw.ph.as_ref().map(|text| &*text.0) != Some("X") {
            return Ok(());
        }
        let (Some(start), Some(length), Some(name)) = (raw.ts, raw.dur, raw.name) else {
            self.skipped += 1;
            return Ok(());
        };
        let (Some(start), Some(length)) = (nanos(start), nanos(length)) else {
            self.skipped += 1;
            return Ok(());
        };
        if self.events.len() > EVENTS_MAX {
            return Err("too many events");
        }
        let category = raw.cat.as_ref().map_or("", |text| &*text.0);
        let key = (raw.pid.to_text(), raw.tid.to_text());
        let next = self.names.len() as u32;
        let thread = *self.threads.entry(key.clone()).or_insert(next);
        if thread == next {
            self.names.push(key);
        }
        let what = match category {
            "kernel" | "gpu_kernel" => What::Kernel,
            "gpu_memcpy" | "gpu_memset" => What::Copy,
            "cuda_runtime" | "cuda_driver" | "gpu_api" => What::GpuApi,
            // Ranges that a profiler draws over the device's lines, and spans of its own.
            "gpu_user_annotation" | "Trace" => return Ok(()),
            _ => What::Host,
        };
        let name = &*name.0;
        let profile = &mut *self.profile;
        let frame = match (what, category) {
            (What::Kernel | What::Copy, _) => Frame::GpuKernel { name: profile.text(name) },
            (What::GpuApi, _) => Frame::GpuApi { name: profile.text(name) },
            (_, "python_function") => match words::python(profile, name) {
                Some(frame) => frame,
                None => words::of_python(profile, name, "", None, None),
            },
            (_, "layer") => words::layer(profile, name),
            (_, "cpu_op" | "user_annotation" | "operator") => Frame::Operator { name: profile.text(name) },
            _ => words::process(profile, name)
                .filter(|_| category == "process")
                .unwrap_or_else(|| words::frame(profile, name)),
        };
        let event = Event {
            what,
            frame: profile.frame(frame),
            name: profile.text(name),
            thread,
            start,
            end: start.saturating_add(length),
            correlation: raw.args.correlation,
            bytes: raw.args.bytes,
        };
        self.events.push(event);
        Ok(())
    }
}

/// Microseconds with decimals.
fn nanos(micros: f64) -> Option<u64> {
    let ns = (micros * 1000.0).round();
    // Larger ones are no times; the cast would make them the largest.
    (0.0..1e19).contains(&ns).then_some(ns as u64)
}

/// The stacks of all threads. Gives the context and the start of each call that has a correlation.
fn host(events: &[Event], names: &[ThreadKey], profile: &mut Profile) -> FxHashMap<u64, (NodeId, u64)> {
    let mut launches = FxHashMap::default();
    for events in events.chunk_by(|a, b| a.thread == b.thread) {
        let mut events =
            events.iter().filter(|event| matches!(event.what, What::Host | What::GpuApi)).peekable();
        let Some(first) = events.peek() else { continue };
        let root = process(profile, names, first.thread);
        // Of each open event: its node, its end, and what its children took.
        let mut open: Vec<(NodeId, Event, u64)> = Vec::new();
        for event in events {
            while let Some((node, above, inner)) = open.pop_if(|(_, above, _)| above.end <= event.start) {
                close(profile, node, &above, inner);
            }
            let mut event = *event;
            if let Some((_, above, inner)) = open.last_mut() {
                // Rounded times may stick out by a nanosecond.
                event.end = event.end.min(above.end);
                *inner = inner.saturating_add(event.end - event.start);
            }
            if open.len() >= DEPTH_MAX {
                continue;
            }
            let above = open.last().map_or(root, |(node, ..)| *node);
            let is_root = profile.tree.node(root).frame == event.frame;
            let node = if is_root { above } else { profile.tree.child(above, event.frame) };
            if event.what == What::GpuApi && event.correlation != 0 {
                launches.insert(event.correlation, (node, event.start));
            }
            open.push((node, event, 0));
        }
        while let Some((node, event, inner)) = open.pop() {
            close(profile, node, &event, inner);
        }
    }
    launches
}

fn close(profile: &mut Profile, node: NodeId, event: &Event, inner: u64) {
    let length = event.end.saturating_sub(event.start);
    let own = length.saturating_sub(inner);
    if own > 0 {
        profile.tree.add(node, Metric::WallTime, own);
    }
    if event.what == What::GpuApi {
        let name = profile.strings.get(event.name);
        if name.contains("Launch") {
            profile.tree.add(node, Metric::LaunchTime, length);
        } else if name.contains("Synchronize") {
            profile.tree.add(node, Metric::SyncTime, length);
        }
    }
}

/// The node of a thread's process.
fn process(profile: &mut Profile, names: &[ThreadKey], thread: u32) -> NodeId {
    let Some((pid, _)) = names.get(thread as usize) else { return NodeId::ROOT };
    let frame = match pid.parse::<u32>() {
        Ok(pid) => Frame::Process { comm: profile.text("process"), pid },
        Err(_) => Frame::Unresolved { reason: profile.text(pid), origin: Origin::Native },
    };
    let frame = profile.frame(frame);
    profile.tree.child(NodeId::ROOT, frame)
}

/// The stream that ran an event: its process is the device, and its thread the stream.
fn stream_of(event: &Event, names: &[ThreadKey]) -> Option<Frame> {
    let (device, stream) = names.get(event.thread as usize)?;
    Some(Frame::Stream {
        device: device.parse().ok()?,
        stream: Some(stream.parse().ok()?),
        name: StrId::EMPTY,
    })
}

/// Work on devices, below the calls that launched it.
fn device(
    events: &[Event],
    names: &[ThreadKey],
    launches: &FxHashMap<u64, (NodeId, u64)>,
    profile: &mut Profile,
) {
    let mut lost = 0;
    for event in events.iter().filter(|event| matches!(event.what, What::Kernel | What::Copy)) {
        let launch = launches.get(&event.correlation).filter(|_| event.correlation != 0).copied();
        let (above, launched) = match launch {
            Some((node, start)) => (node, Some(start)),
            None => {
                lost += 1;
                let reason = profile.text(NO_LAUNCH.key);
                let frame = profile.frame(Frame::Unresolved { reason, origin: Origin::Gpu });
                (profile.tree.child(NodeId::ROOT, frame), None)
            }
        };
        let above = match stream_of(event, names) {
            Some(stream) => {
                let stream = profile.frame(stream);
                profile.tree.child(above, stream)
            }
            None => above,
        };
        let node = profile.tree.child(above, event.frame);
        let length = event.end.saturating_sub(event.start);
        if event.what == What::Kernel {
            profile.tree.add(node, Metric::GpuTime, length);
            profile.tree.add(node, Metric::Kernels, 1);
            if let Some(delay) = launched.and_then(|start| event.start.checked_sub(start)) {
                profile.tree.add(node, Metric::LaunchDelay, delay);
            }
        } else {
            profile.tree.add(node, Metric::CopyTime, length);
            profile.tree.add(node, Metric::CopyBytes, event.bytes);
        }
    }
    gap(profile, NO_LAUNCH, lost);
}

/// The document: an object with `traceEvents`, or the list itself.
struct Document<'r, 'p>(&'r mut Reader<'p>);

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("trace events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key.0 {
                "traceEvents" => map.next_value_seed(Events(&mut *self.0))?,
                "baseTimeNanoseconds" => self.0.base = map.next_value::<Loose>()?.to_number(),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        Events(self.0).visit_seq(seq)
    }
}

struct Events<'r, 'p>(&'r mut Reader<'p>);

impl<'de> DeserializeSeed<'de> for Events<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of trace events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.found = true;
        while let Some(event) = seq.next_element::<RawEvent<'de>>()? {
            self.0.take(event).map_err(serde::de::Error::custom)?;
        }
        Ok(())
    }
}

/// A text that borrows where it can.
#[derive(Deserialize)]
struct Text<'b>(#[serde(borrow)] std::borrow::Cow<'b, str>);

/// A number or a word, as ids of processes and threads come.
#[derive(Deserialize)]
#[serde(untagged)]
enum Loose {
    Number(u64),
    Word(String),
    Other(IgnoredAny),
}

impl Default for Loose {
    fn default() -> Self {
        Loose::Other(IgnoredAny)
    }
}

impl Loose {
    fn to_text(&self) -> String {
        match self {
            Loose::Number(number) => number.to_string(),
            // Words of processes are short; a long one is no name.
            Loose::Word(word) => word.chars().take(64).collect(),
            Loose::Other(_) => String::new(),
        }
    }

    fn to_number(&self) -> u64 {
        match self {
            Loose::Number(number) => *number,
            _ => 0,
        }
    }
}

#[derive(Deserialize)]
struct RawEvent<'b> {
    #[serde(borrow)]
    ph: Option<Text<'b>>,
    #[serde(borrow)]
    cat: Option<Text<'b>>,
    #[serde(borrow)]
    name: Option<Text<'b>>,
    #[serde(default)]
    pid: Loose,
    #[serde(default)]
    tid: Loose,
    ts: Option<f64>,
    dur: Option<f64>,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default)]
struct Arguments {
    correlation: u64,
    bytes: u64,
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Arguments;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("arguments of an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Arguments, A::Error> {
                let mut arguments = Arguments::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    match &*key.0 {
                        "correlation" => arguments.correlation = map.next_value::<Loose>()?.to_number(),
                        "bytes" => arguments.bytes = map.next_value::<Loose>()?.to_number(),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(arguments)
            }

            fn visit_unit<E>(self) -> Result<Arguments, E> {
                Ok(Arguments::default())
            }
        }
        from.deserialize_any(Visit)
    }
}
