//! jitdump: binary files in which runtimes record the code that they generate, with timestamps.
//!
//! Owns: the parser, pure and restartable. Because: the file contains the code itself, can be far larger than its
//! records of interest, and is written while it is read. Does not: open files, keep code, or read its line tables.

use super::perf_map::{NAME_BYTES_MAX, truncated};

/// Bytes of the file header.
pub(super) const HEADER_BYTES: usize = 40;
/// Bytes before the body of each record.
const PREFIX_BYTES: usize = 16;
/// Bytes of a load record before its name.
const LOAD_BYTES: usize = PREFIX_BYTES + 40;
/// Bytes of a move record.
const MOVE_BYTES: usize = PREFIX_BYTES + 48;
/// Bytes of a record that are parsed; the rest is code, and is skipped.
const PARSED_BYTES: usize = LOAD_BYTES + NAME_BYTES_MAX + 1;

const MAGIC: u32 = 0x4A69_5444;
/// Timestamps are from the processor's counter, not from the monotonic clock.
const FLAG_ARCH_TIMESTAMP: u64 = 1;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const CLOSE: u32 = 3;

/// An event of generated code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpEvent {
    /// Code was generated.
    Load {
        /// Time on the monotonic clock; 0 when the file has another clock.
        time_ns: u64,
        /// First address.
        begin: u64,
        /// Length in bytes, not 0.
        size: u64,
        /// The runtime's index of this code, for later moves.
        index: u64,
        /// Name, at most 1024 bytes.
        name: Box<str>,
    },
    /// Code was moved.
    Move {
        /// Time on the monotonic clock; 0 when the file has another clock.
        time_ns: u64,
        /// New first address.
        begin: u64,
        /// Length in bytes, not 0.
        size: u64,
        /// The runtime's index of this code.
        index: u64,
    },
}

/// The records parsed from a part of a jitdump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// Loads and moves in the order of the file.
    pub events: Vec<DumpEvent>,
    /// Malformed records.
    pub malformed: u64,
    /// Offset of the next record from the start of the part; may be beyond its end, because code is skipped.
    pub next: u64,
    /// No record follows: the file was closed, or a record has an impossible length.
    pub ended: bool,
    /// The file was closed.
    pub closed: bool,
}

/// The header of a jitdump file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpHeader {
    /// Size of the header: offset of the first record.
    pub size: u32,
    /// Timestamps are on the monotonic clock.
    pub monotonic: bool,
    /// The process that writes it, by its own number.
    pub pid: u32,
}

/// Parses the header of a file. `None` unless it is a jitdump in native byte order.
pub fn parse_dump_header(bytes: &[u8]) -> Option<DumpHeader> {
    let bytes = bytes.get(..HEADER_BYTES)?;
    let size = u32_at(bytes, 8)?;
    let known = u32_at(bytes, 0)? == MAGIC && (1..=2).contains(&u32_at(bytes, 4)?);
    // Longer headers are allowed, within reason.
    let sane = (HEADER_BYTES as u32..=4096).contains(&size);
    let monotonic = u64_at(bytes, 32)? & FLAG_ARCH_TIMESTAMP == 0;
    (known && sane).then_some(DumpHeader { size, monotonic, pid: u32_at(bytes, 20)? })
}

/// Parses a whole file: header and records.
pub fn parse_jitdump(bytes: &[u8]) -> Option<Dump> {
    let header = parse_dump_header(bytes)?;
    let mut dump = parse_records(bytes.get(header.size as usize..).unwrap_or_default(), header);
    dump.next = dump.next.saturating_add(header.size.into());
    Some(dump)
}

/// Parses the records at the start of `bytes`, up to the first incomplete one.
pub fn parse_records(bytes: &[u8], header: DumpHeader) -> Dump {
    let mut dump = Dump::default();
    while let Some(record) = usize::try_from(dump.next).ok().and_then(|at| bytes.get(at..)) {
        let (Some(kind), Some(size)) = (u32_at(record, 0), u32_at(record, 4)) else { break };
        if (size as usize) < PREFIX_BYTES {
            // The start of the next record is unknown.
            dump.malformed += 1;
            dump.ended = true;
            break;
        }
        let parsed = (size as usize).min(PARSED_BYTES);
        let Some(record) = record.get(..parsed) else { break };
        dump.next += u64::from(size);
        let time_ns = if header.monotonic { u64_at(record, 8).unwrap_or(0) } else { 0 };
        let event = match kind {
            LOAD => parse_load(record, time_ns),
            MOVE => parse_move(record, time_ns),
            CLOSE => {
                (dump.ended, dump.closed) = (true, true);
                break;
            }
            _ => continue,
        };
        match event {
            Some(event) => dump.events.push(event),
            None => dump.malformed += 1,
        }
    }
    dump
}

fn parse_load(record: &[u8], time_ns: u64) -> Option<DumpEvent> {
    let (begin, size) = checked_range(u64_at(record, 32)?, u64_at(record, 40)?)?;
    let name = record.get(LOAD_BYTES..)?;
    let name = &name[..name.iter().position(|b| *b == 0).unwrap_or(name.len())];
    if name.is_empty() {
        return None;
    }
    Some(DumpEvent::Load { time_ns, begin, size, index: u64_at(record, 48)?, name: truncated(name) })
}

fn parse_move(record: &[u8], time_ns: u64) -> Option<DumpEvent> {
    let record = record.get(..MOVE_BYTES)?;
    let (begin, size) = checked_range(u64_at(record, 40)?, u64_at(record, 48)?)?;
    Some(DumpEvent::Move { time_ns, begin, size, index: u64_at(record, 56)? })
}

/// A range of code that is not empty and does not wrap around.
fn checked_range(begin: u64, size: u64) -> Option<(u64, u64)> {
    begin.checked_add(size)?;
    (size > 0).then_some((begin, size))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}
