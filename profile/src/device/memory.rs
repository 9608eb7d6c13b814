//! Memory of tensors: how much each device held, and what held it at the peak.
//!
//! Owns: each process's memory on each device ([`Pool`]). Because: a program runs out of memory at one moment, and
//! sums over its lifetime do not show what was allocated then. Does not: track allocations (the pipeline does).

use deepctx_common::reasons;
use serde::{Deserialize, Serialize};

use crate::units::Nanos;

reasons! {
    class Gap, page "memory.md";
    /// Not every pool has a row.
    pub const TENSOR_ROWS_LEFT_OUT = "tensor-rows-left-out",
        "processes have no row in the table of tensor memory: those with the largest peaks have one";
}

/// Most pools: some processes on each of many hosts' devices.
pub const POOLS_MAX: usize = 1024;

/// The tensor memory of one process on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pool {
    /// The process, as the profiler sees it.
    pub pid: u32,
    /// The device in the framework's notation: `cpu`, `cuda:0`.
    pub device: String,
    /// Observed allocations.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Of these bytes, those freed.
    pub returned_bytes: u64,
    /// Most bytes live at a time; includes those allocated before the capture as far as the allocator reports them.
    pub peak_bytes: u64,
    /// When that was, since the capture began.
    #[serde(rename = "peak_ns")]
    pub peak_at: Nanos,
    /// Of the peak, bytes whose allocation was not observed.
    pub peak_unseen_bytes: u64,
    /// Bytes reserved by the allocator at the peak; `None` when it does not report them.
    pub peak_reserved_bytes: Option<u64>,
    /// Most bytes reserved by the allocator at a time.
    pub most_reserved_bytes: Option<u64>,
    /// Most bytes reserved by the allocator but not allocated, at a time.
    pub most_unused_bytes: Option<u64>,
    /// When that was, since the capture began.
    #[serde(rename = "most_unused_ns")]
    pub most_unused_at: Nanos,
    /// Requested bytes of the allocations for which they are known.
    pub asked_bytes: u64,
    /// Bytes allocated for them.
    pub given_bytes: u64,
}

/// Keeps the pools with the largest peaks, in their order. Returns how many were removed.
pub fn keep_largest(pools: &mut Vec<Pool>, most: usize) -> u64 {
    let removed = pools.len().saturating_sub(most);
    if removed > 0 {
        let mut order: Vec<usize> = (0..pools.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(pools[at].peak_bytes));
        let mut kept = vec![false; pools.len()];
        order.iter().take(most).for_each(|&at| kept[at] = true);
        let mut kept = kept.into_iter();
        pools.retain(|_| kept.next() == Some(true));
    }
    removed as u64
}

/// The frame below which allocations on a device are counted.
pub fn device_frame(device: &str) -> String {
    format!("[memory] {device}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_with_the_largest_peaks_are_kept() {
        for (peaks, most, expect, removed) in [
            (&[][..], 2, &[][..], 0),
            (&[5, 1], 2, &[5, 1], 0),
            (&[5, 1, 7, 3], 2, &[5, 7], 2),
            (&[4, 4, 4], 1, &[4], 2),
            (&[4], 0, &[], 1),
        ] {
            let pool = |&peak_bytes: &u64| Pool { peak_bytes, ..Pool::default() };
            let mut pools: Vec<Pool> = peaks.iter().map(pool).collect();
            assert_eq!(keep_largest(&mut pools, most), removed, "{peaks:?}");
            assert_eq!(pools.iter().map(|pool| pool.peak_bytes).collect::<Vec<_>>(), expect);
        }
    }
}
