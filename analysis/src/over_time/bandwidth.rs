//! Bandwidth over time: how fast memory is copied at each moment.
//!
//! Owns: [`Bandwidth`]. Because: an average over a run hides that the link is saturated while a batch is copied, and
//! idle before. Does not: know the capacity of a link.
//!
//! A copy moves its bytes evenly between its begin and its end. The window of a rank is divided into equal parts, each
//! with the bytes moved in it. HTA's series (`get_memory_bw_time_series`) instead has a point at each begin and end,
//! with the sum of the bandwidths of all running copies of a name; its maximum is `peak` here.

use deepctx_profile::order::SortRows as _;
use std::collections::BTreeMap;

use deepctx_profile::frame::clean;
use deepctx_profile::trace::{DeviceKind, DeviceOp, TraceTime};
use serde::Serialize;

use super::window::Window;

/// Parts of the window.
const PARTS: u64 = 100;
/// Maximum number of names with a series; traces have one per direction and kind of memory.
const NAMES_MAX: usize = 64;

/// Bandwidth of copies of one name over time, on all devices of a rank together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    /// The rank.
    pub rank: u32,
    /// Their name in the trace.
    pub name: String,
    /// Begin of the first part, from the first event of the trace.
    pub begin_ns: u64,
    /// Length of each part.
    pub part_ns: u64,
    /// Bytes moved in each part; trailing parts without any are left out.
    pub bytes: Vec<u64>,
    /// Peak bandwidth of all running copies, 10⁹ bytes a second: of several devices, the sum of their links.
    pub peak_gb_per_second: f64,
}

impl Bandwidth {
    /// The first part with most bytes: its begin, from the first event of the trace, and its bandwidth, 10⁹ bytes a
    /// second.
    pub fn busiest_part(&self) -> (u64, f64) {
        let most = self.most_bytes();
        let place = self.bytes.iter().position(|bytes| *bytes == most).unwrap_or(0) as u64;
        let begin_ns = self.begin_ns.saturating_add(place.saturating_mul(self.part_ns));
        // Bytes per nanosecond are 10⁹ bytes per second.
        (begin_ns, most as f64 / self.part_ns.max(1) as f64)
    }

    /// The bytes of every part of the window as shares of the most.
    pub fn shares(&self) -> impl Iterator<Item = f64> + '_ {
        let most = self.most_bytes().max(1) as f64;
        let without = (PARTS as usize).saturating_sub(self.bytes.len());
        let parts = self.bytes.iter().copied().chain(std::iter::repeat_n(0, without));
        parts.map(move |bytes| bytes as f64 / most)
    }

    fn most_bytes(&self) -> u64 {
        self.bytes.iter().copied().max().unwrap_or(0)
    }
}

pub(super) fn compute(window: &Window<'_>) -> Vec<Bandwidth> {
    let mut by_name: BTreeMap<&str, Vec<DeviceOp>> = BTreeMap::new();
    for (_, op) in window.device().filter(|(_, op)| op.kind != DeviceKind::Kernel && op.bytes.0 > 0) {
        let name = window.of.trace.name(op.name);
        let known = by_name.len() < NAMES_MAX || by_name.contains_key(name);
        by_name.entry(if known { name } else { "[others]" }).or_default().push(op);
    }
    let begin = window.device().map(|(_, op)| op.begin).min().unwrap_or_default();
    let end = window.device().map(|(_, op)| op.end()).max().unwrap_or_default();
    let part_ns = (end - begin).0.div_ceil(PARTS).max(1);
    let row = |(name, ops): (&str, Vec<DeviceOp>)| Bandwidth {
        rank: window.of.rank,
        name: clean(name),
        begin_ns: (begin - window.of.first_event()).0,
        part_ns,
        bytes: series(&ops, begin, part_ns),
        peak_gb_per_second: peak(&ops, window.of.trace.clock.resolution.0),
    };
    let mut rows: Vec<Bandwidth> = by_name.into_iter().map(row).collect();
    rows.sort_rows_by(|a, b| sum(b).cmp(&sum(a)).then_with(|| a.name.cmp(&b.name)));
    rows
}

fn sum(row: &Bandwidth) -> u64 {
    row.bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// The bytes of each part. The bytes from the begin of an operation up to a moment are rounded down, so the parts add
/// up to its bytes.
fn series(ops: &[DeviceOp], begin: TraceTime, part_ns: u64) -> Vec<u64> {
    let mut parts: Vec<u64> = Vec::new();
    for op in ops {
        let from = (op.begin - begin).0;
        let moved = |until: u64| match op.duration.0 {
            0 => op.bytes.0,
            length => (u128::from(op.bytes.0) * u128::from(until.min(length)) / u128::from(length)) as u64,
        };
        let last = from.saturating_add(op.duration.0.saturating_sub(1)) / part_ns;
        for part in from / part_ns..=last.min(PARTS) {
            let place = part as usize;
            if parts.len() <= place {
                parts.resize(place + 1, 0);
            }
            let (begins, ends) = ((part * part_ns).saturating_sub(from), (part + 1) * part_ns - from);
            let before = if begins == 0 { 0 } else { moved(begins) };
            parts[place] = parts[place].saturating_add(moved(ends) - before);
        }
    }
    parts
}

/// The highest sum of the bandwidths of concurrent operations. One that is shorter than the clock can resolve counts as
/// that long: a copy of 0 µs may have taken almost one.
fn peak(ops: &[DeviceOp], resolution_ns: u64) -> f64 {
    let length = |op: &DeviceOp| op.duration.0.max(resolution_ns).max(1);
    let speed = |op: &DeviceOp| op.bytes.0 as f64 / length(op) as f64;
    let ends = ops.iter().map(|op| (op.begin.as_nanos().saturating_add(length(op)), false, speed(op)));
    let begins = ops.iter().map(|op| (op.begin.as_nanos(), true, speed(op)));
    let mut changes: Vec<(u64, bool, f64)> = begins.chain(ends).collect();
    // Operations do not overlap if one ends as the other begins.
    changes.sort_by_key(|(at, begins, _)| (*at, *begins));
    let (mut now, mut running, mut most) = (0.0, 0_u64, 0.0_f64);
    for (_, begins, speed) in changes {
        running = if begins { running + 1 } else { running.saturating_sub(1) };
        now += if begins { speed } else { -speed };
        if running == 0 {
            // The rounding remainder.
            now = 0.0;
        }
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{Job, text};
    use deepctx_profile::units::Nanos;

    use super::super::{OverTime, Steps};

    #[test]
    fn no_copy_is_faster_than_the_clock_resolves() {
        let mut trace = text::parse("copy 0/7 5..5 Memcpy 2000B\n copy 0/7 9..10 Memcpy 1000B").unwrap();
        trace.clock.resolution = Nanos(1_000);
        let job = Job::new(vec![("a.json".to_owned(), trace)]).unwrap();
        let row = OverTime::compute(&job, Steps::default()).bandwidth.remove(0);
        assert_eq!((row.peak_gb_per_second, row.bytes.iter().sum::<u64>()), (2.0, 3_000));
    }
}
