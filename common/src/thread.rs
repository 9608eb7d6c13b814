//! State of a thread in the kernel, read at one moment without stopping the thread.
//!
//! Owns: the record that the task iterator writes, and the offsets of fields that only that program reads. Because:
//! both sides must agree. Captures do not need these fields, and must not fail on a kernel that lacks one. Does not:
//! hold a user stack, which user space reads and walks itself.

use crate::Plain;
use crate::record::KERNEL_WORDS_MAX;

/// Limit on general registers of a machine: x0 to x30 of aarch64.
pub const GENERAL_MAX: usize = 32;

/// Number of system call arguments.
pub const SYSTEM_CALL_ARGUMENTS: usize = 6;

/// A thread at the moment at which the iterator visited it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// `task_struct.__state`.
    pub state: u32,
    /// `task_struct.exit_state`.
    pub exit_state: u32,
    /// Bits of [`thread_flag`].
    pub flags: u32,
    /// Number of words in `kernel`.
    pub kernel_words: u32,
    /// Number of times the thread left a CPU, voluntarily or not. If this and the state are unchanged, the thread did
    /// not run.
    pub switches: u64,
    /// When the record was written: `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// When the thread was last switched in, scheduler clock, nanoseconds; 0 if the kernel does not record it.
    pub arrived_ns: u64,
    /// CPU time since it was switched in, nanoseconds.
    pub ran_ns: u64,
    /// When the reading thread was switched in, scheduler clock: relates the two clocks.
    pub reader_arrived_ns: u64,
    /// Thread pointer.
    pub thread_pointer: u64,
    /// Thread name, NUL-padded.
    pub comm: [u8; 16],
    /// Number of the current system call, with [`thread_flag::IN_SYSTEM_CALL`].
    pub system_call: u64,
    /// Arguments of that call.
    pub arguments: [u64; SYSTEM_CALL_ARGUMENTS],
    /// User program counter at kernel entry, with [`thread_flag::REGISTERS`].
    pub pc: u64,
    /// Stack pointer, likewise.
    pub sp: u64,
    /// General registers by DWARF number, likewise.
    pub general: [u64; GENERAL_MAX],
    /// Kernel stack, leaf first.
    pub kernel: [u64; KERNEL_WORDS_MAX],
}

/// Bits of [`Thread::flags`].
pub mod thread_flag {
    /// The thread is on a CPU: its registers date from an earlier kernel entry, and its kernel stack is not read.
    pub const ON_CPU: u32 = 1;
    /// A kernel thread: there is no user space.
    pub const KERNEL_THREAD: u32 = 2;
    /// The thread is in a system call.
    pub const IN_SYSTEM_CALL: u32 = 4;
    /// The record has the registers with which the thread left 64-bit user mode.
    pub const REGISTERS: u32 = 8;
    /// The thread runs 32-bit code.
    pub const COMPAT: u32 = 16;
    /// The kernel stack could not be read.
    pub const NO_KERNEL_STACK: u32 = 32;
}

/// Offsets in bytes within `task_struct` of the fields that only the task iterator reads; 0 for a field that the kernel
/// lacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadFields {
    /// `task_struct.on_cpu`; absent on a uniprocessor kernel, where no other thread can be running.
    pub on_cpu: u32,
    /// `task_struct.exit_state`.
    pub exit_state: u32,
    /// `task_struct.nvcsw`.
    pub voluntary_switches: u32,
    /// `task_struct.nivcsw`.
    pub involuntary_switches: u32,
    /// `task_struct.sched_info.last_arrival`.
    pub arrived: u32,
    /// `task_struct.se.sum_exec_runtime`.
    pub ran: u32,
    /// `task_struct.se.prev_sum_exec_runtime`.
    pub ran_before: u32,
    /// Padding.
    pub reserved: u32,
}

/// Section (and, to the loader, read-only map) of the [`ThreadFields`].
pub const THREAD_FIELDS_SECTION: &str = ".rodata.threads";

/// Name of the program.
pub const THREADS_PROGRAM: &str = "threads";

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for Thread {}
// SAFETY: as above.
unsafe impl Plain for ThreadFields {}
