//! Step times: how often training steps took how long, at each place.
//!
//! Owns: [`StepTimes`], the buckets of its histograms, and the latest times. Because: mean and extremes do not tell one
//! slow step of a hundred from ten, and the single times of a week of steps do not fit into memory. Does not: know what
//! ends a step, or hold the figures of a place, which are in the tree; percentiles are given only of as many steps as
//! the tree has.
//!
//! ```text
//!   shortest time of a bucket, ns:  0 1 … 15 | 16 17 … 31 | 32 34 … 62 | 64 68 … 124 | …
//!   width:                          1        | 1          | 2          | 4           | at most 1/16 of that time
//! ```
//! Sixteen buckets for each power of two. Merging adds their counts, in any order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use crate::metric::Cell;
use crate::tree::NodeId;
use crate::units::Nanos;

/// Places with a histogram: a job has a few for each of its processes. One takes 17 KiB at most, with every bucket.
pub const PLACES_MAX: usize = 256;
/// Latest times of a place: as many as a title has room for.
pub const LATEST_MAX: usize = 64;
/// Buckets of a power of two, as a power of two.
const BITS: u32 = 4;
/// Buckets of a power of two.
const OF_POWER: u64 = 1 << BITS;

/// How often training steps took how long, by the place where they end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTimes {
    places: BTreeMap<NodeId, StepPlace>,
    /// Steps at places that found no room.
    refused: u64,
    /// Those since they were last taken; `None` if nobody takes them.
    recent: Option<Box<StepTimes>>,
}

/// The steps of one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StepPlace {
    histogram: Histogram,
    /// Times of the latest ones, the last one last.
    latest: VecDeque<Nanos>,
}

/// How often steps of one place took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of each bucket with steps, ascending, and how many it has.
    buckets: Vec<(u16, u64)>,
}

/// The shortest and the longest time that a figure may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The shortest.
    pub least: Nanos,
    /// The longest.
    pub most: Nanos,
}

impl Bounds {
    /// Times of the bucket with this number.
    fn of_bucket(number: u16) -> Self {
        let number = u64::from(number);
        let shift = (number / OF_POWER).saturating_sub(1);
        let least = (number - shift * OF_POWER) << shift;
        Bounds { least: Nanos(least), most: Nanos(least + ((1u64 << shift) - 1)) }
    }

    /// The time in the middle, for figures that are shown: at most a thirty-second of it off.
    pub fn middle(self) -> Nanos {
        Nanos(self.least.0.midpoint(self.most.0))
    }
}

/// Number of the bucket of a time: at most 59 · 16 + 31.
fn bucket_of(took: Nanos) -> u16 {
    let shift = took.0.max(1).ilog2().saturating_sub(BITS);
    (u64::from(shift) * OF_POWER + (took.0 >> shift)) as u16
}

impl Histogram {
    /// Number of steps.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, (_, steps)| sum.saturating_add(*steps))
    }

    /// Shortest time of each bucket with steps, ascending, and how many it has.
    pub fn buckets(&self) -> impl ExactSizeIterator<Item = (Nanos, u64)> {
        self.buckets.iter().map(|(number, steps)| (Bounds::of_bucket(*number).least, *steps))
    }

    /// Adds all steps of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (number, steps) in &other.buckets {
            self.put(*number, *steps);
        }
    }

    /// The time that this percentage of the steps did not exceed, by the nearest rank. `of`: the figures of these
    /// steps. `None` if it has more or fewer of them, as in a profile that was merged with an older one.
    pub fn percentile(&self, percent: u64, of: &Cell) -> Option<Bounds> {
        let count = self.count();
        if count == 0 || count != of.count {
            return None;
        }
        let rank = (u128::from(count) * u128::from(percent)).div_ceil(100).max(1);
        let within = |time: Nanos| Nanos(time.0.max(of.min).min(of.max));
        let mut before = 0u128;
        for (number, steps) in &self.buckets {
            before += u128::from(*steps);
            if before >= rank {
                let Bounds { least, most } = Bounds::of_bucket(*number);
                return Some(Bounds { least: within(least), most: within(most) });
            }
        }
        None
    }

    /// How many steps took longer than a time, at least and at most: those of its own bucket may have or not.
    pub fn longer_than(&self, time: Nanos) -> RangeInclusive<u64> {
        let own = bucket_of(time);
        let of = |is_in: &dyn Fn(u16) -> bool| {
            let steps = self.buckets.iter().filter(|(number, _)| is_in(*number)).map(|(_, steps)| *steps);
            steps.fold(0, u64::saturating_add)
        };
        let at_least = of(&|number| number > own);
        let own_is_longer = Bounds::of_bucket(own).most > time;
        at_least..=at_least.saturating_add(of(&|number| number == own && own_is_longer))
    }

    fn put(&mut self, number: u16, steps: u64) {
        match self.buckets.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(steps),
            Err(at) => self.buckets.insert(at, (number, steps)),
        }
    }
}

impl StepTimes {
    /// Adds a step that ended at a place.
    pub fn add(&mut self, place: NodeId, took: Nanos) {
        self.add_steps(place, took, 1);
        self.add_latest(place, took);
    }

    /// Adds a time to the latest ones of a place that has steps. Does not count a step.
    pub fn add_latest(&mut self, place: NodeId, took: Nanos) {
        if let Some(recent) = &mut self.recent {
            recent.add_latest(place, took);
        }
        let Some(StepPlace { latest, .. }) = self.places.get_mut(&place) else { return };
        if latest.len() >= LATEST_MAX {
            latest.pop_front();
        }
        latest.push_back(took);
    }

    /// Adds steps that took equally long. They are not among the latest, since their order is not known.
    pub fn add_steps(&mut self, place: NodeId, took: Nanos, steps: u64) {
        if steps == 0 {
            return;
        }
        if let Some(recent) = &mut self.recent {
            recent.add_steps(place, took, steps);
        }
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(&place) {
            self.refused = self.refused.saturating_add(steps);
            return;
        }
        self.places.entry(place).or_default().histogram.put(bucket_of(took), steps);
    }

    /// Adds another profile's; `node` maps its contexts to contexts here, or to `None` if they are left out. The
    /// other's latest steps follow those here.
    pub fn merge(&mut self, other: &StepTimes, mut node: impl FnMut(NodeId) -> Option<NodeId>) {
        for (place, StepPlace { histogram, latest }) in &other.places {
            let Some(here) = node(*place) else { continue };
            for (least, steps) in histogram.buckets() {
                self.add_steps(here, least, steps);
            }
            latest.iter().for_each(|took| self.add_latest(here, *took));
        }
        self.refused = self.refused.saturating_add(other.refused);
    }

    /// The steps of a place.
    pub fn of(&self, place: NodeId) -> Option<&Histogram> {
        self.places.get(&place).map(|of| &of.histogram)
    }

    /// Times of the latest steps of a place, the last one last.
    pub fn latest(&self, place: NodeId) -> impl Iterator<Item = Nanos> {
        self.places.get(&place).into_iter().flat_map(|of| of.latest.iter().copied())
    }

    /// All places with steps, by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeId, &Histogram)> {
        self.places.iter().map(|(place, of)| (*place, &of.histogram))
    }

    /// From now on, also keeps additions separately, for [`StepTimes::take_recent`].
    pub fn keep_recent(&mut self) {
        self.recent = Some(Box::default());
    }

    /// Additions since [`StepTimes::take_recent`]; `None` unless [`StepTimes::keep_recent`] was called.
    pub fn recent(&self) -> Option<&StepTimes> {
        self.recent.as_deref()
    }

    /// Additions since the last call; empty unless [`StepTimes::keep_recent`] was called.
    pub fn take_recent(&mut self) -> StepTimes {
        self.recent.as_deref_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Steps at places that found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Buckets of all places together.
    pub fn buckets(&self) -> usize {
        self.places.values().map(|of| of.histogram.buckets.len()).sum()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let held = |of: &StepPlace| {
            let buckets = of.histogram.buckets.capacity() * size_of::<(u16, u64)>();
            buckets + of.latest.capacity() * size_of::<Nanos>()
        };
        self.places.len() * size_of::<(NodeId, StepPlace)>()
            + self.places.values().map(held).sum::<usize>()
            + self.recent.as_ref().map_or(0, |recent| recent.bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLACE: NodeId = NodeId::ROOT;

    fn steps(times: &[u64]) -> StepTimes {
        let mut steps = StepTimes::default();
        times.iter().for_each(|time| steps.add(PLACE, Nanos(*time)));
        steps
    }

    fn cell(times: &[u64]) -> Cell {
        let mut cell = Cell::EMPTY;
        times.iter().for_each(|time| cell.add(*time));
        cell
    }

    /// Times of any magnitude.
    fn times() -> impl Strategy<Value = Vec<u64>> {
        let time = (0u32..64, any::<u64>()).prop_map(|(shift, value)| value >> shift);
        prop::collection::vec(time, 1..80)
    }

    #[test]
    fn buckets_follow_each_other_up_to_the_longest_time() {
        let mut next = 0;
        for number in 0..976u16 {
            let Bounds { least, most } = Bounds::of_bucket(number);
            assert_eq!(least, Nanos(next), "{number}");
            assert_eq!((bucket_of(least), bucket_of(most)), (number, number));
            next = most.0.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends with the longest time");
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let times: Vec<u64> = (1..=20).collect();
        let (steps, cell) = (steps(&times), cell(&times));
        let check = |percent, expect| {
            let found = steps.of(PLACE).and_then(|of| of.percentile(percent, &cell));
            assert_eq!(found.map(Bounds::middle), Some(Nanos(expect)), "{percent}");
        };
        check(0, 1);
        check(50, 10);
        check(95, 19);
        check(100, 20);
    }

    #[test]
    fn steps_without_a_time_leave_no_percentile() {
        let known = steps(&[10, 20, 30]);
        let percentile = |of: &Cell| known.of(PLACE).unwrap().percentile(50, of);
        assert!(percentile(&cell(&[10, 20, 30])).is_some());
        assert_eq!(percentile(&cell(&[10, 20, 30, 40])), None);
        assert_eq!(Histogram::default().percentile(50, &Cell::EMPTY), None);
    }

    #[test]
    fn longer_steps_are_counted_up_to_a_bucket() {
        // One bucket is 100 to 103 ns.
        let steps = steps(&[10, 100, 101, 103, 200]);
        let longer = |time| steps.of(PLACE).unwrap().longer_than(Nanos(time));
        assert_eq!([9, 10, 99, 101].map(longer), [5..=5, 4..=4, 4..=4, 1..=4]);
        assert_eq!([103, 200, u64::MAX].map(longer), [1..=1, 0..=1, 0..=0]);
    }

    #[test]
    fn steps_at_further_places_are_counted() {
        let mut steps = StepTimes::default();
        for number in 0..PLACES_MAX as u32 + 3 {
            steps.add(NodeId::from_number(number), Nanos(7));
            steps.add(NodeId::from_number(number), Nanos(80));
        }
        assert_eq!((steps.iter().len(), steps.buckets(), steps.refused()), (PLACES_MAX, 2 * PLACES_MAX, 6));
        let mut other = StepTimes::default();
        other.add(NodeId::from_number(5), Nanos(7));
        other.merge(&steps, |node| (node.number() < 10).then_some(node));
        assert_eq!((other.iter().len(), other.buckets(), other.refused()), (10, 20, 6));
    }

    #[test]
    fn the_latest_steps_are_kept_in_their_order() {
        let times: Vec<u64> = (0..LATEST_MAX as u64 + 3).collect();
        let mut steps = steps(&times);
        let latest = |steps: &StepTimes| steps.latest(PLACE).map(|time| time.0).collect::<Vec<_>>();
        assert_eq!(latest(&steps), times[3..]);
        steps.add_steps(PLACE, Nanos(1), 9);
        assert_eq!(latest(&steps), times[3..]);
        // A time without a step makes no place.
        let other = NodeId::from_number(1);
        steps.add_latest(other, Nanos(1));
        assert_eq!((steps.latest(other).count(), steps.of(other)), (0, None));
    }

    #[test]
    fn recent_steps_are_taken_once() {
        let mut all = steps(&[10]);
        assert_eq!(all.recent(), None);
        assert_eq!(all.take_recent(), StepTimes::default());
        all.keep_recent();
        all.add(PLACE, Nanos(20));
        assert_eq!(all.recent(), Some(&steps(&[20])));
        assert_eq!(all.take_recent(), steps(&[20]));
        assert_eq!(all.take_recent(), StepTimes::default());
        assert_eq!(all.of(PLACE).map(Histogram::count), Some(2));
    }

    proptest! {
        #[test]
        fn merging_is_the_same_as_adding_all(a in times(), b in times()) {
            let mut merged = steps(&a);
            merged.merge(&steps(&b), Some);
            let all = steps(&[&a[..], &b[..]].concat());
            prop_assert_eq!(&merged, &all);
            let mut one = steps(&a).of(PLACE).cloned().unwrap();
            one.merge(steps(&b).of(PLACE).unwrap());
            prop_assert_eq!(Some(&one), merged.of(PLACE));
        }

        #[test]
        fn a_percentile_is_within_a_sixteenth_of_the_exact_one(times in times(), percent in 0u64..=100) {
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let rank = (sorted.len() as u64 * percent).div_ceil(100).max(1);
            let exact = sorted[rank as usize - 1];
            let steps = steps(&times);
            let found = steps.of(PLACE).unwrap().percentile(percent, &cell(&times)).unwrap();
            let Bounds { least, most } = found;
            prop_assert!(least.0 <= exact && exact <= most.0, "{found:?} {exact}");
            prop_assert!(most.0 - least.0 <= exact / 16, "{found:?} {exact}");
            prop_assert!(found.middle().0.abs_diff(exact) <= exact / 16, "{found:?} {exact}");
        }

        #[test]
        fn bounds_of_longer_steps_hold_the_exact_count(times in times(), limit in 0u32..64, of in any::<u64>()) {
            let limit = of >> limit;
            let exact = times.iter().filter(|time| **time > limit).count() as u64;
            let bounds = steps(&times).of(PLACE).unwrap().longer_than(Nanos(limit));
            prop_assert!(bounds.contains(&exact), "{bounds:?} {exact}");
        }
    }
}
