//! Pool: the reader processes, and what becomes of one that does not answer.
//!
//! Owns: starting readers, asking one, the deadline, and those that were given up. Because: nothing ends a process
//! that waits within the kernel, so it is left behind and another takes its place. Does not: judge whose memory may
//! be read.

use std::fmt;
use std::io::{self, IoSliceMut, Read as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::DEADLINE;
use super::protocol::{ANSWER_BYTES, Answer, Request, send};

/// Most readers at a time: the pipeline, the scan with its helpers, and the two that look for device code.
const READERS_MAX: usize = 4;
/// Longest wait for a reader that has work but no CPU. A process that waits for a page is not running.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for one of the readers: each of the others may take [`PATIENCE`].
const WAIT_MAX: Duration = Duration::from_secs(10);

/// How a reader is started; its standard input is set by the pool.
pub type Launch = fn() -> Command;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The read takes too long. The reader was given up.
    Silent,
    /// There is no reader.
    NoReader,
}

/// All readers.
pub(super) struct Pool {
    launch: Launch,
    state: Mutex<State>,
    free: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Reader>,
    /// Readers that are idle or at work.
    live: usize,
    /// Readers that were killed and may still wait within the kernel.
    stuck: Vec<Child>,
}

/// One reader.
struct Reader {
    child: Child,
    socket: UnixStream,
}

/// Why a reader gave no answer.
enum Failed {
    Silent,
    Ended,
}

impl Pool {
    pub(super) fn new(launch: Launch) -> Self {
        Self { launch, state: Mutex::default(), free: Condvar::new() }
    }

    /// Readers that were given up and have not ended since.
    pub(super) fn stuck(&self) -> usize {
        let mut state = self.lock();
        state.stuck.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        state.stuck.len()
    }

    /// Starts a reader if there is none.
    pub(super) fn warm(&self) {
        if let Some(reader) = self.take() {
            self.put(reader);
        }
    }

    /// Has a reader read. An answer with its bytes in `into`.
    pub(super) fn ask(
        &self,
        request: Request,
        file: BorrowedFd<'_>,
        into: &mut [u8],
    ) -> Result<Answer, NoAnswer> {
        // One that ended meanwhile (out of memory) is replaced, once.
        for _ in 0..2 {
            let mut reader = self.take().ok_or(NoAnswer::NoReader)?;
            match reader.ask(request, file, into) {
                Ok(answer) => {
                    self.put(reader);
                    return Ok(answer);
                }
                Err(Failed::Silent) => {
                    self.give_up(reader);
                    return Err(NoAnswer::Silent);
                }
                Err(Failed::Ended) => self.give_up(reader),
            }
        }
        Err(NoAnswer::NoReader)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Reader> {
        let mut state = self.lock();
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            if let Some(reader) = state.idle.pop() {
                return Some(reader);
            }
            if state.live < READERS_MAX {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.free.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.live += 1;
        drop(state);
        let reader = Reader::start(self.launch).ok();
        if reader.is_none() {
            self.lock().live -= 1;
            self.free.notify_one();
        }
        reader
    }

    fn put(&self, reader: Reader) {
        self.lock().idle.push(reader);
        self.free.notify_one();
    }

    fn give_up(&self, reader: Reader) {
        let Reader { mut child, socket } = reader;
        // It may have ended, which is what is wanted.
        let _ = child.kill();
        drop(socket);
        let mut state = self.lock();
        state.live -= 1;
        state.stuck.push(child);
        self.free.notify_one();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("launch", &self.launch).finish_non_exhaustive()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for Reader { mut child, socket } in self.idle.drain(..) {
            // It ends when its socket closes.
            drop(socket);
            let _ = child.wait();
        }
    }
}

impl Reader {
    fn start(launch: Launch) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_read_timeout(Some(DEADLINE))?;
        let mut command = launch();
        command
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Ctrl-C in a terminal goes to a group: the profiler still reads when it finishes.
        command.process_group(0);
        Ok(Self { child: command.spawn()?, socket })
    }

    fn ask(&mut self, request: Request, file: BorrowedFd<'_>, into: &mut [u8]) -> Result<Answer, Failed> {
        send(&self.socket, request, file).map_err(|_| Failed::Ended)?;
        let into = into.get_mut(..request.length).ok_or(Failed::Ended)?;
        let began = Instant::now();
        let mut header = [0; ANSWER_BYTES];
        let mut received: usize = 0;
        loop {
            let done = received.checked_sub(ANSWER_BYTES);
            let answer = Answer::decode(header);
            let length = answer.length as usize;
            if done == Some(length) {
                return Ok(answer);
            }
            let read = match done {
                Some(done) => self.socket.read(into.get_mut(done..length).ok_or(Failed::Ended)?),
                // Usually all comes together.
                None => {
                    let parts = &mut [IoSliceMut::new(&mut header[received..]), IoSliceMut::new(into)];
                    self.socket.read_vectored(parts)
                }
            };
            match read {
                Ok(0) => return Err(Failed::Ended),
                Ok(read) => received += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if began.elapsed() >= PATIENCE || !is_running(self.child.id()) {
                        return Err(Failed::Silent);
                    }
                }
                Err(_) => return Err(Failed::Ended),
            }
        }
    }
}

/// Whether a process has a CPU, or waits for one only.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let name_end = stat.iter().rposition(|byte| *byte == b')').unwrap_or(0);
    stat.get(name_end..).is_some_and(|rest| rest.starts_with(b") R"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    fn of_size(length: usize) -> Request {
        Request { position: Some(0), length }
    }

    /// Neither reads its standard input nor ends.
    fn mute() -> Command {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000");
        command
    }

    fn ends_at_once() -> Command {
        Command::new("/bin/true")
    }

    fn missing() -> Command {
        Command::new("/nonexistent")
    }

    #[test]
    fn a_silent_reader_is_given_up_and_replaced() {
        let pool = Pool::new(mute);
        let file = File::open("/proc/self/stat").unwrap();
        for _ in 0..2 {
            let answer = pool.ask(of_size(8), file.as_fd(), &mut [0; 8]);
            assert!(matches!(answer, Err(NoAnswer::Silent)));
        }
        // It is killed; nothing keeps these from ending.
        while pool.stuck() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(pool.lock().live, 0);
    }

    #[test]
    fn without_a_reader_nothing_is_read() {
        let file = File::open("/proc/self/stat").unwrap();
        for launch in [ends_at_once, missing] {
            let pool = Pool::new(launch);
            let answer = pool.ask(of_size(8), file.as_fd(), &mut [0; 8]);
            assert!(matches!(answer, Err(NoAnswer::NoReader)));
            assert_eq!(pool.lock().live, 0);
        }
    }

    #[test]
    fn a_process_that_sleeps_is_not_running() {
        let mut child = mute().spawn().unwrap();
        // It runs until it sleeps.
        while is_running(child.id()) {
            std::thread::yield_now();
        }
        assert!(is_running(std::process::id()) || !is_running(u32::MAX));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
