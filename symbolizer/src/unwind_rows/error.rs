//! Reasons why an executable has no unwind table.
//!
//! Owns: [`NoTable`] with its keys. Because: "no table, because …" is a result that the caller shows and counts. Does not:
//! cover single frames or rows; those are counted in [`super::BuildStats`].

use deepctx_address_space::Arch;

use super::Limits;

/// Why a file has no unwind table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTable {
    /// The bytes are not an ELF file, or its headers are corrupt.
    #[error("not a readable ELF file")]
    NotElf,
    /// The file is not a 64-bit little-endian ELF file of a machine in [`Arch`].
    #[error("not an ELF file of a 64-bit machine whose stacks can be walked")]
    UnknownMachine,
    /// The file is for another architecture than expected.
    #[error("an ELF file for {found}, not for {wanted}")]
    OtherMachine {
        /// The architecture of the file.
        found: Arch,
        /// The expected architecture.
        wanted: Arch,
    },
    /// No segment is both loaded and executable.
    #[error("no executable segment")]
    NoText,
    /// Neither `.eh_frame` nor `.debug_frame` has a frame in the text, and there are no function symbols to derive one for.
    #[error("neither call frame information nor symbols for its text")]
    NoFrames,
    /// A section is larger than [`Limits::section_bytes`], before or after decompression.
    #[error("a call frame section is larger than {0} bytes")]
    SectionTooLarge(u64),
    /// More frame descriptions than [`Limits::frames`].
    #[error("more than {0} frame descriptions")]
    TooManyFrames(usize),
    /// More rows than [`Limits::rows`].
    #[error("more than {0} rows")]
    TooManyRows(usize),
    /// More pages than [`Limits::pages`].
    #[error("the text spans more than {0} pages of 64 KiB")]
    TooManyPages(usize),
    /// More different rules than [`Limits::rules`].
    #[error("more than {0} different rules")]
    TooManyRules(usize),
}

impl NoTable {
    pub(super) fn rows(limits: &Limits) -> Self {
        Self::TooManyRows(limits.rows)
    }
}
