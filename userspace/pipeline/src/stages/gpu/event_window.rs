//! Event window: the interval in which single events are recorded.
//!
//! Owns: when it begins and ends: at the start, with the first work, training steps or launches, or on request.
//! Because: events arrive out of order, also after the window has ended, so each is compared with its bounds. There
//! is only one window: tables over time would take the time between two for idle time, and a wait after the gap would
//! get the wrong cause. Does not: record.

use std::ops::Range;

use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;
use rustc_hash::FxHashMap;

use crate::trace_window::{AwaitedBegin, TraceWindow};

/// What begins the window.
#[derive(Debug)]
enum WindowStart {
    /// It began with the capture.
    Start,
    /// The first launch, collective, span or operator: what precedes it (imports, loading models) is long and of no
    /// interest here. The length counts from there.
    Work(Nanos),
    /// A training step. `place`: the place whose step it was, once begun: a later step there ends the window.
    Step { from: u64, until: u64, place: Option<NodeId> },
    /// A launch; launches so far by process, and the process that made it, once it is made.
    Launch { from: u64, until: u64, counts: FxHashMap<u32, u64>, process: Option<u32> },
    /// A request. The length counts from the last one that came while it was open.
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
            TraceWindow::FromWork(length) => (WindowStart::Work(length), not_yet),
            TraceWindow::Steps { from, until } => (WindowStart::Step { from, until, place: None }, not_yet),
            TraceWindow::Launches { from, until } => {
                let counts = FxHashMap::default();
                (WindowStart::Launch { from, until, counts, process: None }, not_yet)
            }
            TraceWindow::OnRequest(length) => (WindowStart::Request(length), not_yet),
        };
        Self { begin, bounds }
    }

    /// Whether a time is within the window.
    pub(super) fn contains(&self, time_ns: u64) -> bool {
        self.bounds.contains(&time_ns)
    }

    /// When it begins; `u64::MAX` while unknown.
    pub(super) fn begin(&self) -> u64 {
        self.bounds.start
    }

    /// Whether a part of it is between two times.
    pub(super) fn overlaps(&self, from_ns: u64, to_ns: u64) -> bool {
        from_ns < self.bounds.end && self.bounds.start < to_ns
    }

    /// What the window waits for, while it has not begun.
    pub(super) fn awaited(&self) -> Option<AwaitedBegin> {
        match self.begin {
            _ if self.bounds.start != u64::MAX => None,
            WindowStart::Start => None,
            WindowStart::Work(_) => Some(AwaitedBegin::Work),
            WindowStart::Step { from, .. } => Some(AwaitedBegin::Step(from)),
            WindowStart::Launch { from, .. } => Some(AwaitedBegin::Launch(from)),
            WindowStart::Request(_) => Some(AwaitedBegin::Request),
        }
    }

    /// Work of the program that may begin the window.
    pub(super) fn works(&mut self, at_ns: u64) {
        if let (WindowStart::Work(length), Some(_)) = (&self.begin, self.awaited()) {
            self.bounds = of_length(at_ns, *length);
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

    /// A process launches something: that may begin or end the window.
    pub(super) fn launched(&mut self, pid: u32, at_ns: u64) {
        let WindowStart::Launch { from, until, counts, process } = &mut self.begin else { return };
        if process.is_some_and(|process| process != pid) {
            return;
        }
        let count = counts.entry(pid).or_default();
        *count += 1;
        if process.is_none() && *count == *from {
            *process = Some(pid);
            self.bounds.start = at_ns;
        } else if *count == *until {
            self.bounds.end = at_ns;
        }
    }

    /// A process has ended: its pid may be reused, so its count restarts.
    pub(super) fn ended(&mut self, pid: u32) {
        if let WindowStart::Launch { counts, .. } = &mut self.begin {
            counts.remove(&pid);
        }
    }

    /// The window is requested: it begins, or is extended if open. False if it has ended, or does not open on request.
    pub(super) fn request(&mut self, at_ns: u64) -> bool {
        let WindowStart::Request(length) = &self.begin else { return false };
        let requested = of_length(at_ns, *length);
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
    fn a_window_of_a_length_begins_with_the_first_work() {
        let mut window = EventWindow::new(7, TraceWindow::FromWork(Nanos(100)));
        assert_eq!(window.awaited(), Some(AwaitedBegin::Work));
        assert!(!window.contains(990));
        for at_ns in [1_000, 1_050, 1_200] {
            window.works(at_ns);
            assert_eq!((window.bounds.clone(), window.awaited()), (1_000..1_100, None));
        }
    }

    #[test]
    fn launches_of_one_process_begin_and_end_the_window() {
        let check = |launches: &[(u32, u64)], expect: Range<u64>| {
            let mut window = EventWindow::new(7, TraceWindow::Launches { from: 2, until: 4 });
            assert_eq!(window.awaited(), Some(AwaitedBegin::Launch(2)));
            for (pid, at_ns) in launches {
                window.launched(*pid, *at_ns);
                if *pid == 3 {
                    window.ended(*pid);
                }
            }
            assert_eq!(window.bounds, expect, "{launches:?}");
        };
        let all = u64::MAX;
        check(&[(1, 10)], all..all);
        check(&[(1, 10), (2, 11)], all..all);
        check(&[(1, 10), (1, 20)], 20..all);
        check(&[(1, 10), (1, 20), (1, 30), (1, 40), (1, 50)], 20..40);
        check(&[(1, 10), (1, 20), (2, 21), (2, 22), (2, 23), (2, 24), (1, 30), (1, 40)], 20..40);
        // Processes that end, one after another with the same pid.
        check(&[(3, 10), (3, 20), (3, 30)], all..all);
        // The process of the window ends, and another one gets its pid: there is still one window.
        let mut window = EventWindow::new(7, TraceWindow::Launches { from: 1, until: 9 });
        window.launched(1, 10);
        window.ended(1);
        window.launched(1, 20);
        assert_eq!(window.bounds, 10..all);
    }

    #[test]
    fn other_windows_take_no_requests() {
        let others = [
            TraceWindow::First(Nanos(5)),
            TraceWindow::Steps { from: 1, until: 2 },
            TraceWindow::Launches { from: 1, until: 2 },
        ];
        for window in others {
            assert!(!EventWindow::new(0, window).request(3));
        }
    }
}
