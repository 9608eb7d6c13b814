//! Open: the ranges that a thread is in.
//!
//! Owns: the order of open ranges, and removing those that end. Because: a record is ended by its address, not by its
//! position, and more than once: when its range ends, and again when it is destroyed. Does not: know names.

use deepctx_profile::tree::NodeId;

use crate::scopes::{ScopeId, ScopeLists};
use crate::spans::{Span, SpanEnd, SpanKind, SpanThread, Spans};

/// Nested ranges that are followed.
const OPEN_MAX: usize = 64;

/// How the end of a range is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// By the address of its record, whichever thread ends it.
    Record(u64),
    /// By the next end in its thread in this domain that belongs to no range within it.
    Pushed(u64),
    /// By the end of the part meant to be profiled; one per process.
    Profiler,
}

/// A range that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenRange {
    /// How its end is recognized.
    pub(super) key: Key,
    /// Its node: the context that entered it, and its own frame.
    pub(super) place: NodeId,
    /// The node of its thread.
    pub(super) thread: NodeId,
    /// The thread that it began in.
    pub(super) of: SpanThread,
    /// When it began, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) began_ns: u64,
    /// Time of the ranges that were open within it, nanoseconds.
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
    /// No other range was open around it.
    pub(super) is_outermost: bool,
}

/// A thread with ranges.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The node of the range that is about to begin, and when it was named.
    pub(super) named: Option<(NodeId, u64)>,
    /// The number of the list of open ranges; `None` if there are none.
    pub(super) listed: Option<ScopeId>,
    /// When the outermost of them began: no end may have been missed since. `CLOCK_MONOTONIC` nanoseconds.
    pub(super) since_ns: u64,
    open: Vec<OpenRange>,
}

impl Thread {
    /// What is open, outermost first.
    pub(super) fn open(&self) -> &[OpenRange] {
        &self.open
    }

    /// Drops an earlier range with this record, or the part that was profiled before: it is over, and its end was not
    /// seen. Pushed ranges stay below later ones. Returns how many were dropped.
    pub(super) fn drop_unended(&mut self, key: Key, spans: &mut Spans) -> usize {
        if matches!(key, Key::Pushed(_)) {
            return 0;
        }
        let over = self.open.extract_if(.., |open| open.key == key);
        over.inspect(|range| spans.add(range.span(SpanEnd::Lost))).count()
    }

    /// A range begins; false if too many are open.
    pub(super) fn on_begin(&mut self, range: OpenRange) -> bool {
        if self.open.len() >= OPEN_MAX {
            return false;
        }
        if self.open.is_empty() {
            self.since_ns = range.began_ns;
        }
        self.open.push(range);
        true
    }

    /// The last range of this key ends; `None` if no open range has it.
    pub(super) fn on_end(
        &mut self,
        key: Key,
        now_ns: u64,
        lists: &mut ScopeLists<NodeId>,
    ) -> Option<EndedRange> {
        let at = self.open.iter().rposition(|open| open.key == key)?;
        let range = self.open.remove(at);
        if let Some(around) = at.checked_sub(1).and_then(|at| self.open.get_mut(at)) {
            // Ranges that overlap count twice, and times of a damaged capture may be anything.
            around.within_ns = around.within_ns.saturating_add(now_ns.saturating_sub(range.began_ns));
        }
        if let Some(outermost) = self.open.first() {
            self.since_ns = outermost.began_ns;
        }
        self.list(lists);
        Some(EndedRange { range, is_outermost: at == 0 })
    }

    /// Drops all ranges, since their ends are unknown. Returns how many were open.
    pub(super) fn forget(&mut self, end: SpanEnd, spans: &mut Spans) -> usize {
        let open = self.open.len();
        self.open.drain(..).for_each(|range| spans.add(range.span(end)));
        self.listed = None;
        self.named = None;
        open
    }

    /// Updates the number of the list of open ranges.
    pub(super) fn list(&mut self, lists: &mut ScopeLists<NodeId>) {
        let places: Vec<NodeId> = self.open.iter().map(|open| open.place).collect();
        self.listed = lists.id(&places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+R` record R begins, `-R` it ends, `>D` and `<D` push and pop in a domain; the numbers still open at the end.
    #[track_caller]
    fn check(events: &str, expect: &[u64]) -> Vec<(u64, bool)> {
        let (mut thread, mut lists) = (Thread::default(), ScopeLists::default());
        let (mut ended, mut spans) = (Vec::new(), Spans::default());
        for (now, event) in (0..).zip(events.split(' ')) {
            let number: u64 = event[1..].parse().unwrap();
            let key = if event.starts_with(['+', '-']) { Key::Record(number) } else { Key::Pushed(number) };
            if event.starts_with(['+', '>']) {
                let place = NodeId::from_number(number as u32);
                let of = SpanThread::default();
                thread.drop_unended(key, &mut spans);
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

    /// A thread in which records 0, 1 and 2 began at these times.
    fn begun(at_ns: [u64; 3]) -> Thread {
        let mut thread = Thread::default();
        for (record, began_ns) in (0..).zip(at_ns) {
            let (key, place, of) = (Key::Record(record), NodeId::from_number(1), SpanThread::default());
            assert!(thread.on_begin(OpenRange { key, place, thread: place, of, began_ns, within_ns: 0 }));
        }
        thread
    }

    #[test]
    fn what_was_lost_before_the_outermost_began_ended_none() {
        let (mut thread, mut lists) = (begun([10, 20, 30]), ScopeLists::default());
        assert_eq!(thread.since_ns, 10);
        thread.on_end(Key::Record(1), 40, &mut lists);
        assert_eq!(thread.since_ns, 10);
        thread.on_end(Key::Record(0), 50, &mut lists);
        assert_eq!(thread.since_ns, 30);
    }

    #[test]
    fn a_replaced_range_is_an_event_with_a_lost_end() {
        let (mut thread, mut spans) = (begun([10, 20, 30]), Spans::default());
        spans.want();
        let dropped = [Key::Record(1), Key::Record(1), Key::Pushed(0)].map(|key| {
            let dropped = thread.drop_unended(key, &mut spans);
            (dropped, thread.open().len())
        });
        assert_eq!(dropped, [(1, 2), (0, 2), (0, 2)]);
        let ends: Vec<_> = spans.take().map(|span| (span.began_ns, span.end)).collect();
        assert_eq!(ends, [(20, SpanEnd::Lost)]);
    }

    #[test]
    fn times_that_cannot_be_do_not_overflow() {
        let (mut thread, mut lists) = (begun([0, 0, 0]), ScopeLists::default());
        for record in [1, 2] {
            thread.on_end(Key::Record(record), u64::MAX, &mut lists);
        }
        assert_eq!(thread.open()[0].within_ns, u64::MAX);
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
