//! A probe in a file, or why there is none.
//!
//! Owns: [`Site`], [`Missing`]. Because: the plan and what looks into frameworks' libraries both make them. Does not: look for
//! places.

use deepctx_address_space::{FileOffset, Svma};

use crate::catalogue::Row;
use crate::entry::Point;
use crate::reason::NoProbe;

/// One probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The row.
    pub row: Row,
    /// The symbol by which it was found.
    pub symbol: String,
    /// Other symbols of the same code.
    pub aliases: Vec<String>,
    /// Version of the symbol.
    pub version: Option<Box<str>>,
    /// Stated address of the function.
    pub svma: Svma,
    /// Where the function begins in the file: where a probe on its return is asked for.
    pub entry: FileOffset,
    /// Where the probe goes in the file.
    pub offset: FileOffset,
    /// Which instruction that is, and why.
    pub point: Point,
    /// Where a counter is in the file that must be above zero for the place to be reached.
    pub counter: Option<FileOffset>,
}

/// A name without a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// The row.
    pub row: Row,
    /// The symbol.
    pub symbol: String,
    /// Why.
    pub because: NoProbe,
}

impl Missing {
    /// A row that was not looked for by name.
    pub(crate) fn of(row: Row, because: NoProbe) -> Self {
        Self { symbol: row.names[0].symbol.clone().into_owned(), row, because }
    }
}
