//! A bounded cache that evicts the least recently used half, and a pool of shared strings.
//!
//! Owns: [`BoundedCache`], [`Strings`] and their counters. Because: the profiler cannot limit the number of addresses
//! and names, so each cache needs a bound and counters. Does not: know what it stores.

use std::hash::Hash;
use std::sync::Arc;

use deepctx_common::memory::{shared_text_bytes, table_bytes};
use rustc_hash::{FxHashMap, FxHashSet};

/// Hits and misses of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Values evicted to stay within the bound.
    pub evicted: u64,
}

/// A map of at most `bound` entries in two generations. A lookup moves an entry to the young generation; when that
/// holds half of the bound, the old generation is dropped. Constant time, without links between entries.
#[derive(Debug)]
pub(crate) struct BoundedCache<K, V> {
    young: FxHashMap<K, V>,
    old: FxHashMap<K, V>,
    half: usize,
    counters: CacheCounters,
}

impl<K: Copy + Eq + Hash, V: Clone> BoundedCache<K, V> {
    /// An empty map of at most `bound` (at least 2) entries.
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            half: (bound / 2).max(1),
            counters: CacheCounters::default(),
        }
    }

    /// The value of a key; counts a hit or a miss.
    pub(crate) fn get(&mut self, key: K) -> Option<V> {
        if let Some(value) = self.young.get(&key) {
            self.counters.hits += 1;
            return Some(value.clone());
        }
        let Some(value) = self.old.remove(&key) else {
            self.counters.misses += 1;
            return None;
        };
        self.counters.hits += 1;
        self.insert(key, value.clone());
        Some(value)
    }

    /// Adds or replaces a value.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.counters.evicted += self.old.len() as u64;
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    /// Bytes in memory, without what values point to.
    pub(crate) fn bytes(&self) -> usize {
        let table = |of: &FxHashMap<K, V>| table_bytes(of.capacity(), size_of::<(K, V)>());
        table(&self.young) + table(&self.old)
    }

    /// All values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.young.values().chain(self.old.values())
    }

    /// Number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// The counters so far.
    pub(crate) const fn counters(&self) -> CacheCounters {
        self.counters
    }
}

/// A pool of shared strings: many addresses have the same name and file.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    strings: FxHashSet<Arc<str>>,
    /// Size at which unused strings are dropped.
    sweep_at: usize,
}

impl Strings {
    /// Fewest strings at which a sweep is worth its cost.
    const SWEEP_MIN: usize = 1 << 14;

    /// The shared copy of a string.
    pub(crate) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.strings.get(text) {
            return Arc::clone(shared);
        }
        if self.strings.len() >= self.sweep_at.max(Self::SWEEP_MIN) {
            self.strings.retain(|s| Arc::strong_count(s) > 1);
            // Twice the strings in use, so that sweeps stay rare.
            self.sweep_at = self.strings.len() * 2;
        }
        let shared: Arc<str> = text.into();
        self.strings.insert(Arc::clone(&shared));
        shared
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.strings.iter().map(|text| shared_text_bytes(text.len())).sum::<usize>();
        texts + table_bytes(self.strings.capacity(), size_of::<Arc<str>>())
    }

    /// Number of strings.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.strings.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cache_returns_correct_values_and_stays_bounded(
            operations in proptest::collection::vec((0u8..30, any::<bool>()), 0..300), bound in 2usize..16,
        ) {
            let mut cache = BoundedCache::new(bound);
            let mut truth = std::collections::HashMap::new();
            for (i, (key, insert)) in operations.into_iter().enumerate() {
                if insert {
                    cache.insert(key, i);
                    truth.insert(key, i);
                    prop_assert_eq!(cache.get(key), Some(i));
                } else if let Some(value) = cache.get(key) {
                    prop_assert_eq!(truth.get(&key), Some(&value));
                }
                prop_assert!(cache.len() <= bound);
            }
        }
    }

    #[test]
    fn a_frequently_used_entry_is_never_evicted() {
        let mut cache = BoundedCache::new(8);
        cache.insert(0, "kept");
        for key in 1..1000 {
            cache.insert(key, "other");
            assert_eq!(cache.get(0), Some("kept"));
        }
        assert!(cache.counters().evicted > 900);
    }

    #[test]
    fn equal_strings_are_shared_and_unused_ones_dropped() {
        let mut strings = Strings::default();
        let kept = strings.intern("kept");
        assert!(Arc::ptr_eq(&kept, &strings.intern("kept")));
        for i in 0..4 * Strings::SWEEP_MIN {
            strings.intern(&i.to_string());
        }
        assert!(strings.len() <= Strings::SWEEP_MIN);
        assert!(Arc::ptr_eq(&kept, &strings.intern("kept")));
    }
}
