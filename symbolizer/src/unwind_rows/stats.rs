//! Counters of a build.
//!
//! Owns: the counters and their names. Because: everything that fails to become a row is counted. Does not: decide
//! anything.

/// The counters of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Frame descriptions with rows.
    Frames,
    /// Of these, signal frames.
    SignalFrames,
    /// Of these, frames of `.debug_frame` (used or not).
    DebugFrames,
    /// Rows before pages are formed, with neighbors of the same rule merged.
    FrameRows,
    /// Rows of the table, with page copies and rows for gaps.
    Rows,
    /// Zero-length entries (terminators); those in the middle do not end the section.
    Terminators,
    /// Frame descriptions whose CIE or header could not be decoded.
    BadFrames,
    /// Frame descriptions that do not start in an executable segment.
    OutsideText,
    /// Empty frame descriptions.
    EmptyFrames,
    /// Frame descriptions that overlap an earlier one.
    Overlapping,
    /// Sections that end in the middle of an entry.
    TruncatedSections,
    /// Sections that could not be read or decompressed.
    UnreadableSections,
    /// 1 when the entry point has no frame description and is marked as the outermost frame.
    EntryMarked,
    /// Functions at which a runtime begins a separate stack.
    OutermostMarked,
    /// Rows from Go's table of stack depths (used or not).
    GoRows,
    /// Functions without a frame description for which rows were derived.
    DerivedFunctions,
    /// Functions without a frame description for which no row could be derived.
    UnderivedFunctions,
    /// Rows derived from instructions.
    DerivedRows,
    /// Derived rows dropped because the file needs too many different rules.
    DerivedRulesBeyond,
}

/// Number of counters.
pub const COUNTS: usize = Count::DerivedRulesBeyond as usize + 1;

/// Names of the counters, by [`Count`].
pub const COUNT_NAMES: [&str; COUNTS] = [
    "frames",
    "signal frames",
    "frames of .debug_frame",
    "rows of frames",
    "rows",
    "terminators",
    "undecodable frames",
    "frames outside the text",
    "empty frames",
    "overlapping frames",
    "truncated sections",
    "unreadable sections",
    "entry point marked",
    "outermost functions of runtimes marked",
    "rows of Go's own table",
    "functions derived",
    "functions not derived",
    "rows derived",
    "rows derived beyond the limit of rules",
];

/// The counters of one build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildStats {
    counts: [u64; COUNTS],
}

impl BuildStats {
    /// The value of one counter.
    pub fn get(&self, count: Count) -> u64 {
        self.counts[count as usize]
    }

    /// All counters with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNT_NAMES.into_iter().zip(self.counts)
    }

    pub(super) fn add(&mut self, count: Count, more: u64) {
        self.counts[count as usize] += more;
    }

    pub(super) fn absorb(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
    }

    pub(super) fn words(&self) -> &[u64; COUNTS] {
        &self.counts
    }

    pub(super) fn from_words(counts: [u64; COUNTS]) -> Self {
        Self { counts }
    }
}
