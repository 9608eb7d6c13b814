//! The basis on which a trace connects its events.
//!
//! Owns: the three answers. Because: events and the links between them state their basis in the same terms. Does not:
//! find links.

use super::packed::Cell;

/// How certain a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// The trace names both ends.
    Exact,
    /// It follows from the order of calls, by the rules of the API.
    ByOrder,
    /// A guess, which may be wrong.
    Inferred,
}

impl Basis {
    /// Every one.
    const ALL: [Basis; 3] = [Basis::Exact, Basis::ByOrder, Basis::Inferred];
}

impl Cell for Basis {
    fn to_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> Self {
        Basis::ALL.get(word as usize).copied().unwrap_or(Basis::Inferred)
    }
}
