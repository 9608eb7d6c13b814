//! Views: a profile merged and reduced to what one reader wants to see.
//!
//! Owns: merged trees, and the making of snapshots. Because: the terminal, the exports and the report must agree on
//! what a selection means. Does not: draw, write, or change the profile.

mod callers;
mod flame;
pub mod lanes;
mod losses;
mod mark;
mod merged_tree;
mod overview;
mod source_lines;
mod stack_filter;
mod table;
mod viewer;

pub use losses::{complete_share, losses};
pub use mark::Mark;
pub use merged_tree::{BoxLabel, LabelId, MergedTree};
pub use stack_filter::{only, only_contexts};
pub use viewer::Viewer;

pub use crate::request::{BadPattern, Pattern, Request, Resolution, TabRequest};
pub use crate::selection::{GroupBy, Selection, UnknownView, View};

#[cfg(test)]
mod tests;
