//! Source: where the screen gets its snapshots and source files from.
//!
//! Owns: the door through which they come. Because: a running capture, a stored file and a test must look the same to a
//! terminal. Does not: know any of the three.

use std::sync::Arc;

use deepctx_profile::snapshot::{Snapshot, SourcePlace};
use deepctx_profile::view::Request;

/// Gives snapshots to the event loop.
///
/// No method may wait: the loop calls them between two key presses. Work that takes longer than a few milliseconds
/// belongs on the source's own thread, which leaves its newest result where `latest` can pick it up.
pub trait Snapshots {
    /// Newest snapshot of what `request` asks for, or `None` when there is none newer than the one handed out before, or
    /// none yet.
    ///
    /// After the request changed, a snapshot that answers an older request is never handed out.
    fn latest(&mut self, request: &Request) -> Option<Arc<Snapshot>>;

    /// The text of a source file, or why there is none; `None` while it is being looked for.
    fn text(&mut self, place: &SourcePlace) -> Option<Arc<SourceText>> {
        let _ = place;
        Some(Arc::new(SourceText::Missing(NoText::NotHere)))
    }

    /// Whether more can still come: false for a stored profile and once the capture has ended.
    fn live(&self) -> bool {
        true
    }
}

/// A source file as far as it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceText {
    /// It was read.
    Lines {
        /// Its lines, raw.
        lines: Vec<String>,
        /// Whether it was changed after the capture began, so that lines may have moved.
        changed: bool,
    },
    /// There is no text to show.
    Missing(NoText),
}

/// Why there is no text of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoText {
    /// Nobody can read files here.
    NotHere,
    /// The name is no path: code made while the program runs (`<string>`, `<frozen …>`).
    NotAFile,
    /// No file has this path here.
    NotFound,
    /// The path leads to something else than a file.
    NotRegular,
    /// It is too large to be source code.
    TooLarge,
    /// It is not text.
    Binary,
    /// It may not be read, or reading failed.
    Unreadable,
}

impl NoText {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::NotHere,
        Self::NotAFile,
        Self::NotFound,
        Self::NotRegular,
        Self::TooLarge,
        Self::Binary,
        Self::Unreadable,
    ];

    /// In words, to follow "no text: ".
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NotHere => "files cannot be read here",
            Self::NotAFile => "the code was made while the program ran and is in no file",
            Self::NotFound => "there is no such file on this machine",
            Self::NotRegular => "the path leads to something else than a file",
            Self::TooLarge => "the file is too large for source code",
            Self::Binary => "the file is not text",
            Self::Unreadable => "the file could not be read",
        }
    }
}
