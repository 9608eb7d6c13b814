//! What JSON does not have and many writers of JSON write: NaN and infinities, a comma behind a last element, and texts
//! with control characters, unknown escapes or halves of surrogate pairs.
//!
//! Owns: [`replaced`]. Because: one occupancy of 0/0 in a trace of a million events must not spoil the others, nor may
//! the comma that a loop has written once more than needed, or one path of Windows. Does not: look at what the values
//! are of.

/// What Python's `json`, C++ streams and `printf` write; longer ones first.
const WORDS: [&[u8]; 4] = [b"Infinity", b"NaN", b"nan", b"inf"];

/// A text without what JSON does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    /// The text.
    pub(super) text: String,
    /// How many values were replaced.
    pub(super) values: u64,
    /// How many commas, and bytes of texts.
    pub(super) others: u64,
}

/// The text with an empty text in place of each such value, and a space in place of each such comma or control
/// character. All other bytes stay where they are.
pub(super) fn replaced(text: &str) -> Replaced {
    let mut bytes = text.as_bytes().to_vec();
    let (mut n, mut others, mut at, mut in_text) = (0, 0, 0, false);
    // The last byte that is no space, and where it is.
    let (mut before, mut before_at) = (b' ', 0);
    while let Some(&byte) = bytes.get(at) {
        let length =
            if in_text || !matches!(before, b':' | b',' | b'[') { 0 } else { not_a_number(&bytes[at..]) };
        if length > 0 {
            bytes[at..at + length].fill(b' ');
            bytes[at..at + 2].fill(b'"');
            (n, at, before) = (n + 1, at + length, b'"');
            continue;
        }
        match byte {
            b'\\' if in_text => {
                let (length, is_replaced) = escape(&mut bytes[at..]);
                at += length - 1;
                others += u64::from(is_replaced);
            }
            b'"' => in_text = !in_text,
            b']' | b'}' if !in_text && before == b',' => {
                bytes[before_at] = b' ';
                others += 1;
            }
            0..b' ' if in_text => {
                bytes[at] = b' ';
                others += 1;
            }
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            (before, before_at) = (byte, at);
        }
        at += 1;
    }
    // Only letters of one byte were replaced, by others of one byte.
    Replaced { text: String::from_utf8(bytes).unwrap_or_default(), values: n, others }
}

/// Length of the escape at the start, and whether it was none and has been replaced.
fn escape(bytes: &mut [u8]) -> (usize, bool) {
    let next = bytes.get(6..).and_then(code_unit);
    match (bytes.get(1).copied(), code_unit(bytes)) {
        (None, _) => (1, false),
        (Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't'), _) => (2, false),
        (_, Some(0xd800..0xdc00)) if next.is_some_and(|next| (0xdc00..0xe000).contains(&next)) => (12, false),
        // Python writes a byte that is no UTF-8 as such a half.
        (_, Some(0xd800..0xe000)) => {
            bytes[2..6].copy_from_slice(b"fffd");
            (6, true)
        }
        (_, Some(_)) => (6, false),
        (Some(_), None) => {
            bytes[0] = b'/';
            (1, true)
        }
    }
}

/// The number of an escape such as `\u00e9`.
fn code_unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_hexdigit))?;
    u16::from_str_radix(digits, 16).ok()
}

/// Length of such a value at the start; 0 if there is none.
fn not_a_number(bytes: &[u8]) -> usize {
    let sign = usize::from(bytes.first() == Some(&b'-'));
    let word = WORDS.iter().find(|word| bytes[sign..].starts_with(word));
    word.map_or(0, |word| sign + word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_json_does_not_have_is_replaced() {
        let check = |text: &str, expect: &str, values: u64, others: u64| {
            assert_eq!(replaced(text), Replaced { text: expect.to_owned(), values, others }, "{text}");
        };
        check(r#"{"NaN":NaN,"b":[-Infinity, nan,-nan]}"#, r#"{"NaN":"" ,"b":[""       , "" ,""  ]}"#, 4, 0);
        check(r#"{"a":"x, NaN","b\"":inf}"#, r#"{"a":"x, NaN","b\"":"" }"#, 1, 0);
        check(r#"{"a":1}"#, r#"{"a":1}"#, 0, 0);
        check("[-", "[-", 0, 0);
        check("[{\"a\":\",]\",},\n]", "[{\"a\":\",]\" } \n]", 0, 2);
        check(r#"{"a":[1,NaN,]}"#, r#"{"a":[1,""  ]}"#, 1, 1);
        check("[\"a\tb\\\\\",\n\t1]", "[\"a b\\\\\",\n\t1]", 0, 1);
        check(r#"["\udc80\ud83d\ude00\ud83d\n"]"#, r#"["\ufffd\ud83d\ude00\ufffd\n"]"#, 0, 2);
        check(r#"["C:\Users\user\é\u00e9\""]"#, r#"["C:/Users/user/é\u00e9\""]"#, 0, 3);
        check(r#"["\u12"#, r#"["/u12"#, 0, 1);
        check("[\"\\", "[\"\\", 0, 0);
    }
}
