//! Handles: the strings that a driver's object for a kernel leads to.
//!
//! Owns: which texts stand in reach of a handle, and by which road. Because: a driver keeps the name of a kernel with the
//! kernel, in an object that nobody describes. Does not: decide which text is the name ([`super::evidence`]).

use super::PAGE;
use crate::python::memory::TargetMemory;

/// Bytes of the object itself that are looked at.
const OBJECT_BYTES: u64 = 1024;
/// Bytes of what it points to.
const INNER_BYTES: u64 = 256;
/// Longest text.
const TEXT_MAX: u64 = 8192;
/// Most texts of one kind that are kept of a handle.
const TEXTS_MAX: usize = 64;
/// Least address that can be a pointer, and the first that cannot.
const ADDRESSES: std::ops::Range<u64> = 0x1_0000..1 << 47;

/// How a text was reached: the place of a pointer in the object, and of one in what that points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Road {
    /// Bytes into the object.
    pub first: u16,
    /// Bytes into what is there; `None` when that is the text.
    pub second: Option<u16>,
}

/// A text in reach of a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// How it was reached.
    pub road: Road,
    /// The text, without its end.
    pub text: String,
}

/// Texts that the object points to.
pub fn near(memory: &dyn TargetMemory, handle: u64) -> Vec<Text> {
    pointers(memory, handle, OBJECT_BYTES)
        .filter_map(|(first, at)| Some(Text { road: Road { first, second: None }, text: text(memory, at)? }))
        .take(TEXTS_MAX)
        .collect()
}

/// Texts that what the object points to points to.
pub fn far(memory: &dyn TargetMemory, handle: u64) -> Vec<Text> {
    let outer = pointers(memory, handle, OBJECT_BYTES).filter(|(_, at)| at.is_multiple_of(8));
    outer
        .flat_map(|(first, inner)| {
            pointers(memory, inner, INNER_BYTES).filter_map(move |(second, at)| {
                Some(Text { road: Road { first, second: Some(second) }, text: text(memory, at)? })
            })
        })
        .take(TEXTS_MAX)
        .collect()
}

/// What looks like a pointer in the bytes at an address, with its place.
fn pointers(memory: &dyn TargetMemory, at: u64, length: u64) -> impl Iterator<Item = (u16, u64)> {
    let bytes = if ADDRESSES.contains(&at) { as_far_as(memory, at, length) } else { Vec::new() };
    let words: Vec<u64> =
        bytes.chunks_exact(8).filter_map(|word| word.try_into().ok()).map(u64::from_le_bytes).collect();
    let places = (0u16..).step_by(8);
    places.zip(words).filter(move |(_, word)| ADDRESSES.contains(word) && *word != at)
}

/// The bytes at an address, up to the first page that cannot be read.
fn as_far_as(memory: &dyn TargetMemory, at: u64, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = at;
    let end = at.saturating_add(length);
    while next < end {
        let piece = (end - next).min(PAGE - next % PAGE);
        match memory.read_vec(next, piece as usize) {
            Ok(read) => bytes.extend_from_slice(&read),
            Err(_) => break,
        }
        next += piece;
    }
    bytes
}

/// The text at an address: printable, without blanks, and with an end.
fn text(memory: &dyn TargetMemory, at: u64) -> Option<String> {
    let mut text: Vec<u8> = Vec::new();
    let mut piece = 64;
    while (text.len() as u64) < TEXT_MAX {
        let from = at.checked_add(text.len() as u64)?;
        let bytes = memory.read_vec(from, (piece as u64).min(PAGE - from % PAGE) as usize).ok()?;
        let length = bytes.iter().position(|byte| !byte.is_ascii_graphic()).unwrap_or(bytes.len());
        text.extend_from_slice(&bytes[..length]);
        match bytes.get(length) {
            Some(0) if !text.is_empty() => return String::from_utf8(text).ok(),
            Some(_) => return None,
            None => piece = 1024,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::memory::RecordedMemory;

    /// An object whose words are these.
    fn object(words: &[u64]) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(PAGE as usize, 0);
        bytes
    }

    #[test]
    fn texts_are_found_one_and_two_pointers_away() {
        let mut memory = RecordedMemory::default();
        let texts = [b"_Z4gemmPfi\0not a na\xffme\0".as_slice(), &[0; 200]].concat();
        memory.insert(0x10_0000, object(&[7, 0x20_0000, 0x30_0000, 0x20_000b, 0x10_0000]));
        memory.insert(0x20_0000, texts);
        memory.insert(0x30_0000, object(&[0, 0, 0x20_0003]));
        let road = |first, second| Road { first, second };
        let text = |road, text: &str| Text { road, text: text.to_owned() };
        assert_eq!(near(&memory, 0x10_0000), [text(road(8, None), "_Z4gemmPfi")]);
        assert_eq!(far(&memory, 0x10_0000), [text(road(16, Some(16)), "gemmPfi")]);
    }

    #[test]
    fn what_is_no_object_leads_nowhere() {
        let mut memory = RecordedMemory::default();
        memory.insert(0x10_0000, vec![b'x'; 2 * PAGE as usize]);
        for handle in [0, 5, 0x10_0000, 0x50_0000, u64::MAX, u64::MAX - 4] {
            assert_eq!((near(&memory, handle).len(), far(&memory, handle).len()), (0, 0), "{handle:#x}");
        }
    }

    #[test]
    fn a_text_without_an_end_is_none() {
        let mut memory = RecordedMemory::default();
        memory.insert(0x10_0000, object(&[0x20_0000]));
        memory.insert(0x20_0000, vec![b'x'; 3 * PAGE as usize]);
        assert!(near(&memory, 0x10_0000).is_empty());
    }
}
