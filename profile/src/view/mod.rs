//! Views: a profile merged and reduced to what one reader wants to see.
//!
//! Owns: merged trees, and making snapshots. Because: the terminal, the exports and the report must agree on what a
//! selection means. Does not: draw, write, or change the profile.

mod callers;
pub mod conclusions;
pub mod event_tables;
mod flame;
pub mod fold;
pub mod lanes;
mod level;
mod losses;
mod mark;
mod merged_tree;
mod overview;
pub mod request;
pub mod snapshot;
mod source_lines;
mod stack_filter;
mod table;
mod viewer;

pub use level::Level;
pub use losses::{complete_percent, complete_share, losses, losses_by_level, most_common_gap};
pub use mark::Mark;
pub use merged_tree::{BoxLabel, LabelId, MergedTree};
pub use stack_filter::{only, only_contexts};
pub use viewer::Viewer;

pub use crate::context::selection::{GroupBy, Selection, UnknownView, View};
pub use request::{BadPattern, Pattern, Request, Resolution, TabRequest};

#[cfg(test)]
mod tests;
