//! Trace windows: the times in which single events are recorded.
//!
//! Owns: when a window begins and ends: at the start, with training steps, or on request. Because: events come out of
//! order, also after the window of their time has ended, so each is compared with all windows. Does not: record.

use std::ops::Range;

use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

use crate::trace_window::{AwaitedBegin, TraceWindow};

/// Most windows on request. More than an hour of one each ten seconds.
const WINDOWS_MAX: usize = 512;

/// What begins a window.
#[derive(Clone, Copy, Debug)]
enum Begin {
    /// It began with the capture.
    Start,
    /// A training step; the place whose step it was, once it has come, since others of its steps end the window.
    Step { from: u64, until: u64, place: Option<NodeId> },
    /// A request; each window is so long.
    Request(Nanos),
}

/// The windows so far.
#[derive(Debug)]
pub(super) struct TraceWindows {
    begin: Begin,
    /// By begin, `CLOCK_MONOTONIC` nanoseconds; they do not overlap.
    windows: Vec<Range<u64>>,
}

impl TraceWindows {
    pub(super) fn new(started_ns: u64, window: TraceWindow) -> Self {
        let (begin, windows) = match window {
            TraceWindow::First(length) => (Begin::Start, vec![of_length(started_ns, length)]),
            TraceWindow::Steps { from, until } => (Begin::Step { from, until, place: None }, Vec::new()),
            TraceWindow::OnRequest(length) => (Begin::Request(length), Vec::new()),
        };
        Self { begin, windows }
    }

    /// Whether a time is within a window.
    pub(super) fn contain(&self, time_ns: u64) -> bool {
        // Most events belong to the latest.
        self.windows.iter().rev().any(|window| window.contains(&time_ns))
    }

    /// What the first window waits for, while there is none.
    pub(super) fn awaited(&self) -> Option<AwaitedBegin> {
        match self.begin {
            _ if !self.windows.is_empty() => None,
            Begin::Start => None,
            Begin::Step { from, .. } => Some(AwaitedBegin::Step(from)),
            Begin::Request(_) => Some(AwaitedBegin::Request),
        }
    }

    /// A training step begins at a place: it may begin or end the window.
    pub(super) fn step_begins(&mut self, of: NodeId, number: u64, at_ns: u64) {
        let Begin::Step { from, until, place } = &mut self.begin else { return };
        if place.is_none() && (*from..*until).contains(&number) {
            *place = Some(of);
            self.windows.push(at_ns..u64::MAX);
        } else if *place == Some(of)
            && number >= *until
            && let Some(window) = self.windows.last_mut()
        {
            window.end = window.end.min(at_ns);
        }
    }

    /// A window is requested: a new one begins, or the one that is open lasts longer. False when there cannot be more,
    /// or none on request.
    pub(super) fn request(&mut self, at_ns: u64) -> bool {
        let Begin::Request(length) = self.begin else { return false };
        let window = of_length(at_ns, length);
        let is_full = self.windows.len() >= WINDOWS_MAX;
        match self.windows.last_mut() {
            Some(last) if last.end >= at_ns => last.end = last.end.max(window.end),
            _ if is_full => return false,
            _ => self.windows.push(window),
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
    fn windows_on_request_begin_and_end() {
        let check = |requests: &[u64], expect: &[(u64, u64)]| {
            let expect: Vec<Range<u64>> = expect.iter().map(|(begin, end)| *begin..*end).collect();
            let mut windows = TraceWindows::new(7, TraceWindow::OnRequest(Nanos(100)));
            assert_eq!(windows.awaited(), Some(AwaitedBegin::Request));
            assert!(!windows.contain(8) && requests.iter().all(|at_ns| windows.request(*at_ns)));
            assert_eq!((windows.windows.as_slice(), windows.awaited()), (expect.as_slice(), None));
            let within = |at_ns: u64| expect.iter().any(|window| window.contains(&at_ns));
            assert!((0..2_000).all(|at_ns| windows.contain(at_ns) == within(at_ns)), "{requests:?}");
        };
        check(&[1_000], &[(1_000, 1_100)]);
        check(&[1_000, 1_500], &[(1_000, 1_100), (1_500, 1_600)]);
        // One that is open lasts longer.
        check(&[1_000, 1_050], &[(1_000, 1_150)]);
        check(&[1_000, 1_100], &[(1_000, 1_200)]);
    }

    #[test]
    fn windows_on_request_are_bounded() {
        let mut windows = TraceWindows::new(0, TraceWindow::OnRequest(Nanos(1)));
        let begun = (0..2 * WINDOWS_MAX as u64).filter(|n| windows.request(n * 10)).count();
        assert_eq!(begun, WINDOWS_MAX);
    }

    #[test]
    fn other_windows_take_no_requests() {
        for window in [TraceWindow::First(Nanos(5)), TraceWindow::Steps { from: 1, until: 2 }] {
            assert!(!TraceWindows::new(0, window).request(3));
        }
    }
}
