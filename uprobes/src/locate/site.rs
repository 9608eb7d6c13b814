//! A probe in a file, or why there is none.
//!
//! Owns: [`Site`], [`MissingProbe`], [`ProbePlan`]. Because: symbols, USDT probes and the code of frameworks all lead
//! to one of these. Does not: search for instructions.

use deepctx_address_space::{FileOffset, Svma};

use super::instruction::ProbePoint;
use super::reason::NoProbe;
use crate::row::Row;

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
    /// File offset of the function, where a probe on its return is attached.
    pub entry: FileOffset,
    /// File offset of the probe.
    pub offset: FileOffset,
    /// The probed instruction, and why it was chosen.
    pub point: ProbePoint,
    /// File offset of a counter that must be above zero for the instruction to be reached (a USDT semaphore).
    pub counter: Option<FileOffset>,
}

/// A function without a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct MissingProbe {
    /// The row.
    pub row: Row,
    /// The symbol.
    pub symbol: String,
    /// Why.
    pub because: NoProbe,
}

impl MissingProbe {
    /// A row that was not searched for by name.
    pub(crate) fn of(row: Row, because: NoProbe) -> Self {
        let symbol = row.names.first().map_or_else(String::new, |name| name.symbol.clone().into_owned());
        Self { row, symbol, because }
    }
}

/// Probes of one file.
#[derive(Debug, Default)]
pub(crate) struct ProbePlan {
    /// Functions to be resolved by their symbols.
    pub(crate) rows: Vec<Row>,
    /// Probes whose instruction is known already.
    pub(crate) sites: Vec<Site>,
    /// Functions that cannot be probed.
    pub(crate) missing: Vec<MissingProbe>,
}

impl ProbePlan {
    /// Functions to be resolved by their symbols.
    pub(crate) fn of_rows(rows: impl IntoIterator<Item = Row>) -> Self {
        Self { rows: rows.into_iter().collect(), ..Self::default() }
    }

    /// Adds rows, or marks each of `unplaced` as missing.
    pub(crate) fn add(&mut self, rows: Result<Vec<Row>, NoProbe>, unplaced: impl FnOnce() -> Vec<Row>) {
        match rows {
            Ok(rows) => self.rows.extend(rows),
            Err(because) => {
                self.missing.extend(unplaced().into_iter().map(|row| MissingProbe::of(row, because)));
            }
        }
    }

    /// Adds all of another plan for the same file.
    pub(crate) fn merge(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.sites.extend(other.sites);
        self.missing.extend(other.missing);
    }
}
