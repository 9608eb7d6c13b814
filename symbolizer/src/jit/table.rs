//! Generated code of one process by address, with what was there before.
//!
//! Owns: [`CodeTable`]. Because: runtimes use an address again for other code, and a sample from before then must get
//! the old name. Does not: know files or names.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::JitSymbol;

/// Most pieces of code kept of one process.
const CODES_MAX: usize = 1 << 19;
/// Most replaced pieces kept: they are asked for only by samples that are late.
const REPLACED_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code {
    begin: u64,
    end: u64,
    since_ns: u64,
    symbol: JitSymbol,
}

/// Code by address.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeTable {
    /// What is there now, never overlapping, by first address.
    present: BTreeMap<u64, Code>,
    /// What was there before, the latest last.
    replaced: VecDeque<Code>,
    /// Names by the runtime's own numbers.
    numbers: FxHashMap<u64, JitSymbol>,
}

impl CodeTable {
    /// Adds code, which replaces all that it overlaps. `begin + size` must not overflow and `size` not be 0. False when
    /// there is no room.
    pub(super) fn insert(&mut self, begin: u64, size: u64, since_ns: u64, symbol: JitSymbol) -> bool {
        let end = begin + size;
        while let Some(overlapped) = self.last_before(end).filter(|code| code.end > begin) {
            self.present.remove(&overlapped.begin);
            if self.replaced.len() >= REPLACED_MAX {
                self.replaced.pop_front();
            }
            self.replaced.push_back(overlapped);
        }
        let room = self.present.len() < CODES_MAX;
        if room {
            self.present.insert(begin, Code { begin, end, since_ns, symbol });
        }
        room
    }

    /// The code at an address at a time.
    pub(super) fn lookup(&self, address: u64, time_ns: u64) -> Option<JitSymbol> {
        let code = self.last_before(address.checked_add(1)?).filter(|code| address < code.end)?;
        if code.since_ns <= time_ns {
            return Some(code.symbol);
        }
        let covers = |code: &&Code| (code.begin..code.end).contains(&address) && code.since_ns <= time_ns;
        let before = self.replaced.iter().rev().find(covers);
        // Without an older piece the sample's clock and the runtime's differ a little, and this is the one.
        Some(before.map_or(code.symbol, |before| before.symbol))
    }

    /// Remembers the runtime's number of a piece of code, for moves.
    pub(super) fn number(&mut self, index: u64, symbol: JitSymbol) {
        if self.numbers.len() < CODES_MAX {
            self.numbers.insert(index, symbol);
        }
    }

    /// The code with that number.
    pub(super) fn numbered(&self, index: u64) -> Option<JitSymbol> {
        self.numbers.get(&index).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// The last piece that begins before an address.
    fn last_before(&self, address: u64) -> Option<Code> {
        self.present.range(..address).next_back().map(|(_, code)| *code)
    }
}
