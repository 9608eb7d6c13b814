//! Chrome trace events, as PyTorch's profiler (Kineto) has written them since 2021, to a trace.
//!
//! Owns: [`read`]. Because: people who train models have such traces. Does not: interpret events; `trace_rows` does.
//!
//! | schema | categories | numbers |
//! |---|---|---|
//! | first (2021) | `Operator`, `Runtime`, `Kernel`, `Memcpy`, `Memset`; threads and streams as words | whole microseconds since 1970 |
//! | 2022 to 2023 | `cpu_op`, `cuda_runtime`, `kernel`, `gpu_memcpy`, `gpu_memset`, `cuda_sync` | whole microseconds since 1970 |
//! | since 2024 | the same, and `cuda_driver`, arguments of NCCL | decimals since `baseTimeNanoseconds` |
//!
//! Events have their length (`X`), or a begin and an end (`B`, `E`). A mark of a thread is a range without length.
//! What lies on no thread (asynchronous events, samples) is counted, not read. `Trace` spans are the profiler's own. A
//! deepctx-bpf file says which rank each row is of: it has several. Events of JAX have no category, but rows with names
//! ([`xla_rows`]).

mod decimal;
mod document;
mod event;
mod not_json;
mod pairs;
mod xla_rows;

use serde::de::DeserializeSeed as _;
use serde_json::value::RawValue;

use deepctx_common::reason::Reason;
use deepctx_profile::ledger::Stage;
use deepctx_profile::trace::{Call, ClockInfo, DeviceKind, Duration, RankInfo, Trace, TraceTime};
use deepctx_profile::units::Nanos;

use self::decimal::thousandths;
use self::document::{Document, DocumentVisitor};
use self::event::RawEvent;
use self::pairs::{Begun, Half, Pairs};
use self::xla_rows::{XlaRow, XlaRows};
use super::arguments::Arguments;
use super::lossy::lossy;
use super::ranks::Ranks;
use super::trace_rows::{MEMORY, TraceEvent, TraceRows};
use super::{
    CUT_SHORT, END_BEFORE_BEGIN, END_WITHOUT_BEGIN, EVENTS_MAX, ImportError, Kind, NO_END, NOT_A_NUMBER,
    NOT_UNDERSTOOD, ON_NO_THREAD, OUT_OF_RANGE, REPAIRED, ROUNDED, TOO_LONG, YEAR, leave_out_at_zero,
};
use crate::event_header::{EventHeader, LaneOwner, SUMS};

/// Microseconds since 1970 are larger than this (2001), microseconds since boot are smaller.
const SINCE_1970: u64 = 1_000_000_000_000_000_000;

pub(super) fn read(bytes: &[u8]) -> Result<Vec<Trace>, ImportError> {
    let (text, not_utf8) = lossy(bytes);
    let (mut traces, values, others) = match read_text(&text) {
        Err(error @ ImportError::Damaged { .. }) => {
            let replaced = not_json::replaced(&text);
            if replaced.values + replaced.others == 0 {
                return Err(error);
            }
            (read_text(&replaced.text)?, replaced.values, replaced.others)
        }
        read => (read?, 0, 0),
    };
    if let Some(first) = traces.first_mut() {
        first.ledger.gap(Stage::Decode, NOT_A_NUMBER, values);
        first.ledger.gap(Stage::Decode, REPAIRED, others + not_utf8);
    }
    Ok(traces)
}

fn read_text(text: &str) -> Result<Vec<Trace>, ImportError> {
    // Some writers fill the last block of a file with zeros.
    let text = text.trim_end_matches('\0');
    let mut reader = Reader::default();
    let mut json = serde_json::Deserializer::from_str(text);
    match Document(&mut reader).deserialize(&mut json) {
        // Two documents in one file are none: the second one is not read.
        Ok(()) if json.end().is_err() => reader.gap(NOT_UNDERSTOOD),
        Ok(()) => {}
        Err(_) if reader.too_many => {
            return Err(ImportError::TooLarge { most: EVENTS_MAX, what: "events of a trace" });
        }
        // A killed process leaves a file without an end, but with all that it had written.
        Err(error) if (error.is_eof() || is_at_end(text, &error)) && reader.events > 0 => {
            reader.gap(CUT_SHORT);
        }
        Err(error) => return Err(ImportError::damaged(Kind::Kineto, error.to_string())),
    }
    if !reader.found {
        return Err(ImportError::Unknown {
            because: "it is a JSON document without `traceEvents`".to_owned(),
        });
    }
    reader.join();
    Ok(reader.finish())
}

/// Whether the error is at the last byte of the text: a truncated number is invalid, not an early end. A list or an
/// object that ends is not truncated.
fn is_at_end(text: &str, error: &serde_json::Error) -> bool {
    let last_line = text.rsplit('\n').next().unwrap_or_default();
    let is_last = text.matches('\n').count() + 1 == error.line() && error.column() >= last_line.len();
    is_last && !last_line.ends_with([']', '}'])
}

#[derive(Default)]
struct Reader<'b> {
    ranks: Ranks<(String, String)>,
    /// Index of the rank of the current event.
    at: usize,
    found: bool,
    has_fraction: bool,
    base: Option<u64>,
    rank: RankInfo,
    /// Events read so far.
    events: usize,
    too_many: bool,
    pairs: Pairs<'b>,
    xla: XlaRows,
}

impl<'b> DocumentVisitor<'b> for Reader<'b> {
    fn event(&mut self, raw: RawEvent<'b>) -> Result<(), &'static str> {
        if self.events >= EVENTS_MAX {
            self.too_many = true;
            return Err("too many events");
        }
        let is_memory = || raw.name.as_ref().is_some_and(|name| name.0 == MEMORY);
        match raw.ph.as_ref().map(|text| &*text.0) {
            Some("X") => self.complete(&raw),
            Some("C") => self.counter(&raw),
            Some("i" | "I") if is_memory() => self.memory(&raw),
            Some("i" | "I" | "R") if is_of_thread(&raw) => self.mark(&raw),
            Some("B") => self.half(raw, true),
            Some("E") => self.half(raw, false),
            // Rows of one of our exports are described by its header, whatever they are called.
            Some("M") if !self.ranks.is_ours() => self.xla.describe(&raw),
            // Marks of everything; flows repeat correlation ids.
            Some("M" | "i" | "I" | "R" | "s" | "t" | "f" | "c") => {}
            // JAX ends its list with an empty event.
            Some("") | None if raw.name.is_none() && raw.ts.is_none() => {}
            Some("") | None => self.gap(NOT_UNDERSTOOD),
            Some(_) => self.gap(ON_NO_THREAD),
        }
        Ok(())
    }

    fn not_an_event(&mut self) {
        self.gap(NOT_UNDERSTOOD);
    }

    fn found(&mut self) {
        self.found = true;
    }

    fn base(&mut self, base: Option<u64>) {
        self.base = base;
    }

    fn is_kineto(&mut self) {
        self.ranks.rows().has_known_categories = true;
    }

    fn header(&mut self, header: EventHeader) {
        self.ranks.describe(header, |lane| (lane.pid.clone(), lane.tid.clone()));
    }

    fn distributed(&mut self, rank: Option<u64>, world_size: Option<u64>) {
        let number = |of: Option<u64>| u32::try_from(of?).ok();
        self.rank = RankInfo { rank: number(rank), world_size: number(world_size) };
    }

    fn process_groups(&mut self, list: &str) {
        self.ranks.rows().groups.list(list);
    }
}

/// The category of an event of a device.
const fn device_category(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Kernel => "kernel",
        DeviceKind::Copy => "gpu_memcpy",
        DeviceKind::Fill => "gpu_memset",
    }
}

/// Whether a mark is of a thread, and not of its process or of the whole trace.
fn is_of_thread(raw: &RawEvent<'_>) -> bool {
    raw.s.as_ref().is_none_or(|scope| scope.0 == "t")
}

impl<'b> Reader<'b> {
    fn rows(&mut self) -> &mut TraceRows {
        self.ranks.of(self.at)
    }

    fn gap(&mut self, reason: &'static Reason) {
        self.rows().gap(reason);
    }

    fn finish(self) -> Vec<Trace> {
        let (base, rank) = (self.base, self.rank);
        // Exports of this project also write whole nanoseconds as decimals.
        let resolution = if self.has_fraction { Nanos(1) } else { Nanos(1000) };
        self.ranks.finish(|trace| {
            leave_out_at_zero(trace);
            let first = trace.span().map_or(0, |(first, _)| first.as_nanos());
            let epoch_ns = base.or((first > SINCE_1970).then_some(0));
            trace.clock = ClockInfo { epoch_ns, resolution, ..ClockInfo::default() };
            trace.rank = rank;
        })
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
        let Ok(ns) = u64::try_from(ns - i128::from(self.ranks.shift(self.at))) else {
            self.gap(OUT_OF_RANGE);
            return None;
        };
        Some(TraceTime::from_nanos(ns))
    }

    fn duration(&mut self, micros: &str) -> Option<Duration> {
        match self.nanos(micros) {
            None => self.gap(NOT_UNDERSTOOD),
            Some(ns) if ns < 0 => self.gap(END_BEFORE_BEGIN),
            // Its writer subtracted from a missing end.
            Some(ns) if ns > i128::from(YEAR.0) => self.gap(TOO_LONG),
            Some(ns) => return Some(Nanos(ns as u64)),
        }
        None
    }

    /// Arguments of an event; none if their form is unknown.
    fn arguments(raw: Option<&RawValue>) -> Arguments<'_> {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }

    /// Finds the rank and owner of an event's row.
    fn row(&mut self, raw: &RawEvent<'_>) -> (String, String) {
        let row = (raw.pid.to_text(), raw.tid.to_text());
        let Some((rank, of)) = self.ranks.lane(&row) else {
            self.at = 0;
            return row;
        };
        let named = match of {
            LaneOwner::Thread { process, thread } => (process.clone(), thread.clone()),
            LaneOwner::Counters { counters_of } => (counters_of.clone(), row.1),
            LaneOwner::Stream { .. } | LaneOwner::Counter { .. } => row,
        };
        self.at = rank;
        named
    }

    fn complete(&mut self, raw: &RawEvent<'_>) {
        let category = raw.cat.as_ref().map_or("", |text| &*text.0);
        if category == "Trace" {
            return;
        }
        let (process, thread) = self.row(raw);
        let (Some(begin), Some(duration), Some(name)) = (raw.ts, raw.dur, &raw.name) else {
            return self.gap(NOT_UNDERSTOOD);
        };
        let (Some(begin), Some(duration)) = (self.time(begin.get()), self.duration(duration.get())) else {
            return;
        };
        if begin.as_nanos().checked_add(duration.0).is_none() {
            return self.gap(OUT_OF_RANGE);
        }
        self.add(raw, &name.0, &process, &thread, begin, duration);
    }

    /// A mark: a range without length.
    fn mark(&mut self, raw: &RawEvent<'_>) {
        let (process, thread) = self.row(raw);
        let (Some(at), Some(name)) = (raw.ts, &raw.name) else { return self.gap(NOT_UNDERSTOOD) };
        let Some(begin) = self.time(at.get()) else { return };
        self.add(raw, &name.0, &process, &thread, begin, Nanos(0));
    }

    fn add(
        &mut self,
        raw: &RawEvent<'_>,
        name: &str,
        process: &str,
        thread: &str,
        begin: TraceTime,
        duration: Nanos,
    ) {
        let arguments = Self::arguments(raw.args);
        let mut category = raw.cat.as_ref().map_or("", |text| &*text.0);
        let mut row = (raw.pid.number(), raw.tid.number());
        match self.xla.of(process, thread, name).filter(|_| category.is_empty()) {
            None => {}
            Some(XlaRow::Derived) => return,
            Some(XlaRow::OtherDevice) => return self.gap(ON_NO_THREAD),
            Some(XlaRow::Stream { device, stream, kind }) => {
                (category, row) = (device_category(kind), (Some(u64::from(device)), stream));
            }
            Some(XlaRow::Thread) => {
                let is_call = arguments.correlation.number().is_some() || Call::of(name) != Call::Other;
                category = if is_call { "gpu_api" } else { "" };
            }
        }
        self.events += 1;
        self.rows().complete(&TraceEvent {
            category,
            name,
            process,
            thread,
            is_of_thread: true,
            row,
            begin,
            duration,
            arguments: &arguments,
        });
    }

    /// A begin or an end, which are joined when all are there.
    fn half(&mut self, raw: RawEvent<'b>, begins: bool) {
        let row = self.row(&raw);
        let Some(at) = raw.ts else { return self.gap(NOT_UNDERSTOOD) };
        let Some(at) = self.time(at.get()) else { return };
        self.events += 1;
        let begins = begins.then(|| Begun {
            row: (raw.pid.number(), raw.tid.number()),
            category: raw.cat.map_or("".into(), |text| text.0),
            args: raw.args,
        });
        let name = raw.name.map_or("".into(), |text| text.0);
        self.pairs.push(row, Half { rank: self.at, at, name, begins });
    }

    fn join(&mut self) {
        for joined in std::mem::take(&mut self.pairs).join() {
            let (process, thread) = &joined.row;
            for pair in joined.pairs {
                let arguments = Self::arguments(pair.of.args);
                self.at = pair.rank;
                let duration = Nanos(pair.end.as_nanos() - pair.begin.as_nanos());
                if duration > YEAR {
                    self.gap(TOO_LONG);
                    continue;
                }
                self.rows().complete(&TraceEvent {
                    category: &pair.of.category,
                    name: &pair.name,
                    process,
                    thread,
                    is_of_thread: true,
                    row: pair.of.row,
                    begin: pair.begin,
                    duration,
                    arguments: &arguments,
                });
            }
            self.rows().gaps(NO_END, joined.without_end);
            self.rows().gaps(END_WITHOUT_BEGIN, joined.without_begin);
        }
    }

    fn memory(&mut self, raw: &RawEvent<'_>) {
        let (process, thread) = self.row(raw);
        let Some(at) = raw.ts else { return self.gap(NOT_UNDERSTOOD) };
        let Some(at) = self.time(at.get()) else { return };
        let arguments = Self::arguments(raw.args);
        self.events += 1;
        let thread = self.rows().trace.thread(&process, &thread);
        self.rows().memory(thread, at, &arguments);
    }

    /// A step of each of a counter's values. A deepctx-bpf profile's sums over time are not events.
    fn counter(&mut self, raw: &RawEvent<'_>) {
        if self.ranks.is_ours() && raw.cat.as_ref().is_some_and(|category| category.0 == SUMS) {
            return;
        }
        let (process, _) = self.row(raw);
        let (Some(at), Some(name), Some(values)) = (raw.ts, &raw.name, raw.args) else {
            return self.gap(NOT_UNDERSTOOD);
        };
        let Some(at) = self.time(at.get()) else { return };
        let Ok(values) = serde_json::from_str::<event::CounterValues<'_>>(values.get()) else {
            return self.gap(NOT_UNDERSTOOD);
        };
        for (series, value) in values.numbers {
            self.events += 1;
            self.rows().counter(&process, &name.0, &series, at, value);
        }
        self.rows().gaps(NOT_UNDERSTOOD, values.left_out);
    }
}
