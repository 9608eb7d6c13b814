//! Loading, as the rules about data loaders read it.
//!
//! Owns: the outcome if no thread loads data. Because: it is the same for all of these rules. Does not: sum up the time
//! of loading; that is shared (`findings/facts/loading`).

use super::Outcome;
use crate::findings::reason;

/// The outcome if no thread loads data.
pub(super) fn no_loading() -> Outcome {
    Outcome::missing(reason::NO_LOADER_THREAD)
}
