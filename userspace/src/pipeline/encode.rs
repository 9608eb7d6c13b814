//! Encode: events → bytes, as the kernel programs write them.
//!
//! Owns: the writing side of `deepctx_common::record` in user space. Because: test vectors, benchmarks and fuzz seeds
//! must be made of the same bytes that the rings deliver. Does not: take part in a capture.

use deepctx_common::Plain;
use deepctx_common::record::{ProcessEvent, RecordHeader, StackSample, Wake, kind};

/// Appends a sample, or the beginning of a wait when the header says so. Sizes, counts and the kind of a sample are
/// filled in; everything else is taken from `fixed`.
pub fn sample(out: &mut Vec<u8>, fixed: &StackSample, kernel: &[u64], user: &[u64]) {
    let size = size_of::<StackSample>() + 8 * (kernel.len() + user.len());
    let kind = if fixed.header.kind == kind::BLOCK { kind::BLOCK } else { kind::SAMPLE };
    let fixed = StackSample {
        header: RecordHeader { size: size as u32, kind, ..fixed.header },
        kernel_words: kernel.len() as u16,
        user_words: user.len() as u16,
        ..*fixed
    };
    out.extend_from_slice(fixed.as_bytes());
    for word in kernel.iter().chain(user) {
        out.extend_from_slice(word.as_bytes());
    }
}

/// Appends the end of a wait.
pub fn wake(out: &mut Vec<u8>, wake: &Wake) {
    let header = RecordHeader { size: size_of::<Wake>() as u32, kind: kind::WAKE, ..wake.header };
    out.extend_from_slice(Wake { header, ..*wake }.as_bytes());
}

/// Appends a fork, exec or exit; the kind is the one in the header.
pub fn process_event(out: &mut Vec<u8>, event: &ProcessEvent) {
    let header = RecordHeader { size: size_of::<ProcessEvent>() as u32, ..event.header };
    out.extend_from_slice(ProcessEvent { header, ..*event }.as_bytes());
}

/// A name as records carry it: 15 bytes at most, NUL-padded.
pub fn comm(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    bytes
}
