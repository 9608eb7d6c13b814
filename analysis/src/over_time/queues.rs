//! Queues: how much work waits on each stream.
//!
//! Owns: [`Queue`]. Because: a queue that never fills starves its stream, and one that is always full blocks the host.
//! Does not: know the capacity of a queue, which drivers do not document.
//!
//! The length grows by one when a call queues an operation and shrinks by one when the operation begins (HTA:
//! `get_queue_length_summary`). HTA knows eleven calls by name; here, all launched work counts, once per operation, and
//! work without a launch is left out on both sides, so no length is below 0.

use deepctx_profile::order::SortRows as _;
use serde::Serialize;

use super::window::Window;

/// Lengths of the queue of one stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Queue {
    /// The rank.
    pub rank: u32,
    /// Number of the device.
    pub device: u32,
    /// Number of the stream.
    pub stream: Option<u64>,
    /// Changes of the length: two for each operation.
    pub changes: u64,
    /// Mean over the changes, which is HTA's.
    pub mean_of_changes: f64,
    /// Mean over time, from the first change to the last.
    pub mean: f64,
    /// Longest.
    pub max: u64,
    /// Operations left out, since their launch is unknown.
    pub without_launch: u64,
}

pub(super) fn compute(window: &Window<'_>) -> Vec<Queue> {
    let (trace, links) = (&window.of.trace, &window.of.links);
    let mut rows = Vec::new();
    for (number, ops) in window.streams() {
        let Some(stream) = trace.streams().get(number).filter(|_| !ops.is_empty()) else { continue };
        let mut row =
            Queue { rank: window.of.rank, device: stream.device, stream: stream.stream, ..Queue::default() };
        let mut changes: Vec<(u64, i8)> = Vec::new();
        for (id, op) in ops {
            let Some(call) = links.launch(id).call().and_then(|call| trace.host.get(call)) else {
                row.without_launch += 1;
                continue;
            };
            // Clocks that disagree must not let work begin before it is queued.
            let queued = call.begin.min(op.begin).as_nanos();
            changes.extend([(queued, 1), (op.begin.as_nanos(), -1)]);
        }
        // If one operation is queued as another begins, it counts as queued before.
        changes.sort_unstable_by_key(|(time, change)| (*time, -change));
        row.changes = changes.len() as u64;
        summarise(&mut row, &changes);
        rows.push(row);
    }
    rows.sort_rows_by_key(|row| (row.device, row.stream));
    rows
}

fn summarise(row: &mut Queue, changes: &[(u64, i8)]) {
    let (mut length, mut sum, mut area) = (0i64, 0i64, 0i128);
    for (at, (time, change)) in changes.iter().enumerate() {
        length += i64::from(*change);
        sum += length;
        row.max = row.max.max(u64::try_from(length).unwrap_or(0));
        let next = changes.get(at + 1).map_or(*time, |(next, _)| *next);
        area += i128::from(length) * i128::from(next - time);
    }
    let [Some((first, _)), Some((last, _))] = [changes.first(), changes.last()] else { return };
    row.mean_of_changes = sum as f64 / changes.len() as f64;
    row.mean = if last > first { area as f64 / (last - first) as f64 } else { 0.0 };
}
