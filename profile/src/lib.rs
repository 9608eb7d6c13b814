//! The profile: what was seen, and all that can be computed from it.
//!
//! Owns: the calling context tree, interned frames and strings, metrics, the ledger, snapshots.
//! Because: analyses and views must be testable without a kernel, a process or a terminal.
//! Does not: open files, know their formats (`deepctx-storage` does), know BPF, read clocks, draw.

pub mod activity;
pub mod context;
pub mod device;
pub mod device_lines;
pub mod frame;
pub mod id;
pub mod intern;
pub mod ledger;
pub mod memory;
pub mod metric;
pub mod occupancy;
pub mod operand;
pub mod operator_work;
pub mod phase;
pub mod profile;
pub mod request;
pub mod selection;
pub mod snapshot;
pub mod strings;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod timeline;
pub mod tree;
pub mod units;
pub mod view;

pub use context::Contexts;
pub use frame::{Frame, Origin, Role};
pub use id::Id;
pub use intern::{FrameId, Frames, StrId, Strings};
pub use ledger::{Ledger, Reason, Stage, When};
pub use metric::{Cell, Metric};
pub use profile::{Executable, Limits, Meta, Profile};
pub use selection::{GroupBy, Selection, View};
pub use tree::{NodeId, Tree};
pub use units::{Bytes, Count, Nanos, Time};
