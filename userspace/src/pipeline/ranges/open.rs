//! Open: the ranges that a thread is in.
//!
//! Owns: the order of what is open, and taking away what ends. Because: a record is ended by its address, not by its place, and
//! more than once: when its range ends, and again when it is destroyed. Does not: know names.

use deepctx_profile::tree::NodeId;

use crate::pipeline::lists::{ListId, Lists};

/// Ranges within ranges that are followed.
const OPEN_MAX: usize = 64;

/// A range that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    /// Address of its record.
    pub(super) record: u64,
    /// Its node: the context that entered it, and its own frame.
    pub(super) place: NodeId,
    /// The node of its thread.
    pub(super) thread: NodeId,
    /// When it began, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) began_ns: u64,
    /// How much of it ranges took that were open within it, nanoseconds.
    pub(super) within_ns: u64,
}

/// A range that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The range.
    pub(super) range: Open,
    /// No other was open around it.
    pub(super) is_outermost: bool,
}

/// A thread that has entered ranges.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The node of the range that is about to begin.
    pub(super) named: Option<NodeId>,
    /// The number of the list of open ranges; `None` when there are none.
    pub(super) listed: Option<ListId>,
    /// When the outermost of them began: since then no end must have been missed. `CLOCK_MONOTONIC` nanoseconds.
    pub(super) since_ns: u64,
    open: Vec<Open>,
}

impl Thread {
    /// What is open, outermost first.
    pub(super) fn open(&self) -> &[Open] {
        &self.open
    }

    /// A range begins; false when too many are open.
    pub(super) fn begins(&mut self, range: Open) -> bool {
        // The record that stood there must be gone.
        self.open.retain(|open| open.record != range.record);
        if self.open.len() >= OPEN_MAX {
            return false;
        }
        if self.open.is_empty() {
            self.since_ns = range.began_ns;
        }
        self.open.push(range);
        true
    }

    /// A record ends; `None` when none of the open ranges has it.
    pub(super) fn ends(&mut self, record: u64, now_ns: u64, lists: &mut Lists<NodeId>) -> Option<Ended> {
        let at = self.open.iter().rposition(|open| open.record == record)?;
        let range = self.open.remove(at);
        if let Some(around) = at.checked_sub(1).and_then(|at| self.open.get_mut(at)) {
            around.within_ns += now_ns.saturating_sub(range.began_ns);
        }
        self.list(lists);
        Some(Ended { range, is_outermost: at == 0 })
    }

    /// Gives everything up. Gives how many were open.
    pub(super) fn forget(&mut self) -> usize {
        let open = self.open.len();
        self.open.clear();
        self.listed = None;
        self.named = None;
        open
    }

    /// Takes the number of what is open now.
    pub(super) fn list(&mut self, lists: &mut Lists<NodeId>) {
        let places: Vec<NodeId> = self.open.iter().map(|open| open.place).collect();
        self.listed = lists.id(&places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+R` record R begins, `-R` it ends; the records that are open in the end.
    #[track_caller]
    fn check(events: &str, expect: &[u64]) -> Vec<(u64, bool)> {
        let (mut thread, mut lists) = (Thread::default(), Lists::default());
        let mut ended = Vec::new();
        for (now, event) in (0..).zip(events.split(' ')) {
            let record: u64 = event[1..].parse().unwrap();
            if event.starts_with('+') {
                let place = NodeId::from_number(record as u32);
                assert!(thread.begins(Open { record, place, thread: place, began_ns: now, within_ns: 0 }));
                thread.list(&mut lists);
            } else if let Some(one) = thread.ends(record, now, &mut lists) {
                ended.push((one.range.record, one.is_outermost));
            }
        }
        let open: Vec<u64> = thread.open().iter().map(|open| open.record).collect();
        assert_eq!(open, expect, "{events}");
        assert_eq!(thread.listed.is_none(), expect.is_empty());
        ended
    }

    #[test]
    fn ranges_end_by_their_record() {
        assert_eq!(check("+1 +2 -2 -1", &[]), [(2, false), (1, true)]);
        // Not in the order in which they began.
        assert_eq!(check("+1 +2 -1", &[2]), [(1, true)]);
    }

    #[test]
    fn the_second_end_of_a_record_ends_nothing() {
        assert_eq!(check("+1 -1 -1", &[]), [(1, true)]);
        assert_eq!(check("+1 +2 -2 -2", &[1]), [(2, false)]);
        assert_eq!(check("-7", &[]), []);
    }

    #[test]
    fn a_record_at_the_address_of_another_replaces_it() {
        assert_eq!(check("+1 +2 +1", &[2, 1]), []);
    }

    #[test]
    fn too_many_are_refused() {
        let mut thread = Thread::default();
        for n in 0..OPEN_MAX as u64 + 3 {
            let place = NodeId::from_number(1);
            let open = Open { record: n, place, thread: place, began_ns: n, within_ns: 0 };
            assert_eq!(thread.begins(open), n < OPEN_MAX as u64);
        }
        assert_eq!((thread.forget(), thread.open().len()), (OPEN_MAX, 0));
    }
}
