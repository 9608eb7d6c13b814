//! Rows of trace events: what each category of events is, to the tables of a trace.
//!
//! Owns: [`TraceRows`]. Because: Chrome's form and Perfetto's carry the same events with the same arguments, and both
//! must become the same rows. Does not: parse either, or conclude what belongs together;
//! [`Links`](deepctx_profile::trace::Links) does, for every format.
//!
//! `cuda_sync` events lie on device rows and are statements about calls: they become [`Sync`]s, never work. For a
//! category that is not listed, it is unknown whether its events are time of a thread: in a trace of PyTorch's
//! profiler or of ours they are of [`HostKind::UnknownCategory`], in no sum, and counted by name. Any other program's
//! categories are its own words for what its threads do.

use deepctx_profile::order::SortRows as _;
use std::fmt::Write as _;

use rustc_hash::FxHashMap;

use deepctx_common::reason::Reason;
use deepctx_profile::intern::{Id, StrId};
use deepctx_profile::ledger::{self, Stage};
use deepctx_profile::trace::{
    Basis, CollectiveNote, CounterStep, CounterValue, DeviceKind, DeviceOp, DeviceRange, Duration,
    HostCategory, HostKind, HostOp, MemoryEvent, Status, Stream, Sync, SyncKind, Thread, Trace, TraceTime,
    WakeUpEvent, Waker,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Bytes;

use super::arguments::Arguments;
use super::groups::Groups;
use super::{GROUP_RANKS_CUT, GROUP_RANKS_LEFT_OUT, NOT_UNDERSTOOD, UNKNOWN_CATEGORY};
use crate::host_kind::host_kind;

/// Name of tensor memory events.
pub(super) const MEMORY: &str = "[memory]";
/// Maximum categories named in a note, by frequency.
const NAMED_MAX: usize = 8;

/// Categories that only PyTorch's profiler has, besides those of devices.
const PYTORCH: [&str; 7] =
    ["cpu_op", "Operator", "cuda_runtime", "Runtime", "cuda_driver", "python_function", "user_annotation"];

/// An event with a time.
pub(super) struct TraceEvent<'e> {
    pub(super) category: &'e str,
    pub(super) name: &'e str,
    /// Process and thread, as text.
    pub(super) process: &'e str,
    pub(super) thread: &'e str,
    /// Whether its row is that of a thread; otherwise its owner is unknown.
    pub(super) is_of_thread: bool,
    /// Ids of its row: the device and its stream, before these were arguments.
    pub(super) row: (Option<u64>, Option<u64>),
    pub(super) begin: TraceTime,
    pub(super) duration: Duration,
    pub(super) arguments: &'e Arguments<'e>,
}

/// The tables of one trace, under construction.
#[derive(Default)]
pub(super) struct TraceRows {
    pub(super) trace: Trace,
    /// Whether it is a trace of PyTorch's profiler, or ours.
    pub(super) has_known_categories: bool,
    /// The ranks of its communicators.
    pub(super) groups: Groups,
    /// Operations of other categories, until the tool is known.
    others: Vec<(HostOp, StrId)>,
}

impl TraceRows {
    /// Counts a missing part.
    pub(super) fn gap(&mut self, reason: &'static Reason) {
        self.gaps(reason, 1);
    }

    /// Counts missing parts.
    pub(super) fn gaps(&mut self, reason: &'static Reason, n: usize) {
        self.trace.ledger.gap(Stage::Decode, reason, n as u64);
    }

    /// The trace. Our exports mark events of unknown categories themselves, and have the ranks of communicators in
    /// their header.
    pub(super) fn finish(mut self, counts_unknown: bool) -> Trace {
        let groups = std::mem::take(&mut self.groups).finish(&mut self.trace);
        if counts_unknown {
            self.gaps(GROUP_RANKS_CUT, groups.cut);
            self.gaps(GROUP_RANKS_LEFT_OUT, groups.left_out);
        }
        let mut unknown: FxHashMap<StrId, u64> = FxHashMap::default();
        for (op, category) in std::mem::take(&mut self.others) {
            let kind = if self.has_known_categories { HostKind::UnknownCategory } else { HostKind::Other };
            let Some(id) = self.trace.host.push(HostOp { kind, ..op }) else {
                self.gap(NOT_UNDERSTOOD);
                continue;
            };
            if kind == HostKind::UnknownCategory {
                self.trace.categories.push(HostCategory { op: id, category });
            }
        }
        for (_, of) in self.trace.categories.iter() {
            *unknown.entry(of.category).or_default() += 1;
        }
        if let Some(reason) = named(&self.trace, &unknown).filter(|_| counts_unknown) {
            self.trace.ledger.gap(Stage::Decode, reason, unknown.values().sum());
        }
        self.trace
    }

    /// Adds an event with a length.
    pub(super) fn complete(&mut self, event: &TraceEvent<'_>) {
        let own_kind = HostKind::from_name(event.arguments.kind.word());
        let added = match event.category {
            _ if own_kind.is_some() => self.host(event, own_kind),
            "kernel" | "Kernel" | "gpu_kernel" => self.device(event, DeviceKind::Kernel),
            "gpu_memcpy" | "Memcpy" | "memcpy" => self.device(event, DeviceKind::Copy),
            "gpu_memset" | "Memset" | "memset" => self.device(event, DeviceKind::Fill),
            "cuda_sync" => self.sync(event),
            "gpu_user_annotation" => self.device_range(event),
            _ if !event.is_of_thread => self.host(event, Some(HostKind::UnknownCategory)),
            // JAX numbers its steps in an argument.
            "" if event.arguments.step.number().is_some() => self.host(event, Some(HostKind::Step)),
            category => self.host(event, host_kind(category, event.name)),
        };
        if added.is_none() {
            self.gap(NOT_UNDERSTOOD);
        }
    }

    fn host(&mut self, event: &TraceEvent<'_>, kind: Option<HostKind>) -> Option<()> {
        let thread = self.trace.thread(event.process, event.thread);
        let arguments = event.arguments;
        let result = arguments.result.signed().and_then(|number| i32::try_from(number).ok());
        let name = match arguments.step.number() {
            Some(step) if kind == Some(HostKind::Step) => self.trace.text(&numbered(event.name, step)),
            _ => self.trace.text(event.name),
        };
        let op = HostOp {
            thread,
            kind: kind.unwrap_or(HostKind::UnknownCategory),
            begin: event.begin,
            duration: event.duration,
            name,
            correlation: arguments.correlation.number().unwrap_or(0),
            status: result.map_or(Status::Unknown, Status::Returned),
            context: NodeId::ROOT,
        };
        match kind {
            Some(HostKind::UnknownCategory) => {
                let category = self.trace.text(event.category);
                let op = self.trace.host.push(op)?;
                self.trace.categories.push(HostCategory { op, category }).map(drop)
            }
            Some(_) => {
                self.has_known_categories |= PYTORCH.contains(&event.category);
                let id = self.trace.host.push(op)?;
                self.wake_ups(id, event);
                Some(())
            }
            None => {
                let category = self.trace.text(event.category);
                self.others.push((op, category));
                Some(())
            }
        }
    }

    /// What ended a time off the CPU: `[[nanoseconds, "interrupt"], …]`, in one of our exports.
    fn wake_ups(&mut self, ends: Id<HostOp>, event: &TraceEvent<'_>) {
        let text = event.arguments.wake_ups.word();
        if text.is_empty() {
            return;
        }
        let Ok(rows) = serde_json::from_str::<Vec<(i64, Vec<String>)>>(text) else {
            return self.gap(NOT_UNDERSTOOD);
        };
        for (after, by) in rows {
            let words: Vec<&str> = by.iter().map(String::as_str).collect();
            let by = match words[..] {
                ["interrupt"] => Some(Waker::Interrupt),
                ["outside"] => Some(Waker::Outside),
                ["thread", process, thread] => Some(Waker::Thread(self.trace.thread(process, thread))),
                ["other", pid, tid] => {
                    pid.parse().ok().zip(tid.parse().ok()).map(|(pid, tid)| Waker::OtherProcess { pid, tid })
                }
                _ => None,
            };
            let at = event.begin.as_nanos().checked_add_signed(after).map(TraceTime::from_nanos);
            let added =
                by.zip(at).and_then(|(by, at)| self.trace.wake_ups.push(WakeUpEvent { ends, at, by }));
            if added.is_none() {
                self.gap(NOT_UNDERSTOOD);
            }
        }
    }

    /// The stream of an event: from its arguments; in older files, the process was the device and the thread the
    /// stream.
    fn stream_of(&mut self, event: &TraceEvent<'_>) -> Id<Stream> {
        let (arguments, row) = (event.arguments, event.row);
        let device = small(arguments.device.number().or(row.0)).unwrap_or(0);
        // CUPTI's number for "no stream".
        let stream = arguments.stream.number().or(row.1).filter(|number| *number != u64::from(u32::MAX));
        self.trace.stream(device, stream)
    }

    fn device(&mut self, event: &TraceEvent<'_>, kind: DeviceKind) -> Option<()> {
        self.has_known_categories = true;
        let (stream, arguments) = (self.stream_of(event), event.arguments);
        let op = self.trace.device.push(DeviceOp {
            stream,
            kind,
            begin: event.begin,
            duration: event.duration,
            name: self.trace.strings.intern(event.name),
            correlation: arguments.correlation.number().unwrap_or(0),
            launched_by: match arguments.launched_by.word() {
                "by-order" => Basis::ByOrder,
                "inferred" => Basis::Inferred,
                _ => Basis::Exact,
            },
            bytes: Bytes(arguments.bytes.number().unwrap_or(0)),
            graph_node: arguments.graph_node.number().unwrap_or(0),
        })?;
        let operation = arguments.collective.to_text();
        if operation.is_empty() {
            return Some(());
        }
        let peer = match operation.as_str() {
            "send" => arguments.target_rank.number(),
            "recv" => arguments.source_rank.number(),
            _ => None,
        };
        let note = CollectiveNote {
            op,
            operation: self.trace.text(&operation),
            communicator: self.trace.text(&arguments.communicator()),
            group_size: small(arguments.group_size.number()).unwrap_or(0),
            elements_in: arguments.elements_in.number().unwrap_or(0),
            element: self.trace.text(&arguments.element.to_text()),
            ordinal: arguments.ordinal.number(),
            peer: small(peer),
        };
        self.trace.collectives.push(note)?;
        self.groups.note(&mut self.trace, note.communicator, arguments);
        Some(())
    }

    fn sync(&mut self, event: &TraceEvent<'_>) -> Option<()> {
        let kind = match event.name {
            "Stream Sync" | "Stream Synchronize" => SyncKind::Stream,
            "Event Sync" | "Event Synchronize" => SyncKind::Event,
            "Stream Wait Event" => SyncKind::StreamWait,
            "Context Sync" | "Context Synchronize" | "Device Sync" => SyncKind::Context,
            _ => return None,
        };
        self.has_known_categories = true;
        let arguments = event.arguments;
        let device = small(arguments.device.number()).unwrap_or(0);
        let recorded_device = small(arguments.wait_on_device.number()).unwrap_or(device);
        let mut lane = |device: u32, number: Option<u64>| {
            let number = number.filter(|number| *number != u64::from(u32::MAX))?;
            Some(self.trace.stream(device, Some(number)))
        };
        let stream = lane(device, arguments.stream.number());
        let recorded_on = lane(recorded_device, arguments.wait_on_stream.number());
        let (begin, duration) = (event.begin, event.duration);
        let correlation = arguments.correlation.number().unwrap_or(0);
        let record = arguments.record.number();
        let sync = Sync { kind, stream, begin, duration, correlation, record, recorded_on };
        self.trace.syncs.push(sync).map(drop)
    }

    fn device_range(&mut self, event: &TraceEvent<'_>) -> Option<()> {
        self.has_known_categories = true;
        let (stream, name) = (self.stream_of(event), self.trace.text(event.name));
        let (begin, duration) = (event.begin, event.duration);
        self.trace.device_ranges.push(DeviceRange { stream, begin, duration, name }).map(drop)
    }

    /// Adds an allocation or a free of tensor memory.
    pub(super) fn memory(&mut self, thread: Id<Thread>, at: TraceTime, arguments: &Arguments<'_>) {
        let Some(bytes) = arguments.bytes.signed() else { return self.gap(NOT_UNDERSTOOD) };
        // 0 is the CPU in PyTorch's list of devices.
        let on_device = arguments.device_type.number().is_some_and(|kind| kind != 0);
        let event = MemoryEvent {
            thread,
            at,
            device: small(arguments.device.number()).filter(|_| on_device),
            address: arguments.address.number().unwrap_or(0),
            bytes,
            allocated: arguments.allocated.number().map(Bytes),
            reserved: arguments.reserved.number().map(Bytes),
        };
        if self.trace.memory.push(event).is_none() {
            self.gap(NOT_UNDERSTOOD);
        }
    }

    /// Adds a step of a counter.
    pub(super) fn counter(&mut self, process: &str, name: &str, series: &str, at: TraceTime, value: f64) {
        let (process, name, series) =
            (self.trace.text(process), self.trace.text(name), self.trace.text(series));
        let step = CounterStep { process, name, series, at, value: CounterValue::new(value) };
        if self.trace.counters.push(step).is_none() {
            self.gap(NOT_UNDERSTOOD);
        }
    }
}

/// Name of a training step with its number, as in PyTorch's traces (`ProfilerStep#3`).
pub(super) fn numbered(name: &str, step: u64) -> String {
    format!("{name}#{step}")
}

fn small(number: Option<u64>) -> Option<u32> {
    u32::try_from(number?).ok()
}

/// The reason why operations are in no sum, with their tool's category names.
fn named(trace: &Trace, unknown: &FxHashMap<StrId, u64>) -> Option<ledger::Reason> {
    let mut rows: Vec<(&str, u64)> = unknown.iter().map(|(id, count)| (trace.name(*id), *count)).collect();
    rows.sort_rows_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let mut sentence = UNKNOWN_CATEGORY.sentence.to_owned();
    for (place, (name, count)) in rows.iter().take(NAMED_MAX).enumerate() {
        let name: String = deepctx_profile::frame::clean(name).chars().take(40).collect();
        // Writing to a text cannot fail.
        _ = write!(sentence, "{} `{name}` ({count})", if place == 0 { ":" } else { "," });
    }
    if rows.len() > NAMED_MAX {
        _ = write!(sentence, " and {} more", rows.len() - NAMED_MAX);
    }
    (!rows.is_empty()).then(|| ledger::Reason { key: UNKNOWN_CATEGORY.key.into(), sentence: sentence.into() })
}
