//! Due queue: changes that are known ahead of the samples, and take effect once the samples reach their time.
//!
//! Owns: [`DueQueue`]. Because: a fork, an exec, an exit or the edge of a duty window is known as soon as its record
//! is read, but must change the state of stages only after all earlier records have been attributed. Does not: know
//! what changes.

use std::collections::VecDeque;

/// At most `MOST` items, in the order of their times (`CLOCK_MONOTONIC`, nanoseconds). A full queue drops its oldest
/// item: the next one replaces what a stage keeps.
#[derive(Debug)]
pub(crate) struct DueQueue<T, const MOST: usize> {
    items: VecDeque<(u64, T)>,
    dropped: u64,
}

impl<T, const MOST: usize> Default for DueQueue<T, MOST> {
    fn default() -> Self {
        Self { items: VecDeque::new(), dropped: 0 }
    }
}

impl<T, const MOST: usize> DueQueue<T, MOST> {
    /// Adds an item that takes effect at this time.
    pub(crate) fn add(&mut self, time_ns: u64, item: T) {
        if self.items.len() >= MOST {
            self.items.pop_front();
            self.dropped += 1;
        }
        self.items.push_back((time_ns, item));
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.items.capacity() * size_of::<(u64, T)>()
    }

    /// Items that took no effect, since there were too many.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether an item is due once the samples have reached this time.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.items.front().is_some_and(|(time_ns, _)| *time_ns <= now_ns)
    }

    /// The next due item, with its time.
    #[inline]
    pub(crate) fn reached(&mut self, now_ns: u64) -> Option<(u64, T)> {
        self.items.pop_front_if(|(time_ns, _)| *time_ns <= now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1 << 16;

    #[test]
    fn changes_come_when_their_time_does() {
        let mut changes = DueQueue::<u32, MOST>::default();
        [(7, 10), (8, 10), (9, 20)].into_iter().for_each(|(pid, time_ns)| changes.add(time_ns, pid));
        let due = |changes: &mut DueQueue<u32, MOST>, now_ns| {
            std::iter::from_fn(|| changes.reached(now_ns)).map(|(_, pid)| pid).collect::<Vec<_>>()
        };
        assert!(!changes.is_due(9) && due(&mut changes, 9).is_empty());
        assert!(changes.is_due(10));
        assert_eq!(due(&mut changes, 15), [7, 8]);
        assert_eq!(due(&mut changes, u64::MAX), [9]);
    }

    #[test]
    fn too_many_changes_push_the_oldest_out() {
        let mut changes = DueQueue::<u32, MOST>::default();
        (0..=MOST as u32).for_each(|pid| changes.add(1, pid));
        assert_eq!(changes.dropped(), 1);
        assert_eq!(changes.reached(1), Some((1, 1)));
    }
}
