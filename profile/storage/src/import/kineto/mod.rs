//! Chrome trace events, as PyTorch's profiler (Kineto) has written them since 2021, to a trace.
//!
//! Owns: [`read`], and what each category of events is. Because: whoever trains models has such traces. Does not:
//! conclude what belongs together; [`Links`](deepctx_profile::trace::Links) does, for every format.
//!
//! | schema | categories | numbers |
//! |---|---|---|
//! | first (2021) | `Operator`, `Runtime`, `Kernel`, `Memcpy`, `Memset`; threads and streams as words | whole microseconds since 1970 |
//! | 2022 to 2023 | `cpu_op`, `cuda_runtime`, `kernel`, `gpu_memcpy`, `gpu_memset`, `cuda_sync` | whole microseconds since 1970 |
//! | since 2024 | the same, and `cuda_driver`, arguments of NCCL | decimals since `baseTimeNanoseconds` |
//!
//! `cuda_sync` events lie on device rows and are statements about calls: they become [`Sync`]s, never work. `Trace`
//! spans are the profiler's own.

mod decimal;
mod document;
mod event;

use serde::de::DeserializeSeed as _;

use deepctx_common::reason::Reason;
use deepctx_profile::id::Id;
use deepctx_profile::ledger::Stage;
use deepctx_profile::trace::{
    ClockInfo, CollectiveNote, DeviceKind, DeviceOp, DeviceRange, Duration, HostKind, HostOp, MemoryEvent,
    RankInfo, Status, Stream, Sync, SyncKind, Trace, TraceTime,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Bytes, Nanos};

use self::decimal::thousandths;
use self::document::{Document, DocumentVisitor};
use self::event::RawEvent;
use super::{
    CUT_SHORT, END_BEFORE_BEGIN, EVENTS_MAX, ImportError, Kind, NOT_UNDERSTOOD, OUT_OF_RANGE, ROUNDED,
    TOO_LONG,
};

/// An event that lasts longer is an error of its writer, which subtracted from an end that was not there.
const DURATION_MAX: i128 = 366 * 24 * 3600 * 1_000_000_000;
/// Microseconds since 1970 are above this (2001), microseconds since the boot of a machine below.
const SINCE_1970: u64 = 1_000_000_000_000_000_000;

pub(super) fn read(bytes: &[u8]) -> Result<Trace, ImportError> {
    let mut reader =
        Reader { trace: Trace::new(), found: false, has_fraction: false, base: None, too_many: false };
    // Names are those of other people's symbols: a byte that is no UTF-8 spoils its name, not the trace.
    let text = String::from_utf8_lossy(bytes);
    let mut json = serde_json::Deserializer::from_str(&text);
    if let Err(error) = Document(&mut reader).deserialize(&mut json) {
        if reader.too_many {
            return Err(ImportError::TooLarge { most: EVENTS_MAX, what: "events of a trace" });
        }
        // A process that was killed leaves a file without an end, and all that it had written.
        if !error.is_eof() || reader.trace.is_empty() {
            return Err(ImportError::damaged(Kind::Kineto, error.to_string()));
        }
        reader.gap(CUT_SHORT);
    }
    if !reader.found {
        return Err(ImportError::Unknown {
            because: "it is a JSON document without `traceEvents`".to_owned(),
        });
    }
    Ok(reader.finish())
}

struct Reader {
    trace: Trace,
    found: bool,
    has_fraction: bool,
    base: Option<u64>,
    too_many: bool,
}

impl DocumentVisitor for Reader {
    fn event(&mut self, raw: RawEvent<'_>) -> Result<(), &'static str> {
        if self.trace.len() >= EVENTS_MAX {
            self.too_many = true;
            return Err("too many events");
        }
        match raw.ph.as_ref().map(|text| &*text.0) {
            Some("X") => self.complete(&raw),
            Some("i" | "I") if raw.name.as_ref().is_some_and(|name| name.0 == "[memory]") => {
                self.memory(&raw)
            }
            // Names, flows and marks: flows repeat correlation ids.
            _ => {}
        }
        Ok(())
    }

    fn found(&mut self) {
        self.found = true;
    }

    fn base(&mut self, base: Option<u64>) {
        self.base = base;
    }

    fn distributed(&mut self, rank: Option<u64>, world_size: Option<u64>) {
        let number = |of: Option<u64>| u32::try_from(of?).ok();
        self.trace.rank = RankInfo { rank: number(rank), world_size: number(world_size) };
    }
}

impl Reader {
    fn gap(&mut self, reason: &'static Reason) {
        self.trace.ledger.gap(Stage::Decode, reason, 1);
    }

    fn finish(mut self) -> Trace {
        let first = self.trace.span().map_or(0, |(first, _)| first.as_nanos());
        let epoch_ns = self.base.or((first > SINCE_1970).then_some(0));
        // Exports of this project write whole numbers of nanoseconds as decimals, too.
        let resolution = if self.has_fraction { Nanos(1) } else { Nanos(1000) };
        self.trace.clock = ClockInfo { epoch_ns, resolution, ..ClockInfo::default() };
        self.trace
    }

    /// Nanoseconds of a number of microseconds.
    fn nanos(&mut self, micros: &str) -> Option<i128> {
        let number = thousandths(micros)?;
        self.has_fraction |= number.has_fraction;
        if number.rounded {
            self.gap(ROUNDED);
        }
        Some(number.value)
    }

    fn time(&mut self, micros: &str) -> Option<TraceTime> {
        let Some(ns) = self.nanos(micros) else {
            self.gap(NOT_UNDERSTOOD);
            return None;
        };
        let Ok(ns) = u64::try_from(ns) else {
            self.gap(OUT_OF_RANGE);
            return None;
        };
        Some(TraceTime::from_nanos(ns))
    }

    fn duration(&mut self, micros: &str) -> Option<Duration> {
        match self.nanos(micros) {
            None => self.gap(NOT_UNDERSTOOD),
            Some(ns) if ns < 0 => self.gap(END_BEFORE_BEGIN),
            Some(ns) if ns > DURATION_MAX => self.gap(TOO_LONG),
            Some(ns) => return Some(Nanos(ns as u64)),
        }
        None
    }

    fn complete(&mut self, raw: &RawEvent<'_>) {
        let category = raw.cat.as_ref().map_or("", |text| &*text.0);
        if category == "Trace" {
            return;
        }
        let (Some(begin), Some(duration), Some(name)) = (raw.ts, raw.dur, &raw.name) else {
            return self.gap(NOT_UNDERSTOOD);
        };
        let (Some(begin), Some(duration)) = (self.time(begin.get()), self.duration(duration.get())) else {
            return;
        };
        if begin.as_nanos().checked_add(duration.0).is_none() {
            return self.gap(OUT_OF_RANGE);
        }
        let name = &*name.0;
        let added = match category {
            "kernel" | "Kernel" | "gpu_kernel" => self.device(raw, DeviceKind::Kernel, name, begin, duration),
            "gpu_memcpy" | "Memcpy" | "memcpy" => self.device(raw, DeviceKind::Copy, name, begin, duration),
            "gpu_memset" | "Memset" | "memset" => self.device(raw, DeviceKind::Fill, name, begin, duration),
            "cuda_sync" => self.sync(raw, name, begin, duration),
            "gpu_user_annotation" => self.device_range(raw, name, begin, duration),
            _ => self.host(raw, host_kind(category, name), name, begin, duration),
        };
        if added.is_none() {
            self.gap(NOT_UNDERSTOOD);
        }
    }

    fn host(
        &mut self,
        raw: &RawEvent<'_>,
        kind: HostKind,
        name: &str,
        begin: TraceTime,
        duration: Duration,
    ) -> Option<()> {
        let thread = self.trace.thread(&raw.pid.to_text(), &raw.tid.to_text());
        let correlation = raw.args.correlation.number().unwrap_or(0);
        let (name, status, context) = (self.trace.text(name), Status::Unknown, NodeId::ROOT);
        let op = HostOp { thread, kind, begin, duration, name, correlation, status, context };
        self.trace.host.push(op).map(drop)
    }

    /// The stream of an event: its arguments say so; before those, the process was the device and the thread the
    /// stream.
    fn stream_of(&mut self, raw: &RawEvent<'_>) -> Id<Stream> {
        let device = raw.args.device.number().or(raw.pid.number());
        let device = device.and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        let stream = raw.args.stream.number().or(raw.tid.number());
        // CUPTI's number for "no stream".
        self.trace.stream(device, stream.filter(|number| *number != u64::from(u32::MAX)))
    }

    fn device(
        &mut self,
        raw: &RawEvent<'_>,
        kind: DeviceKind,
        name: &str,
        begin: TraceTime,
        duration: Duration,
    ) -> Option<()> {
        let (stream, arguments) = (self.stream_of(raw), &raw.args);
        let name = self.trace.text(name);
        let correlation = arguments.correlation.number().unwrap_or(0);
        let op = self.trace.device.push(DeviceOp {
            bytes: Bytes(arguments.bytes.number().unwrap_or(0)),
            graph_node: arguments.graph_node.number().unwrap_or(0),
            ..DeviceOp::correlated(stream, kind, begin, duration, name, correlation)
        })?;
        let operation = arguments.collective.to_text();
        if operation.is_empty() {
            return Some(());
        }
        let note = CollectiveNote {
            op,
            operation: self.trace.text(&operation),
            communicator: self.trace.text(&arguments.group.to_text()),
            group_size: arguments.group_size.number().and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            elements_in: arguments.elements_in.number().unwrap_or(0),
            element: self.trace.text(&arguments.element.to_text()),
        };
        self.trace.collectives.push(note).map(drop)
    }

    fn sync(&mut self, raw: &RawEvent<'_>, name: &str, begin: TraceTime, duration: Duration) -> Option<()> {
        let kind = match name {
            "Stream Sync" | "Stream Synchronize" => SyncKind::Stream,
            "Event Sync" | "Event Synchronize" => SyncKind::Event,
            "Stream Wait Event" => SyncKind::StreamWait,
            "Context Sync" | "Context Synchronize" | "Device Sync" => SyncKind::Context,
            _ => return None,
        };
        let device = raw.args.device.number().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        let mut lane = |number: Option<u64>| {
            let number = number.filter(|number| *number != u64::from(u32::MAX))?;
            Some(self.trace.stream(device, Some(number)))
        };
        let (stream, recorded_on) = (lane(raw.args.stream.number()), lane(raw.args.wait_on_stream.number()));
        let correlation = raw.args.correlation.number().unwrap_or(0);
        let record = raw.args.record.number();
        self.trace
            .syncs
            .push(Sync { kind, stream, begin, duration, correlation, record, recorded_on })
            .map(drop)
    }

    fn device_range(
        &mut self,
        raw: &RawEvent<'_>,
        name: &str,
        begin: TraceTime,
        duration: Duration,
    ) -> Option<()> {
        let (stream, name) = (self.stream_of(raw), self.trace.text(name));
        self.trace.device_ranges.push(DeviceRange { stream, begin, duration, name }).map(drop)
    }

    fn memory(&mut self, raw: &RawEvent<'_>) {
        let Some(bytes) = raw.args.bytes.signed() else { return self.gap(NOT_UNDERSTOOD) };
        let Some(at) = raw.ts.and_then(|at| self.time(at.get())) else { return };
        let thread = self.trace.thread(&raw.pid.to_text(), &raw.tid.to_text());
        let arguments = &raw.args;
        // 0 is the CPU in PyTorch's list of devices.
        let on_device = arguments.device_type.number().is_some_and(|kind| kind != 0);
        let device = arguments.device.number().filter(|_| on_device).and_then(|n| u32::try_from(n).ok());
        let event = MemoryEvent {
            thread,
            at,
            device,
            address: arguments.address.number().unwrap_or(0),
            bytes,
            allocated: arguments.allocated.number().map(Bytes),
            reserved: arguments.reserved.number().map(Bytes),
        };
        if self.trace.memory.push(event).is_none() {
            self.gap(NOT_UNDERSTOOD);
        }
    }
}

fn host_kind(category: &str, name: &str) -> HostKind {
    match category {
        "cuda_runtime" | "Runtime" | "runtime" | "gpu_api" => HostKind::RuntimeCall,
        "cuda_driver" | "driver" => HostKind::DriverCall,
        "python_function" => HostKind::Python,
        "layer" => HostKind::Layer,
        "process" => HostKind::Process,
        "cpu_op" | "Operator" | "operator" | "user_annotation" if name.starts_with("ProfilerStep") => {
            HostKind::Step
        }
        "cpu_op" | "Operator" | "operator" => HostKind::Operator,
        "user_annotation" => HostKind::Annotation,
        _ => HostKind::Other,
    }
}
