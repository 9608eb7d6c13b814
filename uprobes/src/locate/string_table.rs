//! A string table of an ELF file, of which a window at a time is in memory.
//!
//! Owns: the window, and the order in which names are best looked up. Because: the strings of a framework's library are
//! a hundred megabytes, and the profiler would take as much more for each look at it. Does not: know symbols.

use std::borrow::Cow;
use std::ops::Range;

use super::byte_source::ByteSource;

/// Bytes in memory at once. A longer string, of a file that means harm, is none.
const WINDOW_BYTES: u64 = 256 << 10;

/// Reads strings by their offset.
#[derive(Debug)]
pub(super) struct StringTable<'s, S: ByteSource + ?Sized> {
    source: &'s S,
    /// Where the table is in the file.
    table: Range<u64>,
    window: Cow<'s, [u8]>,
    /// Offset of the window in the table.
    begin: u64,
}

impl<'s, S: ByteSource + ?Sized> StringTable<'s, S> {
    /// The table at these bytes of a file.
    pub(super) fn new(source: &'s S, table: Range<u64>) -> Self {
        Self { source, table, window: Cow::Borrowed(&[]), begin: 0 }
    }

    /// The string at `offset`; empty when there is none. Quick where offsets ascend.
    pub(super) fn at(&mut self, offset: u32) -> &[u8] {
        let offset = u64::from(offset);
        if self.in_window(offset).is_none() {
            self.move_to(offset);
        }
        self.in_window(offset).and_then(|string| self.window.get(string)).unwrap_or_default()
    }

    /// Where the string at `offset` is in the window, if it lies in it with its end.
    fn in_window(&self, offset: u64) -> Option<Range<usize>> {
        let begin = usize::try_from(offset.checked_sub(self.begin)?).ok()?;
        let length = self.window.get(begin..)?.iter().position(|byte| *byte == 0)?;
        Some(begin..begin + length)
    }

    fn move_to(&mut self, offset: u64) {
        let from = self.table.start.saturating_add(offset).min(self.table.end);
        let end = from.saturating_add(WINDOW_BYTES).min(self.table.end);
        self.window = self.source.read(from..end).unwrap_or(Cow::Borrowed(&[]));
        self.begin = offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expect: &[(u32, &str)]) {
        let padded = [b"before", bytes, b"behind\0"].concat();
        let table = 6..6 + bytes.len() as u64;
        for order in [expect.to_vec(), expect.iter().rev().copied().collect()] {
            let mut strings = StringTable::new(&padded[..], table.clone());
            for (offset, string) in order {
                assert_eq!(strings.at(offset), string.as_bytes(), "at {offset}");
            }
        }
    }

    #[test]
    fn strings_end_with_the_table() {
        check(
            b"\0open\0close\0",
            &[(0, ""), (1, "open"), (3, "en"), (6, "close"), (12, ""), (4_000_000_000, "")],
        );
        check(b"\0open", &[(0, ""), (1, ""), (3, "")]);
        check(b"", &[(0, "")]);
    }

    #[test]
    fn strings_are_found_in_any_window() {
        let long = "x".repeat(WINDOW_BYTES as usize - 1);
        let (at, too_long) = (long.len() as u32 + 6, "y".repeat(WINDOW_BYTES as usize));
        let bytes = format!("\0open\0{long}\0close\0{too_long}\0");
        check(
            bytes.as_bytes(),
            &[(1, "open"), (6, &long), (at + 1, "close"), (at + 7, ""), (at + 8, &too_long[1..])],
        );
    }
}
