//! Requests to a reader: one request, one answer.
//!
//! Owns: the timeout of an answer. Because: a reader that waits for a CPU is merely slow; one that waits for a page
//! may wait forever. Does not: start readers, or replace them ([`crate::worker::Pool`]).

use std::io::{self, IoSliceMut, Read as _};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::DEADLINE;
use super::protocol::{ANSWER_BYTES, ReplyHeader, Request};
use crate::worker::{Worker, WorkerFailure, send};

/// Longest wait for a reader that has work but no CPU; then it is replaced. A process that waits for a page does not
/// count as running.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Makes a reader read, or walk; `question`: of a walk, otherwise empty. On success the bytes are in `into`.
pub(super) fn ask(
    reader: &Worker,
    request: Request,
    file: BorrowedFd<'_>,
    question: &[u8],
    into: &mut [u8],
) -> Result<ReplyHeader, WorkerFailure> {
    let mut socket = reader.socket();
    let message = [&request.encode()[..], question].concat();
    send(socket, &message, &[file]).map_err(|_| WorkerFailure::Ended)?;
    let longest = if request.is_walk() { into.len() } else { request.length };
    let into = into.get_mut(..longest).ok_or(WorkerFailure::Ended)?;
    let mut wait = AnswerWait { reader, began: Instant::now(), is_shortened: false };
    let mut header = [0; ANSWER_BYTES];
    let mut received: usize = 0;
    loop {
        let done = received.checked_sub(ANSWER_BYTES);
        let answer = ReplyHeader::decode(header);
        let length = answer.length as usize;
        if done == Some(length) {
            return wait.restore_timeout().map(|()| answer);
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
            Err(error) => wait.goes_on(&error)?,
        }
    }
}

/// The wait for an answer. The socket has a timeout of [`DEADLINE`], which every read begins anew.
struct AnswerWait<'a> {
    reader: &'a Worker,
    began: Instant,
    /// The timeout is what was left of it after a signal.
    is_shortened: bool,
}

impl AnswerWait<'_> {
    /// Whether to read on after this error.
    ///
    /// # Errors
    /// Why not.
    fn goes_on(&mut self, error: &io::Error) -> Result<(), WorkerFailure> {
        let waited = self.began.elapsed();
        match error.kind() {
            // A signal interrupts a read that has a timeout.
            io::ErrorKind::Interrupted if waited < DEADLINE => {
                self.is_shortened = true;
                self.set_timeout(DEADLINE - waited)
            }
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => match self.reader.is_running() {
                true if waited < PATIENCE => self.restore_timeout(),
                // The process whose memory it reads is not to blame.
                true => Err(WorkerFailure::Ended),
                false => Err(WorkerFailure::Silent),
            },
            _ => Err(WorkerFailure::Ended),
        }
    }

    /// The next request needs the whole timeout.
    fn restore_timeout(&mut self) -> Result<(), WorkerFailure> {
        if std::mem::take(&mut self.is_shortened) { self.set_timeout(DEADLINE) } else { Ok(()) }
    }

    fn set_timeout(&self, timeout: Duration) -> Result<(), WorkerFailure> {
        self.reader.socket().set_read_timeout(Some(timeout)).map_err(|_| WorkerFailure::Ended)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;
    use std::process::Command;

    use super::super::{AUTHOR, TERMS};
    use super::*;
    use crate::worker::signalled::while_signalled;
    use crate::worker::{NoAnswer, Pool};

    fn script(text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]);
        command
    }

    /// Neither answers nor ends.
    fn mute() -> Command {
        script("printf ! >&0; exec sleep 1000")
    }

    /// Answers each request without bytes: late, but in time.
    fn late() -> Command {
        script("printf ! >&0; while head -c 12 >/dev/null; do sleep 0.02; head -c 12 /dev/zero >&0; done")
    }

    /// Asks for nothing.
    fn ask_pool(pool: &Pool) -> Result<ReplyHeader, NoAnswer> {
        let file = File::open("/proc/self/stat").unwrap();
        let request = Request { position: None, length: 0 };
        pool.ask(AUTHOR, |reader| ask(reader, request, file.as_fd(), &[], &mut []))
    }

    #[test]
    fn signals_do_not_prolong_the_wait_for_an_answer() {
        let answer = while_signalled(|| ask_pool(&Pool::new(mute, TERMS)));
        assert_eq!(answer, Err(NoAnswer::Silent));
    }

    #[test]
    fn the_request_after_a_signal_has_all_its_time() {
        let (before, after) = while_signalled(|| {
            let pool = Pool::new(late, TERMS);
            let timeout = || pool.ask(AUTHOR, |reader| Ok(reader.socket().read_timeout().unwrap())).unwrap();
            let before = timeout();
            // On a busy machine it may be too late.
            while ask_pool(&pool).is_err() {}
            (before, timeout())
        });
        assert_eq!(before, after);
    }
}
