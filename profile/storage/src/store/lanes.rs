//! The timeline, to and from its table.
//!
//! Owns: what of a timeline is new since the last flush. Because: windows widen while a capture goes on, and values
//! come for windows that are written already: a wait is known when it is over. Does not: touch files.

use std::iter;

use super::batch::{Batch, Row};
use super::columns::Table;
use super::schema::Window;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::timeline::Timeline;
use deepctx_profile::units::Nanos;

/// The part of a timeline that is on disk: as large as the timeline itself, which is bounded.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenLanes {
    /// Length of a window at that time, nanoseconds.
    pub(super) window_ns: u64,
    /// By index of the lane, by window.
    values: Vec<Vec<u64>>,
}

impl WrittenLanes {
    /// Bytes in memory.
    pub(super) fn held_bytes(&self) -> usize {
        let lanes = self.values.iter().map(|values| size_of_val(&**values));
        lanes.sum::<usize>() + self.values.capacity() * size_of::<Vec<u64>>()
    }

    /// How many of these windows fit in a window of a timeline now: windows only ever double.
    fn per_window(&self, window_ns: u64) -> usize {
        usize::try_from(window_ns / self.window_ns.max(1)).unwrap_or(usize::MAX).max(1)
    }

    /// The written values of a lane, in windows `factor` times as wide.
    fn lane(&self, place: usize, factor: usize, metric: Metric) -> impl Iterator<Item = u64> {
        let values = self.values.get(place).map_or(&[][..], |values| values);
        values.chunks(factor).map(move |values| values.iter().fold(0, |a, b| metric.join(a, *b)))
    }
}

/// New rows of a timeline since `written`, and the state after writing them. `end_ns` is the length of the capture.
pub(super) fn new_rows(timeline: &Timeline, written: &WrittenLanes, end_ns: u64) -> (Batch, WrittenLanes) {
    let window_ns = timeline.window().0;
    let factor = written.per_window(window_ns);
    let (mut rows, mut values) = (Batch::new(Table::Timeline), Vec::with_capacity(timeline.lanes().len()));
    for (place, lane) in timeline.lanes().iter().enumerate() {
        let given = written.lane(place, factor, lane.metric).chain(iter::repeat(0));
        for (window, (value, given)) in (0u64..).zip(lane.values.iter().zip(given)) {
            if *value > given {
                let from = window * window_ns;
                let to = (from + window_ns).min(end_ns).max(from + 1);
                // New is the increase of a sum, or another value of a level.
                let new = if lane.metric.is_level() { *value } else { value - given };
                push(&mut rows, lane.node.number(), lane.metric, Window { from_ns: from, to_ns: to }, new);
            }
        }
        values.push(lane.values.clone());
    }
    (rows, WrittenLanes { window_ns, values })
}

/// Adds a row.
pub(super) fn push(to: &mut Batch, node: u32, metric: Metric, window: Window, sum: u64) {
    let Window { from_ns, to_ns } = window;
    to.push([node.into(), metric.name().into(), from_ns.into(), to_ns.into(), sum.into()]);
}

/// A row: node, metric name, span, sum.
pub(super) fn lane<'a>(row: &Row<'a>) -> Option<(u32, &'a str, (Nanos, Nanos), u64)> {
    let span = (Nanos(row.u64("from_ns")?), Nanos(row.u64("to_ns")?));
    Some((row.u32("node")?, row.text("metric")?, span, row.u64("sum")?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use deepctx_profile::tree::NodeId;

    /// Node, start, end and sum of each new row.
    fn flush(timeline: &Timeline, written: &mut WrittenLanes, end_ns: u64) -> Vec<(u32, u64, u64, u64)> {
        let (rows, now) = new_rows(timeline, written, end_ns);
        *written = now;
        let of = |row: Row<'_>| {
            let (node, _, (from, to), sum) = lane(&row).unwrap();
            (node, from.0, to.0, sum)
        };
        rows.iter().map(of).collect()
    }

    fn rebuilt(rows: &[(u32, u64, u64, u64)]) -> Timeline {
        let mut timeline = Timeline::default();
        for &(node, from, to, sum) in rows {
            let node = NodeId::from_number(node);
            timeline.add_span(node, Metric::CpuTime, Nanos(from), Nanos(to), sum);
        }
        timeline
    }

    #[test]
    fn what_comes_late_stands_where_it_belongs() {
        let (mut timeline, mut written) = (Timeline::default(), WrittenLanes::default());
        let (node, ms) = (NodeId::from_number(1), 1_000_000);
        timeline.add(node, Metric::CpuTime, Nanos(450 * ms), 7);
        let mut rows = flush(&timeline, &mut written, 460 * ms);
        timeline.add(node, Metric::CpuTime, Nanos(50 * ms), 5);
        timeline.add(node, Metric::CpuTime, Nanos(470 * ms), 1);
        rows.extend(flush(&timeline, &mut written, 800 * ms));
        let [late, more] = [(1, 0, 100 * ms, 5), (1, 400 * ms, 500 * ms, 1)];
        assert_eq!(rows, [(1, 400 * ms, 460 * ms, 7), late, more]);
        assert_eq!(flush(&timeline, &mut written, 900 * ms), []);
    }

    proptest! {
        #[test]
        fn flushes_together_are_the_timeline(
            values in prop::collection::vec((0u32..3, 0u64..100_000_000_000, 0u64..1000, any::<bool>()), 0..60),
        ) {
            let (mut timeline, mut written) = (Timeline::default(), WrittenLanes::default());
            let (mut rows, mut end_ns) = (Vec::new(), 0);
            for (node, at, value, flushes) in values {
                timeline.add(NodeId::from_number(node), Metric::CpuTime, Nanos(at), value);
                end_ns = end_ns.max(at);
                if flushes {
                    rows.extend(flush(&timeline, &mut written, end_ns));
                }
            }
            rows.extend(flush(&timeline, &mut written, end_ns));
            let lanes = |timeline: &Timeline| {
                let mut lanes: Vec<_> = timeline
                    .lanes()
                    .iter()
                    .map(|lane| {
                        let last = lane.values.iter().rposition(|value| *value > 0);
                        (lane.node.number(), lane.values[..last.map_or(0, |last| last + 1)].to_vec())
                    })
                    .filter(|(_, values)| !values.is_empty())
                    .collect();
                lanes.sort();
                lanes
            };
            let again = rebuilt(&rows);
            // Empty values widen windows too, and are not stored.
            if again.window() == timeline.window() {
                prop_assert_eq!(lanes(&again), lanes(&timeline));
            }
            prop_assert_eq!(
                rows.iter().map(|row| row.3).sum::<u64>(),
                timeline.lanes().iter().flat_map(|lane| &lane.values).sum::<u64>()
            );
        }
    }
}
