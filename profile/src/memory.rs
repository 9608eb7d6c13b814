//! Memory of tensors: how much there was on each device, and who had it when there was most.
//!
//! Owns: what is known of each process's memory on each device ([`Pool`]). Because: a program that runs out of memory does so
//! at one moment, and the sums over its life do not tell who had what then. Does not: follow allocations (the pipeline does).

use serde::{Deserialize, Serialize};

/// Pools that are kept: some processes on each of many hosts' devices.
pub const POOLS_MAX: usize = 1024;

/// The memory of tensors of one process on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pool {
    /// The process, as the profiler sees it.
    pub pid: u32,
    /// The device as the framework calls it: `cpu`, `cuda:0`.
    pub device: String,
    /// Allocations that were seen.
    pub allocations: u64,
    /// Bytes of them.
    pub allocated_bytes: u64,
    /// Of these bytes, those that were given back.
    pub returned_bytes: u64,
    /// Most bytes that were live at a time, those that were allocated before the capture among them as far as the allocator
    /// tells.
    pub peak_bytes: u64,
    /// When that was: nanoseconds since the capture began.
    pub peak_ns: u64,
    /// Of the peak, bytes whose allocation was not seen.
    pub peak_unseen_bytes: u64,
    /// Bytes that the allocator held at the peak; `None` where it does not tell.
    pub peak_reserved_bytes: Option<u64>,
    /// Most bytes that the allocator held at a time.
    pub most_reserved_bytes: Option<u64>,
    /// Most bytes that the allocator held and nobody had, at a time.
    pub most_unused_bytes: Option<u64>,
    /// When that was: nanoseconds since the capture began.
    pub most_unused_ns: u64,
    /// Bytes that were asked for, of those allocations of which that is known.
    pub asked_bytes: u64,
    /// Bytes that were given for them.
    pub given_bytes: u64,
}

/// The frame at which allocations on a device stand.
pub fn device_frame(device: &str) -> String {
    format!("[memory] {device}")
}
