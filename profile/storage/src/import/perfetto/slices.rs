//! Slices: begins and ends of a track, to events with a length.
//!
//! Owns: [`add`]. Because: an end belongs to the innermost slice of its track that is open, in the order of times, and
//! packets stand in the order in which they were written. Does not: walk packets.

use std::borrow::Cow;

use prost::Message as _;

use deepctx_profile::trace::{Trace, TraceTime};
use deepctx_profile::units::Nanos;

use super::processes::{Processes, TraceOfTrack};
use super::rocprof::{self, RocprofEvent};
use super::sequences::{NameTable, Sequences};
use super::tracks::TrackPlace;
use super::{EventType, FoundEvent, Reader};
use crate::event_header::LaneOwner;
use crate::import::arguments::{Arguments, NumberOrText};
use crate::import::trace_rows::{MEMORY, TraceEvent};
use crate::import::{
    END_BEFORE_BEGIN, END_WITHOUT_BEGIN, NO_END, NO_PROCESS, NOT_UNDERSTOOD, OUT_OF_RANGE, TOO_LONG,
    TOO_MANY_PROCESSES, YEAR,
};
use crate::proto::perfetto::TrackEvent;

/// Adds every event to the trace of its rank, or of its process. Returns the traces, with process ids if there are
/// several.
pub(super) fn add(mut reader: Reader<'_>) -> Vec<(Option<u32>, Trace)> {
    if reader.is_of_rocprof && !reader.ranks.is_ours() {
        let processes = Processes::of(&reader.tracks);
        reader.ranks.split(processes.count());
        reader.processes = Some(processes);
    }
    let mut events = std::mem::take(&mut reader.events);
    events.sort_unstable_by_key(|event| (event.track, event.at, event.order));
    for of_track in events.chunk_by(|a, b| a.track == b.track) {
        match Lane::of(&reader, of_track[0].track) {
            Some(lane) => add_track(&mut reader, &lane, of_track),
            None => {
                let left_out = of_track.iter().filter(|event| event.kind != EventType::End);
                reader.ranks.rows().gaps(TOO_MANY_PROCESSES, left_out.count());
            }
        }
    }
    reader.count_unknown();
    reader.finish()
}

/// The owner of a track.
struct Lane {
    rank: usize,
    /// Whether it is known whose the ids of its events are.
    has_process: bool,
    place: TrackPlace,
    counter: Option<CounterLane>,
    /// A deepctx-bpf profile's sum over time, which is not an event.
    is_sum: bool,
}

/// A track of a counter.
struct CounterLane {
    name: String,
    series: String,
    unit: f64,
    is_incremental: bool,
}

impl Lane {
    /// The owner of a track; `None` if its process is left out.
    fn of(reader: &Reader<'_>, track: u32) -> Option<Self> {
        let uuid = reader.tracks.uuid(track);
        let place = reader.tracks.place(uuid);
        let described = reader.tracks.descriptor(uuid).and_then(|of| of.counter.as_ref());
        let unit = described.map_or(1, |of| of.unit_multiplier.max(1)) as f64;
        let is_incremental = described.is_some_and(|of| of.is_incremental);
        let counter = |name: String, series: String| Some(CounterLane { name, series, unit, is_incremental });
        let found = reader.tracks.upwards(uuid).find_map(|(uuid, _)| reader.ranks.lane(&uuid));
        let lane = |rank, place, counter| Lane { rank, has_process: true, place, counter, is_sum: false };
        Some(match found {
            Some((rank, LaneOwner::Thread { process, thread })) => {
                let place = TrackPlace {
                    process: process.clone(),
                    thread: thread.clone(),
                    is_of_thread: true,
                    ..place
                };
                lane(rank, place, None)
            }
            Some((rank, LaneOwner::Counter { process, counter: name, series })) => {
                let place = TrackPlace { process: process.clone(), ..place };
                lane(rank, place, counter(name.clone(), series.clone()))
            }
            Some((rank, LaneOwner::Stream { .. } | LaneOwner::Counters { .. })) => lane(rank, place, None),
            None => {
                let (rank, has_process) = process_of(reader, uuid)?;
                let counter = counter(place.name.clone(), "value".to_owned());
                let is_sum = reader.ranks.is_ours() && described.is_some();
                Lane { has_process, is_sum, ..lane(rank, place, counter) }
            }
        })
    }
}

/// The trace of a track that no header describes, and whether its process is known; `None` if it is left out.
fn process_of(reader: &Reader<'_>, uuid: u64) -> Option<(usize, bool)> {
    let Some(processes) = &reader.processes else { return Some((0, true)) };
    match processes.trace_of(&reader.tracks, uuid) {
        TraceOfTrack::Trace(place) => Some((place, true)),
        TraceOfTrack::Unknown => Some((0, false)),
        TraceOfTrack::LeftOut => None,
    }
}

/// Adds the events of a track in the order of their begins: of two slices with the same begin and end, the first one
/// encloses the other.
fn add_track(reader: &mut Reader<'_>, lane: &Lane, events: &[FoundEvent]) {
    let ends = ends(reader, events);
    let mut level = 0.0;
    for (event, end) in events.iter().zip(ends) {
        match event.kind {
            EventType::Begin if end.is_some() => slice(reader, lane, event, end),
            EventType::Begin => reader.gap(NO_END),
            EventType::End => {}
            EventType::Instant => slice(reader, lane, event, None),
            EventType::Complete => complete(reader, lane, event),
            EventType::Counter if lane.is_sum => {}
            EventType::Counter => counter(reader, lane, event, &mut level),
        }
    }
}

/// The end of each begin.
fn ends(reader: &mut Reader<'_>, events: &[FoundEvent]) -> Vec<Option<u64>> {
    let (mut ends, mut open) = (vec![None; events.len()], Vec::new());
    for (number, event) in events.iter().enumerate() {
        match event.kind {
            EventType::Begin => open.push(number),
            EventType::End => match open.pop() {
                Some(begin) => ends[begin] = Some(event.at),
                None => reader.gap(END_WITHOUT_BEGIN),
            },
            _ => {}
        }
    }
    ends
}

/// The message of an event.
fn decoded(reader: &Reader<'_>, event: &FoundEvent) -> Option<TrackEvent> {
    let bytes = reader.buffers.get(event.buffer as usize)?.bytes();
    let from = event.from as usize;
    TrackEvent::decode(bytes.get(from..from + event.length as usize)?).ok()
}

/// Converts a time of the file to a rank's clock.
fn time(reader: &mut Reader<'_>, rank: usize, at: u64) -> Option<TraceTime> {
    let time = at.checked_sub(reader.ranks.shift(rank)).map(TraceTime::from_nanos);
    if time.is_none() {
        reader.gap(OUT_OF_RANGE);
    }
    time
}

/// Adds a slice of the older form, which includes its length.
fn complete(reader: &mut Reader<'_>, lane: &Lane, event: &FoundEvent) {
    let length = decoded(reader, event).and_then(|of| of.legacy_event).map_or(0, |of| of.duration_us);
    match u64::try_from(length).ok().and_then(|us| us.checked_mul(1000)?.checked_add(event.at)) {
        Some(end) => slice(reader, lane, event, Some(end)),
        None => reader.gap(END_BEFORE_BEGIN),
    }
}

/// A slice, or a moment if it has no end.
fn slice(reader: &mut Reader<'_>, lane: &Lane, begin: &FoundEvent, end: Option<u64>) {
    let Some(event) = decoded(reader, begin) else { return reader.gap(NOT_UNDERSTOOD) };
    let Some(at) = time(reader, lane.rank, begin.at) else { return };
    let names = EventNames { sequences: &reader.sequences, state: begin.state };
    let mut arguments = names.arguments(&event);
    let name = names.of(NameTable::Event, event.name.as_deref(), event.name_iid.unwrap_or(0)).to_owned();
    let category = names.of(
        NameTable::Category,
        event.categories.first().map(String::as_str),
        event.category_iids.first().copied().unwrap_or(0),
    );
    let category = category.to_owned();
    // Ours keep the categories of others.
    let is_ours = reader.ranks.is_ours();
    let rows = reader.ranks.of(lane.rank);
    let TrackPlace { process, thread, is_of_thread, name: track } = &lane.place;
    if end.is_none() && name == MEMORY {
        let thread = rows.trace.thread(process, thread);
        return rows.memory(thread, at, &arguments);
    }
    let of_rocprof = rocprof::event(&category, &arguments, track).filter(|_| !is_ours);
    // A mark is a range without length.
    let to_end = end.map_or(0, |end| end.saturating_sub(begin.at));
    let stated = arguments.length.number().filter(|_| of_rocprof.is_some());
    let duration = Nanos(stated.unwrap_or(to_end));
    if duration > YEAR {
        return rows.gap(TOO_LONG);
    }
    let is_joined = of_rocprof.as_ref().is_some_and(RocprofEvent::is_joined);
    if is_joined && !lane.has_process && arguments.correlation.number().is_some_and(|id| id != 0) {
        arguments.correlation = NumberOrText::Other;
        rows.gap(NO_PROCESS);
    }
    let (category, row) = of_rocprof.as_ref().map_or((&*category, (None, None)), |of| (of.category, of.row));
    rows.complete(&TraceEvent {
        category,
        name: &name,
        process,
        thread,
        is_of_thread: *is_of_thread || of_rocprof.is_some(),
        row,
        begin: at,
        duration,
        arguments: &arguments,
    });
}

fn counter(reader: &mut Reader<'_>, lane: &Lane, event: &FoundEvent, level: &mut f64) {
    let value = decoded(reader, event).and_then(|of| {
        let whole = of.counter_value.map(|value| value as f64);
        of.double_counter_value.or(whole)
    });
    let (Some(counter), Some(value)) = (&lane.counter, value.filter(|value| value.is_finite())) else {
        return reader.gap(NOT_UNDERSTOOD);
    };
    let value = value * counter.unit;
    *level = if counter.is_incremental { *level + value } else { value };
    let Some(at) = time(reader, lane.rank, event.at) else { return };
    let rows = reader.ranks.of(lane.rank);
    rows.counter(&lane.place.process, &counter.name, &counter.series, at, *level);
}

/// The names that an event may refer to.
struct EventNames<'s> {
    sequences: &'s Sequences,
    state: u32,
}

impl EventNames<'_> {
    /// A name given as text, or by its number.
    fn of<'e>(&'e self, table: NameTable, own: Option<&'e str>, iid: u64) -> &'e str {
        let named = || self.sequences.name(self.state, table, iid);
        own.or_else(named).unwrap_or("")
    }

    /// The known arguments.
    fn arguments(&self, event: &TrackEvent) -> Arguments<'static> {
        let mut arguments = Arguments::default();
        for annotation in &event.debug_annotations {
            let name = self.of(NameTable::Argument, annotation.name.as_deref(), annotation.name_iid);
            let Some(field) = arguments.field(name) else { continue };
            let interned = annotation.string_value_iid;
            let word = annotation.string_value.as_deref();
            let word = word.or_else(|| self.sequences.name(self.state, NameTable::Value, interned?));
            let signed = |number: i64| {
                u64::try_from(number).map_or(NumberOrText::Negative(number), NumberOrText::Number)
            };
            *field = match (annotation.uint_value, annotation.int_value, word) {
                (Some(number), ..) => NumberOrText::Number(number),
                (_, Some(number), _) => signed(number),
                (.., Some(word)) => NumberOrText::Word(Cow::Owned(word.to_owned())),
                _ => NumberOrText::Other,
            };
        }
        arguments
    }
}
