//! rocprofv3's JSON to traces, one for each process.
//!
//! Owns: [`read`]. Because: it is what AMD's own profiler writes of dispatches, copies, calls and ranges. Does not:
//! read its counters, samples or allocations, which are counted, or OTF2; its Perfetto output is read by `perfetto`.
//!
//! Times are nanoseconds since the boot of the machine. `correlation_id.internal` connects a dispatch with its call,
//! where `--hip-trace` or `--hsa-trace` recorded the call, and a range of ROCTx with its name. Each process counts its
//! own from 1, so that processes of one file are traces of their own, on one clock.

use std::fmt;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use deepctx_common::reason::Reason;
use deepctx_profile::intern::Id;
use deepctx_profile::ledger::Stage;
use deepctx_profile::trace::{
    ClockInfo, DeviceKind, DeviceOp, Duration, HostKind, HostOp, Status, Stream, Trace, TraceTime,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Bytes, Nanos};

use super::arguments::Text;
use super::cut_json;
use super::lossy::lossy;
use super::{
    CUT_SHORT, END_BEFORE_BEGIN, EVENTS_MAX, ImportError, KIND_NOT_READ, Kind, NOT_UNDERSTOOD, REPAIRED,
    TOO_LONG, UNKNOWN_DEVICE, YEAR,
};

/// Reads the traces of a file, with process ids if it has several.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<(Option<u32>, Trace)>, ImportError> {
    let (text, repaired) = lossy(bytes);
    let (document, is_cut) = parsed(&text)?;
    if document.events() > EVENTS_MAX {
        return Err(ImportError::TooLarge { most: EVENTS_MAX, what: "events of a trace" });
    }
    let is_one = document.processes.len() == 1;
    let clock = ClockInfo { resolution: Nanos(1), domain: (!is_one).then_some(0), ..ClockInfo::default() };
    let of_process = |process: &Process| {
        let mut reader = Reader { trace: Trace::new() };
        reader.trace.clock = clock;
        reader.process(process);
        let pid = u32::try_from(process.metadata.pid).ok();
        (pid.filter(|_| !is_one), reader.trace)
    };
    let mut traces: Vec<_> = document.processes.iter().map(of_process).collect();
    if let Some((_, first)) = traces.first_mut() {
        first.ledger.gap(Stage::Decode, REPAIRED, repaired);
        first.ledger.gap(Stage::Decode, CUT_SHORT, u64::from(is_cut));
    }
    Ok(traces)
}

/// Brackets around a record, up to those of its list: of the document, its processes, one of them, and its records.
const LIST_DEPTH: usize = 5;

/// The document, and whether it has no end: what stands before is kept if there are events.
fn parsed(text: &str) -> Result<(Document, bool), ImportError> {
    let error = match serde_json::from_str::<Document>(text) {
        Ok(document) => return Ok((document, false)),
        Err(error) => error,
    };
    let closed = cut_json::closed(text, LIST_DEPTH);
    let document = closed.and_then(|text| serde_json::from_str::<Document>(&text).ok());
    match document.filter(|document| document.events() > 0) {
        Some(document) => Ok((document, true)),
        None => Err(ImportError::damaged(Kind::Rocprof, error.to_string())),
    }
}

struct Reader {
    trace: Trace,
}

impl Reader {
    fn gap(&mut self, reason: &'static Reason) {
        self.trace.ledger.gap(Stage::Decode, reason, 1);
    }

    fn span(&mut self, begin: u64, end: u64) -> Option<(TraceTime, Duration)> {
        let Some(length) = end.checked_sub(begin) else {
            self.gap(END_BEFORE_BEGIN);
            return None;
        };
        // Its end was not known.
        if length > YEAR.0 {
            self.gap(TOO_LONG);
            return None;
        }
        Some((TraceTime::from_nanos(begin), Nanos(length)))
    }

    fn process(&mut self, process: &Process) {
        let names: FxHashMap<u64, &str> = process
            .kernel_symbols
            .iter()
            .map(|symbol| (symbol.kernel_id, &*symbol.formatted_kernel_name))
            .collect();
        let gpus = process.agents.iter().filter(|agent| agent.kind == AGENT_GPU);
        let devices: FxHashMap<u64, u32> =
            gpus.zip(0..).map(|(agent, number)| (agent.id.handle, number)).collect();
        for dispatch in &process.buffer_records.kernel_dispatch {
            let info = &dispatch.dispatch_info;
            let name = names.get(&info.kernel_id).copied();
            let stream = dispatch.stream_id.as_ref().or(info.queue_id.as_ref()).map(|id| id.handle);
            let stream = self.stream(devices.get(&info.agent_id.handle), stream);
            // Without its symbol, a kernel still has its time.
            let name = name.map_or_else(|| format!("[kernel {}]", info.kernel_id), str::to_owned);
            self.device(DeviceKind::Kernel, stream, &name, &dispatch.record, 0);
        }
        for copy in &process.buffer_records.memory_copy {
            let name = process.operation(copy.record.kind, copy.record.operation).unwrap_or("Memcpy");
            let agents = [&copy.dst_agent_id, &copy.src_agent_id];
            let device = agents.into_iter().flatten().find_map(|agent| devices.get(&agent.handle));
            let stream = copy.stream_id.as_ref().map(|id| id.handle);
            let stream = self.stream(device, stream);
            self.device(DeviceKind::Copy, stream, name, &copy.record, copy.bytes);
        }
        let pid = process.metadata.pid.to_string();
        for call in process.buffer_records.hip_api.iter().chain(&process.buffer_records.hsa_api) {
            let Some(name) = process.operation(call.kind, call.operation) else {
                self.gap(NOT_UNDERSTOOD);
                continue;
            };
            self.call(&pid, HostKind::RuntimeCall, name, call);
        }
        // A call of RCCL is around those that launch its work, which have the ids.
        for call in &process.buffer_records.rccl_api {
            let name = process.operation(call.kind, call.operation).unwrap_or("[RCCL]");
            self.call(&pid, HostKind::Other, name, call);
        }
        self.ranges(&pid, process);
        let unread = process.buffer_records.unread + process.counters;
        self.trace.ledger.gap(Stage::Decode, KIND_NOT_READ, unread);
    }

    /// Ranges and marks of ROCTx. Its calls without a text, as those that name a thread, are calls.
    fn ranges(&mut self, pid: &str, process: &Process) {
        let texts: FxHashMap<u64, &str> =
            process.strings.marker_api.iter().map(|text| (text.key, &*text.value)).collect();
        for range in &process.buffer_records.marker_api {
            match texts.get(&range.correlation_id.internal) {
                Some(text) => self.call(pid, HostKind::Annotation, text, range),
                None => {
                    let name = process.operation(range.kind, range.operation).unwrap_or("[ROCTx]");
                    self.call(pid, HostKind::Other, name, range);
                }
            }
        }
    }

    /// A stream of a device; without one, of the first.
    fn stream(&mut self, device: Option<&u32>, stream: Option<u64>) -> Id<Stream> {
        if device.is_none() {
            self.gap(UNKNOWN_DEVICE);
        }
        self.trace.stream(device.copied().unwrap_or(0), stream)
    }

    fn device(&mut self, kind: DeviceKind, stream: Id<Stream>, name: &str, record: &Record, bytes: u64) {
        let Some((begin, duration)) = self.span(record.start_timestamp, record.end_timestamp) else { return };
        let (name, correlation) = (self.trace.text(name), record.correlation_id.internal);
        let op = DeviceOp {
            bytes: Bytes(bytes),
            ..DeviceOp::correlated(stream, kind, begin, duration, name, correlation)
        };
        if self.trace.device.push(op).is_none() {
            self.gap(NOT_UNDERSTOOD);
        }
    }

    fn call(&mut self, pid: &str, kind: HostKind, name: &str, record: &Record) {
        let Some((begin, duration)) = self.span(record.start_timestamp, record.end_timestamp) else { return };
        let thread = self.trace.thread(pid, &record.thread_id.to_string());
        let op = HostOp {
            thread,
            kind,
            begin,
            duration,
            name: self.trace.text(name),
            correlation: if kind.is_call() { record.correlation_id.internal } else { 0 },
            status: Status::Unknown,
            context: NodeId::ROOT,
        };
        if self.trace.host.push(op).is_none() {
            self.gap(NOT_UNDERSTOOD);
        }
    }
}

/// `ROCPROFILER_AGENT_TYPE_GPU`.
const AGENT_GPU: u32 = 2;

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "rocprofiler-sdk-tool", deserialize_with = "processes")]
    processes: Vec<Process>,
}

impl Document {
    /// How many events it has.
    fn events(&self) -> usize {
        self.processes.iter().map(|process| process.buffer_records.len()).sum()
    }
}

/// Maximum processes of a file, as of other formats: one without anything takes three bytes there, and thousands here.
const PROCESSES_MAX: usize = 1024;

fn processes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Process>, D::Error> {
    struct Visit;
    impl<'de> Visitor<'de> for Visit {
        type Value = Vec<Process>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of processes")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(process) = seq.next_element()? {
                if all.len() >= PROCESSES_MAX {
                    let because = format_args!("it has more than {PROCESSES_MAX} processes");
                    return Err(serde::de::Error::custom(because));
                }
                all.push(process);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(Visit)
}

#[derive(Deserialize)]
struct Process {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    agents: Vec<Agent>,
    #[serde(default)]
    kernel_symbols: Vec<Symbol>,
    #[serde(default)]
    strings: Names,
    #[serde(default)]
    buffer_records: Records,
    /// How many records of counters there are.
    #[serde(default, rename = "callback_records", deserialize_with = "counters")]
    counters: u64,
}

impl Process {
    /// The name of an operation in a kind of records.
    fn operation(&self, kind: usize, operation: usize) -> Option<&str> {
        self.strings.buffer_records.get(kind)?.operations.get(operation).map(String::as_str)
    }
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    pid: u64,
}

#[derive(Deserialize)]
struct Agent {
    id: Handle,
    #[serde(rename = "type")]
    kind: u32,
}

#[derive(Deserialize)]
struct Symbol {
    kernel_id: u64,
    #[serde(default)]
    formatted_kernel_name: String,
}

#[derive(Default, Deserialize)]
struct Names {
    #[serde(default)]
    buffer_records: Vec<KindNames>,
    /// Texts of ROCTx, by correlation id.
    #[serde(default)]
    marker_api: Vec<MarkerText>,
}

#[derive(Deserialize)]
struct MarkerText {
    key: u64,
    value: String,
}

#[derive(Deserialize)]
struct KindNames {
    #[serde(default)]
    operations: Vec<String>,
}

// No event has a default: each takes as many bytes in the file as here, so the file bounds their number.
#[derive(Default)]
struct Records {
    kernel_dispatch: Vec<Dispatch>,
    memory_copy: Vec<MemoryCopy>,
    hip_api: Vec<Record>,
    hsa_api: Vec<Record>,
    rccl_api: Vec<Record>,
    marker_api: Vec<Record>,
    /// How many there are of other kinds.
    unread: u64,
}

impl<'de> Deserialize<'de> for Records {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Records;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("lists of records")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut records = Records::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    match &*key.0 {
                        "kernel_dispatch" => records.kernel_dispatch = map.next_value()?,
                        "memory_copy" => records.memory_copy = map.next_value()?,
                        "hip_api" => records.hip_api = map.next_value()?,
                        "hsa_api" => records.hsa_api = map.next_value()?,
                        "rccl_api" => records.rccl_api = map.next_value()?,
                        "marker_api" => records.marker_api = map.next_value()?,
                        _ => records.unread += length(map.next_value()?),
                    }
                }
                Ok(records)
            }
        }
        from.deserialize_map(Visit)
    }
}

/// The length of a list that is not read; 0 of anything else.
fn length(list: &RawValue) -> u64 {
    serde_json::from_str::<Vec<IgnoredAny>>(list.get()).map_or(0, |list| list.len() as u64)
}

fn counters<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    struct CallbackRecords {
        #[serde(default)]
        counter_collection: Vec<IgnoredAny>,
    }
    let records = <&RawValue>::deserialize(from)?;
    let records = serde_json::from_str::<CallbackRecords>(records.get());
    Ok(records.map_or(0, |records| records.counter_collection.len() as u64))
}

impl Records {
    fn len(&self) -> usize {
        let calls = [&self.hip_api, &self.hsa_api, &self.rccl_api, &self.marker_api];
        self.kernel_dispatch.len() + self.memory_copy.len() + calls.map(Vec::len).iter().sum::<usize>()
    }
}

#[derive(Deserialize)]
struct Record {
    kind: usize,
    operation: usize,
    thread_id: u64,
    correlation_id: Correlation,
    start_timestamp: u64,
    end_timestamp: u64,
}

#[derive(Deserialize)]
struct Correlation {
    internal: u64,
}

#[derive(Deserialize)]
struct Handle {
    handle: u64,
}

#[derive(Deserialize)]
struct Dispatch {
    #[serde(flatten)]
    record: Record,
    dispatch_info: DispatchInfo,
    stream_id: Option<Handle>,
}

#[derive(Deserialize)]
struct DispatchInfo {
    agent_id: Handle,
    queue_id: Option<Handle>,
    kernel_id: u64,
}

#[derive(Deserialize)]
struct MemoryCopy {
    #[serde(flatten)]
    record: Record,
    src_agent_id: Option<Handle>,
    dst_agent_id: Option<Handle>,
    stream_id: Option<Handle>,
    #[serde(default)]
    bytes: u64,
}
