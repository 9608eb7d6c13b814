//! Reasons why an executable has no unwind table.
//!
//! Owns: [`NoTable`] with its keys and sentences. Because: "no table, because …" is a result that the caller shows
//! and counts. Does not: cover single frames or rows; those are counted in [`super::BuildStats`].

use std::fmt;

use deepctx_address_space::Arch;
use deepctx_common::reasons;

use super::Limits;

/// Why a file has no unwind table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTable {
    /// The bytes are not an ELF file, or its headers are corrupt.
    NotElf,
    /// The file is not a 64-bit little-endian ELF file of a machine in [`Arch`].
    UnknownMachine,
    /// The file is for another architecture than expected.
    OtherMachine {
        /// The architecture of the file.
        found: Arch,
        /// The expected architecture.
        wanted: Arch,
    },
    /// No segment is both loaded and executable.
    NoText,
    /// Neither `.eh_frame` nor `.debug_frame` has a frame in the text, and there are no function symbols to derive
    /// one for.
    NoFrames,
    /// A section is larger than [`Limits::section_bytes`], before or after decompression.
    SectionTooLarge(u64),
    /// More frame descriptions than [`Limits::frames`].
    TooManyFrames(usize),
    /// More rows than [`Limits::rows`].
    TooManyRows(usize),
    /// More pages than [`Limits::pages`].
    TooManyPages(usize),
    /// More different rules than [`Limits::rules`].
    TooManyRules(usize),
    /// Building it took longer than the limit for one file.
    TookTooLong,
    /// The table builder process ended twice because of this file, or one of its parsers panicked.
    BuilderEnded,
    /// The table builder process cannot be started.
    NoBuilder,
    /// Tables of other files used up its user's time.
    ShareSpent,
}

impl NoTable {
    reasons! {
        class Unread, page "unwinding.md";
        /// Its key and its general sentence; [`Display`](fmt::Display) adds machines and limits.
        pub fn reason(self) {
            Self::NotElf => "table-not-elf", "not a readable ELF file";
            Self::UnknownMachine => "table-unknown-machine", "not an ELF file of a 64-bit machine whose stacks can be walked";
            Self::OtherMachine { .. } => "table-other-machine", "an ELF file for another machine than this one";
            Self::NoText => "table-without-text", "no executable segment";
            Self::NoFrames => "table-without-frames", "neither call frame information nor symbols for its text";
            Self::SectionTooLarge(_) => "table-section-too-large", "a call frame section is larger than is accepted";
            Self::TooManyFrames(_) => "table-too-many-frames", "more frame descriptions than are accepted";
            Self::TooManyRows(_) => "table-too-many-rows", "more rows than are accepted";
            Self::TooManyPages(_) => "table-too-many-pages", "the text spans more pages than are accepted";
            Self::TooManyRules(_) => "table-too-many-rules", "more different rules than are accepted";
            Self::TookTooLong => "table-took-too-long", "building the table took more than 30 s, and was given up";
            Self::BuilderEnded => "table-builder-ended", "the process that builds tables ended over this file, or gave none";
            Self::NoBuilder => "table-no-builder", "the process that builds tables could not be started",
                helps "see what keeps the profiler from starting its own file (/proc/self/exe)";
            Self::ShareSpent => "table-share-spent",
                "tables of other files of its user took all the time that one user may have (60 s, then a tenth of the time)",
                helps "wait: the table is built when the process is looked at again";
        }
    }
}

impl fmt::Display for NoTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherMachine { found, wanted } => write!(f, "an ELF file for {found}, not for {wanted}"),
            Self::SectionTooLarge(bytes) => write!(f, "a call frame section is larger than {bytes} bytes"),
            Self::TooManyFrames(limit) => write!(f, "more than {limit} frame descriptions"),
            Self::TooManyRows(limit) => write!(f, "more than {limit} rows"),
            Self::TooManyPages(limit) => write!(f, "the text spans more than {limit} pages of 64 KiB"),
            Self::TooManyRules(limit) => write!(f, "more than {limit} different rules"),
            _ => self.reason().fmt(f),
        }
    }
}

impl std::error::Error for NoTable {}

impl NoTable {
    pub(super) fn rows(limits: &Limits) -> Self {
        Self::TooManyRows(limits.rows)
    }
}
