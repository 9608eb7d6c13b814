//! Readers: starts a reader, limits how long an answer may take, and how often a reader is replaced.
//!
//! Owns: the thread `gpus`, with its pool of one reader. Because: a reader that ended or hangs within the driver is
//! replaced, but a library that always does so must not be restarted forever. Does not: know what is read.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use deepctx_symbolizer::worker::{Author, Launch, NoAnswer, Pool, Terms, Worker, WorkerFailure};

use super::super::supervisor::Heartbeat;
use super::NoFigures;
use super::protocol::{HEAD_BYTES, REQUEST, Readings, Reply};

/// Longest wait for an answer. Only this thread waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerTimeouts {
    /// The first answer of a reader: without a persistent driver, each GPU takes a second or two to initialize.
    pub(super) first: Duration,
    /// Later ones. Some calls take tens of milliseconds, and there are nine for each GPU.
    pub(super) later: Duration,
}

pub(super) const PATIENCE: AnswerTimeouts =
    AnswerTimeouts { first: Duration::from_secs(10), later: Duration::from_secs(2) };
/// One at a time.
const READERS_MAX: usize = 1;
/// The author of the bytes: the driver, which is root's.
const AUTHOR: Author = Author::user(0);
/// Failures of readers after which no other one is started.
const FAILURES_MAX: u32 = 2;
/// This many consecutive answers make up for earlier failures: a minute's.
const FORGIVEN_AFTER: u32 = 120;

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Read(Readings),
    /// None this time; another reader will be tried.
    Missing,
    /// None from now on.
    Over(NoFigures),
}

/// Readers, one after the other.
#[derive(Debug)]
pub(super) struct Readers {
    pool: Pool,
    patience: AnswerTimeouts,
    /// Timeout of the next answer.
    wait: Duration,
    failures: u32,
    /// Answers since the last failure.
    answers: u32,
}

impl Readers {
    pub(super) fn new(launch: Launch, patience: AnswerTimeouts) -> Self {
        let AnswerTimeouts { first, later } = patience;
        let terms = Terms { workers_max: READERS_MAX, answer_max: later, wait_max: later };
        Self { pool: Pool::new(launch, terms), patience, wait: first, failures: 0, answers: 0 }
    }

    /// Answers requests until there are no more requests, or no more figures.
    pub(super) fn run(&mut self, requests: &Receiver<()>, answers: &Sender<Reading>, heartbeat: &Heartbeat) {
        for () in requests {
            heartbeat.beat();
            let reading = self.read();
            heartbeat.idle();
            let is_over = matches!(reading, Reading::Over(_));
            if answers.send(reading).is_err() || is_over {
                return;
            }
        }
    }

    fn read(&mut self) -> Reading {
        let AnswerTimeouts { first, later } = self.patience;
        let (mut wait, mut failures) = (self.wait, 0);
        // The pool replaces a reader that ended, once.
        let answer = self.pool.ask(AUTHOR, |reader| {
            let answer = ask(reader, wait);
            failures += u32::from(answer.is_err());
            wait = if answer.is_ok() { later } else { first };
            answer
        });
        self.wait = wait;
        self.count(failures);
        let is_enough = self.failures >= FAILURES_MAX;
        match answer {
            Ok(Reply(Err(refusal))) => Reading::Over(NoFigures::Refused(refusal)),
            Ok(_) | Err(NoAnswer::Ended) if is_enough => Reading::Over(NoFigures::Ended),
            Err(NoAnswer::Silent) if is_enough => Reading::Over(NoFigures::Silent),
            Ok(Reply(Ok(readings))) => Reading::Read(readings),
            Err(NoAnswer::NoWorker) => Reading::Over(NoFigures::NoReader),
            Err(NoAnswer::Silent | NoAnswer::Ended) => Reading::Missing,
        }
    }

    fn count(&mut self, failures: u32) {
        if failures > 0 {
            tracing::debug!(failures, "a reader of GPUs failed");
            self.failures += failures;
            self.answers = 0;
            return;
        }
        self.answers = self.answers.saturating_add(1);
        if self.answers >= FORGIVEN_AFTER {
            self.failures = 0;
        }
    }
}

/// One request, one answer.
fn ask(reader: &Worker, patience: Duration) -> Result<Reply, WorkerFailure> {
    let (mut socket, deadline) = (reader.socket(), Instant::now() + patience);
    socket.write_all(&REQUEST).map_err(|_| WorkerFailure::Ended)?;
    let mut head = [0; HEAD_BYTES];
    fill(socket, &mut head, deadline)?;
    let mut rest = vec![0; Reply::length(&head).ok_or(WorkerFailure::Ended)?];
    fill(socket, &mut rest, deadline)?;
    Reply::decode(&head, &rest).ok_or(WorkerFailure::Ended)
}

/// Reads all bytes before the deadline: byte by byte, an answer could take many times as long.
fn fill(mut socket: &UnixStream, mut into: &mut [u8], deadline: Instant) -> Result<(), WorkerFailure> {
    while !into.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(WorkerFailure::Silent);
        }
        socket.set_read_timeout(Some(left)).map_err(|_| WorkerFailure::Ended)?;
        match socket.read(into) {
            Ok(0) => return Err(WorkerFailure::Ended),
            Ok(read) => into = &mut into[read..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(WorkerFailure::Silent),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(WorkerFailure::Ended),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::protocol::Refusal;
    use super::*;

    const SHORT: AnswerTimeouts =
        AnswerTimeouts { first: Duration::from_secs(60), later: Duration::from_millis(50) };
    /// Readings of no GPU: sixteen bytes, all of them zero.
    const ANSWER: &str = r"printf '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >&0";

    fn script(text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        // `next` reads a request; there is none once the socket is closed.
        command.args(["-c", &format!("printf ! >&0; next() {{ [ -n \"$(head -c 1)\" ]; }}; {text}")]);
        command
    }

    fn readers(launch: Launch) -> Readers {
        Readers::new(launch, SHORT)
    }

    #[test]
    fn a_reader_answers_again_and_again() {
        let mut readers = readers(|| script(&format!("while next; do {ANSWER}; done")));
        let none = || Reading::Read(Readings::default());
        assert_eq!([readers.read(), readers.read(), readers.read()], [none(), none(), none()]);
    }

    #[test]
    fn a_refusal_is_the_end() {
        let mut readers = readers(|| script(r"next; printf '\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >&0; next"));
        assert_eq!(readers.read(), Reading::Over(NoFigures::Refused(Refusal::NoLibrary)));
    }

    #[test]
    fn a_reader_that_always_ends_is_given_up() {
        let mut readers = readers(|| script("next"));
        assert_eq!(readers.read(), Reading::Over(NoFigures::Ended));
    }

    #[test]
    fn a_reader_that_ends_after_each_answer_is_given_up() {
        let mut readers = readers(|| script(&format!("next; {ANSWER}")));
        assert_eq!(readers.read(), Reading::Read(Readings::default()));
        let later: Vec<_> = (0..3).map(|_| readers.read()).collect();
        assert!(later.contains(&Reading::Over(NoFigures::Ended)), "{later:?}");
    }

    #[test]
    fn a_reader_that_falls_silent_is_replaced_once() {
        let mut readers = readers(|| script(&format!("next; {ANSWER}; exec sleep 1000")));
        let read = Reading::Read(Readings::default());
        let found = [readers.read(), readers.read(), readers.read(), readers.read()];
        assert_eq!(found, [read.clone(), Reading::Missing, read, Reading::Over(NoFigures::Silent)]);
    }

    #[test]
    fn without_a_reader_there_are_no_figures() {
        let mut readers = readers(|| Command::new("/there/is/no/such/program"));
        assert_eq!(readers.read(), Reading::Over(NoFigures::NoReader));
    }

    #[test]
    fn many_answers_make_up_for_a_failure() {
        let mut readers = readers(|| script(""));
        readers.count(1);
        (1..FORGIVEN_AFTER).for_each(|_| readers.count(0));
        assert_eq!(readers.failures, 1);
        readers.count(0);
        assert_eq!(readers.failures, 0);
    }
}
