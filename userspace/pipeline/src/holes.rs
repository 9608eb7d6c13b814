//! Holes: the times in which records of a CPU are missing, or probes were not watched.
//!
//! Owns: the numbers that no record came with, and between which times theirs would have been; the pauses of the probes that are
//! watched in turns. Because: who concludes from the last record of a kind must know that none is missing since. Does not: count
//! losses (the ledger does).

use std::collections::VecDeque;

use super::source::Turn;

/// Holes kept for each CPU; beyond it the two oldest become one that covers both.
const HOLES_MAX: usize = 64;

/// The holes of all CPUs.
#[derive(Debug, Default)]
pub struct Holes {
    cpus: Vec<Cpu>,
    /// Records that came and could not be used, by time.
    unused: Vec<Hole>,
    /// From when to when probes were not watched, oldest first: at most [`HOLES_MAX`], in the same way.
    pauses: VecDeque<(u64, u64)>,
}

/// Why a record may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// It was lost.
    Lost,
    /// Its probe was not there.
    NotWatched,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    highest: u64,
    newest_ns: u64,
    holes: Vec<Hole>,
}

/// Numbers `first` to `last`, and the times around them, `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    first: u64,
    last: u64,
    from_ns: u64,
    to_ns: u64,
}

impl Holes {
    /// Takes note of a record. Two of a CPU may swap places: one program interrupts another.
    pub(super) fn saw(&mut self, cpu: u16, sequence: u64, time_ns: u64) {
        let cpu = usize::from(cpu);
        if cpu >= self.cpus.len() {
            self.cpus.resize(cpu + 1, Cpu::default());
        }
        let cpu = &mut self.cpus[cpu];
        if sequence > cpu.highest {
            if sequence > cpu.highest + 1 {
                let (first, last) = (cpu.highest + 1, sequence - 1);
                push(&mut cpu.holes, Hole { first, last, from_ns: cpu.newest_ns, to_ns: time_ns });
            }
            cpu.highest = sequence;
        } else {
            fill(&mut cpu.holes, sequence);
        }
        cpu.newest_ns = cpu.newest_ns.max(time_ns);
    }

    /// Takes note of a record that came too late to be used.
    pub(super) fn unused(&mut self, time_ns: u64) {
        let hole = Hole { first: u64::MAX, last: u64::MAX, from_ns: time_ns, to_ns: time_ns };
        push(&mut self.unused, hole);
    }

    /// Takes note of a turn's beginning or end.
    pub(super) fn turn(&mut self, turn: &Turn) {
        match self.pauses.back_mut() {
            Some((_, to_ns)) if turn.watched && *to_ns == u64::MAX => *to_ns = turn.time_ns,
            Some((_, u64::MAX)) => {}
            _ if turn.watched => {}
            _ => {
                self.pauses.push_back((turn.time_ns, u64::MAX));
                if self.pauses.len() > HOLES_MAX
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
    pub(super) fn any(&self, from_ns: u64, to_ns: u64) -> bool {
        self.not_watched(from_ns, to_ns) || self.any_lost(from_ns, to_ns)
    }

    /// Why a record may be missing between two times; `None` when none is. A pause comes first: it says more.
    pub(super) fn why(&self, from_ns: u64, to_ns: u64) -> Option<Missing> {
        match (self.not_watched(from_ns, to_ns), self.any_lost(from_ns, to_ns)) {
            (true, _) => Some(Missing::NotWatched),
            (false, true) => Some(Missing::Lost),
            (false, false) => None,
        }
    }

    /// Whether probes that are watched in turns were not, at some time between two.
    #[inline]
    pub(super) fn not_watched(&self, from_ns: u64, to_ns: u64) -> bool {
        let recent = self.pauses.iter().rev().take_while(|(_, end_ns)| *end_ns >= from_ns);
        recent.into_iter().any(|(began_ns, _)| *began_ns <= to_ns)
    }

    fn any_lost(&self, from_ns: u64, to_ns: u64) -> bool {
        let within = |hole: &Hole| hole.to_ns >= from_ns && hole.from_ns <= to_ns;
        self.unused.iter().any(within) || self.cpus.iter().any(|cpu| cpu.holes.iter().any(within))
    }
}

fn push(holes: &mut Vec<Hole>, hole: Hole) {
    if holes.len() >= HOLES_MAX {
        let oldest = holes.remove(0);
        let next = &mut holes[0];
        next.first = oldest.first;
        next.from_ns = oldest.from_ns.min(next.from_ns);
    }
    holes.push(hole);
}

/// The record of this number came after all.
fn fill(holes: &mut Vec<Hole>, sequence: u64) {
    let Some(at) = holes.iter().position(|hole| (hole.first..=hole.last).contains(&sequence)) else { return };
    let hole = holes[at];
    match (hole.first == sequence, hole.last == sequence) {
        (true, true) => drop(holes.remove(at)),
        (true, false) => holes[at].first += 1,
        (false, true) => holes[at].last -= 1,
        (false, false) => {
            holes[at].last = sequence - 1;
            if holes.len() < HOLES_MAX {
                holes.insert(at + 1, Hole { first: sequence + 1, ..hole });
            } else {
                holes[at].last = hole.last;
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
        let mut holes = Holes::default();
        for &sequence in sequences {
            holes.saw(0, sequence, sequence * 10);
        }
        assert_eq!(holes.any(from_ns, to_ns), expect, "{sequences:?} between {from_ns} and {to_ns}");
    }

    #[test]
    fn a_missing_number_is_a_hole_between_its_neighbours() {
        check(&[1, 2, 3], 0, 100, false);
        check(&[1, 2, 5], 0, 100, true);
        check(&[1, 2, 5], 0, 19, false);
        check(&[1, 2, 5], 51, 100, false);
        check(&[1, 2, 5], 30, 40, true);
        check(&[3], 0, 5, true);
    }

    #[test]
    fn between_two_turns_everything_may_be_missing() {
        let mut holes = Holes::default();
        let turn = |time_ns, watched| Turn { time_ns, watched, ..Turn::default() };
        let edges = [(10, true), (20, false), (30, true), (40, false)];
        edges.into_iter().for_each(|(time_ns, watched)| holes.turn(&turn(time_ns, watched)));
        let check = |from_ns, to_ns, expect: Option<Missing>| {
            assert_eq!(holes.why(from_ns, to_ns), expect, "{from_ns} to {to_ns}");
        };
        check(0, 19, None);
        check(15, 25, Some(Missing::NotWatched));
        check(21, 22, Some(Missing::NotWatched));
        check(31, 39, None);
        check(0, 39, Some(Missing::NotWatched));
        check(35, 45, Some(Missing::NotWatched));
        check(1000, 1001, Some(Missing::NotWatched));
    }

    #[test]
    fn of_too_many_pauses_the_oldest_become_one_that_covers_them() {
        let mut holes = Holes::default();
        for number in 0..200u64 {
            holes.turn(&Turn { time_ns: number * 10, watched: number % 2 == 1, ..Turn::default() });
        }
        assert_eq!(holes.pauses.len(), HOLES_MAX);
        assert!(holes.not_watched(15, 16) && holes.not_watched(1985, 1986));
        assert!(!holes.not_watched(1995, 1996));
    }

    #[test]
    fn numbers_that_come_late_fill_their_hole() {
        check(&[1, 3, 2], 0, 100, false);
        check(&[1, 5, 3], 0, 100, true);
        check(&[1, 5, 3, 2, 4], 0, 100, false);
    }

    proptest! {
        #[test]
        fn in_whatever_order_a_hole_is_seen_while_and_only_while_a_number_is_missing(
            mut kept in proptest::collection::btree_set(1..200u64, 1..150), seed: u64
        ) {
            // Neighbours swap at random.
            kept.insert(200);
            let mut order: Vec<u64> = kept.iter().copied().collect();
            for i in 1..order.len() {
                if seed >> (i % 64) & 1 == 1 { order.swap(i - 1, i) }
            }
            let mut holes = Holes::default();
            order.iter().for_each(|&sequence| holes.saw(3, sequence, sequence));
            for time in 1..=200 {
                if !kept.contains(&time) { prop_assert!(holes.any(time, time)) }
            }
            if kept.len() == 200 { prop_assert!(!holes.any(0, u64::MAX)) }
        }
    }
}
