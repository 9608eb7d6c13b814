//! The texts reachable from a driver's kernel object.
//!
//! Owns: following one or two pointers from a handle to texts. Because: a driver keeps a kernel's name in the
//! kernel's own, undocumented object. Does not: decide which text is the name ([`super::evidence`]).

use super::PAGE;
use crate::memory::TargetMemory;

/// Bytes examined of the object itself.
const OBJECT_BYTES: u64 = 1024;
/// Bytes examined of each object that it points to.
const INNER_BYTES: u64 = 256;
/// Longest text.
const TEXT_MAX: u64 = 8192;
/// Most texts per path length of a handle.
const TEXTS_MAX: usize = 64;
/// Plausible pointers.
const ADDRESSES: std::ops::Range<u64> = 0x1_0000..1 << 47;

/// The path from an object to a text: offsets of the pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointerPath {
    /// Offset of the first pointer in the object.
    pub first: u16,
    /// Offset of the second pointer in the inner object; `None` when the first points to the text.
    pub second: Option<u16>,
}

/// A text reachable from a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Its path.
    pub path: PointerPath,
    /// The text, without the terminator.
    pub text: String,
}

/// Texts that the object points to.
pub fn near(memory: &dyn TargetMemory, handle: u64) -> Vec<Text> {
    pointers(memory, handle, OBJECT_BYTES)
        .filter_map(|(first, at)| {
            Some(Text { path: PointerPath { first, second: None }, text: text(memory, at)? })
        })
        .take(TEXTS_MAX)
        .collect()
}

/// Texts that the inner objects point to.
pub fn far(memory: &dyn TargetMemory, handle: u64) -> Vec<Text> {
    let outer = pointers(memory, handle, OBJECT_BYTES).filter(|(_, at)| at.is_multiple_of(8));
    outer
        .flat_map(|(first, inner)| {
            pointers(memory, inner, INNER_BYTES).filter_map(move |(second, at)| {
                Some(Text { path: PointerPath { first, second: Some(second) }, text: text(memory, at)? })
            })
        })
        .take(TEXTS_MAX)
        .collect()
}

/// Plausible pointers in the bytes at an address, with their offsets.
fn pointers(memory: &dyn TargetMemory, at: u64, length: u64) -> impl Iterator<Item = (u16, u64)> {
    let bytes = if ADDRESSES.contains(&at) { readable_bytes(memory, at, length) } else { Vec::new() };
    let words: Vec<u64> =
        bytes.chunks_exact(8).filter_map(|word| word.try_into().ok()).map(u64::from_le_bytes).collect();
    let offsets = (0u16..).step_by(8);
    offsets.zip(words).filter(move |(_, word)| ADDRESSES.contains(word) && *word != at)
}

/// The bytes at an address, up to the first unreadable page.
fn readable_bytes(memory: &dyn TargetMemory, at: u64, length: u64) -> Vec<u8> {
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

/// The text at an address: printable, without blanks, and terminated.
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
    use crate::memory::RecordedMemory;

    /// An object with these words.
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
        let path = |first, second| PointerPath { first, second };
        let text = |path, text: &str| Text { path, text: text.to_owned() };
        assert_eq!(near(&memory, 0x10_0000), [text(path(8, None), "_Z4gemmPfi")]);
        assert_eq!(far(&memory, 0x10_0000), [text(path(16, Some(16)), "gemmPfi")]);
    }

    #[test]
    fn an_invalid_handle_has_no_texts() {
        let mut memory = RecordedMemory::default();
        memory.insert(0x10_0000, vec![b'x'; 2 * PAGE as usize]);
        for handle in [0, 5, 0x10_0000, 0x50_0000, u64::MAX, u64::MAX - 4] {
            assert_eq!((near(&memory, handle).len(), far(&memory, handle).len()), (0, 0), "{handle:#x}");
        }
    }

    #[test]
    fn an_unterminated_text_is_ignored() {
        let mut memory = RecordedMemory::default();
        memory.insert(0x10_0000, object(&[0x20_0000]));
        memory.insert(0x20_0000, vec![b'x'; 3 * PAGE as usize]);
        assert!(near(&memory, 0x10_0000).is_empty());
    }
}
