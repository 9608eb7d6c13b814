//! Calls of accelerators' libraries: launches, copies, memory, synchronization, graphs, device code, contexts,
//! collectives.
//!
//! Owns: [`GpuCall`] and one enumeration for each group of calls. Because: a launch is a launch whether CUDA or HIP
//! makes it, and the stage that places GPU work handles one group at a time. Does not: know symbols or arguments.

/// A call of an accelerator's driver, runtime or collectives library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GpuCall {
    /// Launches kernels.
    Launch(LaunchCall),
    /// Queues a host function on a stream.
    HostFunction,
    /// Records, builds or launches a graph.
    Graph(GraphCall),
    /// Copies or fills memory.
    Transfer(TransferCall),
    /// Allocates or frees memory.
    Memory(MemoryCall),
    /// The host waits.
    Sync(SyncScope),
    /// Orders work within or between streams.
    Stream(StreamCall),
    /// Loads device code, or looks up a kernel.
    Module(ModuleCall),
    /// Creates or chooses a context or device.
    Context(ContextCall),
    /// Communicates between ranks.
    Collective(CollectiveCall),
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaunchCall {
    /// One kernel, with its launch shape as arguments.
    Kernel,
    /// One kernel, with its launch shape in a structure.
    KernelEx,
    /// One kernel whose blocks may synchronize with each other.
    Cooperative,
    /// Kernels on several devices at once.
    MultiDevice,
    /// One kernel whose launch shape was set by earlier calls (CUDA 2).
    Legacy,
    /// One kernel by function handle; the plain launch takes a host stub (HIP).
    Function,
    /// One kernel by function handle, with its shape in threads instead of blocks (HIP).
    Global,
}

/// An operation on a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GraphCall {
    /// A graph is launched.
    Launch,
    /// A graph is uploaded to the device before its launch.
    Upload,
    /// A stream begins to capture a graph instead of executing.
    CaptureBegin,
    /// A stream ends the capture.
    CaptureEnd,
    /// An executable graph is instantiated.
    Instantiate,
    /// An executable graph is changed.
    Update,
    /// A graph, executable or not, is destroyed.
    Release,
    /// A node is added to a graph explicitly.
    Node,
    /// A graph is copied; its nodes get new handles.
    Clone,
    /// A node without device work is added to a graph explicitly.
    NodeWithoutWork,
    /// Dependencies between nodes are added.
    AddDependencies,
    /// Dependencies between nodes are removed.
    RemoveDependencies,
}

/// A copy or fill of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransferCall {
    /// Bytes are copied.
    Copy(Direction, Timing),
    /// Memory is prefetched to where it will be needed.
    Prefetch,
    /// Elements of this many bytes are filled.
    Fill(u8, Timing),
}

/// Source and destination of a copy, or where they are specified.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// The driver derives it from the pointers.
    ByPointers = 0,
    /// An argument specifies it ([`crate::Role::Kind`]).
    ByKind = 1,
    /// A structure specifies it.
    ByParameters = 2,
    /// Each element of an array specifies it.
    Batch = 3,
    /// Host to device.
    HostToDevice = 4,
    /// Device to host.
    DeviceToHost = 5,
    /// Within a device.
    DeviceToDevice = 6,
    /// Between devices or contexts.
    Peer = 7,
    /// Host to an array.
    HostToArray = 8,
    /// An array to the host.
    ArrayToHost = 9,
    /// Device to an array.
    DeviceToArray = 10,
    /// An array to device memory.
    ArrayToDevice = 11,
    /// Between arrays.
    ArrayToArray = 12,
}

impl Direction {
    /// All, in numeric order.
    pub const ALL: [Self; 13] = [
        Self::ByPointers,
        Self::ByKind,
        Self::ByParameters,
        Self::Batch,
        Self::HostToDevice,
        Self::DeviceToHost,
        Self::DeviceToDevice,
        Self::Peer,
        Self::HostToArray,
        Self::ArrayToHost,
        Self::DeviceToArray,
        Self::ArrayToDevice,
        Self::ArrayToArray,
    ];
}

/// Whether the caller waits.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timing {
    /// The call may return before the work is done.
    Async = 0,
    /// The call returns when the work is done (or, for small copies from pageable memory, staged).
    Blocking = 1,
}

/// Whether memory is allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryCall {
    /// Memory is allocated.
    Alloc(MemoryKind),
    /// Memory is freed.
    Free(MemoryKind),
}

/// A kind of memory.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryKind {
    /// On the device.
    Device = 0,
    /// On the device, in the order of a stream.
    Async = 1,
    /// On either side, moved on demand.
    Managed = 2,
    /// On the host, pinned.
    Host = 3,
    /// On the host, allocated otherwise and pinned later.
    Registered = 4,
    /// Reserved addresses without memory.
    Reserved = 5,
    /// Physical memory without addresses.
    Physical = 6,
    /// Physical memory mapped to addresses.
    Mapped = 7,
}

impl MemoryKind {
    /// All, in numeric order.
    pub const ALL: [Self; 8] = [
        Self::Device,
        Self::Async,
        Self::Managed,
        Self::Host,
        Self::Registered,
        Self::Reserved,
        Self::Physical,
        Self::Mapped,
    ];
}

/// What the host waits for.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SyncScope {
    /// A stream.
    Stream = 0,
    /// An event.
    Event = 1,
    /// A context.
    Context = 2,
    /// A device.
    Device = 3,
}

impl SyncScope {
    /// All, in numeric order.
    pub const ALL: [Self; 4] = [Self::Stream, Self::Event, Self::Context, Self::Device];
}

/// An operation on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamCall {
    /// An event is recorded in a stream.
    EventRecord,
    /// A stream waits for an event.
    Wait,
    /// A stream is created.
    Create,
    /// A stream is destroyed.
    Destroy,
    /// A stream waits for a value in memory, or writes one.
    Value,
}

/// An operation on device code or the handles of its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModuleCall {
    /// Device code is loaded.
    Load,
    /// Device code is unloaded.
    Unload,
    /// A kernel is looked up by name; the returned handle gets that name.
    FunctionByName,
    /// A library's kernel is converted to a function of the current context.
    FunctionOfKernel,
    /// A library is converted to a module of the current context.
    ModuleOfLibrary,
    /// All kernels of a module are listed.
    FunctionList,
    /// The address of a driver function is looked up by name.
    ProcAddress,
    /// Device code embedded in the program's file is registered.
    FatBinary,
    /// Embedded device code is unregistered.
    FatBinaryUnload,
    /// A host stub is registered with the name of its kernel.
    FunctionStub,
    /// A host stub is converted to a kernel handle.
    KernelOfStub,
    /// A host stub is converted to a function handle.
    FunctionOfStub,
}

/// An operation on a context or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContextCall {
    /// A context is created.
    Create,
    /// A thread chooses its context.
    Current,
    /// A context is destroyed.
    Destroy,
    /// A thread chooses its device.
    Device,
}

/// Communication between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CollectiveCall {
    /// An operation on data.
    Operation(CollectiveOperation),
    /// Operations are deferred from now on.
    GroupBegin,
    /// The deferred operations are issued.
    GroupEnd,
    /// A communicator is created.
    CommunicatorCreate,
    /// A communicator is destroyed.
    CommunicatorDestroy,
}

/// What a collective does.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the name of an operation of MPI")]
pub enum CollectiveOperation {
    AllReduce = 0,
    Broadcast = 1,
    Reduce = 2,
    AllGather = 3,
    ReduceScatter = 4,
    AllToAll = 5,
    Gather = 6,
    Scatter = 7,
    Send = 8,
    Receive = 9,
    PutSignal = 10,
    Signal = 11,
    WaitSignal = 12,
}

impl CollectiveOperation {
    /// All, in numeric order.
    pub const ALL: [Self; 13] = [
        Self::AllReduce,
        Self::Broadcast,
        Self::Reduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::Send,
        Self::Receive,
        Self::PutSignal,
        Self::Signal,
        Self::WaitSignal,
    ];
}
