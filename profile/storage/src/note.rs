//! Notes: what the reader of a profile should know about it, beside what it holds.
//!
//! Owns: [`Note`]. Because: a script must be able to distinguish a profile that broke off from one that lacks a file,
//! without reading sentences. Does not: stop anything; what does is an [`OpenError`](crate::OpenError).

use std::fmt;
use std::io::ErrorKind;

use crate::version::FormatVersion;

/// A notice for the user who opened a profile. Its text is one line, to be printed after the name of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A newer program wrote it, with unknown additions that were skipped.
    NewerMinor {
        /// Its version.
        found: FormatVersion,
        /// The newest known version.
        known: FormatVersion,
    },
    /// The capture was cut short: everything after its last flush is missing.
    NotEndedWell,
    /// One of its files could not be read; the others were.
    FileLeftOut {
        /// Name of the file in the profile.
        file: String,
        /// Its table.
        table: String,
        /// The damage.
        damage: Damage,
        /// The damage as a sentence.
        because: String,
    },
    /// A file of another tool has content without a place in a profile, or that was not understood.
    NotImported {
        /// Amount: records, frames, …
        count: u64,
        /// Stable name of the reason.
        reason: String,
        /// The reason as a sentence.
        sentence: String,
    },
}

/// Damage of a file of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// The manifest entry is invalid: a bad name, or too many rows.
    Listed,
    /// The system refuses to read it.
    Unreadable(ErrorKind),
    /// Its length or checksum differs from the manifest.
    Changed,
    /// Its rows cannot be decoded, or are invalid.
    Rows,
}

impl Note {
    /// Whether captured data is missing.
    pub fn is_damage(&self) -> bool {
        matches!(self, Note::NotEndedWell | Note::FileLeftOut { .. })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::NewerMinor { found, known } => write!(
                f,
                "it has profile format {found}, and this program knows {known}: what {found} added is left out"
            ),
            Note::NotEndedWell => {
                f.write_str("the capture did not end well; this is what was written until its last flush")
            }
            Note::FileLeftOut { file, because, .. } => write!(f, "{file}: left out: {because}"),
            Note::NotImported { count, reason, sentence } => write!(f, "{count} {reason}: {sentence}"),
        }
    }
}
