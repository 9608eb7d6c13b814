//! The profile: what a capture recorded, and the views of it.
//!
//! Owns: the calling context tree, interned frames and strings, metrics, the ledger, merged trees and snapshots.
//! Because: analyses and views must be testable without a kernel, a process or a terminal. Does not: open files, know
//! their formats (`deepctx-storage` does), know BPF, read clocks, draw.
//!
//! ```
//! use deepctx_profile::view::Resolution;
//! use deepctx_profile::{Frame, Limits, MergedTree, Meta, Metric, Profile, Selection};
//!
//! let mut profile = Profile::new(Meta::default(), Limits::default());
//! let comm = profile.text("python3");
//! let process = profile.frame(Frame::Process { comm, pid: 4711 });
//! let name = profile.text("aten::addmm");
//! let operator = profile.frame(Frame::Operator { name });
//! profile.add(&[process, operator], Metric::CpuTime, 10_000_000);
//!
//! let mut tree = MergedTree::new(Selection::of(Metric::CpuTime));
//! tree.refresh(&profile);
//! let table = tree.table(Resolution::default());
//! assert_eq!((table[0].label.as_str(), table[0].exclusive), ("aten::addmm", 10_000_000));
//! ```
//!
//! Modules from the bottom up: [`units`], [`order`], [`owner`], [`intern`] (strings, frames and their handles),
//! [`frame`], [`metric`], [`tree`], [`step_times`], [`producers`], [`device`] (with its memory), [`operator`],
//! [`ledger`], [`profile`] (with its timeline); then [`context`] (the contexts that a selection leaves, and their
//! phases) and [`view`] (requests of a screen and their snapshots). [`trace`] holds single events and stands apart from
//! the rest; [`text`] is the form of trees in tests. The crate root has the names that most users need.

pub mod context;
pub mod device;
pub mod frame;
pub mod intern;
pub mod ledger;
pub mod metric;
pub mod operator;
pub mod order;
pub mod owner;
pub mod producers;
pub mod profile;
pub mod step_times;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod trace;
pub mod tree;
pub mod units;
pub mod view;

pub use context::selection::Selection;
pub use frame::Frame;
pub use intern::{FrameId, StrId};
pub use ledger::Ledger;
pub use metric::Metric;
pub use profile::{Limits, Meta, Profile};
pub use tree::NodeId;
pub use units::Nanos;
pub use view::snapshot::{Snapshot, Snapshots};
pub use view::{MergedTree, Viewer};
