//! Protocol between the profiler and its reader.
//!
//! Owns: the byte layout of a request and of an answer. Because: both sides must agree, and a reader that keeps no
//! state between requests can be replaced at any moment. Does not: send or wait.
//!
//! ```text
//! request  position u64 (MAX: read on from where the file is), length u32, with the file to read
//! answer   error u32 (0: none), length u32, time spent in reading u32 (microseconds), then the bytes
//! ```

/// Most bytes of one answer.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Bytes of a request.
pub(super) const REQUEST_BYTES: usize = 12;
/// Size of the header of an answer.
pub(super) const ANSWER_BYTES: usize = 12;

/// A read request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Position; `None`: the file's current one.
    pub(super) position: Option<u64>,
    /// Length, at most [`PIECE_BYTES`].
    pub(super) length: usize,
}

/// Header of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplyHeader {
    /// The system's error, or 0.
    pub(super) error: u32,
    /// How many bytes follow.
    pub(super) length: u32,
    /// Duration of the system call; if long enough to be charged, without the time waiting for a CPU, which is nobody's
    /// fault.
    pub(super) microseconds: u32,
}

impl Request {
    pub(super) fn encode(self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..8].copy_from_slice(&self.position.unwrap_or(u64::MAX).to_le_bytes());
        bytes[8..].copy_from_slice(&(self.length as u32).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: [u8; REQUEST_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, length @ ..] = bytes;
        let position = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let length = (u32::from_le_bytes(length) as usize).min(PIECE_BYTES);
        Self { position: Some(position).filter(|position| *position != u64::MAX), length }
    }
}

impl ReplyHeader {
    pub(super) fn encode(self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        let fields = [self.error, self.length, self.microseconds];
        for (into, field) in bytes.chunks_exact_mut(4).zip(fields) {
            into.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: [u8; ANSWER_BYTES]) -> Self {
        let field = |n: usize| u32::from_le_bytes([bytes[n], bytes[n + 1], bytes[n + 2], bytes[n + 3]]);
        Self { error: field(0), length: field(4), microseconds: field(8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_decoded_as_it_was_encoded() {
        for position in [Some(0), Some(0x7fff_0000_1000), None] {
            let request = Request { position, length: 77 };
            assert_eq!(Request::decode(request.encode()), request);
        }
    }

    #[test]
    fn an_answer_is_decoded_as_it_was_encoded() {
        let answer = ReplyHeader { error: 5, length: 65_536, microseconds: 1 << 30 };
        assert_eq!(ReplyHeader::decode(answer.encode()), answer);
    }
}
