//! Rows of functions that have no FDE.
//!
//! Owns: a slice under construction, function after function. Because: rows from runtimes take the same form as rows
//! from FDEs. Does not: know where rows come from, or form pages ([`super::assemble`]).

use deepctx_common::unwind::Rule;

use super::frames::{Frame, Slice, pack};
use super::rules::Interner;
use super::stats::BuildStats;

/// Most different rules of Go functions: two for each depth.
const RULES_MAX: usize = 8192;

/// A slice under construction.
pub(super) struct Rows {
    slice: Slice,
    interner: Interner,
}

impl Rows {
    pub(super) fn new() -> Self {
        let slice =
            Slice { frames: Vec::new(), rows: Vec::new(), rules: Vec::new(), stats: BuildStats::default() };
        Self { slice, interner: Interner::new(RULES_MAX) }
    }

    /// Adds a row, to the previous frame if that ends here. False if there are too many rules.
    pub(super) fn push(&mut self, begin: u64, end: u64, rule: Rule) -> bool {
        let Ok(number) = self.interner.number(rule) else { return false };
        let row = self.slice.rows.len() as u32;
        self.slice.rows.push(pack(begin, number));
        match self.slice.frames.last_mut() {
            Some(frame) if frame.end == begin => {
                frame.end = end;
                frame.rows += 1;
            }
            _ => self.slice.frames.push(Frame { begin, end, first_row: row, rows: 1 }),
        }
        true
    }

    pub(super) fn count(&self) -> usize {
        self.slice.rows.len()
    }

    /// `None` without rows.
    pub(super) fn finish(mut self) -> Option<Slice> {
        self.slice.rules = self.interner.into_rules();
        (!self.slice.frames.is_empty()).then_some(self.slice)
    }
}
