//! What the kernel keeps of a thread, read at one moment without stopping it.
//!
//! Owns: the record that the iterator over tasks writes, and where the kernel keeps what only that program reads.
//! Because: both sides must agree, and captures neither need these fields nor should fail where a kernel lacks one.
//! Does not: hold a user stack, which user space reads and walks itself.

use crate::Plain;
use crate::record::KERNEL_WORDS_MAX;

/// Most general registers of a machine: x0 to x30 of aarch64.
pub const GENERAL_MAX: usize = 32;

/// Arguments of a system call.
pub const SYSTEM_CALL_ARGUMENTS: usize = 6;

/// A thread at the moment at which the iterator came to it.
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
    /// How often it left a CPU, of its own accord or not: while that and its state are the same, it did not run.
    pub switches: u64,
    /// When this was read: `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// When it last came to a CPU, on the clock of the scheduler, nanoseconds; 0 when the kernel does not say.
    pub arrived_ns: u64,
    /// How long it then ran, nanoseconds.
    pub ran_ns: u64,
    /// When the thread that reads this came to its CPU, on the clock of the scheduler: relates the two clocks.
    pub reader_arrived_ns: u64,
    /// Its thread pointer.
    pub thread_pointer: u64,
    /// Its name, NUL-padded.
    pub comm: [u8; 16],
    /// Number of the system call that it is in, with [`thread_flag::IN_SYSTEM_CALL`].
    pub system_call: u64,
    /// Arguments of that call.
    pub arguments: [u64; SYSTEM_CALL_ARGUMENTS],
    /// Program counter with which it entered the kernel, with [`thread_flag::REGISTERS`].
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
    /// It is on a CPU: its registers are those of an earlier moment, and its kernel stack is not read.
    pub const ON_CPU: u32 = 1;
    /// It has no user space.
    pub const KERNEL_THREAD: u32 = 2;
    /// It is in a system call.
    pub const IN_SYSTEM_CALL: u32 = 4;
    /// The registers with which it left 64-bit user mode are there.
    pub const REGISTERS: u32 = 8;
    /// It runs 32-bit code.
    pub const COMPAT: u32 = 16;
    /// The kernel stack could not be read.
    pub const NO_KERNEL_STACK: u32 = 32;
}

/// Where the kernel keeps what only the iterator reads: bytes within `task_struct`, 0 for a field that it lacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadFields {
    /// `task_struct.on_cpu`; a kernel for one CPU lacks it, and then no other thread runs.
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
