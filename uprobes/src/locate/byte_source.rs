//! Bytes that can be read at an offset.
//!
//! Owns: reading exactly what was asked for, or nothing. Because: a mapped file that is shortened ends the process, and
//! a size that a file states must not be allocated before it is checked. Does not: know what the bytes mean.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Bytes that can be read at an offset: a file, or memory in tests.
pub trait ByteSource {
    /// Number of bytes.
    fn size(&self) -> u64;
    /// Exactly these bytes, or nothing.
    fn read(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>>;
}

impl ByteSource for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.get(range).map(Cow::Borrowed)
    }
}

impl ByteSource for File {
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        let length = range.end.checked_sub(range.start)?;
        // Checked before anything is allocated.
        if range.end > self.size() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.read_exact_at(&mut bytes, range.start).ok()?;
        Some(Cow::Owned(bytes))
    }
}
