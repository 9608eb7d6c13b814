//! Text in files that may hold anything.
//!
//! Owns: [`lossy`]. Because: names come from other programs' symbols and command lines: invalid UTF-8 costs its own
//! characters, not the file, and is counted. Does not: say what the text is.

use std::borrow::Cow;

/// The text of these bytes, with replacement characters where they are not UTF-8, and at how many places.
pub(super) fn lossy(bytes: &[u8]) -> (Cow<'_, str>, u64) {
    let text = String::from_utf8_lossy(bytes);
    let replaced = match text {
        Cow::Borrowed(_) => 0,
        Cow::Owned(_) => bytes.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count() as u64,
    };
    (text, replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_without_a_character_counts() {
        let check = |bytes: &[u8], expect: (&str, u64)| {
            let (text, replaced) = lossy(bytes);
            assert_eq!((&*text, replaced), expect, "{bytes:?}");
        };
        check("é".as_bytes(), ("é", 0));
        check(b"a\xffb\xfe", ("a\u{fffd}b\u{fffd}", 2));
        // A letter that is cut.
        check(b"a\xc3", ("a\u{fffd}", 1));
    }
}
