//! Source: where the views get their snapshots from.
//!
//! Owns: the question a view asks (`Request`) and the door through which the answer comes (`Snapshots`). Because: a
//! running capture, a stored file and a test must look the same to a terminal. Does not: know any of the three.

use std::sync::Arc;

use deepctx_profile::snapshot::Snapshot;

/// Which frames a snapshot keeps; names as in `--view` of the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Context {
    /// Every frame.
    #[default]
    Full,
    /// Python functions and framework operators.
    Python,
    /// Native and kernel code.
    Native,
}

impl Context {
    /// All contexts, in the order in which a key steps through them.
    pub const ALL: [Self; 3] = [Self::Full, Self::Python, Self::Native];

    /// Name as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Python => "python",
            Self::Native => "native",
        }
    }

    /// The context after this one; wraps around.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Full => Self::Python,
            Self::Python => Self::Native,
            Self::Native => Self::Full,
        }
    }
}

/// What a view wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Metric, by its name on the command line (`cpu-time`).
    pub metric: String,
    /// Frames to keep.
    pub context: Context,
    /// Whether source lines tell frames apart.
    pub lines: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self { metric: "cpu-time".to_owned(), context: Context::Full, lines: false }
    }
}

/// Gives snapshots to the event loop.
///
/// No method may wait: the loop calls them between two key presses. Work that takes longer than a few milliseconds
/// belongs on the source's own thread, which leaves its newest result where `latest` can pick it up.
pub trait Snapshots {
    /// Metrics that can be asked for; the first is the usual one.
    fn metrics(&self) -> Vec<String> {
        vec![Request::default().metric]
    }

    /// Newest snapshot for `request`, or `None` when there is none newer than the one handed out before, or none yet.
    ///
    /// After the request changed, a snapshot that answers an older request is never handed out.
    fn latest(&mut self, request: &Request) -> Option<Arc<Snapshot>>;

    /// Whether more can still come: false for a stored profile and once the capture has ended.
    fn live(&self) -> bool {
        true
    }
}
