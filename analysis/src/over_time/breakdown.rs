//! Breakdown: what each device did over time.
//!
//! Owns: [`DeviceTime`]. Because: whether a device waits, computes or communicates is the first question of every
//! trace. Does not: explain why it waits: see [`super::IdleTime`] and [`super::CriticalPath`].
//!
//! Definitions are HTA's (`get_temporal_breakdown`, `get_comm_comp_overlap`): *busy* is the union of all work,
//! *compute* that of kernels that compute, *non-compute* the rest of busy, *idle* the rest of the span from the first
//! begin to the last end. Unlike HTA, synchronisations and host events with a stream are not work, devices are
//! separate, and kernels whose name contains `Memcpy` or `Sync` compute.

use std::collections::BTreeMap;

use deepctx_profile::trace::{DeviceOp, KernelClass};
use serde::Serialize;

use super::intervals::Intervals;
use super::window::Window;

/// Time of one device for one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceTime {
    /// The rank.
    pub rank: u32,
    /// Number of the device.
    pub device: u32,
    /// Kernels.
    pub kernels: u64,
    /// Copies and fills.
    pub copies: u64,
    /// From the first begin to the last end.
    pub span_ns: u64,
    /// Union of all work.
    pub busy_ns: u64,
    /// Span without work.
    pub idle_ns: u64,
    /// Union of kernels that compute.
    pub compute_ns: u64,
    /// Busy without compute.
    pub non_compute_ns: u64,
    /// Union of kernels that communicate.
    pub communication_ns: u64,
    /// Union of copies and fills.
    pub memory_ns: u64,
    /// Time in which one kernel computes and another one communicates.
    pub overlap_ns: u64,
    /// The same, as a share of the communication; `None` without any.
    pub overlap_percent: Option<f64>,
    /// Communication without any other work on the device.
    pub exposed_communication_ns: u64,
    /// Sum of the kernels' lengths: above their union if kernels overlap.
    pub kernel_sum_ns: u64,
}

/// Time of each device.
pub(super) fn compute(window: &Window<'_>) -> Vec<DeviceTime> {
    let mut devices: BTreeMap<u32, Vec<(KernelClass, DeviceOp)>> = BTreeMap::new();
    for (_, op) in window.device() {
        let Some(stream) = window.of.trace.streams().get(op.stream.index()) else { continue };
        let class = KernelClass::of(op.kind, window.name(&op));
        devices.entry(stream.device).or_default().push((class, op));
    }
    devices.into_iter().map(|(device, ops)| of_device(window.of.rank, device, &ops)).collect()
}

fn of_device(rank: u32, device: u32, ops: &[(KernelClass, DeviceOp)]) -> DeviceTime {
    let times = |of: KernelClass| ops.iter().filter(move |(class, _)| *class == of);
    let union = |of: KernelClass| Intervals::of(times(of).map(|(_, op)| (op.begin, op.end())));
    let [compute, communication, memory] =
        [KernelClass::Compute, KernelClass::Communication, KernelClass::Memory].map(union);
    let busy = Intervals::of(ops.iter().map(|(_, op)| (op.begin, op.end()))).length();
    let first = ops.iter().map(|(_, op)| op.begin).min().unwrap_or_default();
    let last = ops.iter().map(|(_, op)| op.end()).max().unwrap_or_default();
    let span = (last - first).0;
    let overlap = compute.and(&communication).length();
    let copies = times(KernelClass::Memory).count() as u64;
    let kernels = ops.iter().filter(|(class, _)| *class != KernelClass::Memory);
    DeviceTime {
        rank,
        device,
        kernels: ops.len() as u64 - copies,
        copies,
        span_ns: span,
        busy_ns: busy,
        idle_ns: span - busy,
        compute_ns: compute.length(),
        non_compute_ns: busy - compute.length(),
        communication_ns: communication.length(),
        memory_ns: memory.length(),
        overlap_ns: overlap,
        overlap_percent: percent(overlap, communication.length()),
        exposed_communication_ns: communication.without(&compute).without(&memory).length(),
        kernel_sum_ns: kernels.fold(0, |sum: u64, (_, op)| sum.saturating_add(op.duration.0)),
    }
}

/// A share in percent; `None` of nothing.
pub(super) fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}
