//! NaN and infinities, and commas behind a last element, which JSON does not have and many writers of JSON write.
//!
//! Owns: [`replaced`]. Because: one occupancy of 0/0 in a trace of a million events must not spoil the others, nor may
//! the comma that a loop has written once more than needed. Does not: look at what the values are of.

/// What Python's `json`, C++ streams and `printf` write; longer ones first.
const WORDS: [&[u8]; 4] = [b"Infinity", b"NaN", b"nan", b"inf"];

/// A text without what JSON does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    /// The text.
    pub(super) text: String,
    /// How many values were replaced.
    pub(super) values: u64,
    /// How many commas.
    pub(super) commas: u64,
}

/// The text with an empty text in place of each such value, and a space in place of each such comma. All other bytes
/// stay where they are.
pub(super) fn replaced(text: &str) -> Replaced {
    let mut bytes = text.as_bytes().to_vec();
    let (mut n, mut commas, mut at, mut in_text) = (0, 0, 0, false);
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
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            b']' | b'}' if !in_text && before == b',' => {
                bytes[before_at] = b' ';
                commas += 1;
            }
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            (before, before_at) = (byte, at);
        }
        at += 1;
    }
    // Only whole words of letters and commas were replaced, by other letters of one byte.
    Replaced { text: String::from_utf8(bytes).unwrap_or_default(), values: n, commas }
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
    fn only_values_and_last_commas_are_replaced() {
        let check = |text: &str, expect: &str, values: u64, commas: u64| {
            assert_eq!(replaced(text), Replaced { text: expect.to_owned(), values, commas }, "{text}");
        };
        check(r#"{"NaN":NaN,"b":[-Infinity, nan,-nan]}"#, r#"{"NaN":"" ,"b":[""       , "" ,""  ]}"#, 4, 0);
        check(r#"{"a":"x, NaN","b\"":inf}"#, r#"{"a":"x, NaN","b\"":"" }"#, 1, 0);
        check(r#"{"a":1}"#, r#"{"a":1}"#, 0, 0);
        check("[-", "[-", 0, 0);
        check("[{\"a\":\",]\",},\n]", "[{\"a\":\",]\" } \n]", 0, 2);
        check(r#"{"a":[1,NaN,]}"#, r#"{"a":[1,""  ]}"#, 1, 1);
    }
}
