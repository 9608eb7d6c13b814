//! Protocol: what the profiler and its reader say to each other.
//!
//! Owns: the bytes of a request and of an answer, and the descriptor that goes with each request. Because: both sides
//! must agree, and a reader that keeps nothing between two requests can be replaced at any moment. Does not: wait for
//! anything longer than the socket does.
//!
//! ```text
//! request  position u64 (MAX: read on from where the file is), length u32, with the file to read
//! answer   error u32 (0: none), length u32, time spent in reading u32 (microseconds), then the bytes
//! ```

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Most bytes of one answer.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Bytes of a request.
const REQUEST_BYTES: usize = 12;
/// Bytes before those that were read.
pub(super) const ANSWER_BYTES: usize = 12;

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Where; `None`: from where the file is.
    pub(super) position: Option<u64>,
    /// How much, at most [`PIECE_BYTES`].
    pub(super) length: usize,
}

/// What precedes the bytes of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The system's error, or 0.
    pub(super) error: u32,
    /// How many bytes follow.
    pub(super) length: u32,
    /// How long the system call took. The reader measures it: its waiting for a CPU is nobody's fault.
    pub(super) microseconds: u32,
}

impl Request {
    fn encode(self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..8].copy_from_slice(&self.position.unwrap_or(u64::MAX).to_le_bytes());
        bytes[8..].copy_from_slice(&(self.length as u32).to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; REQUEST_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, length @ ..] = bytes;
        let position = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let length = (u32::from_le_bytes(length) as usize).min(PIECE_BYTES);
        Self { position: Some(position).filter(|position| *position != u64::MAX), length }
    }
}

impl Answer {
    pub(super) fn encode(self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        let fields = [self.error, self.length, self.microseconds];
        for (into, field) in bytes.chunks_exact_mut(4).zip(fields) {
            into.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: [u8; ANSWER_BYTES]) -> Self {
        let field = |n: usize| u32::from_le_bytes([bytes[n], bytes[n + 1], bytes[n + 2], bytes[n + 3]]);
        Self { error: field(0), length: field(4), microseconds: field(8) }
    }
}

/// Sends a request with the file that it is about.
pub(super) fn send(socket: impl AsFd, request: Request, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    control.push(SendAncillaryMessage::ScmRights(&files));
    let bytes = request.encode();
    let sent = sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == REQUEST_BYTES { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a request; `None` when there will be none any more.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<(Request, File)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; REQUEST_BYTES];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match file {
        Some(file) if received.bytes == REQUEST_BYTES => Ok(Some((Request::decode(bytes), file.into()))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_request_arrives_with_its_file() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = File::open("/proc/self/status").unwrap();
        for position in [Some(0), Some(0x7fff_0000_1000), None] {
            let request = Request { position, length: 77 };
            send(&ours, request, file.as_fd()).unwrap();
            let (received, its) = receive(&theirs).unwrap().unwrap();
            assert_eq!(received, request);
            assert!(its.metadata().is_ok());
        }
        drop(ours);
        assert!(receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn an_answer_is_decoded_as_it_was_encoded() {
        let answer = Answer { error: 5, length: 65_536, microseconds: 1 << 30 };
        assert_eq!(Answer::decode(answer.encode()), answer);
    }
}
