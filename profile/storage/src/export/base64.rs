//! Base64: bytes within a text.
//!
//! Owns: [`Base64`]. Because: a page can hold bytes only as text, and no crate of the project needs more of it than
//! this. Does not: decode, or break lines.

use std::io::{self, Write};

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes its input as base64 (RFC 4648, with padding).
pub(super) struct Base64<'o> {
    out: &'o mut dyn Write,
    /// Bytes that do not yet fill a group of four characters.
    rest: Vec<u8>,
}

impl<'o> Base64<'o> {
    pub(super) fn new(out: &'o mut dyn Write) -> Self {
        Self { out, rest: Vec::new() }
    }

    /// Writes the last characters.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.letters(true)
    }

    /// Writes the letters of complete groups of three bytes, and of the remainder at the end.
    fn letters(&mut self, is_end: bool) -> io::Result<()> {
        let whole = if is_end { self.rest.len() } else { self.rest.len() / 3 * 3 };
        let mut text = Vec::with_capacity(whole.div_ceil(3) * 4);
        for group in self.rest[..whole].chunks(3) {
            let byte = |place: usize| usize::from(group.get(place).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            let letters = [bits >> 18, bits >> 12, bits >> 6, bits].map(|six| LETTERS[six & 63]);
            text.extend_from_slice(&letters[..=group.len()]);
            text.resize(text.len().next_multiple_of(4), b'=');
        }
        self.rest.drain(..whole);
        self.out.write_all(&text)
    }
}

impl Write for Base64<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        self.letters(false)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_the_standard() {
        for (bytes, expect) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            let mut out = Vec::new();
            let mut base64 = Base64::new(&mut out);
            bytes.bytes().for_each(|byte| base64.write_all(&[byte]).unwrap());
            base64.finish().unwrap();
            assert_eq!(out, expect.as_bytes());
        }
    }
}
