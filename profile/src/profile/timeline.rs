//! The timeline: values over time, in windows that widen as the capture proceeds.
//!
//! Owns: [`Timeline`]. Because: a tree shows where time went but not when, and keeping each sample's time would cost
//! more than the tree. Does not: know stacks; a lane is one context (a thread today, a GPU stream if there are any)
//! and one metric.
//!
//! Every lane has the same windows. When the last window is full, all windows double in width, neighbors are summed,
//! and the upper half becomes free again: memory is bounded, and a timeline always covers the whole capture.

use deepctx_common::memory::table_bytes;
use rustc_hash::FxHashMap;

use crate::metric::Metric;
use crate::tree::NodeId;
use crate::units::Nanos;

/// Windows of a lane: more than a wide screen has columns, and still 4 KiB.
pub const WINDOWS_MAX: usize = 512;
/// Lanes: with all their windows 8 MiB. A training process has some hundred threads.
pub const LANES_MAX: usize = 2048;
/// Width of the first windows: at 99 Hz ten samples of a busy thread.
const FIRST_WINDOW: Nanos = Nanos(100_000_000);
/// Times further from the start than this are errors (a clock that jumped, a damaged file): windows wide enough for
/// them would put everything else into one.
const FARTHEST: Nanos = Nanos(365 * 24 * 3600 * 1_000_000_000);

/// Values by time, lane by lane.
#[derive(Clone, Debug)]
pub struct Timeline {
    window: Nanos,
    lanes: Vec<Lane>,
    by_key: FxHashMap<(NodeId, Metric), u32>,
    no_lane: u64,
    too_far: u64,
    /// A second copy of the latest values, in windows that stay narrow; `None` if not requested.
    recent: Option<Box<LatestValues>>,
}

/// The latest values of a timeline.
#[derive(Clone, Debug, Default)]
struct LatestValues {
    /// Begin of its first window, since the capture began. Earlier values are dropped.
    origin: Nanos,
    values: Timeline,
}

/// The values of one metric in one context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The context: its values and those of all below it.
    pub node: NodeId,
    /// The metric.
    pub metric: Metric,
    /// Value by window.
    pub values: Vec<u64>,
}

impl Default for Timeline {
    fn default() -> Self {
        let (lanes, by_key) = (Vec::new(), FxHashMap::default());
        Timeline { window: FIRST_WINDOW, lanes, by_key, no_lane: 0, too_far: 0, recent: None }
    }
}

impl Timeline {
    /// Adds a value at a time since the capture began.
    #[inline]
    pub fn add(&mut self, node: NodeId, metric: Metric, at: Nanos, value: u64) {
        self.put(node, metric, at, value);
        if let Some(recent) = &mut self.recent
            && at >= recent.origin
        {
            recent.values.put(node, metric, Nanos(at.0 - recent.origin.0), value);
        }
    }

    #[inline]
    fn put(&mut self, node: NodeId, metric: Metric, at: Nanos, value: u64) {
        let Some(place) = self.window_of(at) else {
            self.too_far = self.too_far.saturating_add(1);
            return;
        };
        let Some(lane) = self.lane(node, metric) else {
            self.no_lane = self.no_lane.saturating_add(1);
            return;
        };
        if place >= lane.values.len() {
            lane.values.resize(place + 1, 0);
        }
        lane.values[place] = metric.join(lane.values[place], value);
    }

    /// Adds a value spread evenly over a span of time; a level applies to all of it.
    pub fn add_span(&mut self, node: NodeId, metric: Metric, from: Nanos, to: Nanos, value: u64) {
        self.put_span(node, metric, Span { from, to }, value);
        if let Some(recent) = &mut self.recent
            && to >= recent.origin
        {
            let (span, value) = metric.since(recent.origin, Span { from, to }, value);
            recent.values.put_span(node, metric, span, value);
        }
    }

    /// From now on, also keeps the latest values in separate windows, until [`Timeline::forget_before`].
    pub fn keep_recent(&mut self) {
        self.recent = Some(Box::default());
    }

    /// Drops the latest values that are older than this, in whole windows.
    pub fn forget_before(&mut self, at: Nanos) {
        let Some(recent) = &mut self.recent else { return };
        let window = recent.values.window.0;
        let windows = at.0.saturating_sub(recent.origin.0) / window;
        recent.origin.0 += windows * window;
        recent.values.forget(usize::try_from(windows).unwrap_or(usize::MAX));
    }

    /// The latest values as a timeline that begins at `start`; `node` maps their contexts to contexts there. Without
    /// [`Timeline::keep_recent`] it is empty.
    pub fn recent_since(&self, start: Nanos, mut node: impl FnMut(NodeId) -> NodeId) -> Timeline {
        let mut since = Timeline::default();
        let Some(recent) = &self.recent else { return since };
        let window = recent.values.window.0;
        for lane in &recent.values.lanes {
            let here = node(lane.node);
            let begin = |place: usize| Nanos(recent.origin.0 + place as u64 * window);
            for (place, &value) in lane.values.iter().enumerate().filter(|(_, value)| **value > 0) {
                let (from, to) = (begin(place), begin(place + 1));
                if to > start {
                    let (span, value) = lane.metric.since(start, Span { from, to }, value);
                    since.put_span(here, lane.metric, span, value);
                }
            }
        }
        (since.no_lane, since.too_far) = recent.values.refused();
        since
    }

    /// Drops the first windows of every lane, and lanes without any others.
    fn forget(&mut self, windows: usize) {
        if windows == 0 {
            return;
        }
        for lane in &mut self.lanes {
            lane.values.drain(..windows.min(lane.values.len()));
        }
        self.lanes.retain(|lane| lane.values.iter().any(|value| *value > 0));
        let numbered = (0u32..).zip(&self.lanes);
        self.by_key = numbered.map(|(number, lane)| ((lane.node, lane.metric), number)).collect();
        (self.no_lane, self.too_far) = (0, 0);
    }

    fn put_span(&mut self, node: NodeId, metric: Metric, span: Span, value: u64) {
        let Span { from, to } = span;
        // The end first: windows that become wider must not do so in the middle.
        if to <= from || self.window_of(to).is_none() {
            return self.put(node, metric, from, value);
        }
        if metric.is_level() {
            return self.put_level(node, metric, from, to, value);
        }
        let length = u128::from(to.0 - from.0);
        let mut given = 0;
        let mut at = from.0;
        while at < to.0 {
            let next = (at / self.window.0 + 1).saturating_mul(self.window.0).min(to.0);
            let until_next = u128::from(value) * u128::from(next - from.0) / length;
            let until_next = u64::try_from(until_next).unwrap_or(value);
            if until_next > given {
                self.put(node, metric, Nanos(at), until_next - given);
            }
            (given, at) = (until_next, next);
        }
    }

    fn put_level(&mut self, node: NodeId, metric: Metric, from: Nanos, to: Nanos, value: u64) {
        let last = Nanos(to.0 - 1);
        // The end first, as above.
        let (Some(end), Some(begin)) = (self.window_of(last), self.window_of(from)) else { return };
        for window in begin..=end {
            self.put(node, metric, Nanos(window as u64 * self.window.0), value);
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let values = |lane: &Lane| lane.values.capacity() * size_of::<u64>();
        self.lanes.capacity() * size_of::<Lane>()
            + self.lanes.iter().map(values).sum::<usize>()
            + table_bytes(self.by_key.capacity(), size_of::<((NodeId, Metric), u32)>())
            + self.recent.as_ref().map_or(0, |recent| recent.values.bytes())
    }

    /// Length of a window.
    pub fn window(&self) -> Nanos {
        self.window
    }

    /// All lanes, in the order of their first values.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Windows in use, by the longest lane.
    pub fn windows(&self) -> usize {
        self.lanes.iter().map(|lane| lane.values.len()).max().unwrap_or(0)
    }

    /// Values without room for a lane, and values whose time is too far from the start.
    pub fn refused(&self) -> (u64, u64) {
        (self.no_lane, self.too_far)
    }

    /// Adds another timeline with the same start; `node` maps its contexts to contexts here.
    pub fn merge(&mut self, other: &Timeline, mut node: impl FnMut(NodeId) -> NodeId) {
        for lane in &other.lanes {
            let here = node(lane.node);
            for (place, &value) in (0u64..).zip(&lane.values) {
                if value > 0 {
                    let from = Nanos(place * other.window.0);
                    self.add_span(here, lane.metric, from, Nanos(from.0 + other.window.0), value);
                }
            }
        }
        self.no_lane = self.no_lane.saturating_add(other.no_lane);
        self.too_far = self.too_far.saturating_add(other.too_far);
    }

    /// The window of a time; widens windows until there is one.
    #[inline]
    fn window_of(&mut self, at: Nanos) -> Option<usize> {
        let place = at.0 / self.window.0;
        if place < WINDOWS_MAX as u64 { Some(place as usize) } else { self.widen(at) }
    }

    #[cold]
    fn widen(&mut self, at: Nanos) -> Option<usize> {
        if at > FARTHEST {
            return None;
        }
        while at.0 / self.window.0 >= WINDOWS_MAX as u64 {
            self.window = Nanos(self.window.0 * 2);
            for lane in &mut self.lanes {
                let pairs = lane.values.chunks(2);
                lane.values = pairs.map(|pair| pair.iter().fold(0, |a, b| lane.metric.join(a, *b))).collect();
            }
        }
        Some((at.0 / self.window.0) as usize)
    }

    #[inline]
    fn lane(&mut self, node: NodeId, metric: Metric) -> Option<&mut Lane> {
        let next = self.lanes.len();
        let place = match self.by_key.get(&(node, metric)) {
            Some(&place) => place as usize,
            None if next < LANES_MAX => {
                self.by_key.insert((node, metric), next as u32);
                self.lanes.push(Lane { node, metric, values: Vec::new() });
                next
            }
            None => return None,
        };
        self.lanes.get_mut(place)
    }
}

/// From when to when, since the capture began.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Nanos,
    to: Nanos,
}

impl Metric {
    /// The part of a span from `start` on, relative to it, and that part of its value.
    fn since(self, start: Nanos, span: Span, value: u64) -> (Span, u64) {
        let Span { from, to } = span;
        let after = |at: Nanos| Nanos(at.0.saturating_sub(start.0));
        let span = Span { from: after(from), to: after(to) };
        if self.is_level() || from >= start || to <= from {
            return (span, value);
        }
        let part = u128::from(value) * u128::from(span.to.0) / u128::from(to.0 - from.0);
        (span, u64::try_from(part).unwrap_or(value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CPU: Metric = Metric::CpuTime;

    fn node(number: u32) -> NodeId {
        NodeId::from_number(number)
    }

    fn ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    #[test]
    fn values_are_in_the_window_of_their_time() {
        let mut timeline = Timeline::default();
        timeline.add(node(1), CPU, ms(0), 1);
        timeline.add(node(1), CPU, ms(99), 2);
        timeline.add(node(1), CPU, ms(250), 4);
        timeline.add(node(2), CPU, ms(100), 8);
        let lanes: Vec<_> = timeline.lanes().iter().map(|lane| lane.values.as_slice()).collect();
        assert_eq!(lanes, [&[3, 0, 4][..], &[0, 8]]);
    }

    #[test]
    fn windows_widen_and_keep_their_sums() {
        let mut timeline = Timeline::default();
        for second in 0..100 {
            timeline.add(node(1), CPU, Nanos(second * 1_000_000_000), 1);
        }
        assert_eq!(timeline.window(), ms(200));
        assert_eq!(timeline.lanes()[0].values.iter().sum::<u64>(), 100);
        timeline.add(node(1), CPU, Nanos(u64::MAX), 1);
        assert_eq!((timeline.window(), timeline.refused()), (ms(200), (0, 1)));
    }

    #[test]
    fn a_span_is_spread_over_its_windows() {
        let mut timeline = Timeline::default();
        timeline.add_span(node(1), CPU, ms(50), ms(250), 100);
        assert_eq!(timeline.lanes()[0].values, [25, 50, 25]);
        timeline.add_span(node(1), CPU, ms(250), ms(250), 7);
        assert_eq!(timeline.lanes()[0].values, [25, 50, 32]);
    }

    #[test]
    fn a_window_of_a_level_has_the_highest_value() {
        let mut timeline = Timeline::default();
        timeline.add_span(node(1), Metric::LiveBytes, ms(50), ms(250), 100);
        timeline.add_span(node(1), Metric::LiveBytes, ms(250), ms(300), 70);
        timeline.add(node(1), Metric::LiveBytes, ms(310), 40);
        assert_eq!(timeline.lanes()[0].values, [100, 100, 100, 40]);
        timeline.add(node(2), CPU, Nanos(60_000_000_000), 1);
        assert_eq!((timeline.window(), &timeline.lanes()[0].values[..]), (ms(200), &[100, 100][..]));
        let mut other = Timeline::default();
        other.add_span(node(1), Metric::LiveBytes, ms(250), ms(500), 70);
        timeline.merge(&other, |node| node);
        assert_eq!(timeline.lanes()[0].values, [100, 100, 70]);
    }

    #[test]
    fn latest_values_stay_in_narrow_windows_and_are_forgotten() {
        let mut timeline = Timeline::default();
        timeline.keep_recent();
        for second in 0..1000u64 {
            timeline.add(node(1), CPU, ms(second * 1000), 1);
            timeline.forget_before(ms((second * 1000).saturating_sub(10_000)));
        }
        timeline.add(node(2), CPU, ms(5), 7);
        // Half of it is before the kept part.
        timeline.add_span(node(3), CPU, ms(979_000), ms(999_000), 20);
        assert!(timeline.window() > ms(1000));
        let recent = timeline.recent_since(ms(995_000), |node| node);
        assert!(recent.window() <= ms(200), "{:?}", recent.window());
        let sum = |number| {
            let lane = recent.lanes().iter().find(|lane| lane.node == node(number));
            lane.map(|lane| lane.values.iter().sum::<u64>())
        };
        assert_eq!((sum(1), sum(2), sum(3)), (Some(5), None, Some(4)));
        timeline.forget_before(ms(2_000_000));
        assert!(timeline.recent_since(ms(0), |node| node).lanes().is_empty());
    }

    #[test]
    fn lanes_beyond_the_bound_are_counted() {
        let mut timeline = Timeline::default();
        for number in 0..LANES_MAX as u32 + 5 {
            timeline.add(node(number), CPU, ms(1), 1);
        }
        assert_eq!((timeline.lanes().len(), timeline.refused()), (LANES_MAX, (5, 0)));
    }

    proptest! {
        #[test]
        fn sums_stay_the_same(
            values in prop::collection::vec((0u32..4, 0u64..400_000_000_000, 0u64..5_000_000_000, 0u64..1000), 0..80),
        ) {
            let (mut all, mut half) = (Timeline::default(), Timeline::default());
            let mut sum = 0;
            for (place, &(lane, from, length, value)) in values.iter().enumerate() {
                let timeline = if place % 2 == 0 { &mut all } else { &mut half };
                timeline.add_span(node(lane), CPU, Nanos(from), Nanos(from + length), value);
                sum += value;
            }
            all.merge(&half, |node| node);
            let total: u64 = all.lanes().iter().flat_map(|lane| &lane.values).sum();
            prop_assert_eq!(total, sum);
            prop_assert!(all.windows() <= WINDOWS_MAX);
        }
    }
}
