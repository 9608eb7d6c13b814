//! Arena: allocates runs of slots from a fixed range.
//!
//! Owns: first-fit allocation with delayed reuse. Because: a walk in the kernel may still use a run that was just
//! freed. Does not: know what the slots hold.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// How long a run that was given back stays untouched, in nanoseconds. A walk takes microseconds; a second is plenty.
pub(crate) const QUARANTINE_NS: u64 = 1_000_000_000;

/// Runs of slots in `0..size`.
#[derive(Debug)]
pub(crate) struct Arena {
    size: u32,
    /// Length of a segment; 0 if the arena is not segmented.
    segment: u32,
    /// Free runs: start → length, adjacent only where segments meet.
    free: BTreeMap<u32, u32>,
    /// Runs given back: time, run; oldest first.
    quarantine: VecDeque<(u64, Range<u32>)>,
}

impl Arena {
    /// An arena whose slots `first..size` are all free.
    pub(crate) fn new(first: u32, size: u32) -> Self {
        let free = if first < size { BTreeMap::from([(first, size - first)]) } else { BTreeMap::new() };
        Self { size, segment: 0, free, quarantine: VecDeque::new() }
    }

    /// Number of slots.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// An empty arena that grows by whole segments; no run crosses a boundary between two of them.
    pub(crate) fn segmented(segment: u32) -> Self {
        Self { segment, ..Self::new(0, 0) }
    }

    /// Adds a segment of free slots at the end.
    pub(crate) fn grow(&mut self) {
        self.free.insert(self.size, self.segment);
        self.size += self.segment;
    }

    /// Slots in use, including those in quarantine.
    pub(crate) fn used(&self) -> u32 {
        self.size - self.free.values().sum::<u32>()
    }

    /// Takes a run of exactly `length` slots, the lowest that fits; `None` if there is none.
    pub(crate) fn take(&mut self, length: u32) -> Option<Range<u32>> {
        if length == 0 {
            return Some(0..0);
        }
        let (&start, &free) = self.free.iter().find(|(_, free)| **free >= length)?;
        self.free.remove(&start);
        if free > length {
            self.free.insert(start + length, free - length);
        }
        Some(start..start + length)
    }

    /// Gives a run back; it can be taken again [`QUARANTINE_NS`] after `now_ns`.
    pub(crate) fn give(&mut self, run: Range<u32>, now_ns: u64) {
        if !run.is_empty() {
            self.quarantine.push_back((now_ns, run));
        }
    }

    /// Frees the runs whose quarantine is over.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        while let Some((given, run)) = self.quarantine.front() {
            if given.saturating_add(QUARANTINE_NS) > now_ns {
                break;
            }
            let run = run.clone();
            self.quarantine.pop_front();
            self.insert(run);
        }
    }

    fn insert(&mut self, run: Range<u32>) {
        let (mut start, mut length) = (run.start, run.end - run.start);
        let segments_meet = |slot: u32| self.segment != 0 && slot.is_multiple_of(self.segment);
        if !segments_meet(run.end)
            && let Some(next) = self.free.remove(&run.end)
        {
            length += next;
        }
        if !segments_meet(run.start)
            && let Some((&before, &free)) = self.free.range(..run.start).next_back()
            && before + free == run.start
        {
            start = before;
            length += free;
        }
        self.free.insert(start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, QUARANTINE_NS};

    #[test]
    fn runs_do_not_overlap_and_come_back_after_quarantine() {
        let mut arena = Arena::new(0, 10);
        let a = arena.take(4).unwrap();
        let b = arena.take(6).unwrap();
        assert_eq!((a.clone(), b.clone()), (0..4, 4..10));
        assert_eq!(arena.take(1), None);
        arena.give(a, 0);
        arena.settle(QUARANTINE_NS - 1);
        assert_eq!(arena.take(1), None, "still in quarantine");
        arena.settle(QUARANTINE_NS);
        assert_eq!(arena.take(2), Some(0..2));
        arena.give(b, QUARANTINE_NS);
        arena.settle(2 * QUARANTINE_NS);
        assert_eq!(arena.take(8), Some(2..10), "neighbours were joined");
        assert_eq!(arena.used(), 10);
    }

    #[test]
    fn no_run_lies_in_two_segments() {
        let mut arena = Arena::segmented(8);
        assert_eq!(arena.take(1), None);
        arena.grow();
        arena.grow();
        let runs: Vec<_> = (0..4).map(|_| arena.take(4).unwrap()).collect();
        for run in runs {
            arena.give(run, 0);
        }
        arena.settle(QUARANTINE_NS);
        assert_eq!(arena.take(9), None);
        assert_eq!(arena.take(8), Some(0..8));
        assert_eq!(arena.take(8), Some(8..16));
    }

    #[test]
    fn an_empty_run_costs_nothing() {
        let mut arena = Arena::new(1, 1);
        assert_eq!(arena.take(0), Some(0..0));
        assert_eq!(arena.take(1), None);
    }
}
