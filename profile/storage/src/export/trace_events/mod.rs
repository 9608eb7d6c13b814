//! Single events of traces, each at its time, as the formats that have a time axis draw them.
//!
//! Owns: [`Events`], the rows of a file, and what each event of a trace is called there. Because: Chrome's form and
//! Perfetto's carry the same events with the same arguments, and what is read back must be what was written. Does not:
//! write a format; the files in this folder do.
//!
//! Facts for which the formats have no argument are in arguments of our own (`deepctx kind`, `result code`,
//! `launched by`, `wake-ups`, `wait_on_device`) and in the [header](crate::event_header). The calling contexts of
//! events refer to a profile, which the file does not contain: they are left out and counted.

mod arguments;
mod chrome;
mod perfetto;
mod rows;
#[cfg(test)]
#[cfg(feature = "import")]
mod tests;

use std::io::{self, Write};

use deepctx_common::reasons;
use deepctx_profile::intern::{Id, StrId};
use deepctx_profile::ledger::Stage;
use deepctx_profile::trace::{CollectiveNote, CommunicatorGroup, DeviceOp, DeviceRange, GroupRanks};
use deepctx_profile::trace::{
    CollectiveNotes, Duration, HostCategory, HostOp, Job, MemoryEvent, RankTrace, Sync, TraceTime,
    WakeUpEvent, counter_process,
};
use deepctx_profile::tree::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};

use self::rows::Rows;
use super::counters::{Counter, counters};
use super::{Format, Source};
use crate::event_header::{EventHeader, LossHeader, RankHeader};

reasons! {
    class Gap, page "traces.md";
    const CONTEXT_NOT_EXPORTED = "context-not-exported",
        "events have a calling context, which trace formats have no place for",
        helps "a deepctx-bpf profile (`--format dctx`), which has both";
    const NOTE_NOT_EXPORTED = "note-not-exported",
        "work has several notes about collectives, of which trace formats hold one";
    const EDGE_NOT_EXPORTED = "edge-not-exported",
        "edges are between nodes of graphs, which trace formats have no place for";
    const STREAM_NOT_EXPORTED = "stream-not-exported",
        "streams have the number that trace formats use for none";
}

/// Maximum ranks of a list in an event, as in PyTorch's traces.
const RANKS_MAX: usize = 30;

/// The events of a job, for export.
pub struct Events<'j> {
    job: &'j Job,
    sides: Vec<SideTables<'j>>,
    rows: Rows,
    header: EventHeader,
}

/// Rows of other tables about events.
struct SideTables<'j> {
    of: &'j RankTrace,
    wake_ups: FxHashMap<Id<HostOp>, Vec<WakeUpEvent>>,
    categories: FxHashMap<Id<HostOp>, HostCategory>,
    collectives: FxHashMap<Id<DeviceOp>, CollectiveNote>,
    /// Ranks of communicators, as text of a list. The header has long ones.
    ranks: FxHashMap<StrId, String>,
    /// Work launched by each call.
    launched: FxHashMap<Id<HostOp>, Vec<u32>>,
}

/// One event of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventId {
    Host(Id<HostOp>),
    Device(Id<DeviceOp>),
    Sync(Id<Sync>),
    Range(Id<DeviceRange>),
    Memory(Id<MemoryEvent>),
}

/// One event in drawable form.
struct DrawnEvent<'e> {
    /// Index of its row.
    row: usize,
    category: &'e str,
    name: &'e str,
    begin: TraceTime,
    /// `None` for an instant.
    duration: Option<Duration>,
    arguments: Vec<(&'static str, Argument<'e>)>,
    /// Arrows that start here.
    flows_out: Vec<u64>,
    /// The arrow that ends here.
    flow_in: Option<u64>,
}

/// The value of an argument.
enum Argument<'e> {
    Number(u64),
    Signed(i64),
    Text(std::borrow::Cow<'e, str>),
}

impl<'j> Events<'j> {
    /// The events of a job. `offset_ns`: how far the clock of a rank is ahead.
    pub fn of(job: &'j Job, offset_ns: impl Fn(u32) -> i64) -> Self {
        let sides: Vec<_> = job.ranks().iter().map(SideTables::of).collect();
        let shifts = shifts(job, offset_ns);
        let mut header = EventHeader::default();
        for (of, shift) in job.ranks().iter().zip(shifts) {
            let mut rank = RankHeader::of(&of.trace, shift);
            rank.losses.extend(left_out(of));
            header.ranks.push(rank);
        }
        let rows = Rows::of(job);
        header.lanes = rows.headers();
        Events { job, sides, rows, header }
    }

    /// Content without a place in the formats: how much, and why.
    pub fn left_out(&self) -> impl Iterator<Item = (u64, &str, &str)> {
        let own = [CONTEXT_NOT_EXPORTED, NOTE_NOT_EXPORTED, EDGE_NOT_EXPORTED, STREAM_NOT_EXPORTED];
        let own = own.map(|reason| reason.key);
        let losses = self.header.ranks.iter().flat_map(|rank| &rank.losses);
        let losses = losses.filter(move |loss| own.contains(&loss.key.as_str()));
        losses.map(|loss| (loss.count, loss.key.as_str(), loss.sentence.as_str()))
    }

    /// The events of a rank, in table order.
    fn ids(&self, rank: usize) -> impl Iterator<Item = EventId> + '_ {
        let trace = &self.job.ranks()[rank].trace;
        let host = trace.host.iter().map(|(id, _)| EventId::Host(id));
        let device = trace.device.iter().map(|(id, _)| EventId::Device(id));
        let syncs = trace.syncs.iter().map(|(id, _)| EventId::Sync(id));
        let ranges = trace.device_ranges.iter().map(|(id, _)| EventId::Range(id));
        let memory = trace.memory.iter().map(|(id, _)| EventId::Memory(id));
        host.chain(device).chain(syncs).chain(ranges).chain(memory)
    }

    fn shift(&self, rank: usize) -> u64 {
        self.header.ranks.get(rank).map_or(0, |of| of.shift_ns)
    }

    /// Converts a time to the clock of the file.
    fn at(&self, rank: usize, time: TraceTime) -> i128 {
        i128::from(time.as_nanos()) + i128::from(self.shift(rank))
    }
}

/// The profile's sums over time, except those that the events have as counters.
fn sums_by_time(source: &Source<'_>, events: &Events<'_>) -> Vec<Counter> {
    let mut known: FxHashSet<(&str, &str)> = FxHashSet::default();
    for of in events.job.ranks() {
        let trace = &of.trace;
        known
            .extend(trace.counters.iter().map(|(_, step)| (trace.name(step.process), trace.name(step.name))));
    }
    let mut all = counters(source);
    all.retain(|counter| !known.contains(&(&*counter_process(counter.pid), counter.name.as_str())));
    all
}

impl Format {
    /// Whether it can hold single events at their times.
    pub const fn has_events(self) -> bool {
        matches!(self, Format::Chrome | Format::Perfetto)
    }

    /// Writes single events in place of sums by calling context. `source` adds facts about the capture.
    ///
    /// # Errors
    /// Those of `out`, and `InvalidData` if the format cannot hold them.
    pub fn write_events(
        self,
        source: &Source<'_>,
        events: &Events<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self {
            Format::Chrome => chrome::write(source, events, out),
            Format::Perfetto => perfetto::write(source, events, out),
            other => {
                Err(io::Error::new(io::ErrorKind::InvalidData, format!("{other} has no events in time")))
            }
        }
    }
}

impl<'j> SideTables<'j> {
    fn of(of: &'j RankTrace) -> Self {
        let trace = &of.trace;
        let mut wake_ups: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for (_, event) in trace.wake_ups.iter() {
            wake_ups.entry(event.ends).or_default().push(event);
        }
        let mut launched: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for (id, _) in trace.device.iter() {
            if let Some(call) = of.links.launch(id).call() {
                launched.entry(call).or_default().push(id.number());
            }
        }
        let mut collectives = FxHashMap::default();
        for (_, note) in trace.collectives.iter() {
            collectives.entry(note.op).or_insert(note);
        }
        let categories = trace.categories.iter().map(|(_, of)| (of.op, of)).collect();
        let short = |group: CommunicatorGroup| {
            let ranks = GroupRanks::from_text(trace.name(group.ranks))?;
            (ranks.count() <= RANKS_MAX).then(|| (group.communicator, ranks.list()))
        };
        let ranks = trace.communicator_groups.iter().filter_map(|(_, group)| short(group)).collect();
        SideTables { of, wake_ups, categories, collectives, ranks, launched }
    }
}

/// Shift of each rank's times, so that all of them are on one clock and none is below zero. Zero if clocks are so far
/// apart that a time would not fit.
fn shifts(job: &Job, offset_ns: impl Fn(u32) -> i64) -> Vec<u64> {
    let zero =
        |of: &RankTrace| i128::from(of.trace.clock.epoch_ns.unwrap_or(0)) - i128::from(offset_ns(of.rank));
    let first = job.ranks().iter().map(zero).min().unwrap_or(0);
    let shift = |of: &RankTrace| {
        let shift = u64::try_from(zero(of) - first).ok()?;
        let last = of.span.map_or(0, |(_, last)| last.as_nanos());
        last.checked_add(shift)?.checked_add(1 << 62).map(|_| shift)
    };
    let all: Option<Vec<u64>> = job.ranks().iter().map(shift).collect();
    all.unwrap_or_else(|| vec![0; job.ranks().len()])
}

/// Content of a rank without a place in the formats.
fn left_out(of: &RankTrace) -> Vec<LossHeader> {
    let trace = &of.trace;
    let contexts = trace.host.iter().filter(|(_, op)| op.context != NodeId::ROOT).count();
    let notes = CollectiveNotes::len(&trace.collectives) - SideTables::of(of).collectives.len();
    let is_none = |stream: Option<u64>| stream == Some(u64::from(u32::MAX));
    let streams = trace.streams().iter().filter(|of| is_none(of.stream)).count();
    let reasons = [
        (CONTEXT_NOT_EXPORTED, contexts),
        (NOTE_NOT_EXPORTED, notes),
        (EDGE_NOT_EXPORTED, trace.graph_edges.len()),
        (STREAM_NOT_EXPORTED, streams),
    ];
    let counted = reasons.into_iter().filter(|(_, count)| *count > 0);
    counted
        .map(|(reason, count)| LossHeader {
            stage: Stage::Store.name().to_owned(),
            dropped: false,
            key: reason.key.to_owned(),
            sentence: reason.sentence.to_owned(),
            count: count as u64,
        })
        .collect()
}
