//! CUPTI's records: which kinds there are, and where their members lie.
//!
//! Owns: numbers of kinds, and offsets. Because: the collector reads records of its own, the pipeline those of other
//! tools, and the kernel program follows a pointer in them; all must look at the same places. Does not: read anything.
//!
//! Each version of CUPTI appends to its records and keeps what was there, so the members that matter are at the same
//! places from 11.7 to 13.5. The tests of those who read compare them with the headers. Source: `cupti_activity.h`.

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

    /// Kinds that are kernels.
    pub const KERNELS: [u32; 2] = [KERNEL, CONCURRENT_KERNEL];
}

/// CUPTI's number of the default stream.
pub const DEFAULT_STREAM: u32 = 7;

/// Members of one kind of record: offsets, with 0 for those that it does not have (at 0 is the kind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What it becomes: [`crate::activity::kind`].
    pub kind: u8,
    /// Bytes that are read.
    pub bytes: usize,
    /// Begin of what happened.
    pub start: usize,
    /// Its end.
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
/// A graph reported as one: `CUpti_ActivityGraphTrace2`.
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

/// Members of a kernel's record that others do not have.
pub mod of_kernel {
    /// Registers of a thread, 16 bits.
    pub const REGISTERS: usize = 6;
    /// Blocks: three numbers.
    pub const GRID: usize = 52;
    /// Threads of a block: three numbers.
    pub const BLOCK: usize = 64;
    /// Static shared memory of a block.
    pub const STATIC_SHARED: usize = 76;
    /// Dynamic shared memory of a block.
    pub const DYNAMIC_SHARED: usize = 80;
    /// Pointer to its name.
    pub const NAME: usize = 104;
    /// When it was put into its queue.
    pub const QUEUED: usize = 120;
}

/// Members of copies: kind of copy, of memory read and written; bytes (of fills too); of peers the written device.
pub mod of_copy {
    /// `CUpti_ActivityMemcpyKind`, 8 bits.
    pub const KIND: usize = 4;
    /// Kind of memory that is read, 8 bits.
    pub const FROM: usize = 5;
    /// Kind of memory that is written, 8 bits.
    pub const TO: usize = 6;
    /// Bytes; of fills too.
    pub const BYTES: usize = 8;
    /// Of copies between devices: the device that is written.
    pub const PEER: usize = 52;
}

/// A fill's kind of memory, 16 bits.
pub const FILLED: usize = 50;
/// The type of a wait, the kind of an overhead.
pub const DETAIL: usize = 4;
