//! Window: bounded state that waits for something later.
//!
//! Owns: [`Window`]: entries by key, each with its arrival time, evicted oldest first. Because: what a call waits for
//! may be lost, and nothing may wait forever. Does not: know what it stores.

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Pending entries.
#[derive(Debug)]
pub(super) struct Window<K, T> {
    entries: FxHashMap<K, (u64, T)>,
    /// Keys by arrival, including some that were removed or added again meanwhile.
    order: VecDeque<(u64, K)>,
    most: usize,
}

/// Room in `order` beyond twice the entries before it is swept.
const SLACK: usize = 1024;

impl<K: Copy + Eq + Hash, T> Window<K, T> {
    /// Room for `most` entries.
    pub(super) fn new(most: usize) -> Self {
        Self { entries: FxHashMap::default(), order: VecDeque::new(), most: most.max(1) }
    }

    /// Adds an entry; returns the one it displaces: that of the same key, or the oldest.
    #[must_use]
    pub(super) fn put(&mut self, time_ns: u64, key: K, entry: T) -> Option<T> {
        let replaced = self.entries.insert(key, (time_ns, entry));
        self.order.push_back((time_ns, key));
        if self.order.len() > 2 * self.entries.len() + SLACK {
            let entries = &self.entries;
            self.order.retain(|(time, key)| entries.get(key).is_some_and(|(current, _)| current == time));
        }
        match replaced {
            Some((_, replaced)) => Some(replaced),
            None if self.entries.len() > self.most => self.oldest(u64::MAX),
            None => None,
        }
    }

    /// The entry of a key.
    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        self.entries.get_mut(&key).map(|(_, entry)| entry)
    }

    /// Removes the entry of a key.
    pub(super) fn take(&mut self, key: K) -> Option<T> {
        self.entries.remove(&key).map(|(_, entry)| entry)
    }

    /// Removes the oldest entry that came before a time.
    pub(super) fn oldest(&mut self, before_ns: u64) -> Option<T> {
        while let Some(&(time, key)) = self.order.front()
            && time < before_ns
        {
            self.order.pop_front();
            if self.entries.get(&key).is_some_and(|(current, _)| *current == time) {
                return self.take(key);
            }
        }
        None
    }

    /// Removes all matching entries, oldest first.
    pub(super) fn take_if(&mut self, mut fits: impl FnMut(&T) -> bool) -> Vec<T> {
        let Self { entries, order, .. } = self;
        let mut taken = Vec::new();
        order.retain(|(time, key)| {
            let Some((current, entry)) = entries.get(key) else { return false };
            if current != time {
                return false;
            }
            let fits = fits(entry);
            if fits && let Some((_, entry)) = entries.remove(key) {
                taken.push(entry);
            }
            !fits
        });
        taken
    }

    /// Number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let mut window = Window::new(2);
        assert_eq!(window.put(1, 'a', 1), None);
        assert_eq!(window.put(2, 'b', 2), None);
        assert_eq!(window.put(3, 'c', 3), Some(1));
        assert_eq!(window.oldest(3), Some(2));
        assert_eq!(window.oldest(3), None);
        assert_eq!(window.put(4, 'c', 4), Some(3), "the same key again");
        assert_eq!((window.oldest(4), window.oldest(5), window.len()), (None, Some(4), 0));
    }

    proptest! {
        #[test]
        fn entries_leave_the_window_once_and_its_order_stays_bounded(
            steps in prop::collection::vec((0u8..4, 0u16..50), 0..400), most in 1usize..20,
        ) {
            let mut window = Window::new(most);
            let (mut put, mut out) = (0u64, 0u64);
            for (time, (step, key)) in (0u64..).zip(steps) {
                match step {
                    0 | 1 => {
                        put += 1;
                        out += u64::from(window.put(time, key, ()).is_some());
                    }
                    2 => out += u64::from(window.take(key).is_some()),
                    _ => out += u64::from(window.oldest(time.saturating_sub(5)).is_some()),
                }
                prop_assert!(window.len() <= most);
                prop_assert!(window.order.len() <= 2 * window.len() + SLACK + 1);
            }
            out += window.take_if(|()| true).len() as u64;
            prop_assert_eq!(put, out);
        }
    }
}
