//! Strings of another process's interpreter.
//!
//! Owns: every representation of `str` from 3.8 on (ASCII, Latin-1, UCS-2, UCS-4; data inside or outside the object).
//! Because: users see names and paths, which need not be ASCII. Does not: trust the process: lengths are bounded, kinds
//! are checked, and control characters are escaped, since a name could contain terminal escape sequences.

use std::fmt::Write as _;

use deepctx_common::reasons;

use super::layout::UserLayout;
use crate::memory::{ReadError, TargetMemory};

/// Most code points read of one string; the rest becomes `…`. Paths have at most 4096 bytes, names are far shorter.
pub const TEXT_MAX: u64 = 4096;

/// Why a string could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextError {
    /// Its memory could not be read.
    Read(ReadError),
    /// The bytes are not a string of this version.
    NotText,
}

impl TextError {
    reasons! {
        class Unread, page "python-frames.md";
        /// Its key and sentence.
        pub fn reason(self) {
            Self::NotText => "no-text-object", "the object at the address is not a string";
        } or {
            Self::Read(memory) => memory.reason();
        }
    }
}

impl From<ReadError> for TextError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// Reads the `str` object at `address`.
///
/// # Errors
/// [`TextError::Read`] when memory could not be read, [`TextError::NotText`] when the header is not that of a string.
pub fn read_text(memory: &dyn TargetMemory, layout: &UserLayout, address: u64) -> Result<String, TextError> {
    // The fields up to `state`, which is the last that is read.
    let header = memory.read_vec(address, usize::from(layout.str_state) + 4)?;
    let at = |offset: u16, length: usize| &header[usize::from(offset)..usize::from(offset) + length];
    let length = u64::from_le_bytes(at(layout.str_length, 8).try_into().unwrap_or_default());
    let state = u32::from_le_bytes(at(layout.str_state, 4).try_into().unwrap_or_default());

    let state = state >> layout.str_kind_shift;
    let (kind, compact, ascii) = (state & 7, state & 8 != 0, state & 16 != 0);
    if length > i64::MAX as u64 || !matches!(kind, 1 | 2 | 4) || (ascii && kind != 1) {
        return Err(TextError::NotText);
    }
    let data = match (compact, ascii) {
        (true, true) => address.wrapping_add(u64::from(layout.str_ascii_data)),
        (true, false) => address.wrapping_add(u64::from(layout.str_compact_data)),
        (false, _) => memory.read_u64(address.wrapping_add(u64::from(layout.str_compact_data)))?,
    };
    let bytes = memory.read_vec(data, (length.min(TEXT_MAX) * u64::from(kind)) as usize)?;

    let mut text = String::with_capacity(bytes.len() / kind as usize);
    for unit in bytes.chunks_exact(kind as usize) {
        let mut point = [0; 4];
        point[..unit.len()].copy_from_slice(unit);
        push_point(&mut text, u32::from_le_bytes(point));
    }
    if length > TEXT_MAX {
        text.push('…');
    }
    Ok(text)
}

/// Appends one code point in printable form.
fn push_point(text: &mut String, point: u32) {
    match (char::from_u32(point), point) {
        (Some(c), _) if c.is_control() => text.extend(c.escape_default()),
        (Some(c), _) => text.push(c),
        // Bytes of a path that were not UTF-8 are in this range (`surrogateescape`).
        (None, 0xdc80..=0xdcff) => {
            let _ = write!(text, "\\x{:02x}", point - 0xdc00);
        }
        (None, _) => text.push(char::REPLACEMENT_CHARACTER),
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::*;
    use crate::memory::RecordedMemory;

    const AT: u64 = 0x7000_0000;

    fn object(minor: u8, length: u64, kind: u32, compact: bool, ascii: bool, data: &[u8]) -> RecordedMemory {
        let layout = &Layout::of(minor, false).unwrap().user;
        let start = if ascii { layout.str_ascii_data } else { layout.str_compact_data };
        let mut bytes = vec![0; usize::from(start)];
        let state = (kind | u32::from(compact) << 3 | u32::from(ascii) << 4) << layout.str_kind_shift;
        bytes[16..24].copy_from_slice(&length.to_le_bytes());
        bytes[32..36].copy_from_slice(&state.to_le_bytes());
        bytes.extend_from_slice(data);
        let mut memory = RecordedMemory::default();
        memory.insert(AT, bytes);
        memory
    }

    fn check(memory: &RecordedMemory, minor: u8, expect: Result<&str, TextError>) {
        let text = read_text(memory, &Layout::of(minor, false).unwrap().user, AT);
        assert_eq!(text.as_deref().map_err(|e| *e), expect);
    }

    #[test]
    fn every_kind_of_string_is_read() {
        for minor in [8, 11, 12, 13] {
            check(&object(minor, 4, 1, true, true, b"name"), minor, Ok("name"));
            check(&object(minor, 2, 1, true, false, &[0xe9, 0x41]), minor, Ok("éA"));
            check(&object(minor, 2, 2, true, false, &[0x42, 0x04, 0x41, 0]), minor, Ok("тA"));
            check(&object(minor, 1, 4, true, false, &[0x40, 0xf6, 1, 0]), minor, Ok("🙀"));
            check(&object(minor, 0, 1, true, true, b""), minor, Ok(""));
        }
    }

    #[test]
    fn a_string_with_external_data_is_read() {
        let mut memory = object(11, 4, 1, false, false, &0x8000_0000_u64.to_le_bytes());
        memory.insert(0x8000_0000, b"name".to_vec());
        check(&memory, 11, Ok("name"));
    }

    #[test]
    fn control_characters_are_escaped() {
        check(&object(11, 5, 1, true, true, b"a\x1b[2J"), 11, Ok("a\\u{1b}[2J"));
        check(&object(11, 3, 2, true, false, &[0x41, 0, 0x80, 0xdc, 0, 0xd8]), 11, Ok("A\\x80\u{fffd}"));
    }

    #[test]
    fn an_overlong_string_is_read_up_to_the_bound() {
        let long = vec![b'x'; TEXT_MAX as usize];
        let text = "x".repeat(TEXT_MAX as usize) + "…";
        check(&object(11, i64::MAX as u64, 1, true, true, &long), 11, Ok(&text));
        check(&object(11, 1 << 40, 1, true, true, b"short"), 11, Err(TextError::Read(ReadError::Unmapped)));
    }

    #[test]
    fn an_invalid_header_is_not_text() {
        for (length, kind, ascii) in
            [(4, 0, true), (4, 3, false), (4, 7, false), (4, 2, true), (u64::MAX, 1, true)]
        {
            check(&object(11, length, kind, true, ascii, b"name"), 11, Err(TextError::NotText));
        }
    }
}
