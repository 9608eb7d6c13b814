//! Duty cycle: when probes with a budget were attached.
//!
//! Owns: the share of time during which they were, in words for readers of the counts; and the edges of duty windows
//! that the samples have not reached yet. Because: counts of such a probe cover its windows only, and must never be
//! read as covering the whole run. Does not: know the state of stages, or what lies between two times
//! ([`super::loss_windows`] does).

use deepctx_profile::ledger::{Account, DUTY_CYCLED, Reason};
use deepctx_profile::units::counted;

use crate::due_queue::DueQueue;
use crate::input::DutyWindow;

/// Edges of duty windows that may be ahead of the samples: a minute of the shortest windows.
const EDGES_MAX: usize = 1024;

/// The duty windows so far.
#[derive(Debug, Default)]
pub(crate) struct DutyCycle {
    /// When the first one began, `CLOCK_MONOTONIC` nanoseconds.
    first_ns: Option<u64>,
    /// When this window began; `None` in a pause.
    since_ns: Option<u64>,
    watched_ns: u64,
    windows: u64,
    paused: bool,
    last: DutyWindow,
}

impl DutyCycle {
    /// Records the beginning or end of a window.
    pub(crate) fn take(&mut self, window: DutyWindow) {
        match (window.watched, self.since_ns) {
            (true, None) => {
                self.windows += 1;
                self.since_ns = Some(window.time_ns);
                self.first_ns.get_or_insert(window.time_ns);
            }
            (false, Some(since_ns)) => {
                self.paused = true;
                self.watched_ns = self.watched_ns.saturating_add(window.time_ns.saturating_sub(since_ns));
                self.since_ns = None;
            }
            _ => {}
        }
        self.last = window;
    }

    /// Writes how much of the time until `now_ns` was watched, unless all of it was.
    pub(crate) fn write_to(&self, account: &mut Account, now_ns: u64) {
        let Some(first_ns) = self.first_ns.filter(|_| self.paused) else { return };
        let open_ns = self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        // Times of a damaged capture may be anything.
        let watched_ns = self.watched_ns.saturating_add(open_ns);
        let of_ns = now_ns.saturating_sub(first_ns).max(watched_ns).max(1);
        let share = watched_ns as f64 / of_ns as f64 * 100.0;
        let windows = counted(self.windows, "duty window");
        let DutyWindow { what, budget, .. } = &self.last;
        let sentence = format!(
            "{what}: attached {share:.1} % of the time, in {windows} (--probe-budget {budget}), of which counts are"
        );
        account.gaps.add(Reason { sentence: sentence.into(), ..DUTY_CYCLED.into() }, self.windows);
    }
}

/// Edges of duty windows, for a stage that must drop state at each: around an edge only some probes may be attached.
#[derive(Debug, Default)]
pub(crate) struct DutyEdges {
    paused: bool,
    edges: DueQueue<(), EDGES_MAX>,
}

impl DutyEdges {
    /// A duty window begins or ends at a time that the samples have not reached.
    pub(crate) fn take(&mut self, window: &DutyWindow) {
        self.paused |= !window.watched;
        if self.paused {
            self.edges.add(window.time_ns, ());
        }
    }

    /// Whether an edge is due once the samples have reached this time, `CLOCK_MONOTONIC` nanoseconds.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.edges.is_due(now_ns)
    }

    /// The next edge that the samples have reached.
    #[inline]
    pub(crate) fn reached(&mut self, now_ns: u64) -> Option<u64> {
        self.edges.reached(now_ns).map(|(time_ns, ())| time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Duty windows by their edges; the report at a time.
    #[track_caller]
    fn check(edges: &[u64], now_ns: u64, expect: Option<&str>) {
        let mut duty = DutyCycle::default();
        for (number, time_ns) in edges.iter().enumerate() {
            let (budget, what) = ("10%".to_owned(), "operators".to_owned());
            duty.take(DutyWindow { time_ns: *time_ns, watched: number % 2 == 0, budget, what });
        }
        let mut account = Account::default();
        duty.write_to(&mut account, now_ns);
        let said: Vec<String> = account.gaps.iter().map(|(reason, _)| reason.sentence.to_string()).collect();
        assert_eq!(said.first().map(String::as_str), expect, "{edges:?}");
    }

    #[test]
    fn recorded_share_is_reported_unless_everything_was_recorded() {
        check(&[], 1000, None);
        check(&[100], 1000, None);
        check(
            &[100, 200],
            1100,
            Some(
                "operators: attached 10.0 % of the time, in 1 duty window (--probe-budget 10%), of which counts are",
            ),
        );
        check(
            &[100, 200, 1000],
            1100,
            Some(
                "operators: attached 20.0 % of the time, in 2 duty windows (--probe-budget 10%), of which counts are",
            ),
        );
        // No record since.
        check(
            &[100, 200],
            150,
            Some(
                "operators: attached 100.0 % of the time, in 1 duty window (--probe-budget 10%), of which counts are",
            ),
        );
    }

    #[test]
    fn duty_windows_with_impossible_times_do_not_overflow() {
        check(
            &[0, u64::MAX, 5],
            100,
            Some(
                "operators: attached 100.0 % of the time, in 2 duty windows (--probe-budget 10%), of which counts are",
            ),
        );
    }

    #[test]
    fn duty_window_edge_is_reached_once_and_first_start_ignored() {
        let mut edges = DutyEdges::default();
        for (time_ns, watched) in [(5, true), (10, false), (20, true), (30, false)] {
            edges.take(&DutyWindow { time_ns, watched, ..DutyWindow::default() });
        }
        let reached = [9, 15, 15, 20, 40, 50].map(|now_ns| edges.reached(now_ns));
        assert_eq!(reached, [None, Some(10), None, Some(20), Some(30), None]);
    }
}
