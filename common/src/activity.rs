//! Activities: device work with its times, as the collector inside a process reports it.
//!
//! Owns: the collector's records and the functions that carry them. Because: the collector, the kernel program and the
//! decoder are built separately, and one of them may be older. Does not: know CUPTI's own structures
//! ([`crate::cupti`]), which change with each version: the collector converts them to these records.
//!
//! The collector exports one function per message. The function starts with a `nop` and does nothing; a probe on it
//! reads its arguments (System V: rdi, rsi, rdx). All these functions share one listener counter, the 16-bit symbol
//! [`LISTENERS`]. The kernel increments it while a probe is attached (`ref_ctr_offset` of uprobes). While it is 0, the
//! collector requests nothing from CUPTI.

use crate::Plain;

/// Symbol of the listener counter, `u16`.
pub const LISTENERS: &str = "deepctx_collector_listeners";
/// Environment variable of a program that the profiler started: the profiler's process id. While that process exists,
/// the collector waits for it within `cuInit`.
pub const RECORDER_VARIABLE: &str = "DEEPCTX_RECORDER";
/// Limit on activities per message.
pub const BATCH_MAX: usize = 32;

/// Types of collector messages: [`crate::call::Message::what`].
pub mod probe {
    /// `deepctx_collector_correlation(correlation, domain << 32 | callback id)`: forwarded as a
    /// [`crate::call::Correlation`].
    pub const CORRELATION: u16 = 1;
    /// `deepctx_collector_activities(address of [`super::Activity`], count, 0)`: the records follow.
    pub const ACTIVITIES: u16 = 2;
    /// `deepctx_collector_name(id, address, bytes)`: a name that activities refer to; UTF-8, not NUL-terminated.
    pub const NAME: u16 = 3;
    /// `deepctx_collector_clock(device_ns, before_ns, after_ns)`: a reading of the device clock, in the timebase of
    /// activities, taken between two readings of `CLOCK_MONOTONIC`.
    pub const CLOCK: u16 = 4;
    /// `deepctx_collector_state(one of [`super::state`], number, 0)`.
    pub const STATE: u16 = 5;
    /// A record that another tool's collection handed out, in that CUPTI's layout: the first bytes of the record
    /// follow, then the name that it points to. `values`: bytes of the record, 0, 0.
    pub const BORROWED: u16 = 6;
    /// `deepctx_collector_node(number, number of the node that it was cloned from, or 0, kind)`: the thread created or
    /// cloned a graph node. The numbers are those of [`super::Activity::node`]; `kind` is the driver's
    /// `CUgraphNodeType`.
    pub const NODE: u16 = 7;
    /// `deepctx_collector_samples(part << 32 | number, address, bytes)`: PC samples, and the data that explains them
    /// ([`crate::samples`]). This function has a listener counter of its own: consumers that want no samples attach no
    /// probe here.
    pub const SAMPLES: u16 = 8;
    /// `deepctx_collector_device(0, address of a [`crate::device::Device`], its bytes)`: a device of the process. Sent
    /// when the device becomes known, and again each second.
    pub const DEVICE: u16 = 9;

    /// The symbols by number, except that of [`SAMPLES`].
    pub const SYMBOLS: [(u16, &str); 7] = [
        (CORRELATION, "deepctx_collector_correlation"),
        (ACTIVITIES, "deepctx_collector_activities"),
        (NAME, "deepctx_collector_name"),
        (CLOCK, "deepctx_collector_clock"),
        (STATE, "deepctx_collector_state"),
        (NODE, "deepctx_collector_node"),
        (DEVICE, crate::device::SYMBOL),
    ];
}

/// Kinds of graph nodes that have activities: the driver's `CUgraphNodeType`.
pub mod node {
    /// A kernel.
    pub const KERNEL: u64 = 0;
    /// A copy.
    pub const COPY: u64 = 1;
    /// A fill.
    pub const FILL: u64 = 2;
}

/// Bytes read of a record that another tool's collection handed out: more than the longest existing record (CUDA 13.4's
/// kernel record has 248 bytes).
pub const BORROWED_BYTES_MAX: usize = 256;
/// Limit on the bytes of the name that follows such a record, terminator included.
pub const BORROWED_NAME_MAX: usize = 3072;

/// Values of a [`probe::STATE`] message.
pub mod state {
    /// Collection started; the number is CUPTI's version.
    pub const COLLECTING: u64 = 1;
    /// Collection ended: there are no listeners.
    pub const IDLE: u64 = 2;
    /// Another tool uses CUPTI, and this version permits only one subscriber; the number is CUPTI's error.
    pub const BUSY: u64 = 3;
    /// CUPTI cannot be used; the number is its error.
    pub const UNUSABLE: u64 = 4;
    /// CUPTI dropped records; the number is how many since the last message.
    pub const LOST: u64 = 5;
    /// Records of an unknown kind were skipped; the number is how many since the last message.
    pub const SKIPPED: u64 = 6;
    /// PC sampling started in another context; the number is [`crate::samples::setting`].
    pub const SAMPLING: u64 = 7;
    /// PC sampling is not possible in a context; the number is CUPTI's error, or 0xfffffffe if functions are missing.
    pub const SAMPLING_REFUSED: u64 = 8;
    /// The device dropped samples; the number is how many since the last message.
    pub const SAMPLES_DROPPED: u64 = 9;
    /// Samples fell into kernels that are not the program's own; the number is how many since the last message. CUPTI
    /// gives no details of them.
    pub const SAMPLES_ELSEWHERE: u64 = 10;
    /// The sample buffer on the device overflowed, and its content was lost; the number is how often since the last
    /// message.
    pub const SAMPLES_OVERRUN: u64 = 11;
    /// Copies of device code were not kept, because all copies together would be too large; the number is how many
    /// images since the last message.
    pub const CUBINS_LEFT: u64 = 12;
}

/// Kinds of [`Activity`].
pub mod kind {
    /// A kernel ran.
    pub const KERNEL: u8 = 1;
    /// Bytes were copied.
    pub const COPY: u8 = 2;
    /// Bytes were copied between devices or contexts.
    pub const PEER_COPY: u8 = 3;
    /// Bytes were set.
    pub const FILL: u8 = 4;
    /// The host waited, as measured by CUPTI.
    pub const SYNC: u8 = 5;
    /// The profiling interface itself took time.
    pub const OVERHEAD: u8 = 6;
    /// A graph ran, reported as a whole.
    pub const GRAPH: u8 = 7;
}

/// Bits of [`Activity::flags`].
pub mod flag {
    /// CUPTI gave no times: `start_ns` and `end_ns` are 0.
    pub const NO_TIMES: u8 = 1;
    /// `stream` is the default stream.
    pub const DEFAULT_STREAM: u8 = 2;
}

/// One activity of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// One of [`kind`].
    pub kind: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Subtype: of a copy `CUpti_ActivityMemcpyKind`, of a synchronization `CUpti_ActivitySynchronizationType`, of
    /// overhead `CUpti_ActivityOverheadKind`.
    pub detail: u8,
    /// Kinds of memory (`CUpti_ActivityMemoryKind`). Of a copy: source in the low half, destination in the high half.
    /// Of a fill: the memory that is set.
    pub memory: u8,
    /// Correlation id of the call.
    pub correlation: u32,
    /// Start, nanoseconds of the device clock.
    pub start_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
    /// Device.
    pub device: u32,
    /// Context.
    pub context: u32,
    /// Stream within the context.
    pub stream: u32,
    /// Graph, as CUPTI numbers it; 0 for none.
    pub graph: u32,
    /// Graph node; 0 for none.
    pub node: u64,
    /// Kernels: id of the name ([`probe::NAME`]).
    pub name: u64,
    /// Bytes copied or set.
    pub bytes: u64,
    /// Kernels: grid size in blocks.
    pub grid: [u32; 3],
    /// Kernels: block size in threads.
    pub block: [u32; 3],
    /// Kernels: registers per thread.
    pub registers: u32,
    /// Kernels: static shared memory per block, bytes.
    pub static_shared: u32,
    /// Kernels: dynamic shared memory per block, bytes.
    pub dynamic_shared: u32,
    /// Peer copies: the destination device.
    pub peer: u32,
    /// When the work was queued on the device, nanoseconds of the device clock; 0 if unknown.
    pub queued_ns: u64,
}

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for Activity {}
