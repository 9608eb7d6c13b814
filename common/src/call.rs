//! Calls: what a probe on an accelerator's library reads, and what it sends.
//!
//! Owns: the site table (user space → kernel) and the records of calls, returns and messages (kernel → user space).
//! Because: which function means what is data that user space has; the kernel program only fetches numbers by a recipe.
//! Does not: know libraries, symbols or vendors.
//!
//! ```text
//! CALL  ┌─────────────┬──────────────┬────────────┬──────┬────────────────────┬──────────────────────┐
//!       │ StackSample │ kernel words │ user words │ Call │ arguments (u64 × n) │ text, padded to 8    │
//!       └─────────────┴──────────────┴────────────┴──────┴────────────────────┴──────────────────────┘
//! ```
//! The stack comes first so that it is resolved like any other; its `period` is the call's number.

use crate::Plain;
use crate::record::RecordHeader;

/// Most arguments that are fetched of one call: a launch has ten that matter (grid, block, shared memory, stream,
/// function and its arguments), a convolution of a framework 26 (type and up to five sizes of two tensors, strides,
/// paddings, …).
pub const ARGUMENTS_MAX: usize = 28;
/// Most sites: every row of the catalogue in some dozen copies of the libraries.
pub const SITES_MAX: u32 = 1 << 14;
/// Most bytes of a text that is read (a name of a kernel, a path). Longer ones are cut and say so. C++ kernels of
/// template libraries have mangled names of up to some kilobytes.
pub const TEXT_MAX: usize = 4096;
/// [`Site::text`] when no argument is a text.
pub const NO_TEXT: u8 = u8::MAX;

/// How one argument is fetched: a start, up to two steps through memory, and a cut.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetch {
    /// One of [`fetch_base`].
    pub base: u8,
    /// How often memory is read at `value + offset`: 0 to 2. With 0, `offsets[0]` is the number of bits by which a
    /// register is shifted to the right.
    pub reads: u8,
    /// Bytes of the value: 1, 2, 4 or 8.
    pub bytes: u8,
    /// 1 when it is to be extended by its sign.
    pub signed: u8,
    /// Bytes that are added before each read. Of a value on the stack the first counts from the stack pointer at the
    /// function's entry.
    pub offsets: [i16; 2],
}

/// Values of [`Fetch::base`]: registers by their DWARF number on the machine (x86-64: rax 0, rdx 1, rcx 2, rbx 3, rsi
/// 4, rdi 5, rbp 6, rsp 7, r8 to r15), [`fetch_base::ENTRY_STACK`] and [`fetch_base::THREAD_LOCAL`].
pub mod fetch_base {
    /// A variable of the thread: `offsets[0]` counts within the block of thread-local variables of a module, and
    /// `offsets[1]` is the DWARF number of the register with the address of that module's `tls_index`, as it is before
    /// a call of `__tls_get_addr` (ELF Handling For Thread-Local Storage, 3.4). A thread that has not used the block
    /// yet has 0 there.
    pub const THREAD_LOCAL: u8 = 0xfe;
    /// The stack pointer as it was at the function's entry.
    pub const ENTRY_STACK: u8 = 0xff;
}

/// One probe, as the kernel program must know it. Its index is the cookie of the probe.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// What the call means: a number that user space gave it. Copied into each record.
    pub event: u16,
    /// Bits of [`site_flag`].
    pub flags: u16,
    /// How many of `fetches` are used.
    pub arguments: u8,
    /// Which argument is the address of a C string to be read, or [`NO_TEXT`].
    pub text: u8,
    /// Which argument is the address behind which a result is to be read on return, or [`NO_TEXT`].
    pub out: u8,
    /// Padding.
    pub reserved: u8,
    /// Bytes by which the stack pointer at the probe lies below that at the function's entry.
    pub frame: u32,
    /// With [`site_flag::STACK`]: its own limit of stacks, shared by all sites that have one; 0 where
    /// [`crate::config::Config::stacks_per_second`] holds.
    pub stacks_per_second: u32,
    /// How the arguments are fetched.
    pub fetches: [Fetch; ARGUMENTS_MAX],
}

impl Default for Site {
    fn default() -> Self {
        Self {
            event: 0,
            flags: 0,
            arguments: 0,
            text: NO_TEXT,
            out: NO_TEXT,
            reserved: 0,
            frame: 0,
            stacks_per_second: 0,
            fetches: [Fetch::default(); ARGUMENTS_MAX],
        }
    }
}

/// Bits of [`Site::flags`].
pub mod site_flag {
    /// The stack is wanted, as far as the limit of stacks allows.
    pub const STACK: u16 = 1;
    /// The return is watched too: the call is remembered until then.
    pub const RETURN: u16 = 2;
    /// The site carries a message of the collector ([`crate::activity::probe`]), not a call.
    pub const MESSAGE: u16 = 4;
    /// Work is launched: a correlation id that follows on this thread belongs to this call.
    pub const LAUNCH: u16 = 8;
    /// The call asks for the next activity record of another tool's collection, and its arguments are the buffer, the
    /// buffer's bytes and the address of the pointer to the record before: that one is complete, and is read.
    pub const BORROW: u16 = 16;
    /// The native part of the stack is wanted whole ([`crate::config::config_flag::OPERATORS`] does not hold).
    pub const WHOLE: u16 = 64;
    /// Nobody listens any more: calls are neither reported nor counted. Returns of those that were reported still come.
    pub const MUTE: u16 = 128;
}

/// Behind the stacks of a [`crate::record::kind::CALL`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Index of the [`Site`].
    pub site: u32,
    /// [`Site::event`].
    pub event: u16,
    /// Bits of [`call_flag`].
    pub flags: u16,
    /// How many arguments follow; those that could not be read are 0 and have their bit in `unread`.
    pub arguments: u16,
    /// Bytes of the text that follows the arguments, without padding.
    pub text_bytes: u16,
    /// Bit `i`: argument `i` could not be read.
    pub unread: u32,
}

/// Bits of [`Call::flags`].
pub mod call_flag {
    /// No stack was taken: the limit of stacks was reached.
    pub const STACK_LIMITED: u16 = 1;
    /// No stack was taken: none is wanted of this site.
    pub const STACK_UNWANTED: u16 = 2;
    /// The text was longer than [`super::TEXT_MAX`].
    pub const TEXT_CUT: u16 = 4;
    /// The text could not be read.
    pub const TEXT_UNREAD: u16 = 8;
}

/// A call whose return was watched has returned. `header.time_ns` is when.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Return {
    /// `kind` is [`crate::record::kind::RETURN`].
    pub header: RecordHeader,
    /// Process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// Number of the call (its record's `period`).
    pub call: u64,
    /// When it was entered, `CLOCK_MONOTONIC` nanoseconds.
    pub entered_ns: u64,
    /// What the function returned.
    pub result: u64,
    /// What lay behind the out pointer; see `flags`.
    pub out: u64,
    /// Index of the [`Site`].
    pub site: u32,
    /// [`Site::event`].
    pub event: u16,
    /// Bits of [`return_flag`].
    pub flags: u16,
}

/// Bits of [`Return::flags`].
pub mod return_flag {
    /// `out` was read.
    pub const OUT: u16 = 1;
}

/// A correlation id was given to a call, on the thread of the call and before it returned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Correlation {
    /// `kind` is [`crate::record::kind::CORRELATION`].
    pub header: RecordHeader,
    /// Process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// Number of the call; 0 when no call of this thread waits for an id (a launch that no probe saw).
    pub call: u64,
    /// The id.
    pub correlation: u32,
    /// CUPTI's callback domain in the upper half, its callback id in the lower.
    pub api: u32,
}

/// What a collector said, or a record that another tool's collection handed out. Followed by `bytes` bytes, padded to
/// 8.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// `kind` is [`crate::record::kind::MESSAGE`].
    pub header: RecordHeader,
    /// Process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// Which: one of [`crate::activity::probe`].
    pub what: u16,
    /// Bits of [`message_flag`].
    pub flags: u16,
    /// Bytes that follow, without padding.
    pub bytes: u32,
    /// Numbers of the message; their meaning depends on `what`.
    pub values: [u64; 3],
}

/// Bits of [`Message::flags`].
pub mod message_flag {
    /// The bytes could not be read, or not all of them.
    pub const UNREAD: u16 = 1;
    /// There were more bytes than a message may have.
    pub const CUT: u16 = 2;
}

/// Value of `SITE_COUNTS[site]` is a `u64`: calls of targets, those included whose records were lost.
///
/// Calls whose return is waited for at a time, over all threads.
pub const IN_FLIGHT_MAX: u32 = 1 << 14;
/// Threads whose last launch is remembered.
pub const LAUNCHERS_MAX: u32 = 1 << 13;
/// [`crate::config::Config::stacks_per_second`] when every call gets its stack.
pub const ALL_STACKS: u32 = u32::MAX;

/// Most bytes behind a [`Message`]: a full batch of activities.
pub const MESSAGE_BYTES_MAX: usize = crate::activity::BATCH_MAX * size_of::<crate::activity::Activity>();

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for Fetch {}
// SAFETY: as above.
unsafe impl Plain for Site {}
// SAFETY: as above.
unsafe impl Plain for Call {}
// SAFETY: as above.
unsafe impl Plain for Return {}
// SAFETY: as above.
unsafe impl Plain for Correlation {}
// SAFETY: as above.
unsafe impl Plain for Message {}
