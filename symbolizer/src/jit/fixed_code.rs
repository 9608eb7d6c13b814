//! The code of a function, minus the bytes that relocation changes.
//!
//! Owns: [`FixedCode`]: comparing memory with an object file. Because: what a process states about its generated code
//! may be stale or wrong; the bytes show whether a function really is there. Does not: read memory or object files.

use std::ops::Range;

use super::gdb::{ObjectFunction, relocations};

/// Bytes before a relocated range that a linker may change with it: `mov` of an address from a table becomes `lea`.
const RELAXED: usize = 2;

/// Code with the ranges that relocation changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FixedCode {
    /// Code, with zeros in relocated ranges.
    code: Vec<u8>,
    /// Relocated ranges, sorted and disjoint.
    relocated: Vec<Range<usize>>,
}

impl FixedCode {
    /// The code of a function. `None` if the file does not contain the code, or the ranges that relocation changes.
    pub(crate) fn of(object: &[u8], function: &ObjectFunction<'_>) -> Option<Self> {
        if function.code.is_empty() {
            return None;
        }
        Self::new(function.code.to_vec(), relocations(object, function)?)
    }

    /// The ranges may be in any order, overlap, and exceed the code.
    pub(crate) fn new(mut code: Vec<u8>, mut relocated: Vec<Range<usize>>) -> Option<Self> {
        relocated.sort_unstable_by_key(|range| (range.start, range.end));
        let mut from = 0;
        for range in &mut relocated {
            let end = range.end.min(code.len()).max(from);
            let start = range.start.saturating_sub(RELAXED).max(from);
            *range = start..end.max(start);
            from = range.end;
            code.get_mut(range.clone())?.fill(0);
        }
        Some(Self { code, relocated })
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.code.len()
    }

    /// Bytes outside relocated ranges.
    pub(crate) fn fixed_bytes(&self) -> usize {
        self.code.len() - self.relocated.iter().map(Range::len).sum::<usize>()
    }

    /// Whether memory begins with this code.
    pub(crate) fn matches(&self, memory: &[u8]) -> bool {
        let Some(memory) = memory.get(..self.code.len()) else { return false };
        let mut from = 0;
        for range in &self.relocated {
            if memory.get(from..range.start) != self.code.get(from..range.start) {
                return false;
            }
            from = range.end;
        }
        memory.get(from..) == self.code.get(from..)
    }
}

#[cfg(test)]
mod tests {
    use super::FixedCode;

    #[test]
    fn only_relocated_bytes_may_differ() {
        let code: Vec<u8> = (0..64).collect();
        let fixed = FixedCode::new(code.clone(), vec![40..44, 16..20, 42..200]).unwrap();
        assert_eq!((fixed.len(), fixed.fixed_bytes()), (64, 64 - 6 - 26));
        let check = |at: usize, expect: bool| {
            let mut memory = code.clone();
            memory[at] ^= 1;
            memory.push(0);
            assert_eq!(fixed.matches(&memory), expect, "byte {at}");
        };
        for (at, expect) in
            [(0, false), (13, false), (14, true), (19, true), (20, false), (37, false), (63, true)]
        {
            check(at, expect);
        }
        assert!(!fixed.matches(&code[..63]));
    }
}
