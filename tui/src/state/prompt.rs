//! Prompt: the line that is typed, for a search or a filter.
//!
//! Owns: [`Prompt`]. Because: a search shows its answer with every letter, a filter when it is complete; for the hand they are the
//! same. Does not: match.

/// What the line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A text that names of functions have in them.
    Search,
    /// A regular expression that stacks must match.
    Filter,
}

/// A line that is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// What for.
    pub(crate) purpose: Purpose,
    /// What is typed so far.
    pub(crate) text: String,
    /// The search from before, to go back to.
    pub(crate) before: String,
    /// What is wrong with it.
    pub(crate) error: Option<String>,
}
