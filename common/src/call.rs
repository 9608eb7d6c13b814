//! Calls: arguments that a probe on an accelerator library fetches, and the records that it sends.
//!
//! Owns: the site table (user space → kernel) and the records of calls, returns and messages (kernel → user space).
//! Because: the meaning of each function is data in user space; the kernel program only fetches numbers by a recipe.
//! Does not: know libraries, symbols or vendors.
//!
//! ```text
//! CALL  ┌─────────────┬──────────────┬────────────┬──────┬────────────────────┬──────────────────────┐
//!       │ StackSample │ kernel words │ user words │ Call │ arguments (u64 × n) │ text, padded to 8    │
//!       └─────────────┴──────────────┴────────────┴──────┴────────────────────┴──────────────────────┘
//! ```
//! The stack comes first, so that it is resolved like any other; its `period` is the call's number.

use crate::Plain;
use crate::record::RecordHeader;

/// Limit on arguments fetched per call. A launch has ten that matter (grid, block, shared memory, stream, function and
/// its arguments), a framework's convolution 26 (type and up to five sizes of two tensors, strides, paddings, …).
pub const ARGUMENTS_MAX: usize = 28;
/// Limit on sites: every row of the catalogue in about a dozen copies of the libraries.
pub const SITES_MAX: u32 = 1 << 14;
/// Limit on the bytes of a text (kernel name, path). Longer texts are cut and flagged. Mangled names of templated C++
/// kernels reach several kilobytes.
pub const TEXT_MAX: usize = 4096;
/// [`Site::text`] if no argument is a text.
pub const NO_TEXT: u8 = u8::MAX;

/// Recipe for one argument: a base, up to two memory reads, then truncation or sign extension.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetch {
    /// One of [`fetch_base`].
    pub base: u8,
    /// Number of memory reads at `value + offset`: 0 to 2. With 0, `offsets[0]` is the number of bits by which the
    /// register is shifted to the right.
    pub reads: u8,
    /// Size of the value in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// 1 if the value is sign-extended.
    pub signed: u8,
    /// Bytes added before each read. For a value on the stack, the first offset counts from the stack pointer at
    /// function entry.
    pub offsets: [i16; 2],
}

/// Values of [`Fetch::base`]: DWARF register numbers of the machine (x86-64: rax 0, rdx 1, rcx 2, rbx 3, rsi 4, rdi 5,
/// rbp 6, rsp 7, r8 to r15), [`fetch_base::ENTRY_STACK`] and [`fetch_base::THREAD_LOCAL`].
pub mod fetch_base {
    /// A thread-local variable. `offsets[0]` is its offset within the module's TLS block. `offsets[1]` is the DWARF
    /// number of the register that holds the address of the module's `tls_index`, as set up before a call of
    /// `__tls_get_addr` (ELF Handling For Thread-Local Storage, 3.4). The value is 0 in a thread that has not used the
    /// block yet.
    pub const THREAD_LOCAL: u8 = 0xfe;
    /// The stack pointer at function entry.
    pub const ENTRY_STACK: u8 = 0xff;
}

/// One probe, as the kernel program sees it. The index of the site is the cookie of the probe.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Meaning of the call: a number chosen by user space and copied into each record.
    pub event: u16,
    /// Bits of [`site_flag`].
    pub flags: u16,
    /// Number of `fetches` in use.
    pub arguments: u8,
    /// Index of the argument that is the address of a C string to read, or [`NO_TEXT`].
    pub text: u8,
    /// Index of the argument whose pointee is read on return, or [`NO_TEXT`].
    pub out: u8,
    /// Padding.
    pub reserved: u8,
    /// Distance in bytes from the stack pointer at the probe up to the stack pointer at function entry.
    pub frame: u32,
    /// With [`site_flag::STACK`]: a separate limit on stacks per second, shared by all sites that set one; 0 if
    /// [`crate::config::Config::stacks_per_second`] applies.
    pub stacks_per_second: u32,
    /// Recipes of the arguments.
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
    /// Take the stack, within the limit on stacks.
    pub const STACK: u16 = 1;
    /// Probe the return too: the call is remembered until it returns.
    pub const RETURN: u16 = 2;
    /// The site carries a collector message ([`crate::activity::probe`]), not a call.
    pub const MESSAGE: u16 = 4;
    /// The call launches work: the next correlation id on this thread belongs to it.
    pub const LAUNCH: u16 = 8;
    /// The call asks another tool's CUPTI collection for the next activity record. Its arguments are the buffer, the
    /// size of the buffer in bytes and the address of the pointer to the previous record. That record is complete, and
    /// the program reads it.
    pub const BORROW: u16 = 16;
    /// Take the whole native stack ([`crate::config::config_flag::OPERATORS`] does not apply).
    pub const WHOLE: u16 = 64;
    /// No consumer is left: calls are neither reported nor counted. Returns of calls that were reported still are.
    pub const MUTE: u16 = 128;
}

/// Follows the stacks of a [`crate::record::kind::CALL`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Index of the [`Site`].
    pub site: u32,
    /// [`Site::event`].
    pub event: u16,
    /// Bits of [`call_flag`].
    pub flags: u16,
    /// Number of arguments that follow. An unreadable argument is 0 and has its bit set in `unread`.
    pub arguments: u16,
    /// Bytes of the text after the arguments, without padding.
    pub text_bytes: u16,
    /// Bit `i`: argument `i` could not be read.
    pub unread: u32,
}

/// Bits of [`Call::flags`].
pub mod call_flag {
    /// No stack was taken: the limit on stacks was reached.
    pub const STACK_LIMITED: u16 = 1;
    /// No stack was taken: the site does not ask for one.
    pub const STACK_UNWANTED: u16 = 2;
    /// The text was longer than [`super::TEXT_MAX`].
    pub const TEXT_CUT: u16 = 4;
    /// The text could not be read.
    pub const TEXT_UNREAD: u16 = 8;
}

/// A call with a return probe has returned, at `header.time_ns`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Return {
    /// `kind` is [`crate::record::kind::RETURN`].
    pub header: RecordHeader,
    /// Process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// Number of the call (`period` of its record).
    pub call: u64,
    /// When the call was entered, `CLOCK_MONOTONIC` nanoseconds.
    pub entered_ns: u64,
    /// Return value of the function.
    pub result: u64,
    /// Value behind the out pointer, valid with [`return_flag::OUT`].
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

/// A call received a correlation id: on its own thread, before it returned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Correlation {
    /// `kind` is [`crate::record::kind::CORRELATION`].
    pub header: RecordHeader,
    /// Process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// Number of the call; 0 if no call of this thread awaits an id (no probe saw the launch).
    pub call: u64,
    /// The correlation id.
    pub correlation: u32,
    /// CUPTI's callback domain in the upper half, its callback id in the lower half.
    pub api: u32,
}

/// A message of our collector, or a record that another tool's collection handed out. `bytes` bytes follow, padded to
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
    /// Type of the message: one of [`crate::activity::probe`].
    pub what: u16,
    /// Bits of [`message_flag`].
    pub flags: u16,
    /// Number of bytes that follow, without padding.
    pub bytes: u32,
    /// Values of the message; their meaning depends on `what`.
    pub values: [u64; 3],
}

/// Bits of [`Message::flags`].
pub mod message_flag {
    /// Some or all of the bytes could not be read.
    pub const UNREAD: u16 = 1;
    /// There were more bytes than a message can carry.
    pub const CUT: u16 = 2;
}

/// Limit on calls whose return is pending at a time, over all threads.
pub const IN_FLIGHT_MAX: u32 = 1 << 14;
/// Limit on threads whose most recent launch is remembered.
pub const LAUNCHERS_MAX: u32 = 1 << 13;
/// [`crate::config::Config::stacks_per_second`] if every call gets its stack.
pub const ALL_STACKS: u32 = u32::MAX;

/// Limit on the bytes after a [`Message`]: a full batch of activities.
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
