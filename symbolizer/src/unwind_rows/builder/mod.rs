//! Builder: an unprivileged process that builds unwind tables.
//!
//! Owns: the interface to that process, and the checks on its answers. Because: the owner of a mapped file controls
//! every byte of it, and a capture of the whole machine reads all such files as root. Does not: choose files, or keep
//! tables on disk.
//!
//! ```text
//!  this process, privileged            the builder: nobody, no capability, two files at a time
//!  open the ELF file ─┐
//!  an empty file ─────┴──descriptors──▶ read frames, build, write the table
//!        30 s at most ◀────────done, or why not
//!  seal the table, check all of it; a builder serves the files of one author
//! ```
//!
//! Every user except root has a share of the time, so that one user's files cannot starve everyone else's.
//!
//! Without [`install`] tables are built in this process: a program that uses this crate as a library has no
//! executable to start as the builder.

mod answer;
mod serve;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use deepctx_address_space::time_account::{Terms as TimeTerms, TimeAccounts};
use deepctx_address_space::worker::{
    Author, Deadline, Launch, NoAnswer, Pool, Terms, Worker, WorkerFailure, send,
};
use deepctx_address_space::{FileVersion, NoSymbol};
use rustix::fs::{MemfdFlags, SealFlags};

pub use serve::serve;

use super::{NoTable, StoredTable, UnwindTable};
use crate::unwind_rows::sparse::SparseFile;
use answer::{ANSWER_BYTES, BuildReply, REQUEST};

/// Longest wait for a table. The largest library of PyTorch takes a second.
const TERMS: Terms =
    Terms { workers_max: 4, answer_max: Duration::from_secs(30), wait_max: Duration::from_secs(60) };

/// Time limit for the files of one user in all: processes of others wait for their tables meanwhile.
const BUILDING: TimeTerms =
    TimeTerms { credit: Duration::from_secs(60), least: Duration::from_millis(10), regained: 10 };

/// How long no builder is started after one could not be: each attempt starts a process, and there may be a thousand
/// files.
const START_PAUSE: Duration = Duration::from_secs(5);

static BUILDERS: OnceLock<Pool> = OnceLock::new();
/// When there was no builder.
static FAILED_AT: Mutex<Option<Instant>> = Mutex::new(None);
static ACCOUNTS: LazyLock<Mutex<TimeAccounts>> = LazyLock::new(|| Mutex::new(TimeAccounts::new(BUILDING)));

/// A table, from this process or a builder.
#[derive(Debug)]
pub enum BuiltTable {
    /// By this process.
    Here(Box<UnwindTable>),
    /// By a builder, in memory that nobody can change any more. Its rows are checked as they are read.
    Sealed(Box<StoredTable>),
}

impl BuiltTable {
    /// The table with all of its rows; `None` if they are invalid.
    pub fn into_table(self) -> Option<UnwindTable> {
        match self {
            Self::Here(table) => Some(*table),
            Self::Sealed(table) => table.into_table(),
        }
    }
}

/// Why there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBuilt {
    /// The file cannot be read.
    File(NoSymbol),
    /// It has no table.
    Table(NoTable),
}

/// From now on, tables are built by processes that `launch` starts and that call [`serve()`]. Only the first call
/// counts.
pub fn install(launch: Launch) {
    BUILDERS.get_or_init(|| Pool::new(launch, TERMS));
}

/// The table of an ELF file.
///
/// # Errors
/// [`NotBuilt`].
pub fn build(file: &File) -> Result<BuiltTable, NotBuilt> {
    let version = FileVersion::of(file).map_err(|error| NotBuilt::File(NoSymbol::from_io(&error)))?;
    build_for(file, Author::of(&version))
}

/// The table of an ELF image in memory whose bytes this user controls.
///
/// # Errors
/// [`NotBuilt`].
pub fn build_image(image: &[u8], user: u32) -> Result<BuiltTable, NotBuilt> {
    if BUILDERS.get().is_none() {
        return UnwindTable::from_elf(image).map(here).map_err(NotBuilt::Table);
    }
    let written = memory_file().and_then(|mut file| file.write_all(image).map(|()| file));
    build_for(&written.map_err(|_| NotBuilt::Table(NoTable::NoBuilder))?, Author::user(user))
}

fn build_for(file: &File, author: Author) -> Result<BuiltTable, NotBuilt> {
    let Some(builders) = BUILDERS.get() else {
        return table_of(file).map(here);
    };
    let begun = Instant::now();
    if is_paused(*failed_at(), begun) {
        return Err(NotBuilt::Table(NoTable::NoBuilder));
    }
    if author.charged().is_some_and(|user| !accounts().allows(user, begun)) {
        return Err(NotBuilt::Table(NoTable::ShareSpent));
    }
    let answer = builders.ask(author, |builder| ask(builder, file.as_fd()));
    if let Some(user) = author.charged() {
        let now = Instant::now();
        accounts().charge(user, now.saturating_duration_since(begun), now);
    }
    if matches!(answer, Err(NoAnswer::NoWorker)) {
        *failed_at() = Some(Instant::now());
    }
    let (answer, table) = answer.map_err(|error| {
        NotBuilt::Table(match error {
            NoAnswer::Silent => NoTable::TookTooLong,
            NoAnswer::Ended => NoTable::BuilderEnded,
            NoAnswer::NoWorker => NoTable::NoBuilder,
        })
    })?;
    answer.0?;
    sealed(table).ok_or(NotBuilt::Table(NoTable::BuilderEnded))
}

fn accounts() -> MutexGuard<'static, TimeAccounts> {
    ACCOUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed_at() -> MutexGuard<'static, Option<Instant>> {
    FAILED_AT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there was no builder a short time before `now`.
fn is_paused(failed_at: Option<Instant>, now: Instant) -> bool {
    failed_at.is_some_and(|at| now.saturating_duration_since(at) < START_PAUSE)
}

/// The table of an ELF file, built in this process.
fn table_of(file: &File) -> Result<UnwindTable, NotBuilt> {
    SparseFile::frames_of(file).map_err(NotBuilt::File)?.unwind_table().map_err(NotBuilt::Table)
}

fn here(table: UnwindTable) -> BuiltTable {
    BuiltTable::Here(Box::new(table))
}

/// An empty file in memory that can be sealed.
fn memory_file() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(rustix::fs::memfd_create("unwind-table", flags)?.into())
}

/// One request and its answer, with the file that contains the table.
fn ask(builder: &Worker, file: BorrowedFd<'_>) -> Result<(BuildReply, File), WorkerFailure> {
    let table = memory_file().map_err(|_| WorkerFailure::Ended)?;
    // For the whole answer, which a builder sends at once.
    let deadline = Deadline::new(Instant::now(), TERMS.answer_max, TERMS.answer_max);
    send(builder.socket(), &REQUEST, &[file, table.as_fd()]).map_err(|_| WorkerFailure::Ended)?;
    let mut bytes = [0; ANSWER_BYTES];
    builder.read_within(&mut bytes, deadline)?;
    Ok((BuildReply::decode(bytes).ok_or(WorkerFailure::Ended)?, table))
}

/// A table that its builder can no longer change. `None`: it still can, or there is no table.
fn sealed(table: File) -> Option<BuiltTable> {
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    // Refused while the builder has it mapped.
    rustix::fs::fcntl_add_seals(&table, seals).ok()?;
    Some(BuiltTable::Sealed(Box::new(StoredTable::open(table).ok()??)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Takes a request, and then runs this.
    fn builder_that(answers: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("printf ! >&0; head -c 1 >/dev/null; {answers}; exec sleep 1000")]);
        command
    }

    #[test]
    fn no_builder_is_started_soon_after_a_failure() {
        let now = Instant::now();
        assert!(!is_paused(None, now));
        assert!(is_paused(Some(now), now) && is_paused(Some(now), now + START_PAUSE / 2));
        assert!(!is_paused(Some(now), now + START_PAUSE));
    }

    #[test]
    fn an_answer_that_comes_byte_by_byte_is_refused() {
        let file = tempfile::tempfile().unwrap();
        let asked = |launch: Launch| {
            let answer = Pool::new(launch, TERMS).ask(Author::user(0), |builder| ask(builder, file.as_fd()));
            answer.map(|(reply, _)| reply)
        };
        assert_eq!(asked(|| builder_that(r"printf '\0\0\0\0' >&0")), Ok(BuildReply(Ok(()))));
        let slowly = || builder_that(r"printf '\0' >&0; sleep 1; printf '\0\0\0' >&0");
        assert_eq!(asked(slowly), Err(NoAnswer::Ended));
    }
}
