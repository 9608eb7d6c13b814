//! By process: a bounded table whose entries of one process are found without a look at those of others.
//!
//! Owns: [`ByProcess`]. Because: processes come and go all the time, and each that does would otherwise cost a scan of
//! a whole table. Does not: know what it holds.

use std::hash::Hash;

use deepctx_common::memory::table_bytes;
use rustc_hash::FxHashMap;

/// Values by process and key: at most `MOST`. A full table is cleared for a new key.
#[derive(Debug)]
pub(crate) struct ByProcess<K, V, const MOST: usize> {
    processes: FxHashMap<u32, FxHashMap<K, V>>,
    /// Values of all processes.
    len: usize,
}

impl<K, V, const MOST: usize> Default for ByProcess<K, V, MOST> {
    fn default() -> Self {
        Self { processes: FxHashMap::default(), len: 0 }
    }
}

impl<K: Eq + Hash, V, const MOST: usize> ByProcess<K, V, MOST> {
    /// The value of a key.
    #[inline]
    pub(crate) fn get(&self, pid: u32, key: &K) -> Option<&V> {
        self.processes.get(&pid)?.get(key)
    }

    /// The same, mutable.
    #[inline]
    pub(crate) fn get_mut(&mut self, pid: u32, key: &K) -> Option<&mut V> {
        self.processes.get_mut(&pid)?.get_mut(key)
    }

    /// The same, mutable; the result of `new` if there was none.
    pub(crate) fn get_or_insert_with(&mut self, pid: u32, key: K, new: impl FnOnce() -> V) -> &mut V {
        let is_new = self.get(pid, &key).is_none();
        if is_new && self.is_full() {
            self.clear();
        }
        self.len += usize::from(is_new);
        self.processes.entry(pid).or_default().entry(key).or_insert_with(new)
    }

    /// Whether the next new key clears the table.
    pub(crate) fn is_full(&self) -> bool {
        self.len >= MOST
    }

    /// The values of a process.
    pub(crate) fn of_process(&mut self, pid: u32) -> impl Iterator<Item = &mut V> {
        self.processes.get_mut(&pid).into_iter().flat_map(|of| of.values_mut())
    }

    /// The values of all processes.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.processes.values_mut().flat_map(|of| of.values_mut())
    }

    /// Takes one value out.
    pub(crate) fn take(&mut self, pid: u32, key: &K) -> Option<V> {
        let taken = self.processes.get_mut(&pid)?.remove(key);
        self.len -= usize::from(taken.is_some());
        taken
    }

    /// Takes the values of a process out.
    pub(crate) fn remove(&mut self, pid: u32) -> FxHashMap<K, V> {
        let of = self.processes.remove(&pid).unwrap_or_default();
        self.len -= of.len();
        of
    }

    /// Removes all values.
    pub(crate) fn clear(&mut self) {
        self.processes.clear();
        self.len = 0;
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let of_process = |of: &FxHashMap<K, V>| table_bytes(of.capacity(), size_of::<(K, V)>());
        table_bytes(self.processes.capacity(), size_of::<(u32, FxHashMap<K, V>)>())
            + self.processes.values().map(of_process).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get_or_insert(table: &mut ByProcess<u32, u32, 3>, pid: u32, key: u32, value: u32) -> u32 {
        *table.get_or_insert_with(pid, key, || value)
    }

    #[test]
    fn a_full_table_is_cleared_for_new_keys_only() {
        let mut table = ByProcess::default();
        for (pid, key) in [(1, 1), (1, 2), (2, 1)] {
            assert_eq!(get_or_insert(&mut table, pid, key, 10 * pid + key), 10 * pid + key);
        }
        assert!(table.is_full());
        assert_eq!(get_or_insert(&mut table, 1, 2, 0), 12);
        assert_eq!((table.get(2, &1), table.get(2, &2)), (Some(&21), None));
        get_or_insert(&mut table, 3, 1, 31);
        assert_eq!((table.get(1, &2), table.get(3, &1)), (None, Some(&31)));
    }

    #[test]
    fn a_process_that_leaves_makes_room() {
        let mut table = ByProcess::default();
        for (pid, key) in [(1, 1), (1, 2), (2, 1)] {
            get_or_insert(&mut table, pid, key, pid);
        }
        assert_eq!((table.remove(1).len(), table.remove(9).len()), (2, 0));
        assert!(!table.is_full() && table.get(1, &1).is_none());
        get_or_insert(&mut table, 3, 1, 3);
        get_or_insert(&mut table, 3, 2, 3);
        assert_eq!((table.get(2, &1), table.is_full()), (Some(&2), true));
        assert_eq!((table.of_process(3).count(), table.values_mut().count()), (2, 3));
        assert_eq!([(3, 1), (3, 1), (9, 1)].map(|(pid, key)| table.take(pid, &key)), [Some(3), None, None]);
        assert!(!table.is_full() && table.remove(3).len() == 1);
    }
}
