//! Event window: the time in which single events are recorded.
//!
//! Owns: when it begins and ends: at the start, with training steps, or on request. Because: events come out of order,
//! also after the window has ended, so each is compared with its bounds. There is one: tables over time would take the
//! time between two for idle time, and a wait behind it would have the wrong cause. Does not: record.

use std::ops::Range;

use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

use crate::trace_window::{AwaitedBegin, TraceWindow};

/// What begins the window.
#[derive(Clone, Copy, Debug)]
enum WindowStart {
    /// It began with the capture.
    Start,
    /// A training step; the place whose step it was, once it has come, since others of its steps end the window.
    Step { from: u64, until: u64, place: Option<NodeId> },
    /// A request. It is so long from the last one on that came while it was open.
    Request(Nanos),
}

/// The window.
#[derive(Debug)]
pub(super) struct EventWindow {
    begin: WindowStart,
    /// `CLOCK_MONOTONIC` nanoseconds; empty before it begins.
    bounds: Range<u64>,
}

impl EventWindow {
    pub(super) fn new(started_ns: u64, window: TraceWindow) -> Self {
        let not_yet = u64::MAX..u64::MAX;
        let (begin, bounds) = match window {
            TraceWindow::First(length) => (WindowStart::Start, of_length(started_ns, length)),
            TraceWindow::Steps { from, until } => (WindowStart::Step { from, until, place: None }, not_yet),
            TraceWindow::OnRequest(length) => (WindowStart::Request(length), not_yet),
        };
        Self { begin, bounds }
    }

    /// Whether a time is within the window.
    pub(super) fn contains(&self, time_ns: u64) -> bool {
        self.bounds.contains(&time_ns)
    }

    /// What the window waits for, while it has not begun.
    pub(super) fn awaited(&self) -> Option<AwaitedBegin> {
        match self.begin {
            _ if self.bounds.start != u64::MAX => None,
            WindowStart::Start => None,
            WindowStart::Step { from, .. } => Some(AwaitedBegin::Step(from)),
            WindowStart::Request(_) => Some(AwaitedBegin::Request),
        }
    }

    /// A training step begins at a place: it may begin or end the window.
    pub(super) fn step_begins(&mut self, of: NodeId, number: u64, at_ns: u64) {
        let WindowStart::Step { from, until, place } = &mut self.begin else { return };
        if place.is_none() && (*from..*until).contains(&number) {
            *place = Some(of);
            self.bounds.start = at_ns;
        } else if *place == Some(of) && number >= *until {
            self.bounds.end = self.bounds.end.min(at_ns);
        }
    }

    /// The window is requested: it begins, or lasts longer if it is open. False when it has ended, or is not one on
    /// request.
    pub(super) fn request(&mut self, at_ns: u64) -> bool {
        let WindowStart::Request(length) = self.begin else { return false };
        let requested = of_length(at_ns, length);
        match self.awaited() {
            Some(_) => self.bounds = requested,
            None if at_ns <= self.bounds.end => self.bounds.end = self.bounds.end.max(requested.end),
            None => return false,
        }
        true
    }
}

fn of_length(begin_ns: u64, length: Nanos) -> Range<u64> {
    begin_ns..begin_ns.saturating_add(length.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins_the_window_or_lengthens_it() {
        let check = |requests: &[(u64, bool)], expect: Range<u64>| {
            let mut window = EventWindow::new(7, TraceWindow::OnRequest(Nanos(100)));
            assert_eq!(window.awaited(), Some(AwaitedBegin::Request));
            assert!(!window.contains(8));
            for (at_ns, is_taken) in requests {
                assert_eq!(window.request(*at_ns), *is_taken, "{requests:?}");
            }
            assert_eq!((window.bounds.clone(), window.awaited()), (expect.clone(), None));
            assert!((0..2_000).all(|at_ns| window.contains(at_ns) == expect.contains(&at_ns)));
        };
        check(&[(1_000, true)], 1_000..1_100);
        check(&[(1_000, true), (1_050, true)], 1_000..1_150);
        check(&[(1_000, true), (1_100, true)], 1_000..1_200);
        check(&[(1_000, true), (1_101, false), (1_500, false)], 1_000..1_100);
    }

    #[test]
    fn other_windows_take_no_requests() {
        for window in [TraceWindow::First(Nanos(5)), TraceWindow::Steps { from: 1, until: 2 }] {
            assert!(!EventWindow::new(0, window).request(3));
        }
    }
}
