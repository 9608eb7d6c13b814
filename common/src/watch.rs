//! Watches: places in the memory of processes whose use is told, by hardware watchpoints.
//!
//! Owns: what user space tells of each, and what the kernel program counts there. Because: a function of an interpreter is no
//! code of its own that a probe could stand in, but whoever calls it reads its first instruction. Does not: know what is
//! watched, or open watchpoints.

use crate::Plain;

/// Key of the map `WATCHES`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WatchPlace {
    /// The byte that is watched.
    pub address: u64,
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Padding.
    pub reserved: u32,
}

/// Value of `WATCHES[place]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// The object that the byte belongs to: the only argument of its calls.
    pub object: u64,
    /// How often the byte was used, those included whose records were lost. Counted by the kernel program.
    pub hits: u64,
    /// Number of the [`crate::call::Site`] that its calls are of.
    pub site: u32,
    /// Padding.
    pub reserved: u32,
}

/// Most watches at a time: a thread has four, and a machine some hundred processes that train.
pub const WATCHES_MAX: u32 = 1024;

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for WatchPlace {}
// SAFETY: as above.
unsafe impl Plain for Watch {}
