//! Device code reader: device code of targets, parsed by an unprivileged process.
//!
//! Owns: the interface to that process, the time that each user's device code may take, and the checks on answers.
//! Because: whoever builds a program, or loads an image, controls every byte of it, and unpacking takes seconds.
//! Does not: choose files or memory, or keep names.
//!
//! ```text
//!  this process, privileged              a reader: nobody, no capability, the bytes of one author
//!  open the file, or copy the image ──descriptors──▶ parse, unpack
//!  10 s ◀───────────────done, answer in the same memory
//!  check it
//! ```
//!
//! Without [`install`] device code is parsed in this process: a program that uses this crate as a library has no
//! executable to start as the reader.

mod answer;
mod serve;

use std::fmt;
use std::fs::File;
use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use deepctx_address_space::FileVersion;
use deepctx_address_space::time_account::{Terms as TimeTerms, TimeAccounts};
use deepctx_address_space::worker::{
    Author, Deadline, Launch, NoAnswer, Pool, Terms, Worker, WorkerFailure, send,
};
use deepctx_common::reasons;
use deepctx_common::samples::NoProducer;
use rustc_hash::FxHashMap;
use rustix::fs::MemfdFlags;

use super::NoCubin;
use super::lines::{LineTable, ROWS_MAX, Row};
use super::names::{KernelFacts, KernelNames};
use super::scoreboard::{PRODUCERS_MAX, WAITS_MAX, Wait, Waits};
use answer::{Contents, KernelRow, Question, Request, WaitRow};

pub use serve::serve;

/// Longest wait for an answer: all device code of PyTorch takes 3.4 s.
const TERMS: Terms =
    Terms { workers_max: 2, answer_max: Duration::from_secs(10), wait_max: Duration::from_secs(60) };
/// The same from a reader that works, or only waits for a CPU: it has the lowest priority.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// Time limit for the device code of one user in all: names of others' kernels wait meanwhile.
const READING: TimeTerms =
    TimeTerms { credit: Duration::from_secs(60), least: Duration::from_millis(10), regained: 10 };

static READERS: OnceLock<Pool> = OnceLock::new();

/// From now on, device code is parsed by processes that `launch` starts and that call [`serve()`]. Only the first call
/// counts.
pub fn install(launch: Launch) {
    READERS.get_or_init(|| Pool::new(launch, TERMS));
}

/// Why device code was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadCode {
    /// It is not a cubin.
    NotCubin(NoCubin),
    /// It takes too long.
    TooSlow,
    /// Its user's device code has taken its share of the time.
    ShareSpent,
    /// The reader ended.
    ReaderEnded,
    /// No reader could be started.
    NoReader,
}

impl UnreadCode {
    reasons! {
        class Unread, page "gpu.md";
        /// Its key and its general sentence; [`Display`](fmt::Display) says what is wrong with the bytes.
        pub fn reason(self) {
            Self::NotCubin(_) => "device-code-invalid", "the bytes are not a valid image of device code";
            Self::TooSlow => "device-code-too-slow", "the image of device code takes too long to read";
            Self::ShareSpent => "device-code-share-spent", "the device code of its user has taken too long to read";
            Self::ReaderEnded => "device-code-reader-ended", "the reader of device code ended";
            Self::NoReader => "no-device-code-reader", "there is no reader of device code";
        }
    }
}

impl fmt::Display for UnreadCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCubin(error) => error.fmt(f),
            _ => self.reason().fmt(f),
        }
    }
}

impl std::error::Error for UnreadCode {}

/// The lines of an image, and what its instructions wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageLines {
    /// Its lines.
    pub lines: LineTable,
    /// Its waiting instructions.
    pub waits: Waits,
}

/// Requests the contents of device code, from readers or from this process.
#[derive(Debug)]
pub struct CodeReader {
    /// Time taken by the device code of each user.
    accounts: TimeAccounts,
}

impl Default for CodeReader {
    fn default() -> Self {
        Self { accounts: TimeAccounts::new(READING) }
    }
}

impl CodeReader {
    /// The kernels in the fat binaries of a file, if these have at most `most_bytes`; otherwise `None`. `budget`: bytes
    /// that may still be unpacked.
    ///
    /// # Errors
    /// [`UnreadCode`].
    pub(super) fn fat_binaries(
        &mut self,
        file: &File,
        most_bytes: u64,
        budget: &mut u64,
    ) -> Result<Option<KernelNames>, UnreadCode> {
        let question = Question::FatBinaries { most_bytes, budget: *budget };
        match self.ask(author_of(file)?, question, &[], Some(file))? {
            Contents::Kernels { kernels, left_out, budget: left } => {
                *budget = left.min(*budget);
                Ok(Some(names_of(kernels, left_out)))
            }
            Contents::TooManyBytes => Ok(None),
            _ => Err(UnreadCode::ReaderEnded),
        }
    }

    /// The mangled names of the kernels whose host stubs are at these offsets of a file.
    ///
    /// # Errors
    /// [`UnreadCode`].
    pub(super) fn stubs(
        &mut self,
        file: &File,
        offsets: &[u64],
    ) -> Result<FxHashMap<u64, String>, UnreadCode> {
        let bytes: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        match self.ask(author_of(file)?, Question::Stubs, &bytes, Some(file))? {
            Contents::Stubs(names) => {
                Ok(names.into_iter().filter(|(offset, _)| offsets.contains(offset)).collect())
            }
            _ => Err(UnreadCode::ReaderEnded),
        }
    }

    /// The kernels of an image that a process of this user holds.
    ///
    /// # Errors
    /// [`UnreadCode`].
    pub(super) fn image(&mut self, user: u32, image: &[u8]) -> Result<KernelNames, UnreadCode> {
        match self.ask(Author::user(user), Question::Image, image, None)? {
            Contents::Kernels { kernels, left_out, .. } => Ok(names_of(kernels, left_out)),
            _ => Err(UnreadCode::ReaderEnded),
        }
    }

    /// The lines of an image that a process of this user holds, and what its instructions wait for.
    ///
    /// # Errors
    /// [`UnreadCode`].
    pub fn lines(&mut self, user: u32, image: &[u8]) -> Result<ImageLines, UnreadCode> {
        match self.ask(Author::user(user), Question::Lines, image, None)? {
            Contents::Lines { files, functions, left_out, waits, waits_left_out } => {
                let rows = functions.iter().map(|(_, rows)| rows.len()).sum::<usize>();
                let waiting = waits.iter().map(|(_, waits)| waits.len()).sum::<usize>();
                if rows > ROWS_MAX || waiting > WAITS_MAX {
                    return Err(UnreadCode::ReaderEnded);
                }
                let functions = functions.into_iter().map(|(name, rows)| (name, rows_of(rows)));
                let lines = LineTable { files, functions: functions.collect(), left_out };
                let functions = waits.into_iter().map(|(name, waits)| (name, waits_of(waits)));
                let waits = Waits { functions: functions.collect(), left_out: waits_left_out };
                Ok(ImageLines { lines, waits })
            }
            _ => Err(UnreadCode::ReaderEnded),
        }
    }

    /// Has a reader answer, and charges the time to the author of the bytes. `input`: what the question is about;
    /// `file`: the file that it is about, if any.
    fn ask(
        &mut self,
        author: Author,
        question: Question,
        input: &[u8],
        file: Option<&File>,
    ) -> Result<Contents, UnreadCode> {
        let Some(readers) = READERS.get() else {
            return serve::answer_here(question, input, file).into_result();
        };
        let begun = Instant::now();
        if let Some(user) = author.charged()
            && !self.accounts.allows(user, begun)
        {
            return Err(UnreadCode::ShareSpent);
        }
        let deadline = Deadline::new(begun, TERMS.answer_max, BUSY_MAX);
        let answer = readers.ask(author, |reader| ask(reader, question, input, file, deadline));
        if let Some(user) = author.charged() {
            let now = Instant::now();
            self.accounts.charge(user, now.saturating_duration_since(begun), now);
        }
        match answer {
            Ok(answer) => answer.into_result(),
            Err(NoAnswer::Silent) => Err(UnreadCode::TooSlow),
            Err(NoAnswer::Ended) => Err(UnreadCode::ReaderEnded),
            Err(NoAnswer::NoWorker) => Err(UnreadCode::NoReader),
        }
    }
}

/// The kernels that a reader reports.
fn names_of(kernels: Vec<KernelRow>, left_out: usize) -> KernelNames {
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    let kernels = kernels.into_iter().map(|(name, [arch, registers, static_shared])| {
        (name, KernelFacts { arch: small(arch), registers: small(registers), static_shared })
    });
    KernelNames::from_untrusted(kernels, left_out)
}

/// The rows that a reader reports, in the order on which queries rely.
fn rows_of(rows: Vec<[u32; 3]>) -> Vec<Row> {
    let row = |[offset, file, line]: [u32; 3]| Row { offset, file, line: NonZeroU32::new(line) };
    let mut rows: Vec<Row> = rows.into_iter().map(row).collect();
    rows.sort_by_key(|row| row.offset);
    rows
}

/// The waiting instructions that a reader reports, in the order on which queries rely.
fn waits_of(waits: Vec<WaitRow>) -> Vec<Wait> {
    let wait = |(offset, mut producers, unknown): WaitRow| {
        producers.truncate(PRODUCERS_MAX);
        Wait { offset, producers, unknown: NoProducer::from_number(unknown) }
    };
    let mut waits: Vec<Wait> = waits.into_iter().map(wait).collect();
    waits.sort_by_key(|wait| wait.offset);
    waits
}

fn author_of(file: &File) -> Result<Author, UnreadCode> {
    FileVersion::of(file)
        .map(|version| Author::of(&version))
        .map_err(|_| UnreadCode::NotCubin(NoCubin::NotElf))
}

/// One request and its answer, decoded from a private copy of the bytes, which nobody can change any more.
fn ask(
    reader: &Worker,
    question: Question,
    input: &[u8],
    file: Option<&File>,
    deadline: Deadline,
) -> Result<Contents, WorkerFailure> {
    let shared = rustix::fs::memfd_create("device-code", MemfdFlags::CLOEXEC);
    let shared: File = shared.map_err(|_| WorkerFailure::Ended)?.into();
    shared.write_all_at(input, 0).map_err(|_| WorkerFailure::Ended)?;
    let request = Request { question, input: input.len() as u64 };
    let sent = [shared.as_fd(), file.unwrap_or(&shared).as_fd()];
    send(reader.socket(), &request.encode(), &sent).map_err(|_| WorkerFailure::Ended)?;
    let mut length = [0; 8];
    reader.read_within(&mut length, deadline)?;
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(|_| WorkerFailure::Ended)?;
    if length > question.answer_bytes_max() {
        return Err(WorkerFailure::Ended);
    }
    let mut bytes = vec![0; length];
    shared.read_exact_at(&mut bytes, request.input).map_err(|_| WorkerFailure::Ended)?;
    Contents::decode(&bytes).ok_or(WorkerFailure::Ended)
}
