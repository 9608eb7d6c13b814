//! Packed columns: numbers of a table, in as few bytes as their neighbors allow.
//!
//! Owns: [`PackedColumn`], [`Column`], and which values are numbers ([`Cell`]). Because: a trace of ten million
//! events must fit into memory, adjacent events begin at nearly the same time and are launched by calls with nearby
//! numbers, and most columns of most rows are empty. Does not: know what a number means, or write files.
//!
//! Values are stored in blocks of [`BLOCK`]: the minimum once, then for each value its difference from the minimum,
//! in as many bytes as the largest difference needs (none if all values are equal). One division finds a value and
//! one load reads it.

use crate::intern::Id;
use crate::units::{Bytes, Nanos};

use super::TraceTime;

/// Values with a common minimum. The times of this many events take two or three bytes of a nanosecond clock's eight,
/// and the header of a block adds a tenth of a byte to each.
const BLOCK: usize = 256;
/// Bytes after the last value, so that each can be read as a whole word.
const PAD: usize = 8;
/// Masks of a word for each width.
const MASKS: [u64; 16] = {
    let mut masks = [u64::MAX; 16];
    let mut width = 0;
    while width < 8 {
        masks[width] = (1 << (8 * width)) - 1;
        width += 1;
    }
    masks
};

/// A column of a table that only grows.
pub(super) trait Column<T> {
    /// Adds a value.
    fn add(&mut self, value: T);
    /// The value of a row, which must be there.
    fn at(&self, row: usize) -> T;
    /// Number of values.
    fn count(&self) -> usize;
}

/// A value that is a number.
pub(super) trait Cell: Copy {
    /// The number.
    fn to_word(self) -> u64;
    /// The value that has this number.
    fn from_word(word: u64) -> Self;
}

/// A column of numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedColumn {
    blocks: Vec<Block>,
    /// The values of each block minus its minimum, and [`PAD`] zeros.
    bytes: Vec<u8>,
    /// Values of the incomplete block.
    open: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    least: u64,
    /// Offset of its bytes.
    from: usize,
    /// Bytes of each value, 0 to 8.
    width: u8,
}

impl<T: Cell> Column<T> for PackedColumn {
    fn add(&mut self, value: T) {
        if self.open.len() == BLOCK {
            self.close();
        }
        self.open.push(value.to_word());
    }

    #[inline]
    fn at(&self, row: usize) -> T {
        T::from_word(self.word(row))
    }

    #[inline]
    fn count(&self) -> usize {
        self.blocks.len() * BLOCK + self.open.len()
    }
}

impl PackedColumn {
    /// The number of a row; 0 if there is none.
    #[inline]
    fn word(&self, row: usize) -> u64 {
        let Some(block) = self.blocks.get(row / BLOCK) else {
            return self.open.get(row % BLOCK).copied().unwrap_or(0);
        };
        let width = usize::from(block.width);
        let from = block.from + row % BLOCK * width;
        let bytes = self.bytes.get(from..from + PAD).and_then(|bytes| bytes.first_chunk());
        let word = bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        block.least.wrapping_add(word & MASKS[width & 15])
    }

    /// Packs the open block.
    fn close(&mut self) {
        let least = self.open.iter().copied().min().unwrap_or(0);
        let most = self.open.iter().copied().max().unwrap_or(0) - least;
        let width = (u64::BITS - most.leading_zeros()).div_ceil(8) as usize;
        let from = self.bytes.len().saturating_sub(PAD);
        self.bytes.truncate(from);
        for value in self.open.drain(..) {
            self.bytes.extend_from_slice(&(value - least).to_le_bytes()[..width]);
        }
        self.bytes.extend_from_slice(&[0; PAD]);
        self.blocks.push(Block { least, from, width: width as u8 });
    }
}

impl<T: Copy> Column<T> for Vec<T> {
    fn add(&mut self, value: T) {
        self.push(value);
    }

    #[inline]
    fn at(&self, row: usize) -> T {
        self[row]
    }

    #[inline]
    fn count(&self) -> usize {
        self.len()
    }
}

impl Cell for u64 {
    fn to_word(self) -> u64 {
        self
    }

    fn from_word(word: u64) -> Self {
        word
    }
}

impl<T: ?Sized> Cell for Id<T> {
    fn to_word(self) -> u64 {
        u64::from(self.number())
    }

    fn from_word(word: u64) -> Self {
        Id::from_number(word as u32)
    }
}

impl Cell for TraceTime {
    fn to_word(self) -> u64 {
        self.as_nanos()
    }

    fn from_word(word: u64) -> Self {
        TraceTime::from_nanos(word)
    }
}

impl Cell for Nanos {
    fn to_word(self) -> u64 {
        self.0
    }

    fn from_word(word: u64) -> Self {
        Nanos(word)
    }
}

impl Cell for Bytes {
    fn to_word(self) -> u64 {
        self.0
    }

    fn from_word(word: u64) -> Self {
        Bytes(word)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(values: &[u64]) -> PackedColumn {
        let mut column = PackedColumn::default();
        values.iter().for_each(|value| column.add(*value));
        column
    }

    #[test]
    fn equal_values_take_no_bytes() {
        let check = |of: fn(u64) -> u64, width: usize| {
            let values: Vec<u64> = (0..=BLOCK as u64).map(of).collect();
            assert_eq!(packed(&values).bytes.len(), BLOCK * width + PAD, "{width} bytes each");
        };
        check(|_| u64::MAX, 0);
        check(|row| 1_000_000_000_000 + row % 256, 1);
        check(|row| row * 200, 2);
        check(|row| if row == 7 { u64::MAX } else { 0 }, 8);
    }

    proptest! {
        #[test]
        fn values_come_back(values in prop::collection::vec(
            prop_oneof![any::<u64>(), 0u64..9, (0u32..64).prop_map(|shift| 1 << shift)],
            0..4 * BLOCK,
        )) {
            let column = packed(&values);
            let found: Vec<u64> = (0..Column::<u64>::count(&column)).map(|row| column.at(row)).collect();
            prop_assert_eq!(&found, &values);
        }
    }
}
