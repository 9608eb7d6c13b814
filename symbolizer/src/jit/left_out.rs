//! Generated code that has no name because there was no room for it.
//!
//! Owns: [`LeftOutCode`]. Because: an address without a name has this reason only where such code is; everywhere else
//! the runtime gave none. Does not: count, or know why there was no room.

use std::collections::BTreeMap;

/// Most ranges kept, of 16 bytes each; those that touch are one.
const RANGES_MAX: usize = 4096;

/// The addresses of such code.
#[derive(Debug, Default)]
pub(super) struct LeftOutCode {
    /// Ends by first address, never overlapping.
    ranges: BTreeMap<u64, u64>,
    /// There may be such code anywhere.
    is_anywhere: bool,
}

impl LeftOutCode {
    /// Adds code.
    pub(super) fn add(&mut self, begin: u64, size: u64) {
        let (mut begin, mut end) = (begin, begin.saturating_add(size));
        while let Some((other_begin, other_end)) = self.last_from(end).filter(|(_, other)| *other >= begin) {
            self.ranges.remove(&other_begin);
            (begin, end) = (begin.min(other_begin), end.max(other_end));
        }
        if self.ranges.len() < RANGES_MAX {
            self.ranges.insert(begin, end);
        } else {
            self.add_anywhere();
        }
    }

    /// Code was left out, and it is unknown where.
    pub(super) fn add_anywhere(&mut self) {
        self.is_anywhere = true;
    }

    /// Whether there may be such code at an address.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.is_anywhere || self.last_from(address).is_some_and(|(_, end)| address < end)
    }

    /// The last range that begins at an address or before it.
    fn last_from(&self, address: u64) -> Option<(u64, u64)> {
        self.ranges.range(..=address).next_back().map(|(begin, end)| (*begin, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_left_out_code_are_in_it() {
        let mut code = LeftOutCode::default();
        code.add(0x1000, 16);
        code.add(0x1020, 16);
        let within = |code: &LeftOutCode| {
            [0xfff, 0x1000, 0x100f, 0x1010, 0x101f, 0x1020, 0x102f, 0x1030].map(|at| code.contains(at))
        };
        assert_eq!(within(&code), [false, true, true, false, false, true, true, false]);
        code.add(0x1008, 24);
        assert_eq!(within(&code), [false, true, true, true, true, true, true, false]);
        assert_eq!(code.ranges, BTreeMap::from([(0x1000, 0x1030)]));
        code.add_anywhere();
        assert!(code.contains(0xfff));
    }

    #[test]
    fn with_more_ranges_than_are_kept_it_may_be_anywhere() {
        let mut code = LeftOutCode::default();
        (1..=RANGES_MAX as u64).for_each(|n| code.add(n << 12, 16));
        assert!(!code.contains(0x10));
        code.add(u64::MAX, 16);
        assert!(code.contains(0x10) && code.ranges.len() == RANGES_MAX);
    }
}
