//! Generated code of one process by address, with its history.
//!
//! Owns: [`CodeTable`]. Because: runtimes reuse addresses for other code, and a sample taken before that must get the
//! old name. Does not: know files or names.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::JitSymbol;

/// Most code ranges kept of one process.
const RANGES_MAX: usize = 1 << 19;
/// Most replaced ranges kept: only late samples need them.
const REPLACED_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CodeRange {
    begin: u64,
    end: u64,
    since_ns: u64,
    symbol: JitSymbol,
}

/// Code that other code replaced, at least in part.
#[derive(Clone, Copy, Debug)]
struct ReplacedRange {
    code: CodeRange,
    /// When the other code came; 0 if that is not known.
    until_ns: u64,
}

/// Code ranges by address.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeTable {
    /// Current ranges by first address, never overlapping.
    present: BTreeMap<u64, CodeRange>,
    /// Replaced ranges, the latest last.
    replaced: VecDeque<ReplacedRange>,
    /// Names by the runtime's index.
    by_index: FxHashMap<u64, JitSymbol>,
}

impl CodeTable {
    /// Adds code, replacing all ranges that it overlaps. `begin + size` must not overflow and `size` must not be 0.
    /// False if there is no room.
    pub(super) fn insert(&mut self, begin: u64, size: u64, since_ns: u64, symbol: JitSymbol) -> bool {
        self.clear(begin, size, since_ns);
        let room = self.present.len() < RANGES_MAX;
        if room {
            self.present.insert(begin, CodeRange { begin, end: begin + size, since_ns, symbol });
        }
        room
    }

    /// Ends all ranges that this one overlaps, since other code is there from this time on (0: not known); returns how
    /// many. The same must hold for it as for [`Self::insert`].
    pub(super) fn clear(&mut self, begin: u64, size: u64, time_ns: u64) -> usize {
        let before = self.present.len();
        while let Some(overlapped) = self.last_before(begin + size).filter(|code| code.end > begin) {
            self.present.remove(&overlapped.begin);
            if self.replaced.len() >= REPLACED_MAX {
                self.replaced.pop_front();
            }
            self.replaced.push_back(ReplacedRange { code: overlapped, until_ns: time_ns });
        }
        before - self.present.len()
    }

    /// The code at an address at a time.
    pub(super) fn lookup(&self, address: u64, time_ns: u64) -> Option<JitSymbol> {
        let present = self.last_before(address.checked_add(1)?).filter(|code| address < code.end);
        if let Some(code) = present.filter(|code| code.since_ns <= time_ns) {
            return Some(code.symbol);
        }
        let covers = |of: &&ReplacedRange| {
            (of.code.begin..of.code.end).contains(&address) && of.code.since_ns <= time_ns
        };
        let mut before = self.replaced.iter().rev().filter(covers);
        let found = match present {
            // Without an older range, the clocks of the sample and the runtime differ a little, and this range is
            // meant.
            Some(code) => before.next().map_or(code.symbol, |before| before.code.symbol),
            // What replaced it does not reach this address.
            None => before.find(|before| time_ns < before.until_ns)?.code.symbol,
        };
        Some(found)
    }

    /// Whether one of the ranges that were replaced last had another name than this.
    pub(super) fn has_replaced_other(&self, ranges: usize, symbol: JitSymbol) -> bool {
        self.replaced.iter().rev().take(ranges).any(|before| before.code.symbol != symbol)
    }

    /// The names of all code that these addresses overlap.
    pub(super) fn overlapped(&self, begin: u64, end: u64) -> impl Iterator<Item = JitSymbol> {
        let before_end = self.present.range(..end).rev();
        before_end.take_while(move |(_, code)| code.end > begin).map(|(_, code)| code.symbol)
    }

    /// Keeps current ranges for which `keep` is true, given their begin of validity in nanoseconds and their name;
    /// returns how many were dropped.
    pub(super) fn retain(&mut self, keep: impl Fn(u64, JitSymbol) -> bool) -> usize {
        let before = self.present.len();
        self.present.retain(|_, code| keep(code.since_ns, code.symbol));
        before - self.present.len()
    }

    /// The names of all code, including replaced ranges.
    pub(super) fn symbols(&self) -> impl Iterator<Item = JitSymbol> {
        let replaced = self.replaced.iter().map(|before| before.code.symbol);
        let ranges = self.present.values().map(|code| code.symbol).chain(replaced);
        ranges.chain(self.by_index.values().copied())
    }

    /// Remembers the runtime's index of code, for later moves.
    pub(super) fn set_index(&mut self, index: u64, symbol: JitSymbol) {
        if self.by_index.len() < RANGES_MAX {
            self.by_index.insert(index, symbol);
        }
    }

    /// The code with this index.
    pub(super) fn by_index(&self, index: u64) -> Option<JitSymbol> {
        self.by_index.get(&index).copied()
    }

    /// Number of ranges, without replaced ones, which are few.
    pub(super) fn len(&self) -> usize {
        self.present.len() + self.by_index.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// The last range that begins before an address.
    fn last_before(&self, address: u64) -> Option<CodeRange> {
        self.present.range(..address).next_back().map(|(_, code)| *code)
    }
}
