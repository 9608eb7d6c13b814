//! Prompt: the line being typed, for a search or a filter.
//!
//! Owns: [`Prompt`]. Because: both are edited in the same way. Does not: match.

/// Purpose of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A text to find in the names of functions.
    Search,
    /// A regular expression that stacks must match.
    Filter,
}

/// A line being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// Purpose of the line.
    pub(crate) purpose: Purpose,
    /// The text so far.
    pub(crate) text: String,
    /// The previous search, restored on cancel.
    pub(crate) before: String,
    /// The error in it.
    pub(crate) error: Option<String>,
}
