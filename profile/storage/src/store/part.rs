//! Parts of a trace: which of its events are read.
//!
//! Owns: [`TracePart`], and the filter that a reader's events pass. Because: a trace may have more events than fit into
//! memory, and can then be looked at in parts. Does not: read files.
//!
//! A part has the events that overlap its time, and the work of its launches however late that ran. Edges of graphs are
//! stored once, so they belong to every part.

use deepctx_profile::trace::{RecordedEvent, RecordedKind};
use deepctx_profile::units::Nanos;
use rustc_hash::FxHashSet;

/// The part of a recorded trace to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TracePart {
    /// Everything.
    #[default]
    All,
    /// A time range, counted from its first event.
    Between(Nanos, Nanos),
    /// Data for tables of these training steps, from the first number to the last, exclusive. A trace that fits into
    /// memory is read completely.
    Steps(Option<u64>, Option<u64>),
}

/// A time range of a trace, relative to the start of the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartTimes {
    pub(super) from: u64,
    /// Exclusive.
    pub(super) to: u64,
}

impl PartTimes {
    pub(super) const ALL: PartTimes = PartTimes { from: 0, to: u64::MAX };

    /// The time of training steps, at any place with such steps; `None` without any.
    pub(super) fn of_steps(
        events: impl Iterator<Item = RecordedEvent>,
        from: Option<u64>,
        until: Option<u64>,
    ) -> Option<Self> {
        let is_one = |event: &RecordedEvent| {
            event.kind == RecordedKind::Step
                && from.is_none_or(|from| event.position >= from)
                && until.is_none_or(|until| event.position < until)
        };
        let times = events.filter(is_one).map(|event| PartTimes { from: event.start.0, to: end(&event) });
        times.reduce(|a, b| PartTimes { from: a.from.min(b.from), to: a.to.max(b.to) })
    }
}

fn end(event: &RecordedEvent) -> u64 {
    event.start.saturating_add(event.end.duration()).0
}

/// The events of a part, up to a maximum.
pub(super) struct PartEvents<I> {
    events: I,
    times: PartTimes,
    /// Calls of the part, by number.
    calls: FxHashSet<u64>,
    left: usize,
    /// There are more events.
    pub(super) is_full: bool,
}

impl<I: Iterator<Item = RecordedEvent>> PartEvents<I> {
    pub(super) fn new(events: I, times: PartTimes, most: usize) -> Self {
        Self { events, times, calls: FxHashSet::default(), left: most, is_full: false }
    }

    fn has(&mut self, event: &RecordedEvent) -> bool {
        let PartTimes { from, to } = self.times;
        if self.times == PartTimes::ALL || event.kind == RecordedKind::GraphEdge {
            return true;
        }
        let overlaps = event.start.0 < to && (from <= event.start.0 || from < end(event));
        if overlaps && event.kind.is_call() {
            self.calls.insert(event.id);
        }
        let is_work = !event.kind.is_call();
        overlaps || is_work && event.cause.is_some_and(|cause| self.calls.contains(&cause.id))
    }
}

impl<I: Iterator<Item = RecordedEvent>> Iterator for PartEvents<I> {
    type Item = RecordedEvent;

    fn next(&mut self) -> Option<RecordedEvent> {
        loop {
            let event = self.events.next()?;
            if !self.has(&event) {
                continue;
            }
            if self.left == 0 {
                self.is_full = true;
                return None;
            }
            self.left -= 1;
            return Some(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{Basis, Cause, End};
    use deepctx_profile::tree::NodeId;

    use super::*;

    /// `launch 10+2 #5`, `kernel 20+5 <5`, `step 0+10 p3`.
    fn event(line: &str) -> RecordedEvent {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, length) = words[1].split_once('+').unwrap();
        let find = |mark: &str| words[2..].iter().find_map(|word| word.strip_prefix(mark)?.parse().ok());
        RecordedEvent {
            kind: RecordedKind::from_name(words[0]).unwrap(),
            end: End::After(Nanos(length.parse().unwrap())),
            node: NodeId::ROOT,
            id: find("#").unwrap_or(0),
            cause: find("<").map(|id| Cause { id, basis: Basis::Exact }),
            ..RecordedEvent::gap(0, Nanos(start.parse().unwrap()), Nanos(0), find("p").unwrap_or(0))
        }
    }

    const LINES: [&str; 8] = [
        "step 0+10 p1",
        "graph-edge 1+0",
        "launch 2+2 #1",
        "launch 8+4 #2",
        "step 10+10 p2",
        "kernel 11+2 <1",
        "kernel 25+5 <2",
        "launch 26+2 #3",
    ];

    #[test]
    fn a_part_has_its_calls_and_their_work() {
        let check = |from, to, expect: &[usize]| {
            let events = LINES.iter().map(|line| event(line));
            let found: Vec<_> = PartEvents::new(events, PartTimes { from, to }, 9).collect();
            let expect: Vec<_> = expect.iter().map(|place| event(LINES[*place])).collect();
            assert_eq!(found, expect, "{from}..{to}");
        };
        check(0, u64::MAX, &[0, 1, 2, 3, 4, 5, 6, 7]);
        check(0, 5, &[0, 1, 2, 5]);
        check(10, 20, &[1, 3, 4, 5, 6]);
        check(26, 27, &[1, 6, 7]);
        check(100, 200, &[1]);
    }

    #[test]
    fn a_part_of_steps_has_their_time() {
        let check = |from, until, expect: Option<(u64, u64)>| {
            let events = LINES.iter().map(|line| event(line));
            let found = PartTimes::of_steps(events, from, until);
            assert_eq!(found.map(|times| (times.from, times.to)), expect);
        };
        check(None, None, Some((0, 20)));
        check(Some(2), None, Some((10, 20)));
        check(None, Some(2), Some((0, 10)));
        check(Some(3), Some(9), None);
    }

    #[test]
    fn more_than_fits_is_said() {
        let of = |most| {
            let mut part = PartEvents::new(LINES.iter().map(|line| event(line)), PartTimes::ALL, most);
            (part.by_ref().count(), part.is_full)
        };
        assert_eq!((of(8), of(7)), ((8, false), (7, true)));
    }
}
