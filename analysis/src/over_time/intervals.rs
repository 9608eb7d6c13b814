//! Intervals: lengths of unions and intersections.
//!
//! Owns: [`Intervals`]. Because: overlapping time counts once in every table over time. Does not: know what an interval
//! means.

use deepctx_profile::trace::TraceTime;

/// Times in nanoseconds, sorted and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    /// The union of any intervals.
    pub(super) fn of(times: impl IntoIterator<Item = (TraceTime, TraceTime)>) -> Self {
        Self::of_nanos(times.into_iter().map(|(begin, end)| (begin.as_nanos(), end.as_nanos())).collect())
    }

    /// The union of several.
    pub(super) fn any(all: impl IntoIterator<Item = Self>) -> Self {
        Self::of_nanos(all.into_iter().flat_map(|of| of.0).collect())
    }

    /// The times in exactly one of several.
    pub(super) fn in_one_only<'i>(all: impl IntoIterator<Item = &'i Self>) -> Self {
        let mut changes: Vec<(u64, bool)> = Vec::new();
        for (begin, end) in all.into_iter().flat_map(|of| &of.0) {
            changes.extend([(*begin, true), (*end, false)]);
        }
        changes.sort_unstable();
        let (mut running, mut since, mut times) = (0_usize, 0, Vec::new());
        for (at, begins) in changes {
            if running == 1 {
                times.push((since, at));
            }
            running = if begins { running + 1 } else { running.saturating_sub(1) };
            since = at;
        }
        Self::of_nanos(times)
    }

    fn of_nanos(mut times: Vec<(u64, u64)>) -> Self {
        times.retain(|(begin, end)| begin < end);
        times.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (begin, end) in times {
            match merged.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((begin, end)),
            }
        }
        Intervals(merged)
    }

    /// Their length.
    pub(super) fn length(&self) -> u64 {
        self.0.iter().map(|(begin, end)| end - begin).sum()
    }

    /// How much of a given range is in them.
    pub(super) fn between(&self, from: TraceTime, to: TraceTime) -> u64 {
        let (from, to) = (from.as_nanos(), to.as_nanos());
        let first = self.0.partition_point(|(_, end)| *end <= from);
        let within = self.0[first..].iter().take_while(|(begin, _)| *begin < to);
        within.map(|(begin, end)| (*end).min(to).saturating_sub((*begin).max(from))).sum()
    }

    /// Whether a moment is in one of them; ends are exclusive.
    pub(super) fn contains(&self, time: TraceTime) -> bool {
        let time = time.as_nanos();
        let first = self.0.partition_point(|(_, end)| *end <= time);
        self.0.get(first).is_some_and(|(begin, _)| *begin <= time)
    }

    /// Those that end behind a moment: one training step of a long trace must not cost what all do.
    fn behind(&self, time: u64) -> &[(u64, u64)] {
        &self.0[self.0.partition_point(|(_, end)| *end <= time)..]
    }

    /// For each of several, the length of the times in which it is the only one: one pass over all of them.
    pub(super) fn lengths_alone<'i>(all: impl IntoIterator<Item = &'i Self>) -> Vec<u64> {
        let (mut changes, mut lengths): (Vec<(u64, bool, usize)>, Vec<u64>) = (Vec::new(), Vec::new());
        for (number, of) in all.into_iter().enumerate() {
            lengths.push(0);
            changes
                .extend(of.0.iter().flat_map(|(begin, end)| [(*begin, true, number), (*end, false, number)]));
        }
        changes.sort_unstable();
        // While only one runs, the sum of the numbers of those that run is its number.
        let (mut running, mut numbers, mut since) = (0_usize, 0_usize, 0);
        for (at, begins, number) in changes {
            if let Some(length) = lengths.get_mut(numbers).filter(|_| running == 1) {
                *length += at - since;
            }
            (running, numbers) = match begins {
                true => (running + 1, numbers + number),
                false => (running.saturating_sub(1), numbers.saturating_sub(number)),
            };
            since = at;
        }
        lengths
    }

    /// The intersection.
    pub(super) fn and(&self, other: &Self) -> Self {
        let begin = |of: &Self| of.0.first().map_or(u64::MAX, |(begin, _)| *begin);
        let (mut a, mut b) =
            (self.behind(begin(other)).iter().peekable(), other.behind(begin(self)).iter().peekable());
        let mut both = Vec::new();
        while let (Some(&&(a_begin, a_end)), Some(&&(b_begin, b_end))) = (a.peek(), b.peek()) {
            let (begin, end) = (a_begin.max(b_begin), a_end.min(b_end));
            if begin < end {
                both.push((begin, end));
            }
            if a_end <= b_end {
                a.next()
            } else {
                b.next()
            };
        }
        Intervals(both)
    }

    /// The difference: times in this one only.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let first = self.0.first().map_or(u64::MAX, |(begin, _)| *begin);
        let mut others = other.behind(first).iter().peekable();
        for &(begin, end) in &self.0 {
            let mut from = begin;
            while let Some(&&(other_begin, other_end)) = others.peek() {
                if other_begin >= end {
                    break;
                }
                if from < other_begin {
                    left.push((from, other_begin));
                }
                from = from.max(other_end.min(end));
                if other_end > end {
                    break;
                }
                others.next();
            }
            if from < end {
                left.push((from, end));
            }
        }
        Intervals(left)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unions_intersections_and_differences_are_exact() {
        let of = |times: &[(u64, u64)]| Intervals::of_nanos(times.to_vec());
        let check = |found: Intervals, expect: &[(u64, u64)]| assert_eq!(found.0, expect);
        check(of(&[(5, 9), (1, 3), (2, 4), (9, 9)]), &[(1, 4), (5, 9)]);
        check(of(&[(1, 3), (3, 4)]), &[(1, 4)]);
        check(of(&[(1, 10)]).and(&of(&[(2, 3), (5, 20)])), &[(2, 3), (5, 10)]);
        check(of(&[(1, 10)]).without(&of(&[(2, 3), (5, 20)])), &[(1, 2), (3, 5)]);
        check(of(&[(1, 4), (6, 8)]).without(&of(&[(3, 7)])), &[(1, 3), (7, 8)]);
        let several = [of(&[(1, 10)]), of(&[(2, 4), (9, 12)]), of(&[(3, 5), (12, 14)])];
        check(Intervals::in_one_only(&several), &[(1, 2), (5, 9), (10, 14)]);
    }

    proptest! {
        #[test]
        fn what_is_shared_and_what_is_not_is_all(
            a in prop::collection::vec((0u64..100, 0u64..100), 0..12),
            b in prop::collection::vec((0u64..100, 0u64..100), 0..12),
        ) {
            let (a, b) = (Intervals::of_nanos(a), Intervals::of_nanos(b));
            prop_assert_eq!(a.and(&b).length() + a.without(&b).length(), a.length());
            prop_assert_eq!(a.and(&b), b.and(&a));
            prop_assert_eq!(Intervals::lengths_alone([&a, &b]), [a.without(&b).length(), b.without(&a).length()]);
            prop_assert_eq!(a.without(&b).and(&b).length(), 0);
            prop_assert_eq!(a.and(&Intervals::in_one_only([&a, &b])).length(), a.without(&b).length());
        }
    }
}
