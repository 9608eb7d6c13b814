//! Loss windows: the intervals in which records of a CPU are missing, or duty-cycled probes were detached.
//!
//! Owns: the gaps in sequence numbers, with the times between which the missing records were written; and the pauses
//! between duty windows. Because: a stage that draws conclusions from the last record of a kind must know that none
//! has been lost since. Does not: count losses (the ledger does).

use std::collections::VecDeque;

use crate::decode::GAP_MAX;
use crate::input::DutyWindow;

/// Loss windows kept per CPU; beyond that, the two oldest become one that covers both.
const GAPS_MAX: usize = 64;

/// The gaps of all CPUs.
#[derive(Debug, Default)]
pub(crate) struct LossWindows {
    cpus: Vec<Cpu>,
    /// Records that came too late to be used, by time.
    unused: Vec<Gap>,
    /// No gap ends later. Usually none is recent, and every stack asks.
    newest_ns: u64,
    /// Times without probes, oldest first: at most [`GAPS_MAX`], merged in the same way.
    pauses: VecDeque<(u64, u64)>,
}

/// Why a record may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossCause {
    /// The record was lost.
    Lost,
    /// The probe was not attached.
    NotProbed,
}

/// Whether probes are detached when their budget is spent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetFlag(pub(crate) bool);

#[derive(Clone, Debug, Default)]
struct Cpu {
    highest: u64,
    newest_ns: u64,
    gaps: Vec<Gap>,
}

/// Sequence numbers `first` to `last`, and the times around them, `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    first: u64,
    last: u64,
    from_ns: u64,
    to_ns: u64,
}

impl LossWindows {
    /// Records a sequence number. Two records of a CPU may swap places: one program interrupts another.
    pub(crate) fn record(&mut self, cpu: u16, sequence: u64, time_ns: u64) {
        let cpu = usize::from(cpu);
        if cpu >= self.cpus.len() {
            self.cpus.resize(cpu + 1, Cpu::default());
        }
        let cpu = &mut self.cpus[cpu];
        // A damaged number: all later ones would be below it, and losses among them would not show.
        if sequence > cpu.highest.saturating_add(GAP_MAX) {
            return;
        }
        if sequence > cpu.highest {
            if sequence > cpu.highest + 1 {
                let (first, last) = (cpu.highest + 1, sequence - 1);
                push(&mut cpu.gaps, Gap { first, last, from_ns: cpu.newest_ns, to_ns: time_ns });
                self.newest_ns = self.newest_ns.max(time_ns);
            }
            cpu.highest = sequence;
        } else {
            fill(&mut cpu.gaps, sequence);
        }
        cpu.newest_ns = cpu.newest_ns.max(time_ns);
    }

    /// Records the time of a record that came too late to be used.
    pub(crate) fn record_unused(&mut self, time_ns: u64) {
        let gap = Gap { first: u64::MAX, last: u64::MAX, from_ns: time_ns, to_ns: time_ns };
        push(&mut self.unused, gap);
        self.newest_ns = self.newest_ns.max(time_ns);
    }

    /// Records the beginning or end of a duty window.
    pub(crate) fn duty_window(&mut self, window: &DutyWindow) {
        match self.pauses.back_mut() {
            Some((_, to_ns)) if window.watched && *to_ns == u64::MAX => *to_ns = window.time_ns,
            Some((_, u64::MAX)) => {}
            _ if window.watched => {}
            _ => {
                self.pauses.push_back((window.time_ns, u64::MAX));
                if self.pauses.len() > GAPS_MAX
                    && let (Some((from_ns, _)), Some(next)) =
                        (self.pauses.pop_front(), self.pauses.front_mut())
                {
                    next.0 = from_ns;
                }
            }
        }
    }

    /// Whether a record may be missing between two times.
    #[inline]
    pub(crate) fn any(&self, from_ns: u64, to_ns: u64) -> bool {
        self.not_probed(from_ns, to_ns) || self.any_lost(from_ns, to_ns)
    }

    /// Why a record may be missing between two times; `None` if none is. A pause comes first: it is more specific.
    pub(crate) fn cause(&self, from_ns: u64, to_ns: u64) -> Option<LossCause> {
        match (self.not_probed(from_ns, to_ns), self.any_lost(from_ns, to_ns)) {
            (true, _) => Some(LossCause::NotProbed),
            (false, true) => Some(LossCause::Lost),
            (false, false) => None,
        }
    }

    /// The same for records of certain probes.
    pub(crate) fn cause_with(&self, budget: BudgetFlag, from_ns: u64, to_ns: u64) -> Option<LossCause> {
        match budget {
            BudgetFlag(true) => self.cause(from_ns, to_ns),
            BudgetFlag(false) => self.any_lost(from_ns, to_ns).then_some(LossCause::Lost),
        }
    }

    /// Whether duty-cycled probes were detached at some time in between.
    #[inline]
    pub(crate) fn not_probed(&self, from_ns: u64, to_ns: u64) -> bool {
        let recent = self.pauses.iter().rev().take_while(|(_, end_ns)| *end_ns >= from_ns);
        recent.into_iter().any(|(began_ns, _)| *began_ns <= to_ns)
    }

    #[inline]
    fn any_lost(&self, from_ns: u64, to_ns: u64) -> bool {
        let within = |gap: &Gap| gap.to_ns >= from_ns && gap.from_ns <= to_ns;
        self.newest_ns >= from_ns
            && (self.unused.iter().any(within) || self.cpus.iter().any(|cpu| cpu.gaps.iter().any(within)))
    }
}

fn push(gaps: &mut Vec<Gap>, gap: Gap) {
    if gaps.len() >= GAPS_MAX {
        let oldest = gaps.remove(0);
        let next = &mut gaps[0];
        next.first = oldest.first;
        next.from_ns = oldest.from_ns.min(next.from_ns);
        // Late records come in any order.
        next.to_ns = oldest.to_ns.max(next.to_ns);
    }
    gaps.push(gap);
}

/// The record of this number came late.
fn fill(gaps: &mut Vec<Gap>, sequence: u64) {
    let Some(at) = gaps.iter().position(|gap| (gap.first..=gap.last).contains(&sequence)) else { return };
    let gap = gaps[at];
    match (gap.first == sequence, gap.last == sequence) {
        (true, true) => drop(gaps.remove(at)),
        (true, false) => gaps[at].first += 1,
        (false, true) => gaps[at].last -= 1,
        (false, false) => {
            gaps[at].last = sequence - 1;
            if gaps.len() < GAPS_MAX {
                gaps.insert(at + 1, Gap { first: sequence + 1, ..gap });
            } else {
                gaps[at].last = gap.last;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(sequences: &[u64], from_ns: u64, to_ns: u64, expect: bool) {
        let mut gaps = LossWindows::default();
        for &sequence in sequences {
            gaps.record(0, sequence, sequence * 10);
        }
        assert_eq!(gaps.any(from_ns, to_ns), expect, "{sequences:?} between {from_ns} and {to_ns}");
    }

    #[test]
    fn a_missing_number_is_a_gap_between_its_neighbours() {
        check(&[1, 2, 3], 0, 100, false);
        check(&[1, 2, 5], 0, 100, true);
        check(&[1, 2, 5], 0, 19, false);
        check(&[1, 2, 5], 51, 100, false);
        check(&[1, 2, 5], 30, 40, true);
        check(&[3], 0, 5, true);
    }

    #[test]
    fn between_two_turns_everything_may_be_missing() {
        let mut gaps = LossWindows::default();
        let window = |time_ns, watched| DutyWindow { time_ns, watched, ..DutyWindow::default() };
        let edges = [(10, true), (20, false), (30, true), (40, false)];
        edges.into_iter().for_each(|(time_ns, watched)| gaps.duty_window(&window(time_ns, watched)));
        let check = |from_ns, to_ns, expect: Option<LossCause>| {
            assert_eq!(gaps.cause(from_ns, to_ns), expect, "{from_ns} to {to_ns}");
        };
        check(0, 19, None);
        check(15, 25, Some(LossCause::NotProbed));
        check(21, 22, Some(LossCause::NotProbed));
        check(31, 39, None);
        check(0, 39, Some(LossCause::NotProbed));
        check(35, 45, Some(LossCause::NotProbed));
        check(1000, 1001, Some(LossCause::NotProbed));
        assert_eq!(gaps.cause_with(BudgetFlag(true), 15, 25), Some(LossCause::NotProbed));
        assert_eq!(gaps.cause_with(BudgetFlag(false), 15, 25), None);
        [1, 3].into_iter().for_each(|sequence| gaps.record(0, sequence, 15 + sequence));
        assert_eq!(gaps.cause_with(BudgetFlag(false), 15, 25), Some(LossCause::Lost));
    }

    #[test]
    fn oldest_pauses_beyond_the_limit_merge_into_one() {
        let mut gaps = LossWindows::default();
        for number in 0..200u64 {
            gaps.duty_window(&DutyWindow {
                time_ns: number * 10,
                watched: number % 2 == 1,
                ..DutyWindow::default()
            });
        }
        assert_eq!(gaps.pauses.len(), GAPS_MAX);
        assert!(gaps.not_probed(15, 16) && gaps.not_probed(1985, 1986));
        assert!(!gaps.not_probed(1995, 1996));
    }

    #[test]
    fn times_of_late_records_stay_in_the_merged_window() {
        let mut gaps = LossWindows::default();
        gaps.record_unused(1_000);
        (0..GAPS_MAX as u64).for_each(|time_ns| gaps.record_unused(time_ns));
        assert_eq!(gaps.unused.len(), GAPS_MAX);
        assert!(gaps.any(1_000, 1_000) && !gaps.any(1_001, 1_001));
    }

    #[test]
    fn a_damaged_number_hides_no_later_gap() {
        let mut gaps = LossWindows::default();
        for (sequence, time_ns) in [(1, 10), (u64::MAX, 20), (2, 30), (5, 50)] {
            gaps.record(0, sequence, time_ns);
        }
        assert!(gaps.any(40, 45) && !gaps.any(12, 28));
    }

    #[test]
    fn numbers_that_come_late_fill_their_gap() {
        check(&[1, 3, 2], 0, 100, false);
        check(&[1, 5, 3], 0, 100, true);
        check(&[1, 5, 3, 2, 4], 0, 100, false);
    }

    proptest! {
        #[test]
        fn gaps_match_missing_sequence_numbers_in_any_order_of_arrival(
            mut kept in proptest::collection::btree_set(1..200u64, 1..150), seed: u64
        ) {
            // Neighbours swap at random.
            kept.insert(200);
            let mut order: Vec<u64> = kept.iter().copied().collect();
            for i in 1..order.len() {
                if seed >> (i % 64) & 1 == 1 { order.swap(i - 1, i) }
            }
            let mut gaps = LossWindows::default();
            order.iter().for_each(|&sequence| gaps.record(3, sequence, sequence));
            for time in 1..=200 {
                if !kept.contains(&time) { prop_assert!(gaps.any(time, time)) }
            }
            if kept.len() == 200 { prop_assert!(!gaps.any(0, u64::MAX)) }
        }
    }
}
