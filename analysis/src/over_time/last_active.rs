//! The thread that was active last before a moment, for moments that go back.
//!
//! Owns: [`LastActive`]. Because: a path changes threads as often as they rest, and with very many threads, it must not
//! look at all of them each time. Does not: know the times of threads; its caller does.

use std::collections::BinaryHeap;

use deepctx_profile::intern::Id;
use deepctx_profile::trace::{Thread, TraceTime};

/// Threads, each by its last time that begins before the moment that was asked for last.
pub(super) struct LastActive {
    /// Those active then: the begin of the time.
    active: BinaryHeap<(TraceTime, Id<Thread>)>,
    /// The others: its end and begin.
    idle: BinaryHeap<(TraceTime, TraceTime, Id<Thread>)>,
}

impl LastActive {
    pub(super) fn of(threads: usize) -> Self {
        // Later than any moment: their times are looked up first.
        let unknown = TraceTime::from_nanos(u64::MAX);
        let thread = |number: usize| (unknown, unknown, Id::from_number(number as u32));
        LastActive { active: BinaryHeap::new(), idle: (0..threads).map(thread).collect() }
    }

    /// Of the threads active at a moment, the one that began last, or else the one that ended last: until when, and
    /// which. `last`: a thread's last time that begins before a moment. No moment may be later than the one before.
    pub(super) fn before(
        &mut self,
        moment: TraceTime,
        last: impl Fn(Id<Thread>, TraceTime) -> Option<(TraceTime, TraceTime)>,
    ) -> Option<(TraceTime, Id<Thread>)> {
        while let Some(thread) = self.take_other_than(moment) {
            match last(thread, moment) {
                Some((begin, end)) if end >= moment => self.active.push((begin, thread)),
                Some((begin, end)) => self.idle.push((end, begin, thread)),
                // It does not begin before.
                None => {}
            }
        }
        let active = self.active.peek().map(|(_, thread)| (moment, *thread));
        active.or_else(|| self.idle.peek().map(|(end, _, thread)| (*end, *thread)))
    }

    /// Takes a thread that is not as it was: its time begins at the moment or later, or it was active by then.
    fn take_other_than(&mut self, moment: TraceTime) -> Option<Id<Thread>> {
        if self.active.peek().is_some_and(|(begin, _)| *begin >= moment) {
            return self.active.pop().map(|(_, thread)| thread);
        }
        let is_active = self.idle.peek().is_some_and(|(end, ..)| *end >= moment);
        if is_active { self.idle.pop().map(|(_, _, thread)| thread) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn few_looks_find_what_a_look_at_all_does() {
        let at = TraceTime::from_nanos;
        let times_of = |n: u64| {
            let time = |k: u64| (at(7 * n * k), at(7 * n * k + 2 + n));
            (0..40).map(time).collect::<Vec<_>>()
        };
        let times: Vec<_> = (1..=5).map(times_of).collect();
        let last = |thread: Id<Thread>, moment: TraceTime| {
            times[thread.index()].iter().rev().find(|(begin, _)| *begin < moment).copied()
        };
        let looks = Cell::new(0);
        let counted = |thread: Id<Thread>, moment: TraceTime| {
            looks.set(looks.get() + 1);
            last(thread, moment)
        };
        let mut found = LastActive::of(times.len());
        for moment in (0..1_500).rev().map(at) {
            let all = (0..5).map(Id::from_number).filter_map(|thread| {
                let (begin, end) = last(thread, moment)?;
                Some((end.min(moment), begin, thread))
            });
            let expect = all.max().map(|(end, _, thread)| (end, thread));
            assert_eq!(found.before(moment, counted), expect, "{moment:?}");
        }
        // Two for each time; a look at all threads for each moment would be 7500.
        assert!(looks.get() <= 2 * 200 + 10, "{}", looks.get());
    }
}
