//! The timeline, to and from its table.
//!
//! Owns: what of a timeline is new since the last flush. Because: windows widen while a capture goes on, so what was
//! written is known by its sum and its end, not by its place. Does not: touch files.

use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt32Builder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::ArrowError;

use super::schema::Table;
use super::table::Row;
use crate::metric::Metric;
use crate::timeline::Timeline;
use crate::units::Nanos;

/// How much of a timeline is on disk.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenLanes {
    until_ns: u64,
    /// By place of the lane.
    sums: Vec<u64>,
}

/// Columns of lanes.
#[derive(Default)]
pub(super) struct LaneColumns {
    pub(super) rows: usize,
    node: UInt32Builder,
    metric: StringBuilder,
    from_ns: UInt64Builder,
    to_ns: UInt64Builder,
    sum: UInt64Builder,
}

/// What is new in a timeline since `written`, and what will be written then. `end_ns` is the length of the capture.
pub(super) fn new_rows(
    timeline: &Timeline,
    written: &WrittenLanes,
    end_ns: u64,
) -> (LaneColumns, WrittenLanes) {
    let window = timeline.window().0;
    let first = usize::try_from(written.until_ns / window).unwrap_or(usize::MAX);
    let (mut columns, mut sums) = (LaneColumns::default(), Vec::with_capacity(timeline.lanes().len()));
    for (place, lane) in timeline.lanes().iter().enumerate() {
        let mut given = written.sums.get(place).copied().unwrap_or(0);
        let mut sum = 0u64;
        for (place, value) in lane.values.iter().enumerate() {
            sum = sum.saturating_add(*value);
            // What came late for windows that are written already stands in the first row.
            if place >= first && sum > given {
                let from = (place as u64 * window).max(written.until_ns);
                let to = ((place as u64 + 1) * window).min(end_ns).max(from + 1);
                columns.push(lane.node.number(), lane.metric, (from, to), sum - given);
                given = sum;
            }
        }
        if sum > given {
            columns.push(
                lane.node.number(),
                lane.metric,
                (written.until_ns, written.until_ns + 1),
                sum - given,
            );
        }
        sums.push(sum);
    }
    (columns, WrittenLanes { until_ns: end_ns, sums })
}

impl LaneColumns {
    fn push(&mut self, node: u32, metric: Metric, (from_ns, to_ns): (u64, u64), sum: u64) {
        self.rows += 1;
        self.node.append_value(node);
        self.metric.append_value(metric.name());
        self.from_ns.append_value(from_ns);
        self.to_ns.append_value(to_ns);
        self.sum.append_value(sum);
    }

    pub(super) fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.node.finish()),
            Arc::new(self.metric.finish()),
            Arc::new(self.from_ns.finish()),
            Arc::new(self.to_ns.finish()),
            Arc::new(self.sum.finish()),
        ];
        RecordBatch::try_new(Table::Timeline.schema(), columns)
    }
}

/// A row: node, name of the metric, span, sum.
pub(super) fn lane<'a>(row: &Row<'a>) -> Option<(u32, &'a str, (Nanos, Nanos), u64)> {
    let span = (Nanos(row.u64("from_ns")?), Nanos(row.u64("to_ns")?));
    Some((row.u32("node")?, row.text("metric")?, span, row.u64("sum")?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::NodeId;

    proptest! {
        #[test]
        fn flushes_together_hold_every_value_once(
            values in prop::collection::vec((0u32..3, 0u64..100_000_000_000, 0u64..1000, any::<bool>()), 0..60),
        ) {
            let (mut timeline, mut written) = (Timeline::default(), WrittenLanes::default());
            let (mut sum, mut stored, mut end_ns) = (0, 0, 0);
            let mut flush = |timeline: &Timeline, end_ns| {
                let (mut columns, now) = new_rows(timeline, &written, end_ns);
                stored += columns.sum.values_slice().iter().sum::<u64>();
                for (from, to) in columns.from_ns.values_slice().iter().zip(columns.to_ns.values_slice()) {
                    assert!(from < to && *from >= written.until_ns);
                }
                columns.node.finish();
                written = now;
                stored
            };
            for (node, at, value, flushes) in values {
                timeline.add(NodeId::from_number(node), Metric::CpuTime, Nanos(at), value);
                sum += value;
                end_ns = end_ns.max(at);
                if flushes {
                    prop_assert_eq!(flush(&timeline, end_ns), sum);
                }
            }
            prop_assert_eq!(flush(&timeline, end_ns), sum);
        }
    }
}
