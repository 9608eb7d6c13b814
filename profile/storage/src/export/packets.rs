//! Packets of a Perfetto trace, as they are written.
//!
//! Owns: [`Packets`]. Because: sums and single events are written as the same kind of file. Does not: say what is in
//! one.

use std::io::{self, Write};

use prost::Message as _;

use crate::proto::perfetto::{Trace, TracePacket};

/// Sequence id of these packets; any number but 0.
const SEQUENCE: u32 = 1;
/// Packets encoded together.
const CHUNK: usize = 1024;

/// A file being written.
pub(super) struct Packets<'o> {
    waiting: Vec<TracePacket>,
    out: &'o mut dyn Write,
}

impl<'o> Packets<'o> {
    pub(super) fn new(out: &'o mut dyn Write) -> Self {
        Packets { waiting: Vec::new(), out }
    }

    /// Adds a packet.
    pub(super) fn put(&mut self, packet: TracePacket) -> io::Result<()> {
        self.waiting.push(TracePacket { trusted_packet_sequence_id: SEQUENCE, ..packet });
        if self.waiting.len() < CHUNK { Ok(()) } else { self.flush() }
    }

    /// Writes the pending packets.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.out.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        // Consecutive messages are one message.
        let part = Trace { packet: std::mem::take(&mut self.waiting) };
        self.out.write_all(&part.encode_to_vec())
    }
}
