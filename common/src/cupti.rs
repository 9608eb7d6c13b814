//! CUPTI's activity records: their kinds, and the offsets of their members.
//!
//! Owns: numbers of kinds, and offsets. Because: the collector reads its own records, the pipeline reads those of other
//! tools, and the kernel program follows a pointer in them; all three must use the same offsets. Does not: read
//! anything.
//!
//! Each version of CUPTI appends to its records and keeps existing members, so the members used here have the same
//! offsets from 11.7 to 13.5. The tests of the reading crates compare them with the headers. Source:
//! `cupti_activity.h`.

use crate::activity::kind as ours;

/// `CUpti_ActivityKind`.
pub mod kind {
    /// `MEMCPY`.
    pub const COPY: u32 = 1;
    /// `MEMSET`.
    pub const FILL: u32 = 2;
    /// `KERNEL`.
    pub const KERNEL: u32 = 3;
    /// `DRIVER`.
    pub const DRIVER: u32 = 4;
    /// `RUNTIME`.
    pub const RUNTIME: u32 = 5;
    /// `CONCURRENT_KERNEL`.
    pub const CONCURRENT_KERNEL: u32 = 10;
    /// `OVERHEAD`.
    pub const OVERHEAD: u32 = 17;
    /// `MEMCPY2`.
    pub const PEER_COPY: u32 = 22;
    /// `SYNCHRONIZATION`.
    pub const SYNC: u32 = 38;
    /// `GRAPH_TRACE`.
    pub const GRAPH: u32 = 51;

    /// Kinds that describe kernels.
    pub const KERNELS: [u32; 2] = [KERNEL, CONCURRENT_KERNEL];
}

/// CUPTI's number of the default stream.
pub const DEFAULT_STREAM: u32 = 7;

/// Member offsets of one kind of record; 0 for members that it does not have (offset 0 holds the kind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The resulting [`crate::activity::kind`].
    pub kind: u8,
    /// Number of bytes read.
    pub bytes: usize,
    /// Start time.
    pub start: usize,
    /// End time.
    pub end: usize,
    /// Correlation id of the call.
    pub correlation: usize,
    /// Device.
    pub device: usize,
    /// Context.
    pub context: usize,
    /// Stream of the context.
    pub stream: usize,
    /// Graph.
    pub graph: usize,
    /// Node of the graph.
    pub node: usize,
}

/// A kernel: `CUpti_ActivityKernel4` (CUDA 9) to `CUpti_ActivityKernel13` (13.4).
pub const KERNEL: Layout = Layout {
    kind: ours::KERNEL,
    bytes: 160,
    start: 16,
    end: 24,
    correlation: 92,
    device: 40,
    context: 44,
    stream: 48,
    graph: 156,
    node: 144,
};
/// A copy: `CUpti_ActivityMemcpy5` and later.
pub const COPY: Layout = Layout {
    kind: ours::COPY,
    bytes: 76,
    start: 16,
    end: 24,
    correlation: 44,
    device: 32,
    context: 36,
    stream: 40,
    graph: 72,
    node: 64,
};
/// A copy between devices or contexts: `CUpti_ActivityMemcpyPtoP4`.
pub const PEER_COPY: Layout = Layout {
    kind: ours::PEER_COPY,
    bytes: 84,
    start: 16,
    end: 24,
    correlation: 60,
    device: 32,
    context: 36,
    stream: 40,
    graph: 80,
    node: 72,
};
/// A fill: `CUpti_ActivityMemset4` and later.
pub const FILL: Layout = Layout {
    kind: ours::FILL,
    bytes: 76,
    start: 16,
    end: 24,
    correlation: 44,
    device: 32,
    context: 36,
    stream: 40,
    graph: 72,
    node: 64,
};
/// A wait: `CUpti_ActivitySynchronization2`.
pub const SYNC: Layout = Layout {
    kind: ours::SYNC,
    bytes: 40,
    start: 8,
    end: 16,
    correlation: 24,
    device: 0,
    context: 28,
    stream: 32,
    graph: 0,
    node: 0,
};
/// CUPTI's own time: `CUpti_ActivityOverhead3`.
pub const OVERHEAD: Layout = Layout {
    kind: ours::OVERHEAD,
    bytes: 44,
    start: 24,
    end: 32,
    correlation: 40,
    device: 0,
    context: 0,
    stream: 0,
    graph: 0,
    node: 0,
};
/// A graph launch reported as a whole: `CUpti_ActivityGraphTrace2`.
pub const GRAPH: Layout = Layout {
    kind: ours::GRAPH,
    bytes: 40,
    start: 8,
    end: 16,
    correlation: 4,
    device: 24,
    context: 32,
    stream: 36,
    graph: 28,
    node: 0,
};

/// A call of the driver or the runtime: `CUpti_ActivityAPI`.
pub const API: Layout = Layout {
    kind: 0,
    bytes: 36,
    start: 8,
    end: 16,
    correlation: 32,
    device: 0,
    context: 0,
    stream: 0,
    graph: 0,
    node: 0,
};

/// The layout of a kind of record; `None` for kinds that are not read.
pub const fn layout(kind: u32) -> Option<&'static Layout> {
    match kind {
        kind::KERNEL | kind::CONCURRENT_KERNEL => Some(&KERNEL),
        kind::COPY => Some(&COPY),
        kind::PEER_COPY => Some(&PEER_COPY),
        kind::FILL => Some(&FILL),
        kind::SYNC => Some(&SYNC),
        kind::OVERHEAD => Some(&OVERHEAD),
        kind::GRAPH => Some(&GRAPH),
        kind::DRIVER | kind::RUNTIME => Some(&API),
        _ => None,
    }
}

/// Members that only kernel records have.
pub mod of_kernel {
    /// Registers per thread, 16 bits.
    pub const REGISTERS: usize = 6;
    /// Grid size in blocks: three numbers.
    pub const GRID: usize = 52;
    /// Block size in threads: three numbers.
    pub const BLOCK: usize = 64;
    /// Static shared memory per block.
    pub const STATIC_SHARED: usize = 76;
    /// Dynamic shared memory per block.
    pub const DYNAMIC_SHARED: usize = 80;
    /// Pointer to the kernel's name.
    pub const NAME: usize = 104;
    /// Time at which the kernel was queued.
    pub const QUEUED: usize = 120;
}

/// Members of copy records: kind of copy, kinds of source and destination memory, bytes (also of fills), destination
/// device (of peer copies).
pub mod of_copy {
    /// `CUpti_ActivityMemcpyKind`, 8 bits.
    pub const KIND: usize = 4;
    /// Kind of source memory, 8 bits.
    pub const FROM: usize = 5;
    /// Kind of destination memory, 8 bits.
    pub const TO: usize = 6;
    /// Bytes; of fills too.
    pub const BYTES: usize = 8;
    /// Peer copies: the destination device.
    pub const PEER: usize = 52;
}

/// Kind of memory of a fill, 16 bits.
pub const FILLED: usize = 50;
/// Type of a synchronization; kind of an overhead.
pub const DETAIL: usize = 4;
