//! Walk: many reads of one process, each at an address that the read before gave, within the reader.
//!
//! Owns: the limits of a walk, and the memory that it reads. Because: a chain of objects changes every millisecond, and
//! is torn if each of them is fetched by another process; but every address in it is the target's choice, so no thread
//! that others wait for may read it. Does not: know what is walked, or interpret it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::fill;
use crate::read_error::ReadError;

/// Longest walk: what is too long ends before the reader is given up for it.
const LONGEST: Duration = Duration::from_millis(200);
/// Most mappings of users' servers that a walk avoids; a process with more is not walked.
pub(super) const AVOIDED_MAX: usize = 64;
/// Most bytes of an answer.
pub(super) const ANSWER_MAX: usize = 256 << 10;

/// A walk: from the memory of a process and a question, the answer. The reader keeps nothing between two walks, so it
/// can be replaced at any moment.
pub type Walk = fn(&WalkedMemory<'_>, &[u8]) -> Vec<u8>;

/// The memory of a process, in a walk.
#[derive(Debug)]
pub struct WalkedMemory<'f> {
    file: &'f File,
    ends: Instant,
    /// Mappings that must not be touched.
    avoided: Vec<Range<u64>>,
    /// Whether the walk led to one of them.
    led_there: AtomicBool,
}

impl<'f> WalkedMemory<'f> {
    pub(super) fn new(file: &'f File, avoided: Vec<Range<u64>>) -> Self {
        Self { file, ends: Instant::now() + LONGEST, avoided, led_there: AtomicBool::new(false) }
    }

    /// Fills `into` with the bytes at `address`.
    ///
    /// # Errors
    /// [`ReadError::UserFile`], [`ReadError::NoAnswer`] if the walk takes too long, or the system's.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let end = address.saturating_add(into.len() as u64);
        if self.avoided.iter().any(|range| range.start < end && address < range.end) {
            self.led_there.store(true, Ordering::Relaxed);
            return Err(ReadError::UserFile);
        }
        if Instant::now() >= self.ends {
            return Err(ReadError::NoAnswer);
        }
        fill(address, into, |at, into| Ok(self.file.read_at(into, at)))
    }

    pub(super) fn led_to_avoided(&self) -> bool {
        self.led_there.load(Ordering::Relaxed)
    }
}

/// What the reader receives: the mappings to be avoided, then the question.
pub(super) fn encode(avoided: &[Range<u64>], question: &[u8]) -> Vec<u8> {
    let mut bytes = (avoided.len() as u64).to_le_bytes().to_vec();
    for range in avoided {
        bytes.extend_from_slice(&range.start.to_le_bytes());
        bytes.extend_from_slice(&range.end.to_le_bytes());
    }
    bytes.extend_from_slice(question);
    bytes
}

/// The parts of what [`encode`] gave.
pub(super) fn decode(bytes: &[u8]) -> Option<(Vec<Range<u64>>, &[u8])> {
    let (count, mut rest) = word(bytes)?;
    let mut avoided = Vec::new();
    for _ in 0..count.min(AVOIDED_MAX as u64) {
        let (start, after) = word(rest)?;
        let (end, after) = word(after)?;
        avoided.push(start..end);
        rest = after;
    }
    Some((avoided, rest))
}

fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_to_avoid_arrive_with_the_question() {
        for avoided in [vec![], vec![0..4096, 7..u64::MAX]] {
            let bytes = encode(&avoided, b"what");
            assert_eq!(decode(&bytes), Some((avoided, &b"what"[..])));
            assert_eq!(decode(&bytes[..7]), None);
        }
    }

    #[test]
    fn a_walk_avoids_mappings_and_ends_in_time() {
        let file = File::open("/proc/self/mem").unwrap();
        let value = 0x1122_3344_u64;
        let (at, mut bytes) = (std::ptr::from_ref(&value) as u64, [0; 8]);
        let mut memory = WalkedMemory::new(&file, vec![0..8, 0x1000..0x2000]);
        assert_eq!(memory.read(at, &mut bytes), Ok(()));
        assert_eq!(u64::from_le_bytes(bytes), value);
        assert!(!memory.led_to_avoided());
        assert_eq!(memory.read(0xffc, &mut bytes), Err(ReadError::UserFile));
        assert!(memory.led_to_avoided());
        memory.ends = Instant::now();
        assert_eq!(memory.read(at, &mut bytes), Err(ReadError::NoAnswer));
    }
}
