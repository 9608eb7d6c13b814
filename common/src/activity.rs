//! Activities: what a device did when, as the collector inside a process reports it.
//!
//! Owns: the collector's records and the functions that carry them. Because: the collector, the kernel program and the
//! decoder are built apart, and one of them may be older. Does not: know CUPTI's own structures
//! ([`crate::cupti`]), which change with each version: the collector turns them into these.
//!
//! The collector exports one function for each message. It begins with a `nop` and does nothing; a probe on it reads
//! its arguments (System V: rdi, rsi, rdx). All of them share one counter of listeners, the 16-bit symbol
//! [`LISTENERS`], which the kernel raises while a probe is there (`ref_ctr_offset` of uprobes): while it is 0 the
//! collector asks CUPTI for nothing.

use crate::Plain;

/// Symbol of the counter of listeners, `u16`.
pub const LISTENERS: &str = "deepctx_collector_listeners";
/// Variable of a program that a profiler started: the profiler's process number. While that process is there, the
/// collector waits for it within `cuInit`.
pub const RECORDER_VARIABLE: &str = "DEEPCTX_RECORDER";
/// Most activities of one message.
pub const BATCH_MAX: usize = 32;

/// What a message of the collector says: [`crate::call::Message::what`].
pub mod probe {
    /// `deepctx_collector_correlation(correlation, domain << 32 | callback id)`: sent on as a
    /// [`crate::call::Correlation`].
    pub const CORRELATION: u16 = 1;
    /// `deepctx_collector_activities(address of [`super::Activity`], count, 0)`: the records follow.
    pub const ACTIVITIES: u16 = 2;
    /// `deepctx_collector_name(id, address, bytes)`: a name that activities refer to; UTF-8, not terminated.
    pub const NAME: u16 = 3;
    /// `deepctx_collector_clock(device_ns, before_ns, after_ns)`: the device clock, as activities have it, was read
    /// between two readings of `CLOCK_MONOTONIC`.
    pub const CLOCK: u16 = 4;
    /// `deepctx_collector_state(one of [`super::state`], number, 0)`.
    pub const STATE: u16 = 5;
    /// A record that another tool's collection handed out, in that CUPTI's own form: the first bytes of the record
    /// follow, then the name that it points to. `values`: bytes of the record, 0, 0.
    pub const BORROWED: u16 = 6;
    /// `deepctx_collector_node(number, number of the node that it was cloned from, or 0, kind)`: the thread made a node
    /// of a graph, or cloned one. The numbers are those of [`super::Activity::node`]; `kind` is the driver's
    /// `CUgraphNodeType`.
    pub const NODE: u16 = 7;
    /// `deepctx_collector_samples(part << 32 | number, address, bytes)`: samples of instructions, and what explains
    /// them ([`crate::samples`]). It has a counter of listeners of its own: who wants no samples puts no probe there.
    pub const SAMPLES: u16 = 8;
    /// `deepctx_collector_device(0, address of a [`crate::device::Device`], its bytes)`: a device that the process has.
    /// Reported when it is known, and again each second.
    pub const DEVICE: u16 = 9;

    /// The symbols, by number, without that of [`SAMPLES`].
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

/// Kinds of nodes of a graph: the driver's `CUgraphNodeType`, those that have activities.
pub mod node {
    /// A kernel.
    pub const KERNEL: u64 = 0;
    /// A copy.
    pub const COPY: u64 = 1;
    /// A fill.
    pub const FILL: u64 = 2;
}

/// What is read of a record that another tool's collection handed out: more than the longest there is (a kernel's of
/// CUDA 13.4 has 248 bytes).
pub const BORROWED_BYTES_MAX: usize = 256;
/// Most bytes of the name behind such a record, its end included.
pub const BORROWED_NAME_MAX: usize = 3072;

/// What a [`probe::STATE`] says.
pub mod state {
    /// Collection began; the number is CUPTI's version.
    pub const COLLECTING: u64 = 1;
    /// Collection ended: nobody listens.
    pub const IDLE: u64 = 2;
    /// Another tool has CUPTI, and this version lets only one; the number is CUPTI's error.
    pub const BUSY: u64 = 3;
    /// CUPTI cannot be used; the number is its error.
    pub const UNUSABLE: u64 = 4;
    /// CUPTI dropped records; the number is how many since the last time.
    pub const LOST: u64 = 5;
    /// Records of a kind that is not known were skipped; the number is how many since the last time.
    pub const SKIPPED: u64 = 6;
    /// Instructions are sampled in another context; the number is [`crate::samples::setting`].
    pub const SAMPLING: u64 = 7;
    /// Instructions of a context cannot be sampled; the number is CUPTI's error, or 0xfffffffe when functions are
    /// missing.
    pub const SAMPLING_REFUSED: u64 = 8;
    /// Samples that the device dropped since the last time.
    pub const SAMPLES_DROPPED: u64 = 9;
    /// Samples in kernels that are not the program's own, since the last time: CUPTI does not say more of them.
    pub const SAMPLES_ELSEWHERE: u64 = 10;
    /// The buffer of samples on the device was full, so often since the last time; what was in it is lost.
    pub const SAMPLES_OVERRUN: u64 = 11;
    /// Device code of which no copy was kept, since all copies together would be too large: so many images since the
    /// last time.
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
    /// The host waited, as CUPTI saw it.
    pub const SYNC: u8 = 5;
    /// The profiling interface itself took time.
    pub const OVERHEAD: u8 = 6;
    /// A graph ran, reported as one.
    pub const GRAPH: u8 = 7;
}

/// Bits of [`Activity::flags`].
pub mod flag {
    /// CUPTI gave no times: `start_ns` and `end_ns` are 0.
    pub const NO_TIMES: u8 = 1;
    /// `stream` is the default stream.
    pub const DEFAULT_STREAM: u8 = 2;
}

/// One thing that a device did.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// One of [`kind`].
    pub kind: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// What exactly: of a copy, CUPTI's `CUpti_ActivityMemcpyKind`; of a wait, `CUpti_ActivitySynchronizationType`; of
    /// overhead, `CUpti_ActivityOverheadKind`.
    pub detail: u8,
    /// Of a copy: kind of memory it reads from (`CUpti_ActivityMemoryKind`) in the low half, of that it writes to in
    /// the high half. Of a fill: that which is set.
    pub memory: u8,
    /// Correlation id of the call.
    pub correlation: u32,
    /// Begin, nanoseconds of the device clock.
    pub start_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
    /// Device.
    pub device: u32,
    /// Context.
    pub context: u32,
    /// Stream within the context.
    pub stream: u32,
    /// Graph (of CUPTI's numbers), 0 for none.
    pub graph: u32,
    /// Node of the graph, 0 for none.
    pub node: u64,
    /// Of a kernel: id of its name ([`probe::NAME`]).
    pub name: u64,
    /// Bytes copied or set.
    pub bytes: u64,
    /// Of a kernel: blocks.
    pub grid: [u32; 3],
    /// Of a kernel: threads of a block.
    pub block: [u32; 3],
    /// Of a kernel: registers of a thread.
    pub registers: u32,
    /// Of a kernel: static shared memory of a block, bytes.
    pub static_shared: u32,
    /// Of a kernel: dynamic shared memory of a block, bytes.
    pub dynamic_shared: u32,
    /// Of a peer copy: the device that is written to.
    pub peer: u32,
    /// When the work was put into its queue on the device, nanoseconds of the device clock; 0 when not known.
    pub queued_ns: u64,
}

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for Activity {}
