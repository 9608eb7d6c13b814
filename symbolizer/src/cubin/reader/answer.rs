//! Answer: requests to a reader of device code, and what it replies.
//!
//! Owns: both forms in bytes. Because: both sides must agree, and an answer may come from a compromised reader.
//! Does not: send or wait.
//!
//! ```text
//! request  with a file in memory, which holds the input, and the file that the question is about (else the same)
//!          u8 question, 7 bytes 0, u64 most bytes of device code, u64 bytes that may be unpacked, u64 bytes of input
//! answer   u64: bytes written behind the input, in JSON
//! ```

use deepctx_address_space::elf::u64_at;
use serde::{Deserialize, Serialize};

use super::UnreadCode;
use crate::cubin::NoCubin;

/// Bytes of a request.
pub(super) const REQUEST_BYTES: usize = 32;
/// Most bytes of any answer.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The kernels in the fat binaries of the file.
    FatBinaries { most_bytes: u64, budget: u64 },
    /// The kernels of host stubs of the file; the input is their offsets.
    Stubs,
    /// The kernels of the image that is the input.
    Image,
    /// The lines of the image that is the input.
    Lines,
}

impl Question {
    /// Most bytes of its answer. Decoded, the answer of a compromised reader may take six times as much memory.
    pub(super) fn answer_bytes_max(self) -> usize {
        match self {
            // The names that are kept of all files together are no longer.
            Self::FatBinaries { .. } | Self::Image => ANSWER_BYTES_MAX,
            // A thousand of the longest names.
            Self::Stubs => 16 << 20,
            // All lines that are kept of an image, and all waiting instructions.
            Self::Lines => 56 << 20,
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) question: Question,
    /// Bytes of the input.
    pub(super) input: u64,
}

impl Request {
    pub(super) fn encode(self) -> [u8; REQUEST_BYTES] {
        let (number, most_bytes, budget) = match self.question {
            Question::FatBinaries { most_bytes, budget } => (0, most_bytes, budget),
            Question::Stubs => (1, 0, 0),
            Question::Image => (2, 0, 0),
            Question::Lines => (3, 0, 0),
        };
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0] = number;
        bytes[8..16].copy_from_slice(&most_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&budget.to_le_bytes());
        bytes[24..].copy_from_slice(&self.input.to_le_bytes());
        bytes
    }

    /// `None`: invalid.
    pub(super) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let question = match bytes[0] {
            0 => Question::FatBinaries { most_bytes: u64_at(bytes, 8), budget: u64_at(bytes, 16) },
            1 => Question::Stubs,
            2 => Question::Image,
            3 => Question::Lines,
            _ => return None,
        };
        Some(Self { question, input: u64_at(bytes, 24) })
    }
}

/// A kernel: its mangled name; its architecture, registers and bytes of static shared memory, if known.
pub(super) type KernelRow = (String, [Option<u64>; 3]);

/// A function with its rows: offset, file and line (0: none).
pub(super) type FunctionRows = (String, Vec<[u32; 3]>);

/// A waiting instruction: offset, offsets of its producers, and number of the reason why there may be others (0: none).
pub(super) type WaitRow = (u32, Vec<u32>, u8);

/// A function with its waiting instructions.
pub(super) type FunctionWaits = (String, Vec<WaitRow>);

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Contents {
    /// Kernels; how many more there were; and of the bytes that might be unpacked, those that are left.
    Kernels { kernels: Vec<KernelRow>, left_out: usize, budget: u64 },
    /// The file has more device code than was asked for.
    TooManyBytes,
    /// Kernels by the offsets of their host stubs.
    Stubs(Vec<(u64, String)>),
    /// Lines of an image, and what its instructions wait for.
    Lines {
        files: Vec<String>,
        functions: Vec<FunctionRows>,
        left_out: u64,
        waits: Vec<FunctionWaits>,
        waits_left_out: u64,
    },
    /// The input is not a cubin.
    NotCubin(NoCubin),
    /// The answer would be too large.
    TooLarge,
}

impl Contents {
    /// In bytes, as the answer to this question.
    pub(super) fn encode(&self, question: Question) -> Vec<u8> {
        let bytes = |answer: &Self| serde_json::to_vec(answer).unwrap_or_default();
        let most = question.answer_bytes_max();
        Some(bytes(self)).filter(|bytes| bytes.len() <= most).unwrap_or_else(|| bytes(&Self::TooLarge))
    }

    /// `None`: invalid.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Separates what was read from what was not.
    pub(super) fn into_result(self) -> Result<Self, UnreadCode> {
        match self {
            Self::NotCubin(error) => Err(UnreadCode::NotCubin(error)),
            Self::TooLarge => Err(UnreadCode::TooSlow),
            answer => Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_decoded_as_they_were_encoded() {
        for question in [
            Question::FatBinaries { most_bytes: 1 << 40, budget: 7 },
            Question::Stubs,
            Question::Image,
            Question::Lines,
        ] {
            let request = Request { question, input: 99 };
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        assert_eq!(Request::decode(&[4; REQUEST_BYTES]), None);
    }

    #[test]
    fn invalid_answers_are_refused() {
        for bytes in ["", "{}", "\"Kernels\"", "{\"Stubs\":[[1]]}", "\"TooManyBytes\" x"] {
            assert_eq!(Contents::decode(bytes.as_bytes()), None, "{bytes}");
        }
        assert_eq!(
            Contents::decode(&Contents::TooManyBytes.encode(Question::Image)),
            Some(Contents::TooManyBytes)
        );
    }
}
