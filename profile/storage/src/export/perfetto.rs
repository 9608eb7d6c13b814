//! Perfetto: the protobuf trace that its page and its trace processor read.
//!
//! Owns: [`write()`]. Because: it is a fifth of the size of the JSON form, and can be queried with SQL. Does not:
//! invent times: slices lie as in [`super::chrome`], side by side and as wide as their values of the selected metric,
//! one nanosecond for each unit. The arguments of a slice hold the context's own values of every metric. Counters
//! stand at their times.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::counters::counters;
use super::devices::{Devices, Event, Launch, LaunchSite, Line};
use super::outline::{Lane, Layout, Outline};
use super::packets::Packets;
use super::{Source, kind_name, shortened_note};
use crate::proto::perfetto::{
    COUNTER, CounterDescriptor, DebugAnnotation, INCREMENTAL_STATE_CLEARED, InternedData,
    NEEDS_INCREMENTAL_STATE, Name, ProcessDescriptor, SLICE_BEGIN, SLICE_END, SLICE_INSTANT,
    ThreadDescriptor, TracePacket, TrackDescriptor, TrackEvent,
};
use deepctx_profile::frame::FrameKind;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;

/// Number of the name of the argument with a frame's location. Those of metrics follow.
const WHERE: u64 = 1;

/// Writes the trace.
///
/// # Errors
/// Writing to `out` failed.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    let mut writer = Writer {
        source,
        layout: outline.layout(source.selection.metric),
        outline: &outline,
        next_track: uuid(outline.lanes.len()),
        packets: Packets::new(out),
    };
    writer.names()?;
    writer.tracks()?;
    writer.slices()?;
    writer.counters()?;
    writer.devices()?;
    writer.packets.finish()
}

struct Writer<'a, 'p> {
    source: &'a Source<'p>,
    outline: &'a Outline<'p>,
    layout: Layout,
    /// Number of the next track besides those of the contexts.
    next_track: u64,
    packets: Packets<'a>,
}

impl Writer<'_, '_> {
    fn put(&mut self, packet: TracePacket) -> io::Result<()> {
        self.packets.put(packet)
    }

    fn names(&mut self) -> io::Result<()> {
        let name = |iid, name: &str| Name { iid, name: name.to_owned() };
        let frames = self.outline.contexts.frames.iter();
        let metrics = self.outline.metrics.iter();
        let mut arguments = vec![name(WHERE, "where")];
        arguments.extend(metrics.map(|&metric| name(argument(metric), &format!("own {metric}"))));
        let interned = InternedData {
            event_categories: FrameKind::ALL
                .iter()
                .map(|&kind| name(category(kind), kind_name(kind)))
                .collect(),
            event_names: frames
                .map(|(id, _)| name(u64::from(id.number()) + 1, self.outline.frame_label(id)))
                .collect(),
            debug_annotation_names: arguments,
            ..InternedData::default()
        };
        self.put(TracePacket {
            timestamp: Some(0),
            interned_data: Some(interned),
            sequence_flags: Some(INCREMENTAL_STATE_CLEARED),
            ..TracePacket::default()
        })
    }

    fn tracks(&mut self) -> io::Result<()> {
        for place in 0..self.outline.lanes.len() {
            let lane = &self.outline.lanes[place];
            let mut track = TrackDescriptor { uuid: uuid(place), ..TrackDescriptor::default() };
            match (&lane.process, &lane.thread) {
                (None, _) => track.name = Some("contexts of no process".to_owned()),
                (Some((name, pid)), None) => {
                    track.process = Some(ProcessDescriptor { pid: small(*pid), process_name: name.clone() });
                }
                (Some((_, pid)), Some((name, tid))) => {
                    let (pid, tid) = (small(*pid), i64::from(*tid));
                    track.thread = Some(ThreadDescriptor { pid, tid, thread_name: name.clone() });
                }
            }
            if place == 0 {
                let meta = &self.source.profile.meta;
                let mut about = format!(
                    "{} on {}: {} by calling context, side by side",
                    meta.target, meta.host, self.source.selection.metric
                );
                if let Some(note) = shortened_note(self.source.profile) {
                    about = format!("{about}. {note}");
                }
                track.description = Some(deepctx_profile::frame::clean(&about));
            }
            self.put(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })?;
        }
        Ok(())
    }

    fn slices(&mut self) -> io::Result<()> {
        let order: Vec<NodeId> = self.outline.order.iter().map(|(node, _)| *node).collect();
        // Open slices of each row, by their ends.
        let mut open: Vec<Vec<u64>> = vec![Vec::new(); self.outline.lanes.len()];
        for node in order {
            let (start, length) = (self.layout.starts[node.index()], self.layout.lengths[node.index()]);
            if length == 0 {
                continue;
            }
            let lane = self.outline.lane(node);
            while let Some(end) = open[lane].pop_if(|end| *end <= start) {
                self.end(lane, end)?;
            }
            self.begin(lane, node, start)?;
            open[lane].push(start.saturating_add(length));
        }
        for (lane, ends) in open.into_iter().enumerate() {
            for end in ends.into_iter().rev() {
                self.end(lane, end)?;
            }
        }
        Ok(())
    }

    fn counters(&mut self) -> io::Result<()> {
        for counter in counters(self.source) {
            let track_uuid = self.next_track;
            self.next_track += 1;
            let of = |lane: &Lane| lane.process.is_some() && lane.pid() == counter.pid;
            let track = TrackDescriptor {
                uuid: track_uuid,
                name: Some(counter.name),
                parent_uuid: self.outline.lanes.iter().position(of).map(uuid),
                counter: Some(CounterDescriptor::default()),
                ..TrackDescriptor::default()
            };
            self.put(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })?;
            for (at, value) in counter.steps {
                let double_counter_value = Some(value);
                self.event(
                    at,
                    TrackEvent {
                        kind: COUNTER,
                        track_uuid: Some(track_uuid),
                        double_counter_value,
                        ..TrackEvent::default()
                    },
                )?;
            }
        }
        Ok(())
    }

    /// Device work at its times: a track for each stream, and one beside each thread for its launches.
    fn devices(&mut self) -> io::Result<()> {
        let devices = Devices::of(self.source.profile);
        let tracks = self.streams(&devices)?;
        self.launches(&devices)?;
        for (number, event) in (1u64..).zip(&devices.events) {
            let track_uuid = tracks.get(&event.line).copied().unwrap_or_default();
            self.activity(track_uuid, number, event, devices.place(&event.activity))?;
        }
        Ok(())
    }

    /// A track for each stream, below that of its device.
    fn streams(&mut self, devices: &Devices) -> io::Result<FxHashMap<Line, u64>> {
        let mut tracks = FxHashMap::default();
        let mut device = None;
        for line in devices.lines() {
            let parent_uuid = match device {
                Some((known, uuid)) if known == line.card => Some(uuid),
                _ => {
                    let uuid = self.track(devices.name(line), None)?;
                    device = Some((line.card, uuid));
                    Some(uuid)
                }
            };
            let uuid = self.track(format!("stream {} of process {}", line.stream, line.pid), parent_uuid)?;
            tracks.insert(line, uuid);
        }
        Ok(tracks)
    }

    /// Each launch, on a track beside its thread, with flows to its work.
    fn launches(&mut self, devices: &Devices) -> io::Result<()> {
        let mut threads: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        for Launch { at, events } in &devices.launches {
            let Some(first) = events.first().and_then(|first| devices.events.get(*first as usize)) else {
                continue;
            };
            let (pid, place) = (first.activity.pid, devices.place(&first.activity));
            let (thread, tid) = place.thread.as_ref().map_or(("", pid), |(name, tid)| (name.as_str(), *tid));
            let track_uuid = match threads.get(&(pid, tid)) {
                Some(uuid) => *uuid,
                None => {
                    let of = |lane: &Lane| lane.process.is_some() && lane.pid() == pid;
                    let parent_uuid = self.outline.lanes.iter().position(of).map(uuid);
                    let uuid = self.track(format!("launches {thread}/{tid}"), parent_uuid)?;
                    threads.insert((pid, tid), uuid);
                    uuid
                }
            };
            let name = if place.api.is_empty() { "[launch]" } else { &place.api };
            let flow_ids = events.iter().map(|number| u64::from(*number) + 1).collect();
            let kind = SLICE_INSTANT;
            let name = Some(name.to_owned());
            let event =
                TrackEvent { kind, track_uuid: Some(track_uuid), name, flow_ids, ..TrackEvent::default() };
            self.event(at.0, event)?;
        }
        Ok(())
    }

    /// One activity of a device, by its number from 1.
    fn activity(
        &mut self,
        track_uuid: u64,
        number: u64,
        event: &Event,
        place: &LaunchSite,
    ) -> io::Result<()> {
        let activity = &event.activity;
        let arguments = [
            ("correlation", u64::from(activity.correlation)),
            ("context", u64::from(activity.context)),
            ("bytes", activity.bytes),
        ];
        let annotation = |(name, value): (&str, u64)| DebugAnnotation {
            name: Some(name.to_owned()),
            uint_value: Some(value),
            ..DebugAnnotation::default()
        };
        let mut debug_annotations: Vec<_> =
            arguments.into_iter().filter(|(_, value)| *value > 0).map(annotation).collect();
        if !place.caller.is_empty() {
            debug_annotations.push(DebugAnnotation {
                name: Some("called by".to_owned()),
                string_value: Some(place.caller.clone()),
                ..DebugAnnotation::default()
            });
        }
        let terminating_flow_ids = activity.launched.map(|_| number).into_iter().collect();
        let begin = TrackEvent {
            kind: SLICE_BEGIN,
            track_uuid: Some(track_uuid),
            name: Some(place.name.clone()),
            debug_annotations,
            terminating_flow_ids,
            ..TrackEvent::default()
        };
        self.event(activity.start.0, begin)?;
        let end = TrackEvent { kind: SLICE_END, track_uuid: Some(track_uuid), ..TrackEvent::default() };
        self.event(activity.end.0, end)
    }

    /// A track besides those of the contexts.
    fn track(&mut self, name: String, parent_uuid: Option<u64>) -> io::Result<u64> {
        let uuid = self.next_track;
        self.next_track += 1;
        let track = TrackDescriptor { uuid, name: Some(name), parent_uuid, ..TrackDescriptor::default() };
        self.put(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })?;
        Ok(uuid)
    }

    fn begin(&mut self, lane: usize, node: NodeId, at: u64) -> io::Result<()> {
        let frame = self.outline.frame(node);
        let mut debug_annotations = Vec::new();
        let place = frame.detail(self.outline.contexts.strings, self.source.selection.lines);
        if !place.is_empty() {
            let string_value = Some(place);
            debug_annotations.push(DebugAnnotation { name_iid: WHERE, string_value, ..Default::default() });
        }
        for &metric in &self.outline.metrics {
            let cell = self.outline.contexts.tree.exclusive(node, metric);
            if !cell.is_empty() {
                let (name_iid, uint_value) = (argument(metric), Some(cell.sum));
                debug_annotations.push(DebugAnnotation { name_iid, uint_value, ..Default::default() });
            }
        }
        self.event(
            at,
            TrackEvent {
                category_iids: vec![category(frame.kind())],
                debug_annotations,
                kind: SLICE_BEGIN,
                name_iid: Some(u64::from(self.outline.frame_id(node).number()) + 1),
                track_uuid: Some(uuid(lane)),
                ..TrackEvent::default()
            },
        )
    }

    fn end(&mut self, lane: usize, at: u64) -> io::Result<()> {
        self.event(at, TrackEvent { kind: SLICE_END, track_uuid: Some(uuid(lane)), ..TrackEvent::default() })
    }

    fn event(&mut self, at: u64, event: TrackEvent) -> io::Result<()> {
        self.put(TracePacket {
            timestamp: Some(at),
            track_event: Some(event),
            sequence_flags: Some(NEEDS_INCREMENTAL_STATE),
            ..TracePacket::default()
        })
    }
}

fn uuid(lane: usize) -> u64 {
    lane as u64 + 1
}

fn argument(metric: Metric) -> u64 {
    WHERE + 1 + metric.index() as u64
}

fn category(kind: FrameKind) -> u64 {
    kind as u64 + 1
}

fn small(pid: u32) -> i32 {
    i32::try_from(pid).unwrap_or(i32::MAX)
}
