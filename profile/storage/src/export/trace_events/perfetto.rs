//! Single events as a Perfetto trace: slices on tracks, with flows.
//!
//! Owns: [`write`], and the assignment of slices to tracks. Because: slices of a track must nest, but overlapping
//! calls or work on a stream do not: slices that do not nest go to another track of the same row. Does not: name
//! events; [`arguments`](super::arguments) does.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use deepctx_profile::trace::{CounterUnit, TraceTime};

use super::rows::Row;
use super::{Argument, DrawnEvent, EventId, Events, sums_by_time};
use crate::event_header::{HEADER, HEADER_EVENT, LaneHeader, LaneOwner};
use crate::export::Source;
use crate::export::packets::Packets;
use crate::proto::perfetto::{
    COUNTER, CounterDescriptor, DebugAnnotation, INCREMENTAL_STATE_CLEARED, InternedData,
    NEEDS_INCREMENTAL_STATE, Name, ProcessDescriptor, SLICE_BEGIN, SLICE_END, SLICE_INSTANT,
    ThreadDescriptor, TracePacket, TrackDescriptor, TrackEvent,
};

/// Writes the trace.
///
/// # Errors
/// Writing to `out` failed, or `InvalidData` for a time beyond the end of the format's clock.
pub(super) fn write(source: &Source<'_>, events: &Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let next_track = events.rows.rows.len() as u64 + 1;
    let mut writer = Writer {
        events,
        packets: Packets::new(out),
        names: Default::default(),
        next_track,
        processes: BTreeMap::new(),
        counters: Vec::new(),
    };
    writer.packets.put(TracePacket {
        timestamp: Some(0),
        sequence_flags: Some(INCREMENTAL_STATE_CLEARED),
        ..TracePacket::default()
    })?;
    writer.tracks()?;
    writer.number_counters();
    writer.header()?;
    for rank in 0..events.sides.len() {
        writer.rank(rank)?;
    }
    writer.rank_counters()?;
    writer.profile_counters(source)?;
    writer.packets.finish()
}

struct Writer<'a, 'j> {
    events: &'a Events<'j>,
    packets: Packets<'a>,
    /// Ids of categories, event names and argument names.
    names: [FxHashMap<&'a str, u64>; 3],
    next_track: u64,
    /// Tracks of processes and devices, by rank and name.
    processes: BTreeMap<(usize, &'a str), u64>,
    counters: Vec<LaneHeader>,
}

/// Indices of tables of names.
const CATEGORIES: usize = 0;
const EVENTS: usize = 1;
const ARGUMENTS: usize = 2;

/// The tracks of a row, each with the ends of its open slices.
#[derive(Default)]
struct RowTracks(Vec<(u64, Vec<i128>)>);

impl<'a> Writer<'a, '_> {
    fn new_track(&mut self) -> u64 {
        self.next_track += 1;
        self.next_track - 1
    }

    fn track(&mut self, track: TrackDescriptor) -> io::Result<()> {
        self.packets.put(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })
    }

    /// A track for each row, below its process or device.
    fn tracks(&mut self) -> io::Result<()> {
        let events = self.events;
        for row in &events.rows.rows {
            let header = &row.header;
            let is_thread = matches!(header.of, LaneOwner::Thread { .. });
            let pid = header.pid.parse::<i32>().ok().filter(|pid| is_thread && *pid > 0);
            let parent = match self.process_track(row) {
                Some(uuid) => uuid,
                None => {
                    let uuid = self.new_track();
                    self.processes.insert((header.rank, &row.process_name), uuid);
                    let process_name = row.process_name.clone();
                    let process = pid.map(|pid| ProcessDescriptor { pid, process_name });
                    let name = Some(row.process_name.clone());
                    self.track(TrackDescriptor { uuid, name, process, ..TrackDescriptor::default() })?;
                    uuid
                }
            };
            let tid = header.tid.parse::<i64>().ok().filter(|tid| *tid > 0);
            let thread_name = row.name.clone();
            self.track(TrackDescriptor {
                uuid: header.uuid,
                name: Some(row.name.clone()),
                parent_uuid: Some(parent),
                thread: pid.zip(tid).map(|(pid, tid)| ThreadDescriptor { pid, tid, thread_name }),
                ..TrackDescriptor::default()
            })?;
        }
        Ok(())
    }

    /// The track of a row's process or device, if there is one yet.
    fn process_track(&self, row: &Row) -> Option<u64> {
        self.processes.get(&(row.header.rank, row.process_name.as_str())).copied()
    }

    /// Assigns numbers to counter tracks.
    fn number_counters(&mut self) {
        let mut known = FxHashMap::default();
        for (rank, side) in self.events.sides.iter().enumerate() {
            let trace = &side.of.trace;
            for (_, step) in trace.counters.iter() {
                if known.insert((rank, step.process, step.name, step.series), ()).is_some() {
                    continue;
                }
                let [process, counter, series] =
                    [step.process, step.name, step.series].map(|name| trace.name(name).to_owned());
                let uuid = self.new_track();
                let of = LaneOwner::Counter { process, counter, series };
                self.counters.push(LaneHeader { pid: String::new(), tid: String::new(), uuid, rank, of });
            }
        }
    }

    /// The event that describes the tracks.
    fn header(&mut self) -> io::Result<()> {
        let mut header = self.events.header.clone();
        header.lanes.extend_from_slice(&self.counters);
        let uuid = self.new_track();
        let name = Some(HEADER_EVENT.to_owned());
        self.track(TrackDescriptor { uuid, name: name.clone(), ..TrackDescriptor::default() })?;
        let annotation = DebugAnnotation {
            name: Some(HEADER.to_owned()),
            string_value: Some(serde_json::to_string(&header)?),
            ..DebugAnnotation::default()
        };
        let event = TrackEvent {
            kind: SLICE_INSTANT,
            categories: vec![HEADER.to_owned()],
            name,
            track_uuid: Some(uuid),
            debug_annotations: vec![annotation],
            ..TrackEvent::default()
        };
        self.event(0, event, InternedData::default())
    }

    /// The events of a rank, row by row.
    fn rank(&mut self, rank: usize) -> io::Result<()> {
        let events = self.events;
        let place = |id: EventId| {
            let event = events.drawn(rank, id)?;
            let end = i128::from(event.begin.as_nanos()) + i128::from(event.duration.map_or(0, |of| of.0));
            Some((event.row, event.begin, Reverse(end), id))
        };
        let mut order: Vec<_> = events.ids(rank).filter_map(place).collect();
        order.sort_by_key(|(row, begin, end, _)| (*row, *begin, *end));
        let mut tracks = RowTracks::default();
        let mut row = None;
        for (of, _, Reverse(end), id) in order {
            if row.replace(of) != Some(of) {
                self.close(rank, &mut tracks, i128::MAX)?;
                tracks = RowTracks(vec![(events.rows.rows[of].header.uuid, Vec::new())]);
            }
            let Some(event) = events.drawn(rank, id) else { continue };
            self.slice(rank, &mut tracks, &event, end)?;
        }
        self.close(rank, &mut tracks, i128::MAX)
    }

    fn slice(
        &mut self,
        rank: usize,
        tracks: &mut RowTracks,
        event: &DrawnEvent<'a>,
        end: i128,
    ) -> io::Result<()> {
        self.close(rank, tracks, i128::from(event.begin.as_nanos()))?;
        let first = tracks.0.first().map_or(0, |(uuid, _)| *uuid);
        if event.duration.is_none() {
            return self.drawn(rank, first, SLICE_INSTANT, event);
        }
        let nests = |(_, open): &(u64, Vec<i128>)| open.last().is_none_or(|last| *last >= end);
        let place = match tracks.0.iter().position(nests) {
            Some(place) => place,
            None => {
                let uuid = self.new_track();
                let name = Some(self.events.rows.rows[event.row].name.clone());
                self.track(TrackDescriptor {
                    uuid,
                    name,
                    parent_uuid: Some(first),
                    ..TrackDescriptor::default()
                })?;
                tracks.0.push((uuid, Vec::new()));
                tracks.0.len() - 1
            }
        };
        let (uuid, open) = &mut tracks.0[place];
        open.push(end);
        let uuid = *uuid;
        self.drawn(rank, uuid, SLICE_BEGIN, event)
    }

    /// Ends finished slices.
    fn close(&mut self, rank: usize, tracks: &mut RowTracks, until: i128) -> io::Result<()> {
        for (uuid, open) in &mut tracks.0 {
            while let Some(end) = open.pop_if(|end| *end <= until) {
                let end = end + i128::from(self.events.shift(rank));
                let event = TrackEvent { kind: SLICE_END, track_uuid: Some(*uuid), ..TrackEvent::default() };
                self.event(end, event, InternedData::default())?;
            }
        }
        Ok(())
    }

    fn drawn(&mut self, rank: usize, track: u64, kind: i32, event: &DrawnEvent<'a>) -> io::Result<()> {
        let mut new = InternedData::default();
        let mut category_iids = Vec::new();
        if !event.category.is_empty() {
            category_iids.push(self.name(CATEGORIES, event.category, &mut new));
        }
        let name_iid = self.name(EVENTS, event.name, &mut new);
        let mut debug_annotations = Vec::with_capacity(event.arguments.len());
        for (name, argument) in &event.arguments {
            let mut annotation = DebugAnnotation {
                name_iid: self.name(ARGUMENTS, name, &mut new),
                ..DebugAnnotation::default()
            };
            match argument {
                Argument::Number(number) => annotation.uint_value = Some(*number),
                Argument::Signed(number) => annotation.int_value = Some(*number),
                Argument::Text(text) => annotation.string_value = Some(text.clone().into_owned()),
            }
            debug_annotations.push(annotation);
        }
        let at = self.events.at(rank, event.begin);
        let event = TrackEvent {
            category_iids,
            debug_annotations,
            kind,
            name_iid: Some(name_iid),
            track_uuid: Some(track),
            flow_ids: event.flows_out.clone(),
            terminating_flow_ids: event.flow_in.into_iter().collect(),
            ..TrackEvent::default()
        };
        self.event(at, event, new)
    }

    /// The number of a name; a new one is added to the packet's data.
    fn name(&mut self, table: usize, name: &'a str, new: &mut InternedData) -> u64 {
        let next = self.names[table].len() as u64 + 1;
        let iid = *self.names[table].entry(name).or_insert(next);
        if iid == next {
            let rows = match table {
                CATEGORIES => &mut new.event_categories,
                EVENTS => &mut new.event_names,
                _ => &mut new.debug_annotation_names,
            };
            rows.push(Name { iid, name: name.to_owned() });
        }
        iid
    }

    fn event(&mut self, at: i128, event: TrackEvent, new: InternedData) -> io::Result<()> {
        let timestamp = u64::try_from(at).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "a time is beyond the end of the format's clock")
        })?;
        self.packets.put(TracePacket {
            timestamp: Some(timestamp),
            track_event: Some(event),
            interned_data: (new != InternedData::default()).then_some(new),
            sequence_flags: Some(NEEDS_INCREMENTAL_STATE),
            ..TracePacket::default()
        })
    }

    /// Adds the track of a counter, below the process of `row`: below the row itself, a sum would be read as events.
    fn counter_track(
        &mut self,
        uuid: u64,
        name: String,
        unit: Option<CounterUnit>,
        row: Option<&Row>,
    ) -> io::Result<()> {
        let unit_name = unit.map(|unit| unit.name().to_owned());
        let counter = Some(CounterDescriptor { unit_name, ..CounterDescriptor::default() });
        let parent_uuid = row.and_then(|row| self.process_track(row));
        self.track(TrackDescriptor {
            uuid,
            name: Some(name),
            parent_uuid,
            counter,
            ..TrackDescriptor::default()
        })
    }

    fn counter(&mut self, uuid: u64, at: i128, value: f64) -> io::Result<()> {
        let event = TrackEvent {
            kind: COUNTER,
            track_uuid: Some(uuid),
            double_counter_value: Some(value),
            ..TrackEvent::default()
        };
        self.event(at, event, InternedData::default())
    }

    fn rank_counters(&mut self) -> io::Result<()> {
        let events = self.events;
        let mut tracks = FxHashMap::default();
        for lane in std::mem::take(&mut self.counters) {
            let LaneOwner::Counter { process, counter, series } = lane.of else { continue };
            let unit = CounterUnit::of_series(&series);
            let row = events.rows.rows.get(events.rows.counters(lane.rank, &process));
            self.counter_track(lane.uuid, format!("{counter} {series}"), unit, row)?;
            tracks.insert((lane.rank, process, counter, series), lane.uuid);
        }
        for (rank, side) in events.sides.iter().enumerate() {
            let trace = &side.of.trace;
            for (_, step) in trace.counters.iter() {
                let [process, counter, series] =
                    [step.process, step.name, step.series].map(|name| trace.name(name).to_owned());
                let uuid = tracks.get(&(rank, process, counter, series)).copied().unwrap_or(0);
                self.counter(uuid, events.at(rank, step.at), step.value.get())?;
            }
        }
        Ok(())
    }

    fn profile_counters(&mut self, source: &Source<'_>) -> io::Result<()> {
        let events = self.events;
        for counter in sums_by_time(source, events) {
            let uuid = self.new_track();
            self.counter_track(uuid, counter.name, None, events.rows.of_process(counter.pid))?;
            for (at, value) in counter.steps {
                self.counter(uuid, events.at(0, TraceTime::from_nanos(at)), value)?;
            }
        }
        Ok(())
    }
}
