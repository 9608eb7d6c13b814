//! Notes: what the reader of a profile should know about it, beside what it holds.
//!
//! Owns: [`Note`]. Because: a script must be able to distinguish a profile that broke off from one that lacks a file,
//! without reading sentences. Does not: stop anything; what does is an [`OpenError`](crate::OpenError).

use std::fmt;
use std::io::ErrorKind;

use crate::version::FormatVersion;

/// What the user who opened a profile should know. Its text is one line, to be printed behind the name of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A newer program wrote it, with additions that are unknown here and were passed over.
    NewerMinor {
        /// Its version.
        found: FormatVersion,
        /// The newest version that is known here.
        known: FormatVersion,
    },
    /// The capture was cut short: what came after its last flush is missing.
    NotEndedWell,
    /// One of its files could not be read; all others were.
    FileLeftOut {
        /// Name of the file in the profile.
        file: String,
        /// The table that it belongs to.
        table: String,
        /// What is wrong with it.
        damage: Damage,
        /// The same in words.
        because: String,
    },
    /// A file of another tool holds what has no place in a profile, or was not understood.
    NotImported {
        /// How much of it: records, frames, …
        count: u64,
        /// Stable name of the reason.
        reason: String,
        /// The reason in words.
        sentence: String,
    },
}

/// What is wrong with a file of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// The manifest says something of it that it says of no file: an odd name, or too many rows.
    Listed,
    /// The system does not let it be read.
    Unreadable(ErrorKind),
    /// It has another length or checksum than the manifest says.
    Changed,
    /// Its rows cannot be decoded, or make no sense.
    Rows,
}

impl Note {
    /// Whether something that was captured is missing.
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
