//! Events of a trace: one row each, in one table per kind.
//!
//! Owns: the rows and their tables. Because: a kernel has a stream and bytes, a call has a thread and a status, and a
//! synchronization that a tool draws on a device's row is neither. Does not: connect events: see
//! [`Links`](super::Links).

use super::basis::Basis;
use super::columns::columns;
use super::packed::{Cell, Column, PackedColumn};
use super::{Duration, TraceTime};
use crate::intern::{Id, StrId};
use crate::tree::NodeId;
use crate::units::Bytes;

/// A thread of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Its process: a number, or words where a tool writes words.
    pub process: StrId,
    /// Itself.
    pub thread: StrId,
}

/// A stream of a device: work on it runs in the order of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    /// Number of the device, as the tool counts them.
    pub device: u32,
    /// Number of the stream; `None` when the tool names none.
    pub stream: Option<u64>,
}

/// What a host operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostKind {
    /// A framework's operator (`aten::mm`).
    Operator,
    /// A call of the runtime's API (`cudaLaunchKernel`, `hipMemcpyAsync`).
    RuntimeCall,
    /// A call of the driver's API (`cuLaunchKernel`).
    DriverCall,
    /// A Python function.
    Python,
    /// A layer of a model.
    Layer,
    /// A range that the program names.
    Annotation,
    /// A training step, with its number in the name (`ProfilerStep#7`).
    Step,
    /// The whole process, as exports of this project draw it.
    Process,
    /// The thread was off its CPU: it waited for something, or for a CPU.
    OffCpu,
    /// Anything else.
    Other,
    /// A kind that the tool has a word for and this project has not: see [`HostCategory`]. Nobody knows whether it is
    /// time of its thread.
    UnknownCategory,
}

impl HostKind {
    /// Every kind.
    pub(super) const ALL: [HostKind; 11] = [
        HostKind::Operator,
        HostKind::RuntimeCall,
        HostKind::DriverCall,
        HostKind::Python,
        HostKind::Layer,
        HostKind::Annotation,
        HostKind::Step,
        HostKind::Process,
        HostKind::OffCpu,
        HostKind::Other,
        HostKind::UnknownCategory,
    ];

    /// Stable name, as files and tables have it.
    pub const fn name(self) -> &'static str {
        match self {
            HostKind::Operator => "operator",
            HostKind::RuntimeCall => "runtime-call",
            HostKind::DriverCall => "driver-call",
            HostKind::Python => "python",
            HostKind::Layer => "layer",
            HostKind::Annotation => "annotation",
            HostKind::Step => "step",
            HostKind::Process => "process",
            HostKind::OffCpu => "off-cpu",
            HostKind::Other => "other",
            HostKind::UnknownCategory => "unknown-category",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it is a call of an accelerator's API.
    pub fn is_call(self) -> bool {
        matches!(self, HostKind::RuntimeCall | HostKind::DriverCall)
    }
}

/// Who woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waker {
    /// A thread of the same process.
    Thread(Id<Thread>),
    /// A thread of another process, by the numbers of the two.
    OtherProcess {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// A thread that the profiler sees no number of, in another pid namespace.
    Outside,
    /// An interrupt: a timer, a device, a packet.
    Interrupt,
}

/// The value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterValue(u64);

impl CounterValue {
    /// The value of a number.
    pub fn new(value: f64) -> Self {
        CounterValue(value.to_bits())
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// What a call returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// The trace does not say.
    #[default]
    Unknown,
    /// The API's own number; 0 is success.
    Returned(i32),
}

/// What a device operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A kernel.
    Kernel,
    /// A copy of memory.
    Copy,
    /// A fill of memory.
    Fill,
}

impl DeviceKind {
    /// Every kind.
    pub(super) const ALL: [DeviceKind; 3] = [DeviceKind::Kernel, DeviceKind::Copy, DeviceKind::Fill];
}

/// What a synchronization waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncKind {
    /// The host waits for a stream.
    Stream,
    /// The host waits for an event.
    Event,
    /// The host waits for everything of a context or a device.
    Context,
    /// A stream waits for an event; the host goes on.
    StreamWait,
}

columns! {
    /// Something that a thread did.
    pub struct HostOp in packed HostOps {
        /// The thread.
        pub thread: Id<Thread>,
        /// What it is.
        pub kind: HostKind,
        /// Begin.
        pub begin: TraceTime,
        /// Length.
        pub duration: Duration,
        /// Its name.
        pub name: StrId,
        /// Number that connects a call with what it launched; 0 for none.
        pub correlation: u64,
        /// What it returned.
        pub status: Status,
        /// Calling context; the root while unknown.
        pub context: NodeId,
    }
}

columns! {
    /// Something that a device did.
    pub struct DeviceOp in packed DeviceOps {
        /// The stream.
        pub stream: Id<Stream>,
        /// What it is.
        pub kind: DeviceKind,
        /// Begin.
        pub begin: TraceTime,
        /// Length.
        pub duration: Duration,
        /// Its name.
        pub name: StrId,
        /// Number that connects it with the call that launched it; 0 for none. All work of a launched graph has the
        /// same.
        pub correlation: u64,
        /// How it is known that this call launched it.
        pub launched_by: Basis,
        /// Bytes copied or filled; 0 when unknown.
        pub bytes: Bytes,
        /// Node of the graph that it belongs to; 0 for none.
        pub graph_node: u64,
    }
}

columns! {
    /// Which nodes of graphs come after which, each time the graph is launched. A node of which there is no row has no
    /// known order.
    pub struct GraphEdge in plain GraphEdges {
        /// The node that ends before, as [`DeviceOp::graph_node`]; 0: the other one comes after none.
        pub from: u64,
        /// The node that begins then.
        pub to: u64,
        /// How this is known.
        pub basis: Basis,
    }
}

columns! {
    /// A synchronization as a tool draws it on a device's row: a statement about a call, never work of the device.
    pub struct Sync in plain Syncs {
        /// What is waited for.
        pub kind: SyncKind,
        /// The stream that waits or is waited for; `None` when it is the host that waits for an event or a context.
        pub stream: Option<Id<Stream>>,
        /// Begin.
        pub begin: TraceTime,
        /// Length.
        pub duration: Duration,
        /// Number of the call.
        pub correlation: u64,
        /// Number of the call that recorded the event; `None` when the tool does not say.
        pub record: Option<u64>,
        /// The stream that the event was recorded on; `None` when the tool does not say.
        pub recorded_on: Option<Id<Stream>>,
    }
}

columns! {
    /// What a tool calls the kind of an operation that is of [`HostKind::UnknownCategory`].
    pub struct HostCategory in plain HostCategories {
        /// The operation.
        pub op: Id<HostOp>,
        /// The tool's word.
        pub category: StrId,
    }
}

columns! {
    /// A counter has another value from now on.
    pub struct CounterStep in plain CounterSteps {
        /// The process.
        pub process: StrId,
        /// The counter.
        pub name: StrId,
        /// Which of its values.
        pub series: StrId,
        /// When.
        pub at: TraceTime,
        /// The value.
        pub value: CounterValue,
    }
}

columns! {
    /// Events of a lane that a recorder lost: they began and ended within this time.
    pub struct LostEvents in plain LostTimes {
        /// The lane in words (`thread 8`, `gpu0 stream 7`): it may have no event that was kept.
        pub lane: StrId,
        /// Begin of the first of them.
        pub from: TraceTime,
        /// End of the last one.
        pub to: TraceTime,
        /// How many.
        pub events: u64,
    }
}

columns! {
    /// A thread that was off its CPU was woken: from then on it waited for a CPU.
    pub struct WakeUpEvent in plain WakeUpEvents {
        /// The time off the CPU, of [`HostKind::OffCpu`].
        pub ends: Id<HostOp>,
        /// When.
        pub at: TraceTime,
        /// By whom.
        pub by: Waker,
    }
}

columns! {
    /// What a tool says about a collective operation, beside the kernel that runs it.
    pub struct CollectiveNote in plain CollectiveNotes {
        /// The kernel.
        pub op: Id<DeviceOp>,
        /// Name of the operation (`allreduce`).
        pub operation: StrId,
        /// The group of ranks that takes part.
        pub communicator: StrId,
        /// Ranks in the group; 0 when unknown.
        pub group_size: u32,
        /// Elements that go in.
        pub elements_in: u64,
        /// Type of the elements.
        pub element: StrId,
        /// How many collectives the group had before; `None` when the tool does not say.
        pub ordinal: Option<u64>,
    }
}

columns! {
    /// An allocation or a free of tensor memory.
    pub struct MemoryEvent in plain MemoryEvents {
        /// The thread.
        pub thread: Id<Thread>,
        /// When.
        pub at: TraceTime,
        /// The device; `None` for host memory.
        pub device: Option<u32>,
        /// Address; 0 when unknown.
        pub address: u64,
        /// Bytes more; less than zero for a free.
        pub bytes: i64,
        /// Bytes that are allocated afterwards; `None` when the tool does not say.
        pub allocated: Option<Bytes>,
        /// Bytes that the allocator holds afterwards; `None` when the tool does not say.
        pub reserved: Option<Bytes>,
    }
}

columns! {
    /// A range of the program, as a tool projects it onto the device's rows.
    pub struct DeviceRange in plain DeviceRanges {
        /// The stream.
        pub stream: Id<Stream>,
        /// Begin.
        pub begin: TraceTime,
        /// Length.
        pub duration: Duration,
        /// Its name.
        pub name: StrId,
    }
}

impl HostOp {
    /// The end.
    pub fn end(&self) -> TraceTime {
        self.begin + self.duration
    }
}

impl DeviceOp {
    /// An operation whose call a tool names by its id, without bytes and of no graph.
    pub fn correlated(
        stream: Id<Stream>,
        kind: DeviceKind,
        begin: TraceTime,
        duration: Duration,
        name: StrId,
        correlation: u64,
    ) -> Self {
        let (launched_by, bytes) = (Basis::Exact, Bytes(0));
        Self { stream, kind, begin, duration, name, correlation, launched_by, bytes, graph_node: 0 }
    }

    /// The end.
    pub fn end(&self) -> TraceTime {
        self.begin + self.duration
    }
}

impl Sync {
    /// The end.
    pub fn end(&self) -> TraceTime {
        self.begin + self.duration
    }
}

impl Cell for HostKind {
    fn to_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> Self {
        HostKind::ALL.get(word as usize).copied().unwrap_or(HostKind::Other)
    }
}

impl Cell for DeviceKind {
    fn to_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> Self {
        DeviceKind::ALL.get(word as usize).copied().unwrap_or(DeviceKind::Kernel)
    }
}

impl Cell for Status {
    fn to_word(self) -> u64 {
        match self {
            Status::Unknown => 0,
            Status::Returned(number) => 1 + u64::from(number.cast_unsigned()),
        }
    }

    fn from_word(word: u64) -> Self {
        word.checked_sub(1).map_or(Status::Unknown, |number| Status::Returned((number as u32).cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    #[test]
    fn what_is_no_number_comes_back() {
        fn check<T: Cell + PartialEq + Debug>(values: &[T]) {
            for value in values {
                assert_eq!(T::from_word(value.to_word()), *value);
            }
        }
        check(&HostKind::ALL);
        check(&DeviceKind::ALL);
        check(&[Status::Unknown, Status::Returned(0), Status::Returned(-1), Status::Returned(i32::MIN)]);
    }
}
