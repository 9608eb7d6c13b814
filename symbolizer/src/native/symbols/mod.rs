//! Symbols: the symbol tables and debug information of files, read by an unprivileged process.
//!
//! Owns: the interface to that process, and the checks on its answers. Because: the owner of a mapped file controls
//! every byte of its symbol tables and debug information. Does not: choose files, or keep names.
//!
//! ```text
//!  this process, privileged              a symbol reader: nobody, no capability, the files of one author
//!  open the file, and the one
//!  with its debug information ─┐
//!  addresses, in memory ───────┴──descriptors──▶ map, read tables once, look up, demangle
//!   4 s (root's: 10) ◀──────────done, names in the same memory
//!  copy the names, check each of them
//! ```
//!
//! Without [`install`] files are read in this process: a program that uses this crate as a library has no executable
//! to start as the reader.

mod answer;
mod debug;
mod function_start;
mod image;
mod nesting;
mod plt;
mod runtime_names;
mod serve;
mod slow;
mod tables;

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use deepctx_address_space::NoSymbol;
use deepctx_address_space::time_account::{Terms as TimeTerms, TimeAccounts};
use deepctx_address_space::worker::{
    Author, Deadline, Launch, NoAnswer, Pool, Terms, Worker, WorkerFailure, send,
};
use rustix::fs::MemfdFlags;

pub use serve::serve;

use answer::{ADDRESSES_MAX, ANSWER_BYTES_MAX, Question, Request};
pub(super) use debug::Function;
use slow::SlowAuthors;
pub(super) use tables::{AddressFacts, DebugFile, Files, TableRequest};
use tables::{IDLE_PERIODS, Tables};

/// Longest wait for an answer about files of root: the tables of PyTorch's largest library take a second.
const TERMS: Terms =
    Terms { workers_max: 8, answer_max: Duration::from_secs(10), wait_max: Duration::from_secs(20) };
/// The same from a reader that works, or only waits for a CPU: a busy machine takes many times as long for the same
/// file. A file of root has no reason to keep it busy.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// The same about files of others, who may want it to take long: CPU time of the reader. A capture that ends waits at
/// most 5 s.
const OTHERS_MAX: Duration = Duration::from_secs(4);
/// The same including the time in which the reader waits for a CPU.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(8);

/// Time limit for the files of one user in all: samples of others wait for their names meanwhile.
const READING: TimeTerms =
    TimeTerms { credit: Duration::from_secs(10), least: Duration::from_millis(10), regained: 10 };

static READERS: OnceLock<Pool> = OnceLock::new();

/// From now on, symbols are read by processes that `launch` starts and that call [`serve()`]. Only the first call
/// counts.
pub fn install(launch: Launch) {
    READERS.get_or_init(|| Pool::new(launch, TERMS));
}

/// Requests names, from readers or from this process.
#[derive(Debug)]
pub(super) struct Symbols {
    /// Tables of files that are read in this process.
    here: Tables,
    /// [`TableRequest::period`] of the last request.
    asked_in: u64,
    /// Authors of files that took too long.
    slow: SlowAuthors,
    /// Time taken by the files of each user.
    accounts: TimeAccounts,
}

impl Default for Symbols {
    fn default() -> Self {
        let accounts = TimeAccounts::new(READING);
        Self { here: Tables::default(), asked_in: 0, slow: SlowAuthors::default(), accounts }
    }
}

impl Symbols {
    /// The functions at addresses of a file of this author. Debug information gets three quarters of the time for a
    /// file, so that some is left to read it once `more` without it.
    ///
    /// # Errors
    /// Why none of them is known.
    pub(super) fn functions(
        &mut self,
        author: Author,
        asked: TableRequest,
        files: Files<'_>,
        addresses: &[u64],
        more: bool,
    ) -> Result<AddressFacts, NoSymbol> {
        self.asked_in = asked.period;
        let Some(readers) = READERS.get() else {
            return self.here.functions(asked, files, addresses);
        };
        let begun = Instant::now();
        let most = self.most_time(author, begun)?;
        let part = match asked.debug {
            DebugFile::No if more => most / 4,
            DebugFile::No => most,
            DebugFile::Own | DebugFile::Separate | DebugFile::Symbols => most * 3 / 4,
        };
        let deadline = deadline_of(author, begun, part);
        let mut all = AddressFacts { functions: Vec::with_capacity(addresses.len()), with_debug: false };
        for addresses in addresses.chunks(ADDRESSES_MAX) {
            let request = Request { question: Question::Names, asked, count: addresses.len() };
            let found = self.ask(readers, author, |reader| {
                let bytes = ask(reader, request, files, addresses, deadline)?;
                answer::decode(&bytes, addresses.len()).ok_or(WorkerFailure::Ended)
            })?;
            all.functions.extend(found.functions);
            all.with_debug = found.with_debug;
        }
        Ok(all)
    }

    /// Beginnings of the functions around addresses, as far as the file has them.
    ///
    /// # Errors
    /// Why none of them is known.
    pub(super) fn starts(
        &mut self,
        author: Author,
        file: &File,
        addresses: &[u64],
    ) -> Result<Vec<Option<u64>>, NoSymbol> {
        let Some(readers) = READERS.get() else {
            return Ok(Tables::starts(file, addresses));
        };
        let begun = Instant::now();
        let deadline = deadline_of(author, begun, self.most_time(author, begun)?);
        let asked = TableRequest { period: self.asked_in, ..TableRequest::default() };
        let files = Files { own: file, debug: file, supplement: file };
        let mut all = Vec::with_capacity(addresses.len());
        for addresses in addresses.chunks(ADDRESSES_MAX) {
            let request = Request { question: Question::Starts, asked, count: addresses.len() };
            all.extend(self.ask(readers, author, |reader| {
                let bytes = ask(reader, request, files, addresses, deadline)?;
                answer::decode_starts(&bytes, addresses.len()).ok_or(WorkerFailure::Ended)
            })?);
        }
        Ok(all)
    }

    /// Sends a request to a reader, and charges the time to the author.
    fn ask<T>(
        &mut self,
        readers: &Pool,
        author: Author,
        ask: impl FnMut(&Worker) -> Result<T, WorkerFailure>,
    ) -> Result<T, NoSymbol> {
        let begun = Instant::now();
        let answer = readers.ask(author, ask);
        self.charge(author, begun);
        answer.map_err(|error| self.reason(author, error, begun))
    }

    /// The time limit for a file of this author.
    fn most_time(&self, author: Author, now: Instant) -> Result<Duration, NoSymbol> {
        let Some(user) = author.charged() else { return Ok(TERMS.answer_max) };
        self.slow.check(author, now)?;
        if self.accounts.allows(user, now) { Ok(OTHERS_MAX) } else { Err(NoSymbol::SymbolShareSpent) }
    }

    /// Whether a file of this author may be read now.
    ///
    /// # Errors
    /// [`NoSymbol::SymbolShareSpent`].
    pub(super) fn check_share(&self, author: Author, now: Instant) -> Result<(), NoSymbol> {
        let is_allowed = author.charged().is_none_or(|user| self.accounts.allows(user, now));
        if is_allowed { Ok(()) } else { Err(NoSymbol::SymbolShareSpent) }
    }

    /// Charges the time since then to the author.
    pub(super) fn charge(&mut self, author: Author, begun: Instant) {
        if let Some(user) = author.charged() {
            let now = Instant::now();
            self.accounts.charge(user, now.saturating_duration_since(begun), now);
        }
    }

    fn reason(&mut self, author: Author, error: NoAnswer, begun: Instant) -> NoSymbol {
        match error {
            NoAnswer::Silent => {
                if author.charged().is_some() {
                    let now = Instant::now();
                    self.slow.add(author, now.saturating_duration_since(begun), now);
                }
                NoSymbol::SymbolsTookTooLong
            }
            NoAnswer::Ended => NoSymbol::SymbolReaderEnded,
            NoAnswer::NoWorker => NoSymbol::NoSymbolReader,
        }
    }

    /// The tables of a file are no longer needed. True if that freed memory of this process.
    pub(super) fn forget(&mut self, key: u64) -> bool {
        self.here.forget(key)
    }

    /// Call it in every period: ends readers that were not used for long, with all their tables.
    pub(super) fn end_idle(&mut self, period: u64) {
        if let Some(readers) = READERS.get()
            && period.saturating_sub(self.asked_in) > IDLE_PERIODS
        {
            self.asked_in = period;
            readers.end_idle();
        }
    }
}

/// The deadline for answers about files of this author.
fn deadline_of(author: Author, begun: Instant, most: Duration) -> Deadline {
    match author.charged() {
        Some(_) => Deadline::of_work(begun, most, OTHERS_WAIT_MAX),
        None => Deadline::new(begun, most, most.max(BUSY_MAX)),
    }
}

/// One request and its answer: a private copy of the bytes, which nobody can change any more.
fn ask(
    reader: &Worker,
    request: Request,
    files: Files<'_>,
    addresses: &[u64],
    deadline: Deadline,
) -> Result<Vec<u8>, WorkerFailure> {
    let shared: File =
        rustix::fs::memfd_create("symbols", MemfdFlags::CLOEXEC).map_err(|_| WorkerFailure::Ended)?.into();
    let bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
    shared.write_all_at(&bytes, 0).map_err(|_| WorkerFailure::Ended)?;
    let sent = [shared.as_fd(), files.own.as_fd(), files.debug.as_fd(), files.supplement.as_fd()];
    send(reader.socket(), &request.encode(), &sent).map_err(|_| WorkerFailure::Ended)?;
    let mut length = [0; 8];
    reader.read_within(&mut length, deadline)?;
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(|_| WorkerFailure::Ended)?;
    if length > ANSWER_BYTES_MAX {
        return Err(WorkerFailure::Ended);
    }
    let mut answer = vec![0; length];
    shared.read_exact_at(&mut answer, bytes.len() as u64).map_err(|_| WorkerFailure::Ended)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_users_files_cannot_take_all_the_time() {
        let mut symbols = Symbols::default();
        let (hers, his, roots) = (Author::user(7), Author::user(8), Author::user(0));
        let now = Instant::now();
        let seconds = Duration::from_secs;
        symbols.accounts.charge(7, seconds(9), now);
        assert_eq!(symbols.most_time(hers, now), Ok(OTHERS_MAX), "a second is left");
        symbols.accounts.charge(7, seconds(3), now);
        assert_eq!(symbols.most_time(hers, now), Err(NoSymbol::SymbolShareSpent));
        assert_eq!(symbols.most_time(his, now), Ok(OTHERS_MAX));
        assert_eq!(symbols.most_time(roots, now), Ok(TERMS.answer_max));
        assert_eq!(symbols.most_time(hers, now + seconds(21)), Ok(OTHERS_MAX), "a tenth is regained");
        assert!(NoSymbol::SymbolShareSpent.may_be_named_later());
    }

    #[test]
    fn time_of_root_is_not_charged() {
        let mut symbols = Symbols::default();
        let begun = Instant::now() - Duration::from_secs(60);
        symbols.charge(Author::user(0), begun);
        symbols.charge(Author::user(7), begun);
        let now = Instant::now();
        assert_eq!(symbols.most_time(Author::user(0), now), Ok(TERMS.answer_max));
        assert_eq!(symbols.most_time(Author::user(7), now), Err(NoSymbol::SymbolShareSpent));
    }
}
