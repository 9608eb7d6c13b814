//! Unwind rows derived from instructions, for code without call frame information.
//!
//! Owns: an abstract interpretation of functions, from the state at their entry to a [`Rule`] for each instruction.
//! Because: the hot kernels of numeric libraries are written in assembler or generated at run time, without call
//! frame information. Does not: guess. Where two paths to an instruction disagree, or the stack pointer comes from
//! arithmetic that cannot be followed, there is no row, and the case is counted.
//!
//! ```text
//!   code ─lower─▶ operations on the stack ─flow─▶ graph ─state─▶ states at all instructions ─▶ rows
//! ```
//! It decodes x86-64 only. It is a pure function of its input, which is untrusted; the work is bounded by [`Bounds`],
//! per function and in total.

mod flow;
mod generated;
mod lower;
mod state;
#[cfg(test)]
mod tests;

use std::ops::Range;

use deepctx_address_space::Arch;
use deepctx_common::unwind::Rule;
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use flow::{Failure, Graph};

pub use generated::entries_of_generated_code;

/// Limits of the code examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Functions. The numeric kernels of libtorch_cpu, the most seen, have 8 thousand.
    pub functions: usize,
    /// Bytes of all functions. Those of libtorch_cpu have 38 MB.
    pub code_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { functions: 1 << 17, code_bytes: 128 << 20 }
    }
}

/// Times that functions are analyzed again because others jump into the middle of them.
const ROUNDS_MAX: usize = 4;

/// Derived rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DerivedTable {
    /// Start, end and rule; ascending and disjoint. Where the state is not known there is no row.
    pub rows: Vec<(u64, u64, Rule)>,
    /// Counters.
    pub stats: Stats,
}

/// Counters of the code examined, and of reasons for missing rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Functions (those that overlap count as one).
    pub functions: u64,
    /// Of these, functions without rows, for any of the reasons below or another.
    pub without_rows: u64,
    /// Functions that return with another stack than at their entry.
    pub contradictions: u64,
    /// Functions that jump into the middle of an instruction.
    pub overlapping: u64,
    /// Functions larger than the limits.
    pub too_large: u64,
    /// Functions beyond [`Bounds`].
    pub beyond_bounds: u64,
    /// Jumps to unknown targets, such as jump tables.
    pub indirect_jumps: u64,
    /// Bytes of all functions.
    pub code_bytes: u64,
    /// Instructions reachable by known paths.
    pub instructions: u64,
    /// Bytes of code with a row.
    pub row_bytes: u64,
    /// Bytes of reachable code without a row.
    pub unknown_bytes: u64,
}

impl Stats {
    fn absorb(&mut self, other: &Self) {
        self.functions += other.functions;
        self.without_rows += other.without_rows;
        self.contradictions += other.contradictions;
        self.overlapping += other.overlapping;
        self.too_large += other.too_large;
        self.beyond_bounds += other.beyond_bounds;
        self.indirect_jumps += other.indirect_jumps;
        self.code_bytes += other.code_bytes;
        self.instructions += other.instructions;
        self.row_bytes += other.row_bytes;
        self.unknown_bytes += other.unknown_bytes;
    }
}

/// A function that derives rows: [`derive_all`].
pub type DeriveFn = fn(&[Code<'_>], &[Range<u64>], &Bounds) -> DerivedTable;

/// The function that derives rows for `arch`. `None`: not supported, so code without frame information has no rows
/// there.
pub fn of_arch(arch: Arch) -> Option<DeriveFn> {
    match arch {
        Arch::X86_64 => Some(derive_all),
        Arch::Aarch64 => None,
    }
}

/// Code at an address.
#[derive(Clone, Copy, Debug)]
pub struct Code<'c> {
    /// Address of the first byte.
    pub address: u64,
    /// The bytes.
    pub bytes: &'c [u8],
}

impl<'c> Code<'c> {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes.len() as u64)
    }

    fn slice(&self, range: &Range<u64>) -> Option<&'c [u8]> {
        let begin = usize::try_from(range.start.checked_sub(self.address)?).ok()?;
        let end = usize::try_from(range.end.checked_sub(self.address)?).ok()?;
        self.bytes.get(begin..end)
    }
}

/// Derives rows for the functions `entries` in `code` at `address`.
///
/// Parts outside `code` are ignored. Runs on the threads of rayon's current pool.
pub fn derive(code: &[u8], address: u64, entries: &[Range<u64>]) -> DerivedTable {
    derive_all(&[Code { address, bytes: code }], entries, &Bounds::default())
}

/// As [`derive()`], for code in several pieces, sorted and disjoint, with other bounds.
pub fn derive_all(pieces: &[Code<'_>], entries: &[Range<u64>], bounds: &Bounds) -> DerivedTable {
    let mut stats = Stats::default();
    let groups = groups(pieces, entries, bounds, &mut stats);
    let mut solved: Vec<GroupRows> = groups.par_iter().map(|group| group.solve(&[])).collect();
    // Targets of jumps from other functions whose state differs from that after a call.
    let mut unknown_entries: Vec<Vec<u64>> = vec![Vec::new(); groups.len()];
    // All of them: there may be as many as there are jumps.
    let mut known = FxHashSet::default();
    for round in 0..=ROUNDS_MAX {
        let mut again = Vec::new();
        for (target, at_edge) in solved.iter().flat_map(|solved| solved.exits.iter().copied()) {
            let after = groups.partition_point(|group| group.range.start <= target);
            let Some(index) = after.checked_sub(1).filter(|&index| target < groups[index].range.end) else {
                continue;
            };
            let is_call = at_edge && groups[index].entries.binary_search(&target).is_ok();
            if !is_call && known.insert(target) {
                unknown_entries[index].push(target);
                again.push(index);
            }
        }
        again.sort_unstable();
        again.dedup();
        if again.is_empty() {
            break;
        }
        let redo = |&index: &usize| {
            // A result that does not converge is not used.
            let solve = if round == ROUNDS_MAX {
                GroupRows::default()
            } else {
                groups[index].solve(&unknown_entries[index])
            };
            (index, solve)
        };
        for (index, anew) in again.par_iter().map(redo).collect::<Vec<_>>() {
            solved[index] = anew;
        }
    }
    let mut rows = Vec::with_capacity(solved.iter().map(|solved| solved.rows.len()).sum());
    for one in solved {
        stats.absorb(&one.stats);
        stats.functions += 1;
        stats.without_rows += u64::from(one.rows.is_empty());
        rows.extend(one.rows);
    }
    DerivedTable { rows, stats }
}

/// Functions that overlap, nearly always one.
#[derive(Debug)]
struct Group<'c> {
    range: Range<u64>,
    entries: Vec<u64>,
    code: &'c [u8],
}

/// Forms groups of overlapping functions, within the bounds.
fn groups<'c>(
    pieces: &[Code<'c>],
    entries: &[Range<u64>],
    bounds: &Bounds,
    stats: &mut Stats,
) -> Vec<Group<'c>> {
    let mut sorted: Vec<Range<u64>> =
        entries.iter().filter(|range| range.start < range.end).cloned().collect();
    sorted.sort_unstable_by_key(|range| (range.start, range.end));
    let mut groups: Vec<Group<'c>> = Vec::with_capacity(sorted.len());
    let mut piece = 0;
    let mut bytes = 0;
    for (number, range) in sorted.iter().enumerate() {
        while pieces.get(piece).is_some_and(|piece| piece.end() <= range.start) {
            piece += 1;
        }
        let Some(code) = pieces.get(piece).filter(|piece| piece.address <= range.start) else { continue };
        let range = range.start..range.end.min(code.end());
        if number >= bounds.functions || bytes >= bounds.code_bytes {
            stats.beyond_bounds += 1;
            continue;
        }
        if let Some(last) = groups.last_mut().filter(|last| range.start < last.range.end) {
            if last.entries.last() != Some(&range.start) {
                last.entries.push(range.start);
            }
            if range.end > last.range.end {
                bytes += range.end - last.range.end;
                last.range.end = range.end;
            }
        } else {
            bytes += range.end - range.start;
            groups.push(Group { entries: vec![range.start], range, code: code.bytes });
        }
        if let Some(last) = groups.last_mut() {
            last.code = code.slice(&last.range).unwrap_or_default();
        }
    }
    groups
}

/// The result of one group.
#[derive(Debug, Default)]
struct GroupRows {
    rows: Vec<(u64, u64, Rule)>,
    /// Addresses of other code to which it jumps, and whether rsp and rbp are as after a call there.
    exits: Vec<(u64, bool)>,
    stats: Stats,
}

impl Group<'_> {
    fn solve(&self, unknown_entries: &[u64]) -> GroupRows {
        let mut solved = GroupRows::default();
        solved.stats.code_bytes = self.code.len() as u64;
        match self.try_solve(unknown_entries, &mut solved) {
            Ok(()) => {}
            Err(Failure::TooLarge) => solved.stats.too_large = 1,
            Err(Failure::Overlapping) => solved.stats.overlapping = 1,
            Err(Failure::Contradiction) => solved.stats.contradictions = 1,
        }
        solved
    }

    fn try_solve(&self, unknown_entries: &[u64], solved: &mut GroupRows) -> Result<(), Failure> {
        let begin = self.range.start;
        let (graph, states) = self.states(unknown_entries)?;
        solved.stats.instructions = graph.instructions as u64;
        solved.stats.indirect_jumps = graph.indirect as u64;
        let (mut rows, mut row_bytes, mut unknown_bytes): (Vec<(u64, u64, Rule)>, u64, u64) =
            Default::default();
        let exits = graph.follow(begin, states, |from, to, state| {
            let (from, to) = (begin + u64::from(from), begin + u64::from(to));
            let Some(rule) = state.rule() else {
                unknown_bytes += to - from;
                return;
            };
            row_bytes += to - from;
            match rows.last_mut() {
                Some((_, end, last)) if *end == from && *last == rule => *end = to,
                _ => rows.push((from, to, rule)),
            }
        })?;
        // Only now: contradictory code has no rows at all.
        (solved.rows, solved.exits) = (rows, exits);
        (solved.stats.row_bytes, solved.stats.unknown_bytes) = (row_bytes, unknown_bytes);
        Ok(())
    }

    fn states(&self, unknown_entries: &[u64]) -> Result<(Graph, Vec<Option<state::State>>), Failure> {
        let begin = self.range.start;
        // `decode` refuses groups larger than 2^32 bytes.
        let offsets = |addresses: &[u64]| -> Vec<u32> {
            addresses.iter().map(|&address| (address - begin) as u32).collect()
        };
        let (entries, unknown_entries) = (offsets(&self.entries), offsets(unknown_entries));
        let mut all = entries.clone();
        all.extend(&unknown_entries);
        let graph = Graph::decode(self.code, begin, &all)?;
        let states = graph.solve(&entries, &unknown_entries)?;
        Ok((graph, states))
    }
}
