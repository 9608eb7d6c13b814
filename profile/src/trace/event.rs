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
    /// Its process: a number, or text if the tool writes text.
    pub process: StrId,
    /// Its thread.
    pub thread: StrId,
}

/// A stream of a device: work on it runs in the order of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    /// Number of the device, as the tool counts them.
    pub device: u32,
    /// Number of the stream; `None` if the tool names none.
    pub stream: Option<u64>,
}

/// Kind of a host operation.
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
    /// A range named by the program.
    Annotation,
    /// A training step, with its number in the name (`ProfilerStep#7`).
    Step,
    /// The whole process, as exports of this project show it.
    Process,
    /// The thread was off its CPU: it waited for something, or for a CPU.
    OffCpu,
    /// Anything else.
    Other,
    /// A kind that the tool names and this project does not know: see [`HostCategory`]. It may not be time of its
    /// thread.
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

    /// Stable name, in files and tables.
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
    /// A thread without a number here, in another pid namespace.
    Outside,
    /// An interrupt: a timer, a device, a packet.
    Interrupt,
}

/// The value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterValue(u64);

impl CounterValue {
    /// The value for a number.
    pub fn new(value: f64) -> Self {
        CounterValue(value.to_bits())
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// The result of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// Not in the trace.
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
    /// An operation of a thread.
    pub struct HostOp in packed HostOps {
        /// The thread.
        pub thread: Id<Thread>,
        /// Its kind.
        pub kind: HostKind,
        /// Begin.
        pub begin: TraceTime,
        /// Length.
        pub duration: Duration,
        /// Its name.
        pub name: StrId,
        /// Number that connects a call with the work it launched; 0 for none.
        pub correlation: u64,
        /// Its result.
        pub status: Status,
        /// Calling context; the root while unknown.
        pub context: NodeId,
    }
}

columns! {
    /// An operation of a device.
    pub struct DeviceOp in packed DeviceOps {
        /// The stream.
        pub stream: Id<Stream>,
        /// Its kind.
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
    /// Order of graph nodes, at each launch of the graph. A node without a row has no known order.
    pub struct GraphEdge in plain GraphEdges {
        /// The predecessor, as [`DeviceOp::graph_node`]; 0: none.
        pub from: u64,
        /// The successor.
        pub to: u64,
        /// How this is known.
        pub basis: Basis,
    }
}

columns! {
    /// A synchronization as a tool draws it on a device's row: a fact about a call, never work of the device.
    pub struct Sync in plain Syncs {
        /// What is waited for.
        pub kind: SyncKind,
        /// The stream that waits or is waited for; `None` if the host waits for an event or a context.
        pub stream: Option<Id<Stream>>,
        /// Begin.
        pub begin: TraceTime,
        /// Length.
        pub duration: Duration,
        /// Number of the call.
        pub correlation: u64,
        /// Number of the call that recorded the event; `None` if the tool does not report it.
        pub record: Option<u64>,
        /// The stream that the event was recorded on; `None` if the tool does not report it.
        pub recorded_on: Option<Id<Stream>>,
    }
}

columns! {
    /// The tool's name for the kind of an operation of [`HostKind::UnknownCategory`].
    pub struct HostCategory in plain HostCategories {
        /// The operation.
        pub op: Id<HostOp>,
        /// The tool's name.
        pub category: StrId,
    }
}

columns! {
    /// A change of a counter.
    pub struct CounterStep in plain CounterSteps {
        /// The process.
        pub process: StrId,
        /// The counter.
        pub name: StrId,
        /// The series that changed.
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
        /// The lane as text (`thread 8`, `gpu0 stream 7`): it may have no kept event.
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
    /// Facts about a collective operation, besides the kernel that runs it.
    pub struct CollectiveNote in plain CollectiveNotes {
        /// The kernel.
        pub op: Id<DeviceOp>,
        /// Name of the operation (`allreduce`).
        pub operation: StrId,
        /// The group of ranks that takes part.
        pub communicator: StrId,
        /// Ranks in the group; 0 when unknown.
        pub group_size: u32,
        /// Number of input elements.
        pub elements_in: u64,
        /// Type of the elements.
        pub element: StrId,
        /// Number of earlier collectives of the group; `None` if the tool does not report it.
        pub ordinal: Option<u64>,
        /// Of a message: the rank of the job that it goes to (`send`) or comes from (`recv`), if the tool reports it.
        pub peer: Option<u32>,
    }
}

columns! {
    /// The ranks of a communicator. One without a row is known by its name only.
    pub struct CommunicatorGroup in plain CommunicatorGroups {
        /// The communicator.
        pub communicator: StrId,
        /// Its ranks, as text of [`GroupRanks`](super::GroupRanks).
        pub ranks: StrId,
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
        /// Change in bytes; negative for a free.
        pub bytes: i64,
        /// Allocated bytes afterwards; `None` if the tool does not report them.
        pub allocated: Option<Bytes>,
        /// Bytes held by the allocator afterwards; `None` if the tool does not report them.
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
    /// An operation joined to its call by id, without bytes, outside graphs.
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

impl DeviceRange {
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
