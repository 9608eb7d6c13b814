//! Perfetto's protobuf traces: slices, counters and flows of tracks.
//!
//! Owns: [`read`], recognizing the format, and pairing begins with ends. Because: our own exports, and programs with
//! Perfetto's libraries, write it. Does not: say what an event is: `trace_rows` does, by the categories that Chrome's
//! form has, too. Flows are not read: links between calls and work come from correlation ids.
//!
//! A file is walked packet by packet, with no more than a packet in memory as a message; of an event stands its time,
//! its track and where it is in the file, 40 bytes, until it is known which end belongs to which begin. Packets of
//! other kinds (the scheduler, counters of the system, heap profiles) are counted by kind.

mod processes;
mod rocprof;
mod sequences;
mod slices;
#[cfg(test)]
mod tests;
mod tracks;

use deepctx_profile::order::SortRows as _;
use std::fmt::Write as _;
use std::io::Read as _;

use flate2::read::ZlibDecoder;
use prost::Message as _;
use rustc_hash::FxHashMap;

use deepctx_common::reason::Reason;
use deepctx_profile::ledger::{self, Stage};
use deepctx_profile::trace::{ClockInfo, Trace};
use deepctx_profile::units::Nanos;

use self::processes::Processes;
use self::sequences::{NameTable, PacketState, Sequences};
use self::tracks::Tracks;
use super::fields::{Field, fields};
use super::ranks::Ranks;
use super::{
    BYTES_MAX, CUT_SHORT, EVENTS_MAX, ImportError, Kind, NOT_UNDERSTOOD, UNKNOWN_PACKET, leave_out_at_zero,
};
use crate::event_header::{EventHeader, HEADER};
use crate::proto::perfetto::{COUNTER, SLICE_BEGIN, SLICE_END, SLICE_INSTANT, TracePacket, TrackEvent};

/// `Trace.packet`.
const PACKET: u32 = 1;
/// `TracePacket.timestamp` and `.trusted_packet_sequence_id`, which no first message of other formats has.
const TIMESTAMP: u32 = 8;
const SEQUENCE_ID: u32 = 10;
/// `TracePacket.track_event`.
const TRACK_EVENT: u32 = 11;
/// `TracePacket.compressed_packets`: packets within a packet.
const COMPRESSED: u32 = 50;
/// Fields of a packet that are read, or that only describe the packet itself or the recording: its configuration (33),
/// statistics (35), marks (36), its id (89).
const READ: [u32; 22] = [3, 6, 8, 10, 11, 12, 13, 33, 35, 36, 41, 42, 50, 58, 59, 60, 79, 87, 88, 89, 98, 99];
/// Packets examined to recognize the format.
const LOOKED_AT: usize = 16;
/// Maximum kinds of packets named in a note.
const NAMED_MAX: usize = 8;

/// Whether a protobuf message begins like a trace: with packets that have a time or a sequence.
pub(super) fn is_one(start: &[u8]) -> bool {
    if start.first() != Some(&0x0a) {
        return false;
    }
    let packets = fields(start).take(LOOKED_AT).map_while(Result::ok);
    let packets = packets.filter_map(|(number, field)| match field {
        Field::Bytes(packet) if number == PACKET => Some(packet),
        _ => None,
    });
    let is_packet = |packet: &[u8]| {
        let mut found = false;
        for field in fields(packet) {
            match field {
                Ok((TIMESTAMP | SEQUENCE_ID, Field::Number(_))) => found = true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        found
    };
    packets.into_iter().any(is_packet)
}

/// Reads the traces of a file, with process ids if it has several.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<(Option<u32>, Trace)>, ImportError> {
    let mut reader = Reader { buffers: vec![Buffer::File(bytes)], ..Reader::default() };
    let buffers = reader.walk(bytes, 0)?;
    reader.buffers.extend(buffers.into_iter().map(Buffer::Decompressed));
    Ok(slices::add(reader))
}

/// Bytes that contain events.
enum Buffer<'b> {
    File(&'b [u8]),
    Decompressed(Vec<u8>),
}

impl Buffer<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Buffer::File(bytes) => bytes,
            Buffer::Decompressed(bytes) => bytes,
        }
    }
}

/// What to do with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventType {
    Begin,
    End,
    Instant,
    Counter,
    /// A slice with its length, in the older form.
    Complete,
}

/// An event whose owner is not known yet.
#[derive(Clone, Copy)]
struct FoundEvent {
    track: u32,
    at: u64,
    /// Its index among all.
    order: u32,
    state: u32,
    /// Its bytes: buffer, offset, length.
    buffer: u32,
    from: u32,
    length: u32,
    kind: EventType,
}

/// Position of an event's bytes: buffer, offset, length.
struct BytePlace {
    buffer: u32,
    from: u32,
    length: u32,
}

#[derive(Default)]
struct Reader<'b> {
    buffers: Vec<Buffer<'b>>,
    events: Vec<FoundEvent>,
    sequences: Sequences,
    tracks: Tracks,
    ranks: Ranks<u64>,
    has_header: bool,
    /// Whether a category is one of rocprofv3's.
    is_of_rocprof: bool,
    /// Of a file of rocprofv3, once all tracks are known.
    processes: Option<Processes>,
    /// Unread packets by field number.
    unknown: FxHashMap<u32, u64>,
    decompressed: usize,
}

impl Reader<'_> {
    fn gap(&mut self, reason: &'static Reason) {
        self.ranks.rows().gap(reason);
    }

    /// Reads every packet of a buffer, and returns the decompressed packets in it.
    fn walk(&mut self, bytes: &[u8], buffer: u32) -> Result<Vec<Vec<u8>>, ImportError> {
        let mut more = Vec::new();
        for field in fields(bytes) {
            let packet = match field {
                Ok((PACKET, Field::Bytes(packet))) => packet,
                Ok(_) => {
                    self.gap(NOT_UNDERSTOOD);
                    continue;
                }
                // The end of a truncated file is not a complete packet.
                Err(_) if self.events.is_empty() && more.is_empty() => {
                    return Err(ImportError::damaged(Kind::Perfetto, "its first packet is none"));
                }
                Err(_) => {
                    self.gap(CUT_SHORT);
                    break;
                }
            };
            if let Some(inner) = self.packet(bytes, buffer, packet)? {
                let number = self.buffers.len() + more.len();
                let inner = self.decompress(inner)?;
                // A third nesting level of packets does not exist in the format.
                let nested = self.walk(&inner, number as u32)?;
                more.push(inner);
                if !nested.is_empty() {
                    return Err(ImportError::damaged(
                        Kind::Perfetto,
                        "it has packets within packets within packets",
                    ));
                }
            }
        }
        Ok(more)
    }

    fn decompress(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ImportError> {
        let mut out = Vec::new();
        let most = BYTES_MAX - self.decompressed;
        let read = ZlibDecoder::new(bytes).take(most as u64 + 1).read_to_end(&mut out);
        if out.len() > most {
            return Err(ImportError::TooLarge { most: BYTES_MAX, what: "bytes" });
        }
        if read.is_err() {
            self.gap(NOT_UNDERSTOOD);
        }
        self.decompressed += out.len();
        Ok(out)
    }

    /// Reads a packet; returns the compressed packets in it.
    fn packet<'p>(
        &mut self,
        all: &[u8],
        buffer: u32,
        packet: &'p [u8],
    ) -> Result<Option<&'p [u8]>, ImportError> {
        let (mut compressed, mut event) = (None, None);
        for field in fields(packet) {
            match field {
                Ok((COMPRESSED, Field::Bytes(bytes))) => compressed = Some(bytes),
                Ok((TRACK_EVENT, Field::Bytes(bytes))) => event = Some(bytes),
                Ok((number, _)) if READ.contains(&number) => {}
                Ok((number, _)) if self.unknown.len() < 1 << 12 || self.unknown.contains_key(&number) => {
                    *self.unknown.entry(number).or_default() += 1;
                }
                Ok(_) => self.gap(UNKNOWN_PACKET),
                Err(_) => {
                    self.gap(NOT_UNDERSTOOD);
                    return Ok(None);
                }
            }
        }
        let Ok(mut packet) = TracePacket::decode(packet) else {
            self.gap(NOT_UNDERSTOOD);
            return Ok(None);
        };
        if let Some(track) = packet.track_descriptor.take() {
            self.tracks.describe(track);
        }
        match self.sequences.enter(&packet) {
            Ok(state) => {
                if let (Some(event), Some(bytes)) = (packet.track_event.take(), event) {
                    let from = bytes.as_ptr() as usize - all.as_ptr() as usize;
                    let place = BytePlace { buffer, from: from as u32, length: bytes.len() as u32 };
                    self.event(&packet, state, &event, place)?;
                }
            }
            Err(reason) => self.gap(reason),
        }
        Ok(compressed)
    }

    fn event(
        &mut self,
        packet: &TracePacket,
        PacketState { state, track }: PacketState,
        event: &TrackEvent,
        place: BytePlace,
    ) -> Result<(), ImportError> {
        // Also for a skipped event: times of a writer may be differences.
        let at = match self.sequences.time(packet) {
            Ok(at) => at,
            Err(reason) => {
                self.gap(reason);
                return Ok(());
            }
        };
        if self.is_header(state, event) {
            return Ok(());
        }
        self.is_of_rocprof = self.is_of_rocprof || self.has_category_of_rocprof(state, event);
        if self.events.len() >= 2 * EVENTS_MAX {
            return Err(ImportError::TooLarge { most: EVENTS_MAX, what: "events of a trace" });
        }
        let Some(kind) = event_type(event) else {
            self.gap(UNKNOWN_PACKET);
            return Ok(());
        };
        let track = self.tracks.number(event.track_uuid.or(track).unwrap_or(0));
        let (Some(track), Ok(at)) = (track, u64::try_from(at)) else {
            self.gap(super::OUT_OF_RANGE);
            return Ok(());
        };
        let order = self.events.len() as u32;
        let BytePlace { buffer, from, length } = place;
        self.events.push(FoundEvent { track, at, order, state, buffer, from, length, kind });
        Ok(())
    }

    /// Reads the header of a deepctx-bpf export.
    fn is_header(&mut self, state: u32, event: &TrackEvent) -> bool {
        if self.has_header
            || event.kind != SLICE_INSTANT
            || event.categories.first().is_none_or(|of| of != HEADER)
        {
            return false;
        }
        let argument = event.debug_annotations.iter().find(|of| {
            let name = self.sequences.name(state, NameTable::Argument, of.name_iid);
            of.name.as_deref().or(name) == Some(HEADER)
        });
        let text = argument.and_then(|of| of.string_value.as_deref());
        let header = text.and_then(|text| serde_json::from_str::<EventHeader>(text).ok());
        let Some(header) = header.filter(|header| !header.ranks.is_empty()) else { return false };
        self.has_header = true;
        self.ranks.describe(header, |lane| lane.uuid);
        true
    }

    fn has_category_of_rocprof(&self, state: u32, event: &TrackEvent) -> bool {
        let interned = || self.sequences.name(state, NameTable::Category, *event.category_iids.first()?);
        let category = event.categories.first().map(String::as_str).or_else(interned);
        category.and_then(rocprof::category).is_some()
    }

    /// Counts unread packets, with the names or numbers of their kinds.
    fn count_unknown(&mut self) {
        let mut rows: Vec<(u32, u64)> = self.unknown.drain().collect();
        rows.sort_rows_by_key(|(number, count)| (std::cmp::Reverse(*count), *number));
        let mut sentence = UNKNOWN_PACKET.sentence.to_owned();
        for (place, (number, count)) in rows.iter().take(NAMED_MAX).enumerate() {
            let between = if place == 0 { ":" } else { "," };
            // Writing to a text cannot fail.
            _ = match packet_name(*number) {
                Some(name) => write!(sentence, "{between} `{name}` ({count})"),
                None => write!(sentence, "{between} field {number} ({count})"),
            };
        }
        if rows.len() > NAMED_MAX {
            _ = write!(sentence, " and {} more", rows.len() - NAMED_MAX);
        }
        let reason = ledger::Reason { key: UNKNOWN_PACKET.key.into(), sentence: sentence.into() };
        let count = rows.iter().map(|(_, count)| count).sum();
        self.ranks.rows().trace.ledger.gap(Stage::Decode, reason, count);
    }

    /// The traces, once all events are assigned. Those of several processes share a clock.
    fn finish(self) -> Vec<(Option<u32>, Trace)> {
        let epoch_ns = self.sequences.epoch_ns;
        let pids = self.processes.as_ref().map(Processes::pids).unwrap_or_default();
        let domain = (pids.len() > 1).then_some(0);
        let traces = self.ranks.finish(|trace| {
            leave_out_at_zero(trace);
            trace.clock = ClockInfo { epoch_ns, resolution: Nanos(1), domain, ..ClockInfo::default() };
        });
        pids.into_iter().chain(std::iter::repeat(None)).zip(traces).collect()
    }
}

fn event_type(event: &TrackEvent) -> Option<EventType> {
    let phase = event.legacy_event.as_ref().and_then(|of| u8::try_from(of.phase).ok());
    Some(match (event.kind, phase) {
        (SLICE_BEGIN, _) | (0, Some(b'B')) => EventType::Begin,
        (SLICE_END, _) | (0, Some(b'E')) => EventType::End,
        (SLICE_INSTANT, _) | (0, Some(b'i' | b'I')) => EventType::Instant,
        (COUNTER, _) => EventType::Counter,
        (0, Some(b'X')) => EventType::Complete,
        _ => return None,
    })
}

/// Names of the most frequent unread kinds of packets.
fn packet_name(number: u32) -> Option<&'static str> {
    Some(match number {
        1 => "ftrace_events",
        2 => "process_tree",
        4 => "inode_file_map",
        5 => "chrome_events",
        7 => "sys_stats",
        9 => "process_stats",
        34 => "ftrace_stats",
        37 => "profile_packet",
        38 => "battery",
        39 => "android_log",
        40 => "power_rails",
        43 => "process_descriptor",
        44 => "thread_descriptor",
        45 => "system_info",
        46 => "perf_sample",
        66 => "perf_sample",
        67 => "cpu_info",
        _ => return None,
    })
}
