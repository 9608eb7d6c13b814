//! Requests to a reader: one request, one answer.
//!
//! Owns: the timeout of an answer. Because: a reader that waits for a CPU is merely slow; one that waits for a page
//! may wait forever. Does not: start readers, or replace them ([`crate::worker::Pool`]).

use std::io::{self, IoSliceMut, Read as _};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::protocol::{ANSWER_BYTES, ReplyHeader, Request};
use crate::worker::{Worker, WorkerFailure, send};

/// Longest wait for a reader that has work but no CPU; then it is replaced. A process that waits for a page does not
/// count as running.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Makes a reader read. On success the bytes are in `into`.
pub(super) fn ask(
    reader: &Worker,
    request: Request,
    file: BorrowedFd<'_>,
    into: &mut [u8],
) -> Result<ReplyHeader, WorkerFailure> {
    let mut socket = reader.socket();
    send(socket, &request.encode(), &[file]).map_err(|_| WorkerFailure::Ended)?;
    let into = into.get_mut(..request.length).ok_or(WorkerFailure::Ended)?;
    let began = Instant::now();
    let mut header = [0; ANSWER_BYTES];
    let mut received: usize = 0;
    loop {
        let done = received.checked_sub(ANSWER_BYTES);
        let answer = ReplyHeader::decode(header);
        let length = answer.length as usize;
        if done == Some(length) {
            return Ok(answer);
        }
        let read = match done {
            Some(done) => socket.read(into.get_mut(done..length).ok_or(WorkerFailure::Ended)?),
            // Usually all bytes arrive together.
            None => {
                let parts = &mut [IoSliceMut::new(&mut header[received..]), IoSliceMut::new(into)];
                socket.read_vectored(parts)
            }
        };
        match read {
            Ok(0) => return Err(WorkerFailure::Ended),
            Ok(read) => received += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let is_patient = began.elapsed() < PATIENCE;
                match reader.is_running() {
                    true if is_patient => {}
                    // The process whose memory it reads is not to blame.
                    true => return Err(WorkerFailure::Ended),
                    false => return Err(WorkerFailure::Silent),
                }
            }
            Err(_) => return Err(WorkerFailure::Ended),
        }
    }
}
