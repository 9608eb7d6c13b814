//! Memory of tensors: how much each device held, and what held it at the peak.
//!
//! Owns: each process's memory on each device ([`Pool`]). Because: a program runs out of memory at one moment, and
//! sums over its lifetime do not show what was allocated then. Does not: track allocations (the pipeline does).

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

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

/// The frame below which allocations on a device are counted.
pub fn device_frame(device: &str) -> String {
    format!("[memory] {device}")
}
