//! Protocol between the profiler and its reader.
//!
//! Owns: the byte layout of a request and of an answer. Because: both sides must agree, and a reader that keeps no
//! state between requests can be replaced at any moment. Does not: send or wait.
//!
//! ```text
//! request  position u64 (MAX: read on from where the file is; MAX - 1: a walk), length u32, with the file to read;
//!          of a walk, that many bytes of its question follow
//! answer   error u32 (0: none), length u32, time spent in reading u32 (microseconds), then the bytes
//! ```

/// Most bytes of one answer.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Bytes of a request.
pub(super) const REQUEST_BYTES: usize = 12;
/// Size of the header of an answer.
pub(super) const ANSWER_BYTES: usize = 12;
/// The position of a request for a walk: no address is this high.
const WALK: u64 = u64::MAX - 1;

/// A read request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Position; `None`: the file's current one.
    pub(super) position: Option<u64>,
    /// Length, at most [`PIECE_BYTES`]; of a walk, that of its question.
    pub(super) length: usize,
}

/// Header of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplyHeader {
    /// The system's error, or 0.
    pub(super) error: u32,
    /// How many bytes follow.
    pub(super) length: u32,
    /// Duration of the system call, or of a walk; if long enough to be charged, without the time waiting for a CPU,
    /// which is nobody's fault, and without the CPU time of a walk.
    pub(super) microseconds: u32,
}

impl Request {
    /// For a walk with a question of this length.
    pub(super) fn walk(length: usize) -> Self {
        Self { position: Some(WALK), length }
    }

    pub(super) fn is_walk(self) -> bool {
        self.position == Some(WALK)
    }

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
            assert!(!request.is_walk());
        }
        assert!(Request::decode(Request::walk(77).encode()).is_walk());
    }

    #[test]
    fn an_answer_is_decoded_as_it_was_encoded() {
        let answer = ReplyHeader { error: 5, length: 65_536, microseconds: 1 << 30 };
        assert_eq!(ReplyHeader::decode(answer.encode()), answer);
    }
}
