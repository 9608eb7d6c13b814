//! Events state: which lane and moment of a trace are chosen, which part of its time is in sight, and which is
//! selected.
//!
//! Owns: [`EventsState`]. Because: the moment under the cursor must stay where it is on the screen while the time
//! around it is stretched. Does not: know keys or lanes; see [`crate::app`].

use std::sync::Arc;

use deepctx_profile::trace::RangeTables;
use deepctx_profile::units::Nanos;

use crate::layout::events::BelowLanes;
use crate::layout::timeline::TimeSpan;

/// Minimum visible time: a column is a nanosecond on the widest screen.
const LENGTH_MIN: u64 = 500;

/// The user's position. Times are relative to the first event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventsState {
    /// Selected lane.
    pub(crate) lane: usize,
    /// First visible lane.
    pub(crate) scroll: usize,
    /// Start of the visible time.
    pub(crate) from: Nanos,
    /// Length of the visible time; `None` for all of it.
    pub(crate) length: Option<Nanos>,
    /// The selected time.
    pub(crate) at: Nanos,
    /// Start of an unfinished selection.
    pub(crate) mark: Option<Nanos>,
    /// Where the mouse button was pressed.
    pub(crate) pressed: Option<Nanos>,
    /// The tables of the selected part.
    pub(crate) range: Option<Arc<RangeTables>>,
    /// The number of the shown table over all events.
    pub(crate) analysis: Option<usize>,
}

impl EventsState {
    /// The visible time.
    pub(crate) fn span(&self, whole: Nanos) -> TimeSpan {
        let length = self.length.unwrap_or(whole).min(whole).max(Nanos(1));
        TimeSpan { from: self.from.min(whole.saturating_sub(length)), length }
    }

    /// Halves or doubles the visible time around the selected moment, which stays in its column.
    pub(crate) fn zoom(&mut self, closer: bool, whole: Nanos) {
        let span = self.span(whole);
        let length = if closer { span.length.0 / 2 } else { span.length.0.saturating_mul(2) };
        let length = length.clamp(LENGTH_MIN.min(whole.0), whole.0);
        let before = u128::from(self.at.saturating_sub(span.from).0);
        // Rounded up: otherwise a moment at the left edge of its column would fall into the previous one.
        let before = (before * u128::from(length)).div_ceil(u128::from(span.length.0));
        let before = Nanos(u64::try_from(before).unwrap_or(u64::MAX));
        self.length = (length < whole.0).then_some(Nanos(length));
        self.from = self.at.saturating_sub(before);
        self.from = self.span(whole).from;
    }

    /// Shows the whole time.
    pub(crate) fn show_all(&mut self) {
        (self.from, self.length) = (Nanos(0), None);
    }

    /// Moves the selected moment, and the visible time if it would leave that.
    pub(crate) fn go_to(&mut self, at: Nanos, whole: Nanos) {
        self.at = at.min(whole.saturating_sub(Nanos(1)));
        let span = self.span(whole);
        // A tenth stays visible beyond the moment, for orientation.
        let margin = Nanos(span.length.0 / 10);
        if self.at < span.from {
            self.from = self.at.saturating_sub(margin);
        } else if self.at >= span.from.saturating_add(span.length) {
            self.from = self.at.saturating_add(margin).saturating_sub(span.length);
        }
        self.from = self.span(whole).from;
    }

    /// What is below the lanes.
    pub(crate) fn below(&self) -> BelowLanes {
        match (self.analysis, &self.range) {
            (Some(_), _) => BelowLanes::Analysis,
            (None, Some(_)) => BelowLanes::Selection,
            (None, None) => BelowLanes::Nothing,
        }
    }

    /// The selected part, or the one being selected.
    pub(crate) fn selected(&self) -> Option<(Nanos, Nanos)> {
        match (self.mark, &self.range) {
            (Some(mark), _) => Some((mark.min(self.at), mark.max(self.at))),
            (None, range) => range.as_ref().map(|range| (range.from, range.to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_moment_stays_in_its_column() {
        let whole = Nanos(1_000_000);
        let mut state = EventsState { at: Nanos(250_000), ..EventsState::default() };
        let column = |state: &EventsState| state.span(whole).column_of(state.at, 100);
        for _ in 0..6 {
            state.zoom(true, whole);
            assert_eq!(column(&state), Some(25));
        }
        for _ in 0..9 {
            state.zoom(false, whole);
        }
        assert_eq!(state.span(whole), TimeSpan { from: Nanos(0), length: whole });
    }

    #[test]
    fn the_time_in_sight_follows_the_moment() {
        let whole = Nanos(1_000_000);
        let check = |at: u64, expect: u64| {
            let mut state =
                EventsState { length: Some(Nanos(10_000)), from: Nanos(50_000), ..EventsState::default() };
            state.go_to(Nanos(at), whole);
            assert_eq!(state.span(whole).from, Nanos(expect), "to {at}");
        };
        check(55_000, 50_000);
        check(49_000, 48_000);
        check(60_000, 51_000);
        check(0, 0);
        check(u64::MAX, 990_000);
    }
}
