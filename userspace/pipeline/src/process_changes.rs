//! Changes of processes that the samples have not reached yet.
//!
//! Owns: their queue. Because: a fork, an exec or an exit is known as soon as its record is read, and must change
//! what stages keep of the process only once all earlier records were attributed. Does not: know what a stage keeps.

use std::collections::VecDeque;

use crate::stage::ProcessChange;

/// Changes that may wait for the samples. Of too many the oldest is dropped: what a stage keeps of its process is then
/// replaced at the next one.
const CHANGES_MAX: usize = 1 << 16;

/// The queue, in the order of times.
#[derive(Debug, Default)]
pub(crate) struct ProcessChanges(VecDeque<ProcessChange>);

impl ProcessChanges {
    /// Adds a change.
    pub(crate) fn add(&mut self, change: ProcessChange) {
        if self.0.len() >= CHANGES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(change);
    }

    /// Whether the samples have reached one at this time, `CLOCK_MONOTONIC` nanoseconds.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.0.front().is_some_and(|change| change.time_ns <= now_ns)
    }

    /// The next one that the samples have reached.
    #[inline]
    pub(crate) fn reached(&mut self, now_ns: u64) -> Option<ProcessChange> {
        self.0.pop_front_if(|change| change.time_ns <= now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::ProcessChangeKind;

    fn ends(pid: u32, time_ns: u64) -> ProcessChange {
        ProcessChange { pid, time_ns, kind: ProcessChangeKind::Ends }
    }

    #[test]
    fn changes_come_when_their_time_does() {
        let mut changes = ProcessChanges::default();
        [(7, 10), (8, 10), (9, 20)].into_iter().for_each(|(pid, time_ns)| changes.add(ends(pid, time_ns)));
        let due = |changes: &mut ProcessChanges, now_ns| {
            std::iter::from_fn(|| changes.reached(now_ns)).map(|change| change.pid).collect::<Vec<_>>()
        };
        assert!(!changes.is_due(9) && due(&mut changes, 9).is_empty());
        assert!(changes.is_due(10));
        assert_eq!(due(&mut changes, 15), [7, 8]);
        assert_eq!(due(&mut changes, u64::MAX), [9]);
    }

    #[test]
    fn too_many_changes_push_the_oldest_out() {
        let mut changes = ProcessChanges::default();
        (0..=CHANGES_MAX as u32).for_each(|pid| changes.add(ends(pid, 1)));
        assert_eq!(changes.reached(1), Some(ends(1, 1)));
    }
}
