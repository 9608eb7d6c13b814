//! Room: the bounded tables of the kernel programs, and how many slots each has.
//!
//! Owns: [`Room`]. Because: errors and accounts of slots name the same tables. Does not: hold any of them.

use std::fmt;

use deepctx_common::unwind::{
    BLOCKS_PER_SHARD, EXECUTABLES_MAX, MAPPINGS_MAX, PAGES_MAX, PROCESSES_MAX, RULES_MAX, SHARDS_MAX,
};

/// A bounded table of the kernel programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Room {
    /// Executable mappings of processes.
    Mappings,
    /// Processes.
    Processes,
    /// Executables with a table.
    Executables,
    /// Pages of their text.
    Pages,
    /// Rules of their tables.
    Rules,
    /// Rows of their tables, in blocks.
    Rows,
}

impl Room {
    /// Each of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 6] =
        [Self::Mappings, Self::Processes, Self::Executables, Self::Pages, Self::Rules, Self::Rows];

    /// Number of slots.
    pub(crate) fn size(self) -> usize {
        let size = match self {
            Self::Mappings => MAPPINGS_MAX,
            Self::Processes => PROCESSES_MAX,
            Self::Executables => EXECUTABLES_MAX,
            Self::Pages => PAGES_MAX,
            Self::Rules => RULES_MAX,
            Self::Rows => BLOCKS_PER_SHARD * SHARDS_MAX,
        };
        size as usize
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mappings => "mappings",
            Self::Processes => "processes",
            Self::Executables => "executables",
            Self::Pages => "pages of text",
            Self::Rules => "unwind rules",
            Self::Rows => "unwind rows",
        })
    }
}
