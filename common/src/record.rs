//! Records: what `ebpf/emit` writes into the ring buffer and `pipeline/decode` reads.
//!
//! ```text
//! ┌───────────────┬──────────────────────────┬───────────────────────┬─────────────────────┐
//! │ RecordHeader  │ rest of StackSample      │ kernel words (u64 pc) │ user words (tagged) │
//! └───────────────┴──────────────────────────┴───────────────────────┴─────────────────────┘
//!   24 bytes        fixed                      kernel_words × 8        user_words × 8
//! ```

use crate::Plain;

/// First bytes of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHeader {
    /// Bytes of the whole record, this header included.
    pub size: u32,
    /// One of [`kind`].
    pub kind: u16,
    /// CPU that wrote the record.
    pub cpu: u16,
    /// Number of emission attempts on this CPU, starting at 1. A dropped record uses up its number, so a gap between
    /// two records of one CPU is exactly the number of records lost there.
    pub sequence: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds (`bpf_ktime_get_ns`).
    pub time_ns: u64,
}

/// Values of [`RecordHeader::kind`].
pub mod kind {
    /// [`super::StackSample`].
    pub const SAMPLE: u16 = 1;
    /// [`super::ProcessEvent`]: a process (not a thread) was forked.
    pub const FORK: u16 = 2;
    /// [`super::ProcessEvent`]: a process executed a new program.
    pub const EXEC: u16 = 3;
    /// [`super::ProcessEvent`]: the last thread of a process exited.
    pub const EXIT: u16 = 4;
    /// [`super::StackSample`]: a thread left its CPU, blocked or preempted; `period` is the time at which it left.
    pub const BLOCK: u16 = 5;
    /// [`super::Wake`]: that thread runs again.
    pub const WAKE: u16 = 6;
    /// [`super::ProcessEvent`]: a process mapped code from a file.
    pub const MAP: u16 = 7;
    /// [`super::StackSample`], followed by a [`crate::call::Call`] after its stacks; `period` is the call's number.
    pub const CALL: u16 = 8;
    /// [`crate::call::Return`].
    pub const RETURN: u16 = 9;
    /// [`crate::call::Correlation`].
    pub const CORRELATION: u16 = 10;
    /// [`crate::call::Message`].
    pub const MESSAGE: u16 = 11;
}

/// The running thread and its stack, at a timer sample, when the thread left its CPU, or at a probed call.
///
/// Followed by `kernel_words` + `user_words` words of 8 bytes. Kernel words are addresses, leaf first. User words are
/// tagged (see [`word`]), leaf first, native and Python frames interleaved in the order of the walk.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackSample {
    /// `kind` is [`kind::SAMPLE`], [`kind::BLOCK`] or [`kind::CALL`].
    pub header: RecordHeader,
    /// Process id in the pid namespace of the profiler.
    pub pid: u32,
    /// Thread id in the pid namespace of the profiler.
    pub tid: u32,
    /// [`kind::SAMPLE`]: weight of the sample in units of its event (nanoseconds for `cpu-clock`, cycles for cycles).
    /// [`kind::BLOCK`]: when the thread left its CPU, `CLOCK_MONOTONIC` nanoseconds. [`kind::CALL`]: number of the
    /// call.
    pub period: u64,
    /// User PC at which the native walk stopped. If the walk went on past a PC that is in no known mapping (generated
    /// code), that PC. Otherwise 0.
    pub stop_pc: u64,
    /// Thread name, NUL-padded.
    pub comm: [u8; 16],
    /// Number of kernel words.
    pub kernel_words: u16,
    /// Number of user words.
    pub user_words: u16,
    /// How the native walk ended: [`crate::end::WalkEnd`] as a number.
    pub native_end: u8,
    /// How the Python walk ended: [`crate::end::PythonEnd`] as a number.
    pub python_end: u8,
    /// How the kernel walk ended: [`crate::end::KernelEnd`] as a number.
    pub kernel_end: u8,
    /// Bits of [`sample_flag`].
    pub flags: u8,
    /// Native frames walked.
    pub native_frames: u16,
    /// Python frames walked.
    pub python_frames: u16,
    /// Generation of the process's map entry that the walk used; 0 if there was no entry.
    pub generation: u32,
}

/// Bits of [`StackSample::flags`].
pub mod sample_flag {
    /// The CPU was in kernel mode when the sample was taken.
    pub const IN_KERNEL: u8 = 1;
    /// A kernel thread: there is no user stack.
    pub const KERNEL_THREAD: u8 = 2;
    /// The user registers were saved at system call entry: the leaf PC is a return address.
    pub const IN_SYSCALL: u8 = 4;
    /// The thread left its CPU ([`super::kind::BLOCK`]).
    pub const OFF_CPU: u8 = 8;
    /// The thread was still runnable: another thread took the CPU.
    pub const PREEMPTED: u8 = 16;
    /// Native frames are present only so that operators can be recognized; the user did not ask for them.
    pub const OPERATORS: u8 = 32;
}

/// A thread runs again. `header.time_ns` is the time at which it was switched in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// `kind` is [`kind::WAKE`].
    pub header: RecordHeader,
    /// Process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// When the thread left its CPU: the `period` of its [`kind::BLOCK`]; `CLOCK_MONOTONIC`, nanoseconds.
    pub began_ns: u64,
    /// Name of the thread, NUL-padded.
    pub comm: [u8; 16],
    /// One of [`wake_stack`].
    pub stack: u32,
    /// One of [`waker`].
    pub waker: u32,
    /// When the thread was woken; from then on it waited for a CPU. `CLOCK_MONOTONIC`, nanoseconds; 0 if no wake-up was
    /// seen.
    pub woken_ns: u64,
    /// Process of the waking thread, in the pid namespace of the profiler; 0 for none.
    pub waker_pid: u32,
    /// Id of the waking thread, likewise.
    pub waker_tid: u32,
}

/// Values of [`Wake::waker`].
pub mod waker {
    /// No wake-up was seen: the thread stayed runnable, or was woken before it left its CPU.
    pub const NONE: u32 = 0;
    /// A thread: in a system call, or a kernel thread.
    pub const THREAD: u32 = 1;
    /// A thread that has no id in the pid namespace of the profiler.
    pub const THREAD_OUTSIDE: u32 = 2;
    /// An interrupt: a timer, a device, a packet. The thread that it interrupted is unrelated.
    pub const INTERRUPT: u32 = 3;
}

/// Values of [`Wake::stack`].
pub mod wake_stack {
    /// A [`super::kind::BLOCK`] was sent.
    pub const SENT: u32 = 0;
    /// No stack was sent: the CPU had used up its budget of walks.
    pub const RATE_LIMITED: u32 = 1;
    /// No stack was sent: every scratch slot of the CPU was in use.
    pub const SCRATCH_BUSY: u32 = 2;
}

/// A change in the set of processes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessEvent {
    /// `kind` is one of [`kind::FORK`], [`kind::EXEC`], [`kind::EXIT`], [`kind::MAP`].
    pub header: RecordHeader,
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Its parent (`FORK`), otherwise 0.
    pub parent: u32,
    /// The thread's name at that time, NUL-padded.
    pub comm: [u8; 16],
}

/// User words: `tag << 60 | payload`. User-space addresses on x86-64 and aarch64 leave the top bits free.
pub mod word {
    /// A return address: look up `pc - 1`.
    pub const RETURN: u64 = 0;
    /// An exact PC (the interrupted leaf, or the frame interrupted by a signal): look up `pc`.
    pub const EXACT: u64 = 1;
    /// A Python frame: the payload is the address of the code object; the next word is a [`python_detail`].
    pub const PYTHON: u64 = 2;
    /// Frames are missing here: the payload is the number of a [`crate::end::WalkEnd`]. The words that follow, if any,
    /// are Python frames further out. With [`PYTHON_GAP`] set, only Python frames are missing, namely those of the
    /// native frame that follows; the other bits are the number of a [`crate::end::PythonEnd`]: `Complete` if that
    /// native frame rightly has none, `ChainShort` if the innermost evaluation frames lack theirs and each run belongs
    /// that many evaluation frames further out.
    pub const GAP: u64 = 3;
    /// The preceding Python frame, leaf first, belongs to a coroutine or generator, and the next one does not. The
    /// payload is the address of that preceding frame. Present only if coroutines are walked.
    pub const COROUTINE: u64 = 4;
    /// The object on which the function of the preceding Python frame was called: the payload is its address; the next
    /// word is the address of its type. Follows only frames of [`crate::python::CalledFunction::code`].
    pub const OBJECT: u64 = 5;
    /// Flag in the payload of a [`GAP`].
    pub const PYTHON_GAP: u64 = 1 << 8;
    /// Position of the tag.
    pub const TAG_SHIFT: u32 = 60;
    /// The payload.
    pub const PAYLOAD: u64 = (1 << TAG_SHIFT) - 1;

    /// Joins tag and payload.
    #[inline(always)]
    pub const fn tagged(tag: u64, payload: u64) -> u64 {
        tag << TAG_SHIFT | payload & PAYLOAD
    }

    /// The tag of a word.
    #[inline(always)]
    pub const fn tag(word: u64) -> u64 {
        word >> TAG_SHIFT
    }

    /// Second word of a Python frame. High half: checksum of the code object. Low half: offset of the instruction in
    /// bytes from the start of the bytecode (`u32::MAX` if unknown).
    #[inline(always)]
    pub const fn python_detail(checksum: u32, instruction: u32) -> u64 {
        (checksum as u64) << 32 | instruction as u64
    }
}

/// Limit on user words per sample: 512 native frames plus 1024 Python frames of two words (CPython's own recursion
/// limit is 1000).
pub const USER_WORDS_MAX: usize = 2560;
/// Limit on kernel words per sample (`kernel.perf_event_max_stack` defaults to 127).
pub const KERNEL_WORDS_MAX: usize = 127;

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for RecordHeader {}
// SAFETY: as above.
unsafe impl Plain for StackSample {}
// SAFETY: as above.
unsafe impl Plain for ProcessEvent {}
// SAFETY: as above.
unsafe impl Plain for Wake {}
