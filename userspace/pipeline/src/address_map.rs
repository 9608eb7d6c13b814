//! Address map: the live allocations of a process by address, up to a bound.
//!
//! Owns: [`AddressMap`]. Because: a free passes only an address, while size and allocating context are kept with the
//! allocation; and a program that leaks must not make the profiler's memory grow too. Does not: know kinds of memory.

use std::collections::BTreeMap;

/// Values by start address: at most `MOST`.
#[derive(Debug)]
pub(crate) struct AddressMap<T, const MOST: usize> {
    by_address: BTreeMap<u64, T>,
}

/// Result of [`AddressMap::put`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Insertion<T> {
    /// The address was free.
    New,
    /// This value was there; its removal was not seen.
    Replaced(T),
    /// The map is full.
    Full,
}

impl<T, const MOST: usize> Default for AddressMap<T, MOST> {
    fn default() -> Self {
        Self { by_address: BTreeMap::new() }
    }
}

impl<T, const MOST: usize> AddressMap<T, MOST> {
    /// Stores a value at an address.
    pub(crate) fn put(&mut self, address: u64, what: T) -> Insertion<T> {
        if self.by_address.len() >= MOST && !self.by_address.contains_key(&address) {
            return Insertion::Full;
        }
        self.by_address.insert(address, what).map_or(Insertion::New, Insertion::Replaced)
    }

    /// Removes the value at an address.
    pub(crate) fn take(&mut self, address: u64) -> Option<T> {
        self.by_address.remove(&address)
    }

    /// The value at an address.
    pub(crate) fn get_mut(&mut self, address: u64) -> Option<&mut T> {
        self.by_address.get_mut(&address)
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// The last value at or before an address, with its address.
    pub(crate) fn at_or_before(&self, address: u64) -> Option<(u64, &T)> {
        self.by_address.range(..=address).next_back().map(|(begin, what)| (*begin, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_map_refuses_new_keys_but_replaces_known_ones() {
        let mut ranges = AddressMap::<&str, 2>::default();
        assert_eq!([ranges.put(8, "a"), ranges.put(4, "b")], [Insertion::New, Insertion::New]);
        assert_eq!([ranges.put(9, "c"), ranges.put(8, "d")], [Insertion::Full, Insertion::Replaced("a")]);
        assert_eq!([ranges.at_or_before(7), ranges.at_or_before(3)], [Some((4, &"b")), None]);
        assert_eq!([ranges.take(4), ranges.take(4)], [Some("b"), None]);
        assert_eq!(ranges.put(9, "c"), Insertion::New);
    }
}
