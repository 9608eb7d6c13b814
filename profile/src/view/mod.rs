//! Views: a profile cut down to what one reader wants to see.
//!
//! Owns: the choice of metric, languages and grain, and the making of snapshots. Because: the terminal, the exports
//! and the report must agree on what a choice means. Does not: draw, write, or change the profile.

mod callers;
mod flame;
pub(crate) mod lanes;
mod mark;
mod merged;
mod passing;
mod request;
mod screen;
mod source;
mod viewer;

pub use mark::Mark;
pub(crate) use merged::{Merged, SameBy};
pub use passing::only;
pub use request::{BadPattern, Part, Pattern, Request};
pub use screen::{Grain, Screen, losses};
pub use viewer::Viewer;

use std::str::FromStr;

use crate::metric::Metric;

/// Which languages are shown. Values of hidden frames go to the nearest caller that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum View {
    /// Everything.
    #[default]
    Full,
    /// Python functions and operators, and what runs on GPUs.
    Python,
    /// Native and kernel code, and what runs on GPUs.
    Native,
}

impl View {
    /// Every view.
    pub const ALL: &'static [View] = &[View::Full, View::Python, View::Native];

    /// Name as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            View::Full => "full",
            View::Python => "python",
            View::Native => "native",
        }
    }
}

/// No view has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown view `{0}`: expected full, python or native")]
pub struct UnknownView(pub String);

impl FromStr for View {
    type Err = UnknownView;

    fn from_str(name: &str) -> Result<Self, UnknownView> {
        View::ALL.iter().copied().find(|view| view.name() == name).ok_or_else(|| UnknownView(name.to_owned()))
    }
}

/// What the outermost boxes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GroupBy {
    /// Processes; their threads are joined.
    #[default]
    Process,
    /// Processes, and in them threads.
    Thread,
    /// Processes, and in them devices for what ran on them.
    Device,
    /// Processes, and in them streams of devices for what ran in them.
    Stream,
}

impl GroupBy {
    /// Every choice.
    pub const ALL: &'static [GroupBy] =
        &[GroupBy::Process, GroupBy::Thread, GroupBy::Device, GroupBy::Stream];

    /// Name as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            GroupBy::Process => "process",
            GroupBy::Thread => "thread",
            GroupBy::Device => "device",
            GroupBy::Stream => "stream",
        }
    }
}

/// What to show of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Which values.
    pub metric: Metric,
    /// Which languages.
    pub view: View,
    /// Whether lines of one function are told apart.
    pub lines: bool,
    /// What the outermost boxes are.
    pub group_by: GroupBy,
    /// Whether the full view shows the interpreter's own frames and a framework's dispatch beside the Python frames and
    /// operators that tell their meaning. The native view always shows them.
    pub interpreter: bool,
}

impl Selection {
    /// The full view of one metric: functions by process, without the interpreter's own frames.
    pub const fn of(metric: Metric) -> Self {
        Selection { metric, view: View::Full, lines: false, group_by: GroupBy::Process, interpreter: false }
    }
}

#[cfg(test)]
pub(crate) mod tests;
