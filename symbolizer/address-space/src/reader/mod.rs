//! Reader: a helper process for reads that may never return, so that the profiler itself never blocks on them.
//!
//! Owns: the interface to that process, and what happens when it does not answer. Because: the profiler reads memory
//! at addresses that the target chose. A page there may be mapped from a file whose server never answers. A thread
//! that reads such a page blocks inside the kernel, where no signal reaches it, and its process cannot exit. Does
//! not: decide what to read, or interpret it.
//!
//! ```text
//!  this process, privileged            the reader: nobody, no capability, one socket
//!  open /proc/PID/mem ──descriptor, position, length──▶ pread
//!        250 ms at most ◀──────────error or bytes──────┘
//!  no answer: kill it, do not wait, start another; the process is asked again seldom
//! ```
//!
//! What needs hundreds of reads, each at an address that the one before gave, is one request: a [`Walk`], which runs
//! within the reader.
//!
//! Without [`install`] everything is read directly: a program that uses this crate as a library has no executable to
//! start as the reader.

mod ask;
mod protocol;
mod serve;
mod suspects;
mod walk;

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use deepctx_common::reason::Reason;

use crate::account::accountable_user;
use crate::read_error::ReadError;
use crate::status::start_ticks;
use crate::worker::{Author, Launch, NoAnswer, Pool, Terms};
use ask::ask;
use protocol::{PIECE_BYTES, Request};
pub use serve::serve;
use suspects::{Identity, Suspects, is_charged};
use walk::{ANSWER_MAX, AVOIDED_MAX};
pub use walk::{Walk, WalkedMemory};

/// Longest wait for an answer. A page of a slow disk takes a tenth of it.
pub const DEADLINE: Duration = Duration::from_millis(250);
/// Clients: the pipeline, the scan with its helpers, and the two readers of device code. Each of the others may take
/// [`ask::PATIENCE`]. As many again: readers that walk for a few users.
const TERMS: Terms = Terms { workers_max: 8, answer_max: DEADLINE, wait_max: Duration::from_secs(10) };
/// A read does not interpret the bytes, so their author does not matter. A walk does.
const AUTHOR: Author = Author::user(0);
/// Stuck readers: from this many on, only processes that have answered before are read.
const STUCK_MAX: usize = 8;
/// From this many on, nothing is read.
const STUCK_AT_ALL_MAX: usize = 32;

/// State shared by all reads.
#[derive(Debug)]
struct ReaderState {
    pool: Pool,
    suspects: Mutex<Suspects>,
    /// Some process or user is suspect.
    suspicion: AtomicBool,
    silent: AtomicU64,
    refused: AtomicU64,
}

static DOOR: OnceLock<ReaderState> = OnceLock::new();

/// A process whose memory or files are to be read. Created before the first read: its identity cannot be determined
/// once it is gone, and it must be charged for its cost.
#[derive(Clone, Copy, Debug)]
pub struct Subject(Identity);

impl Subject {
    /// Looks a process up. A process that is gone equals no other.
    pub fn of(pid: u32) -> Self {
        if !is_installed() {
            return Self(Identity { pid, started: u64::MAX, user: u32::MAX });
        }
        let user = accountable_user(pid).unwrap_or(u32::MAX);
        Self(Identity { pid, started: start_ticks(pid).unwrap_or(u64::MAX), user })
    }
}

/// From now on, reads of other processes go through a process that `launch` starts and that calls [`serve()`]. Starts
/// the first one at once, on a separate thread. Only the first call counts.
pub fn install(launch: Launch) {
    let door = ReaderState {
        pool: Pool::new(launch, TERMS),
        suspects: Mutex::default(),
        suspicion: AtomicBool::new(false),
        silent: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    };
    if DOOR.set(door).is_ok() {
        // Without a thread the first read starts it.
        let _ = std::thread::Builder::new()
            .name("reader".into())
            .spawn(|| DOOR.get().map(|door| door.pool.warm(AUTHOR)));
    }
}

/// Whether reads go through a separate process.
pub fn is_installed() -> bool {
    DOOR.get().is_some()
}

/// Notices since the last call.
pub fn take_notices() -> Vec<String> {
    DOOR.get().map(|door| door.suspects().take_notices()).unwrap_or_default()
}

/// Number of processes that did not answer, and of reads refused because of that.
pub fn gaps() -> [(&'static Reason, u64); 2] {
    let count =
        |of: fn(&ReaderState) -> &AtomicU64| DOOR.get().map_or(0, |door| of(door).load(Ordering::Relaxed));
    [
        (ReadError::NoAnswer.reason(), count(|door| &door.silent)),
        (ReadError::Refused.reason(), count(|door| &door.refused)),
    ]
}

/// Fills `into` with the memory of a process at `address`, from its open `/proc/PID/mem`. `answered`: a read of this
/// file was answered before.
///
/// # Errors
/// Why not.
pub fn read_memory(
    subject: &Subject,
    memory: &File,
    address: u64,
    into: &mut [u8],
    answered: bool,
) -> Result<(), ReadError> {
    fill(address, into, |at, into| match DOOR.get() {
        Some(door) => {
            let piece = into.len().min(PIECE_BYTES);
            door.read(subject, memory, Some(at), &mut into[..piece], answered)
        }
        None => Ok(memory.read_at(into, at)),
    })
}

/// Has the reader walk through the memory of a process: what its [`Walk`] answers to a question. `avoided`: mappings
/// that it must not touch; `answered`: a read of this file was answered before. Without a reader nobody walks.
///
/// # Errors
/// [`ReadError::UserFile`] if it was led to one of those mappings, or why there is no answer.
pub(crate) fn walk_memory(
    subject: &Subject,
    memory: &File,
    avoided: &[Range<u64>],
    question: &[u8],
    answered: bool,
) -> Result<Vec<u8>, ReadError> {
    let door = DOOR.get().ok_or(ReadError::NoReader)?;
    if avoided.len() > AVOIDED_MAX {
        return Err(ReadError::UserFile);
    }
    let question = walk::encode(avoided, question);
    let (request, mut answer) = (Request::walk(question.len()), vec![0; ANSWER_MAX]);
    let read = door.ask(subject, memory, request, &question, &mut answer, answered)?;
    answer.truncate(read.map_err(|_| ReadError::NoReader)?);
    match answer.split_first() {
        Some((0, found)) => Ok(found.to_vec()),
        Some(_) => Err(ReadError::UserFile),
        None => Err(ReadError::NoReader),
    }
}

/// Like [`read_memory`], but on this thread, which may block forever: for data that is valid only for microseconds, of
/// a process that has answered before.
///
/// # Errors
/// Why not.
pub fn read_memory_here(
    Subject(who): &Subject,
    memory: &File,
    address: u64,
    into: &mut [u8],
) -> Result<(), ReadError> {
    DOOR.get().map_or(Ok(()), |door| door.check(*who, true, false))?;
    fill(address, into, |at, into| Ok(memory.read_at(into, at)))
}

/// Fills `into` by reads that may each return less.
fn fill(
    address: u64,
    into: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<io::Result<usize>, ReadError>,
) -> Result<(), ReadError> {
    // File offsets are signed: user addresses are far below this, and the kernel would return EINVAL.
    if address > i64::MAX as u64 {
        return Err(ReadError::Unmapped);
    }
    let mut done = 0;
    while done < into.len() {
        let at = address.checked_add(done as u64).ok_or(ReadError::Unmapped)?;
        match read(at, &mut into[done..])? {
            // End of file at any address means that the address space has no users left.
            Ok(0) => return Err(ReadError::Gone),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(ReadError::Denied),
            Err(_) => return Err(ReadError::Unmapped),
        }
    }
    Ok(())
}

/// The first `longest` bytes of a file of `/proc/PID`: some of them (`environ`, `cmdline`, `maps` before Linux 6.17)
/// touch the memory of the process or wait for its lock.
///
/// # Errors
/// As of opening and reading; [`io::ErrorKind::TimedOut`] with the [`ReadError`] if the read is refused.
pub fn read_proc(subject: &Subject, name: &str, longest: u64) -> io::Result<Vec<u8>> {
    let Subject(Identity { pid, .. }) = subject;
    let file = File::open(format!("/proc/{pid}/{name}"))?;
    let mut bytes = Vec::new();
    let Some(door) = DOOR.get() else {
        file.take(longest).read_to_end(&mut bytes)?;
        return Ok(bytes);
    };
    let mut piece = vec![0; PIECE_BYTES];
    while (bytes.len() as u64) < longest {
        let wanted = PIECE_BYTES.min(usize::try_from(longest).unwrap_or(usize::MAX) - bytes.len());
        let read = door.read(subject, &file, None, &mut piece[..wanted], true);
        let read = read.map_err(|reason| io::Error::new(io::ErrorKind::TimedOut, reason))??;
        bytes.extend_from_slice(&piece[..read]);
        if read < wanted {
            break;
        }
    }
    Ok(bytes)
}

/// Whether [`read_proc`] failed because there is no reader.
pub fn is_missing(error: &io::Error) -> bool {
    let reason = error.get_ref().and_then(|source| source.downcast_ref::<ReadError>());
    reason == Some(&ReadError::NoReader)
}

impl ReaderState {
    fn suspects(&self) -> MutexGuard<'_, Suspects> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one piece through a reader.
    fn read(
        &self,
        subject: &Subject,
        file: &File,
        position: Option<u64>,
        into: &mut [u8],
        answered: bool,
    ) -> Result<io::Result<usize>, ReadError> {
        let request = Request { position, length: into.len() };
        self.ask(subject, file, request, &[], into, answered)
    }

    /// Has a reader answer a request.
    fn ask(
        &self,
        Subject(who): &Subject,
        file: &File,
        request: Request,
        question: &[u8],
        into: &mut [u8],
        answered: bool,
    ) -> Result<io::Result<usize>, ReadError> {
        self.check(*who, answered, true).inspect_err(|reason| {
            self.refused.fetch_add(u64::from(*reason == ReadError::Refused), Ordering::Relaxed);
        })?;
        let author = if request.is_walk() { Author::user(who.user) } else { AUTHOR };
        let began = Instant::now();
        match self.pool.ask(author, |reader| ask(reader, request, file.as_fd(), question, into)) {
            Ok(answer) => {
                let waited = Duration::from_micros(answer.microseconds.into());
                if is_charged(waited) {
                    self.suspicion.store(true, Ordering::Relaxed);
                }
                if self.suspicion.load(Ordering::Relaxed) {
                    self.suspects().answered(*who, waited, Instant::now());
                }
                Ok(match answer.error {
                    0 => Ok(answer.length as usize),
                    error => Err(io::Error::from_raw_os_error(error.cast_signed())),
                })
            }
            Err(NoAnswer::Silent) => {
                self.suspicion.store(true, Ordering::Relaxed);
                let is_new = self.suspects().did_not_answer(*who, began.elapsed(), Instant::now());
                self.silent.fetch_add(u64::from(is_new), Ordering::Relaxed);
                Err(ReadError::NoAnswer)
            }
            Err(NoAnswer::Ended | NoAnswer::NoWorker) => Err(ReadError::NoReader),
        }
    }

    /// Whether a process may be read. `is_bounded`: by a reader that is abandoned if it does not answer. A process that
    /// did not answer is only read by such a reader, and only while none is stuck: each attempt may cost another one.
    fn check(&self, who: Identity, answered: bool, is_bounded: bool) -> Result<(), ReadError> {
        if !self.suspicion.load(Ordering::Relaxed) {
            return Ok(());
        }
        let stuck = self.pool.stuck();
        self.suspects().allows(who, is_bounded && stuck == 0, Instant::now())?;
        if stuck >= STUCK_AT_ALL_MAX || stuck >= STUCK_MAX && !answered {
            return Err(ReadError::Refused);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_process_are_read_up_to_a_bound() {
        let own = &Subject::of(std::process::id());
        let whole = read_proc(own, "environ", 1 << 20).unwrap();
        assert_eq!(read_proc(own, "environ", 5).unwrap(), whole[..5.min(whole.len())]);
        assert!(read_proc(&Subject::of(u32::MAX), "environ", 5).is_err());
    }
}
