//! Encode: events → bytes, in the format that the kernel programs write.
//!
//! Owns: the writing side of `deepctx_common::record` in user space. Because: test vectors, benchmarks and fuzz seeds
//! must consist of the same bytes as the rings deliver. Does not: take part in a capture.

use deepctx_common::Plain;
use deepctx_common::activity::Activity;
use deepctx_common::call::{Call, Correlation, Message, Return};
use deepctx_common::record::{ProcessEvent, RecordHeader, StackSample, Wake, kind};

/// Appends a sample, or the beginning of a wait if the header says so. Sizes, counts and the kind of a sample are
/// filled in; the rest comes from `fixed`.
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

/// Appends a call: the stack there, then the call, its arguments and its text. Sizes, counts and the kind are filled
/// in.
pub fn call(
    out: &mut Vec<u8>,
    fixed: &StackSample,
    kernel: &[u64],
    user: &[u64],
    call: &Call,
    arguments: &[u64],
    text: &[u8],
) {
    let begin = out.len();
    sample(out, fixed, kernel, user);
    let call = Call { arguments: arguments.len() as u16, text_bytes: text.len() as u16, ..*call };
    out.extend_from_slice(call.as_bytes());
    for argument in arguments {
        out.extend_from_slice(argument.as_bytes());
    }
    padded(out, text);
    let header = RecordHeader { size: (out.len() - begin) as u32, kind: kind::CALL, ..fixed.header };
    out[begin..][..size_of::<RecordHeader>()].copy_from_slice(header.as_bytes());
}

/// Appends a return.
pub fn call_return(out: &mut Vec<u8>, record: &Return) {
    let header = RecordHeader { size: size_of::<Return>() as u32, kind: kind::RETURN, ..record.header };
    out.extend_from_slice(Return { header, ..*record }.as_bytes());
}

/// Appends a correlation id.
pub fn correlation(out: &mut Vec<u8>, record: &Correlation) {
    let header =
        RecordHeader { size: size_of::<Correlation>() as u32, kind: kind::CORRELATION, ..record.header };
    out.extend_from_slice(Correlation { header, ..*record }.as_bytes());
}

/// Appends a message and its bytes.
pub fn message(out: &mut Vec<u8>, message: &Message, bytes: &[u8]) {
    let size = size_of::<Message>() + bytes.len().next_multiple_of(8);
    let header = RecordHeader { size: size as u32, kind: kind::MESSAGE, ..message.header };
    out.extend_from_slice(Message { header, bytes: bytes.len() as u32, ..*message }.as_bytes());
    padded(out, bytes);
}

/// Appends a message with activities.
pub fn activities(out: &mut Vec<u8>, head: &Message, activities: &[Activity]) {
    let bytes: Vec<u8> = activities.iter().flat_map(|activity| activity.as_bytes().iter().copied()).collect();
    message(out, &Message { what: deepctx_common::activity::probe::ACTIVITIES, ..*head }, &bytes);
}

fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + bytes.len().next_multiple_of(8) - bytes.len(), 0);
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
