//! No executable: why the frames of some code cannot be walked in the kernel.
//!
//! Owns: [`NoExecutable`]. Because: files and generated code fail for the same reasons. Does not: look for tables.

use std::fmt;
use std::time::Duration;

use deepctx_common::reasons;
use deepctx_symbolizer::NoSymbol;
use deepctx_symbolizer::unwind_rows::NoTable;
use deepctx_symbolizer::unwind_rows::builder::NotBuilt;

use super::rows::NotPlaced;
use super::table_error::TableError;

/// How long after an attempt that failed only for now another one is made: each reads the file and builds a table, or
/// starts a process for that.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Why an executable has no table.
#[derive(Clone, Debug)]
pub(crate) enum NoExecutable {
    /// Its file cannot be read.
    File(NoSymbol),
    /// It has no usable call frame information.
    Table(NoTable),
    /// It was generated at run time, without call frame information.
    Generated,
    /// It was generated at run time, and it or its call frame information exceeds what is read.
    OverBound,
    /// It was generated at run time, and reading such code of this user took too long already.
    OverBudget,
    /// There was no room for its table.
    Room(String),
    /// Its user has most of the tables, and others need the rest.
    OverShare(String),
}

impl From<NotBuilt> for NoExecutable {
    fn from(reason: NotBuilt) -> Self {
        match reason {
            NotBuilt::File(reason) => Self::File(reason),
            NotBuilt::Table(reason) => Self::Table(reason),
        }
    }
}

impl From<NotPlaced> for NoExecutable {
    fn from(error: NotPlaced) -> Self {
        match error {
            NotPlaced::Tables(TableError::OverShare { .. }) => Self::OverShare(error.to_string()),
            NotPlaced::Tables(_) | NotPlaced::Damaged => Self::Room(error.to_string()),
        }
    }
}

impl NoExecutable {
    /// Whether a later attempt may give a table.
    pub(crate) fn is_for_now(&self) -> bool {
        use NoExecutable::{OverShare, Room, Table};
        matches!(self, Table(NoTable::ShareSpent | NoTable::NoBuilder) | Room(_) | OverShare(_))
    }

    reasons! {
        class Unread, page "unwinding.md";
        /// Its key and its general sentence; [`Display`](fmt::Display) adds limits and machines.
        pub(crate) fn reason(self) {
            Self::Generated => "generated-without-frames", "generated code without call frame information";
            Self::OverBound => "generated-over-bound",
                "more generated code, or call frame information around it, than is read";
            Self::OverBudget => "generated-over-budget",
                "looking at this user's generated code took too long, and held others up";
            Self::Room(_) => "table-without-room", "there was no room for the table";
            Self::OverShare(_) => "table-over-share",
                "its user has most of the kernel's tables, and others need the rest";
        } or {
            Self::File(file) => file.reason();
            Self::Table(table) => table.reason();
        }
    }
}

impl fmt::Display for NoExecutable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => table.fmt(f),
            Self::Room(why) | Self::OverShare(why) => f.write_str(why),
            Self::File(_) | Self::Generated | Self::OverBound | Self::OverBudget => self.reason().fmt(f),
        }
    }
}

impl std::error::Error for NoExecutable {}
