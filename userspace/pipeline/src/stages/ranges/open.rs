//! Open: the ranges that a thread is in.
//!
//! Owns: the order of open ranges, and removing those that end. Because: a record is ended by its address, not by its
//! position, and more than once: when its range ends, and again when it is destroyed. Does not: know names.

use deepctx_profile::tree::NodeId;

use crate::scopes::{ScopeId, ScopeLists};
use crate::spans::{Span, SpanEnd, SpanKind, SpanThread, Spans};

/// Ranges within ranges that are followed.
const OPEN_MAX: usize = 64;

/// What a range ends by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The address of its record, whichever thread ends it.
    Record(u64),
    /// The next end in its thread that is of this domain and of no range within it.
    Pushed(u64),
    /// The end of what is meant to be profiled; there is one of each process.
    Profiler,
}

/// A range that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenRange {
    /// What it ends by.
    pub(super) key: Key,
    /// Its node: the context that entered it, and its own frame.
    pub(super) place: NodeId,
    /// The node of its thread.
    pub(super) thread: NodeId,
    /// The thread that it began in.
    pub(super) of: SpanThread,
    /// When it began, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) began_ns: u64,
    /// How much of it ranges took that were open within it, nanoseconds.
    pub(super) within_ns: u64,
}

impl OpenRange {
    /// The range as an event of a trace.
    pub(super) fn span(&self, end: SpanEnd) -> Span {
        let OpenRange { place: node, of, began_ns, .. } = *self;
        Span { kind: SpanKind::Range, of, node, began_ns, end }
    }
}

/// A range that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedRange {
    /// The range.
    pub(super) range: OpenRange,
    /// No other was open around it.
    pub(super) is_outermost: bool,
}

/// A thread that has entered ranges.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The node of the range that is about to begin, and when it was named.
    pub(super) named: Option<(NodeId, u64)>,
    /// The number of the list of open ranges; `None` when there are none.
    pub(super) listed: Option<ScopeId>,
    /// When the outermost of them began: since then no end must have been missed. `CLOCK_MONOTONIC` nanoseconds.
    pub(super) since_ns: u64,
    open: Vec<OpenRange>,
}

impl Thread {
    /// What is open, outermost first.
    pub(super) fn open(&self) -> &[OpenRange] {
        &self.open
    }

    /// A range begins; false when too many are open.
    pub(super) fn on_begin(&mut self, range: OpenRange) -> bool {
        // The record that stood there must be gone; what was pushed stays below what is pushed on it.
        self.open.retain(|open| matches!(open.key, Key::Pushed(_)) || open.key != range.key);
        if self.open.len() >= OPEN_MAX {
            return false;
        }
        if self.open.is_empty() {
            self.since_ns = range.began_ns;
        }
        self.open.push(range);
        true
    }

    /// The last range of this key ends; `None` when none of the open ranges has it.
    pub(super) fn on_end(
        &mut self,
        key: Key,
        now_ns: u64,
        lists: &mut ScopeLists<NodeId>,
    ) -> Option<EndedRange> {
        let at = self.open.iter().rposition(|open| open.key == key)?;
        let range = self.open.remove(at);
        if let Some(around) = at.checked_sub(1).and_then(|at| self.open.get_mut(at)) {
            around.within_ns += now_ns.saturating_sub(range.began_ns);
        }
        self.list(lists);
        Some(EndedRange { range, is_outermost: at == 0 })
    }

    /// Gives everything up, since its end is not known. Gives how many were open.
    pub(super) fn forget(&mut self, end: SpanEnd, spans: &mut Spans) -> usize {
        let open = self.open.len();
        self.open.drain(..).for_each(|range| spans.add(range.span(end)));
        self.listed = None;
        self.named = None;
        open
    }

    /// Takes the number of what is open now.
    pub(super) fn list(&mut self, lists: &mut ScopeLists<NodeId>) {
        let places: Vec<NodeId> = self.open.iter().map(|open| open.place).collect();
        self.listed = lists.id(&places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+R` record R begins, `-R` it ends, `>D` and `<D` push and pop in a domain; the numbers that are open in the
    /// end.
    #[track_caller]
    fn check(events: &str, expect: &[u64]) -> Vec<(u64, bool)> {
        let (mut thread, mut lists) = (Thread::default(), ScopeLists::default());
        let mut ended = Vec::new();
        for (now, event) in (0..).zip(events.split(' ')) {
            let number: u64 = event[1..].parse().unwrap();
            let key = if event.starts_with(['+', '-']) { Key::Record(number) } else { Key::Pushed(number) };
            if event.starts_with(['+', '>']) {
                let place = NodeId::from_number(number as u32);
                let of = SpanThread::default();
                assert!(thread.on_begin(OpenRange {
                    key,
                    place,
                    thread: place,
                    of,
                    began_ns: now,
                    within_ns: 0
                }));
                thread.list(&mut lists);
            } else if let Some(one) = thread.on_end(key, now, &mut lists) {
                ended.push((one.range.place.number().into(), one.is_outermost));
            }
        }
        let open: Vec<u64> = thread.open().iter().map(|open| open.place.number().into()).collect();
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
    fn what_is_pushed_ends_in_order_within_its_domain() {
        assert_eq!(check(">1 >1 <1", &[1]), [(1, false)]);
        assert_eq!(check(">1 >2 <1 <2", &[]), [(1, true), (2, true)]);
        assert_eq!(check(">1 +7 <1 <1", &[7]), [(1, true)]);
    }

    #[test]
    fn too_many_are_refused() {
        let mut thread = Thread::default();
        for n in 0..OPEN_MAX as u64 + 3 {
            let place = NodeId::from_number(1);
            let key = Key::Record(n);
            let open =
                OpenRange { key, place, thread: place, of: SpanThread::default(), began_ns: n, within_ns: 0 };
            assert_eq!(thread.on_begin(open), n < OPEN_MAX as u64);
        }
        let mut spans = Spans::default();
        spans.want();
        assert_eq!((thread.forget(SpanEnd::Lost, &mut spans), thread.open().len()), (OPEN_MAX, 0));
        assert_eq!(spans.take().filter(|span| span.end == SpanEnd::Lost).count(), OPEN_MAX);
    }
}
