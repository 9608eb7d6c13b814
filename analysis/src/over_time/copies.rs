//! Copies: bytes and bandwidth.
//!
//! Owns: [`Copies`]. Because: pageable memory and many small copies show in their bandwidth. Does not: add the
//! bandwidth of concurrent copies, as HTA's series does: they do not make a link faster.

use deepctx_profile::order::SortRows as _;
use std::collections::BTreeMap;

use deepctx_profile::trace::{DeviceKind, DeviceOp};
use serde::Serialize;

use super::intervals::Intervals;
use super::window::Window;

/// Copies of one direction, or fills, on all devices of a rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Copies {
    /// The rank.
    pub rank: u32,
    /// Their name in the trace, such as `Memcpy HtoD (Pageable -> Device)`.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Sum of their lengths.
    pub time_ns: u64,
    /// Time in which at least one of them runs.
    pub union_ns: u64,
    /// Bytes over the sum of their lengths, 10⁹ bytes a second; `None` if bytes are unknown.
    pub gb_per_second: Option<f64>,
}

/// Maximum number of names; traces have one per direction and kind of memory.
const NAMES_MAX: usize = 64;

pub(super) fn compute(window: &Window<'_>) -> Vec<Copies> {
    let mut by_name: BTreeMap<&str, Vec<DeviceOp>> = BTreeMap::new();
    for (_, op) in window.device().filter(|(_, op)| op.kind != DeviceKind::Kernel) {
        let name = window.of.trace.name(op.name);
        let known = by_name.len() < NAMES_MAX || by_name.contains_key(name);
        by_name.entry(if known { name } else { "[others]" }).or_default().push(op);
    }
    let row = |(name, ops): (&str, Vec<DeviceOp>)| {
        let bytes: u64 = ops.iter().fold(0, |sum, op| op.bytes.0.saturating_add(sum));
        let time_ns = ops.iter().fold(0, |sum: u64, op| sum.saturating_add(op.duration.0));
        Copies {
            rank: window.of.rank,
            name: deepctx_profile::frame::clean(name),
            count: ops.len() as u64,
            bytes,
            time_ns,
            union_ns: Intervals::of(ops.iter().map(|op| (op.begin, op.end()))).length(),
            // Bytes per nanosecond are 10⁹ bytes per second.
            gb_per_second: (bytes > 0 && time_ns > 0).then(|| bytes as f64 / time_ns as f64),
        }
    };
    let mut rows: Vec<Copies> = by_name.into_iter().map(row).collect();
    rows.sort_rows_by_key(|row| std::cmp::Reverse(row.time_ns));
    rows
}
