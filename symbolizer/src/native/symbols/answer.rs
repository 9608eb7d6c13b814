//! Answer: a symbol reader's reply for a list of addresses.
//!
//! Owns: the byte layout of a request and of an answer. Because: both sides must agree, and an answer may come from a
//! compromised reader. Does not: send or wait.
//!
//! ```text
//! request  with a file in memory, which holds the addresses, and the files to read
//!          u64 key of the file, u64 period, u32 number of addresses, u8 question, u8 which debug file, u8 flags, 0
//! answer   u64: bytes written behind the addresses; for each address, in their order
//!            names   u8 0, u16 functions: for each  u32 bytes, name; u32 bytes, file (0: none); u32 line
//!                    u8 1 + number of a `NoSymbol`
//!            starts  u64, all bits for none
//!          and in front of names  u8 whether debug information is in use
//! ```

use deepctx_address_space::NoSymbol;
use deepctx_address_space::elf::{u32_at, u64_at};

use super::debug::Function;
use super::tables::{AddressFacts, DebugFile, Functions, TableRequest};

/// Bytes of a request.
pub(super) const REQUEST_BYTES: usize = 24;
/// Most addresses per request: none takes long, and answers stay small.
pub(super) const ADDRESSES_MAX: usize = 4096;
/// Most bytes of an answer. The longest names of C++ have some ten thousand bytes.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest name or path; longer ones are cut.
const TEXT_MAX: usize = 64 << 10;
/// Bytes reserved for reasons when names take all others.
const RESERVE: usize = ADDRESSES_MAX;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The functions at addresses.
    Names,
    /// Beginnings of functions.
    Starts,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) question: Question,
    pub(super) asked: TableRequest,
    /// Addresses in the file in memory.
    pub(super) count: usize,
}

impl Request {
    pub(super) fn encode(self) -> [u8; REQUEST_BYTES] {
        let TableRequest { key, period, debug, doubted, has_supplement } = self.asked;
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..8].copy_from_slice(&key.to_le_bytes());
        bytes[8..16].copy_from_slice(&period.to_le_bytes());
        bytes[16..20].copy_from_slice(&u32::try_from(self.count).unwrap_or(u32::MAX).to_le_bytes());
        bytes[20] = self.question as u8;
        bytes[21] = debug as u8;
        bytes[22] = u8::from(doubted) | u8::from(has_supplement) << 1;
        bytes
    }

    /// `None`: invalid.
    pub(super) fn decode(bytes: [u8; REQUEST_BYTES]) -> Option<Self> {
        let count = u32_at(&bytes, 16) as usize;
        let question = *[Question::Names, Question::Starts].get(usize::from(bytes[20]))?;
        let debug = *DebugFile::ALL.get(usize::from(bytes[21]))?;
        let asked = TableRequest {
            key: u64_at(&bytes, 0),
            period: u64_at(&bytes, 8),
            debug,
            doubted: bytes[22] & 1 != 0,
            has_supplement: bytes[22] & 2 != 0,
        };
        (count <= ADDRESSES_MAX).then_some(Self { question, asked, count })
    }
}

/// Encodes results. Names beyond the largest answer become [`NoSymbol::TooLarge`].
pub(super) fn encode(found: &AddressFacts) -> Vec<u8> {
    let mut bytes = vec![u8::from(found.with_debug)];
    for functions in &found.functions {
        let begin = bytes.len();
        match functions {
            Err(reason) => bytes.push(1 + *reason as u8),
            Ok(functions) => {
                bytes.push(0);
                let count = u16::try_from(functions.len()).unwrap_or(u16::MAX);
                bytes.extend(count.to_le_bytes());
                for function in functions.iter().take(count.into()) {
                    put(&mut bytes, &function.name);
                    put(&mut bytes, function.file.as_deref().unwrap_or_default());
                    bytes.extend(function.line.to_le_bytes());
                }
            }
        }
        if bytes.len() + RESERVE > ANSWER_BYTES_MAX {
            bytes.truncate(begin);
            bytes.push(1 + NoSymbol::TooLarge as u8);
        }
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, text: &str) {
    let text = &text.as_bytes()[..text.floor_char_boundary(TEXT_MAX)];
    bytes.extend(u32::try_from(text.len()).unwrap_or_default().to_le_bytes());
    bytes.extend(text);
}

/// Decodes the results for this many addresses. `None`: invalid.
pub(super) fn decode(mut bytes: &[u8], count: usize) -> Option<AddressFacts> {
    let with_debug = match take(&mut bytes, 1)? {
        [0] => false,
        [1] => true,
        _ => return None,
    };
    let functions = (0..count).map(|_| functions(&mut bytes)).collect::<Option<_>>()?;
    bytes.is_empty().then_some(AddressFacts { functions, with_debug })
}

fn functions(bytes: &mut &[u8]) -> Option<Functions> {
    if let Some(number) = take(bytes, 1)?[0].checked_sub(1) {
        return NoSymbol::ALL.get(usize::from(number)).map(|reason| Err(*reason));
    }
    let count = u16::from_le_bytes(*take(bytes, 2)?.first_chunk()?);
    // Memory is allocated only as bytes are read.
    let mut functions = Vec::new();
    for _ in 0..count {
        let name = text(bytes)?.to_owned();
        let file = Some(text(bytes)?).filter(|file| !file.is_empty()).map(str::to_owned);
        functions.push(Function { name, file, line: u32_at(take(bytes, 4)?, 0) });
    }
    // The client relies on a first function.
    (!functions.is_empty()).then_some(Ok(functions))
}

fn text<'b>(bytes: &mut &'b [u8]) -> Option<&'b str> {
    let length = u32_at(take(bytes, 4)?, 0) as usize;
    str::from_utf8(take(bytes, length)?).ok()
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    bytes.split_off(..count)
}

/// Encodes beginnings of functions.
pub(super) fn encode_starts(starts: &[Option<u64>]) -> Vec<u8> {
    starts.iter().flat_map(|start| start.unwrap_or(u64::MAX).to_le_bytes()).collect()
}

/// Decodes beginnings of the functions around this many addresses. `None`: invalid.
pub(super) fn decode_starts(bytes: &[u8], count: usize) -> Option<Vec<Option<u64>>> {
    let start = |bytes: &[u8]| Some(u64_at(bytes, 0)).filter(|start| *start != u64::MAX);
    (bytes.len() == 8 * count).then(|| bytes.chunks_exact(8).map(start).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found() -> impl Strategy<Value = AddressFacts> {
        let function = ("\\PC{0,9}", proptest::option::of("\\PC{1,9}"), any::<u32>())
            .prop_map(|(name, file, line)| Function { name, file, line });
        let functions = prop_oneof![
            proptest::collection::vec(function, 1..4).prop_map(Ok),
            (0..NoSymbol::ALL.len()).prop_map(|at| Err(NoSymbol::ALL[at])),
        ];
        (proptest::collection::vec(functions, 0..9), any::<bool>())
            .prop_map(|(functions, with_debug)| AddressFacts { functions, with_debug })
    }

    proptest! {
        #[test]
        fn every_answer_is_decoded_as_it_was_encoded(found in found()) {
            let bytes = encode(&found);
            let count = found.functions.len();
            prop_assert_eq!(decode(&bytes, count), Some(found));
            prop_assert_eq!(decode(&bytes, count + 1), None);
            prop_assert_eq!(decode(&bytes[..bytes.len() - 1], count), None);
        }

        #[test]
        fn any_bytes_are_an_answer_or_none(bytes in proptest::collection::vec(0_u8..4, 0..64), count in 0_usize..9) {
            if let Some(found) = decode(&bytes, count) {
                prop_assert!(found.functions.iter().flatten().all(|functions| !functions.is_empty()));
                prop_assert_eq!(found.functions.len(), count);
            }
        }
    }

    #[test]
    fn every_request_is_decoded_as_it_was_encoded() {
        let asked =
            |debug| TableRequest { key: 1 << 40, period: 7, debug, doubted: true, has_supplement: false };
        for debug in DebugFile::ALL {
            for (question, count) in [(Question::Names, ADDRESSES_MAX), (Question::Starts, 0)] {
                let request = Request { question, asked: asked(debug), count };
                assert_eq!(Request::decode(request.encode()), Some(request));
            }
        }
        let too_many =
            Request { question: Question::Names, asked: asked(DebugFile::Own), count: ADDRESSES_MAX + 1 };
        assert_eq!(Request::decode(too_many.encode()), None);
    }

    #[test]
    fn names_beyond_the_largest_answer_have_a_reason() {
        let long = Function { name: "x".repeat(2 * TEXT_MAX), file: None, line: 1 };
        let found = AddressFacts { functions: vec![Ok(vec![long; 8]); 200], with_debug: false };
        let decoded = decode(&encode(&found), 200).unwrap();
        assert_eq!(decoded.functions[0].as_ref().unwrap()[0].name.len(), TEXT_MAX);
        assert_eq!(decoded.functions[199], Err(NoSymbol::TooLarge));
    }
}
