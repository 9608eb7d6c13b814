//! Per-process state that user space fills in and the walkers read.

use crate::Plain;
use crate::python::PythonProcess;

/// Value of `PROCESSES[pid]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The mappings of the process are `MAPPINGS[mappings_base ..][.. mappings]`, sorted by `begin`.
    pub mappings_base: u32,
    /// Number of mappings.
    pub mappings: u32,
    /// Grows with each update of the entry, so that user space knows which address space a walk used. Never 0.
    pub generation: u32,
    /// Padding.
    pub reserved: u32,
    /// The interpreter in this process.
    pub python: PythonProcess,
}

/// Value of `TARGETS[pid]`: the process is sampled.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Bits of [`target_flag`].
    pub flags: u32,
}

/// Value of `BLOCKED[tid]`: a thread that is off its CPU. The key is the thread's id in the initial pid namespace.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// When the thread left its CPU, `CLOCK_MONOTONIC` nanoseconds.
    pub began_ns: u64,
    /// Process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// One of [`crate::record::wake_stack`].
    pub stack: u32,
    /// One of [`crate::record::waker`].
    pub waker: u32,
    /// When the thread was woken, `CLOCK_MONOTONIC` nanoseconds; 0 until then.
    pub woken_ns: u64,
    /// Process of the waking thread, in the pid namespace of the profiler; 0 for none.
    pub waker_pid: u32,
    /// Id of the waking thread, likewise.
    pub waker_tid: u32,
}

/// Limit on off-CPU stacks that a CPU walks per second: at 5 to 10 µs each, at most one percent of its time.
pub const WAITS_WALKED_PER_SECOND: u32 = 1000;

/// Limit on threads off their CPUs at a time: 64 Ki entries of 40 bytes.
pub const BLOCKED_MAX: u32 = 1 << 16;

/// Bits of [`Target::flags`].
pub mod target_flag {
    /// Children become targets too.
    pub const FOLLOW: u32 = 1;
}

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for Process {}
// SAFETY: as above.
unsafe impl Plain for Target {}
// SAFETY: as above.
unsafe impl Plain for Blocked {}
