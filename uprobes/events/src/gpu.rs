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
    /// Puts a function of the host into a stream.
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

/// How kernels are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaunchCall {
    /// One kernel, with its shape as arguments.
    Kernel,
    /// One kernel, with its shape in a structure.
    KernelEx,
    /// One kernel whose blocks may wait for each other.
    Cooperative,
    /// Kernels on several devices at once.
    MultiDevice,
    /// One kernel whose shape was set by earlier calls (CUDA 2).
    Legacy,
    /// One kernel by function handle, where the plain launch takes a host stub (HIP).
    Function,
    /// The same, with its shape in threads instead of blocks (HIP).
    Global,
}

/// What is done with a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GraphCall {
    /// A graph is launched.
    Launch,
    /// A graph is sent to the device ahead of its launch.
    Upload,
    /// A stream starts to record a graph instead of working.
    CaptureBegin,
    /// A stream stops recording.
    CaptureEnd,
    /// A graph is made launchable.
    Instantiate,
    /// A launchable graph is changed.
    Update,
    /// A launchable graph is destroyed.
    Release,
    /// A node is added to a graph by hand.
    Node,
    /// A graph is copied; its nodes get new handles.
    Clone,
    /// A node that gives a device no work is added to a graph by hand.
    NodeWithoutWork,
    /// Nodes of a graph are made to come after others.
    AddDependencies,
    /// They need not any more.
    RemoveDependencies,
}

/// What is done with the contents of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransferCall {
    /// Bytes are copied.
    Copy(Direction, Timing),
    /// Memory is moved to where it will be needed.
    Prefetch,
    /// Elements of this many bytes are set.
    Fill(u8, Timing),
}

/// From where to where a copy goes, or where that is said.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// The driver decides by the pointers.
    ByPointers = 0,
    /// An argument says so ([`crate::Role::Kind`]).
    ByKind = 1,
    /// A structure says so.
    ByParameters = 2,
    /// Each element of an array says so.
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
    /// The call returns when the work is done (or, of small copies from pageable memory, staged).
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
    /// On the host, pinned after it was allocated otherwise.
    Registered = 4,
    /// Addresses without memory.
    Reserved = 5,
    /// Memory without addresses.
    Physical = 6,
    /// Memory given to addresses.
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

/// What is done with a stream.
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

/// What is done with device code and the handles of its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModuleCall {
    /// Device code is loaded.
    Load,
    /// Device code is unloaded.
    Unload,
    /// A kernel is looked up by name: the returned handle has that name from now on.
    FunctionByName,
    /// A library's kernel is turned into a function of the current context.
    FunctionOfKernel,
    /// A library is turned into a module of the current context.
    ModuleOfLibrary,
    /// All kernels of a module are listed.
    FunctionList,
    /// The address of a driver function is looked up by name.
    ProcAddress,
    /// Device code in the program's own file is registered.
    FatBinary,
    /// It is unregistered.
    FatBinaryUnload,
    /// A host stub is given the name of its kernel.
    FunctionStub,
    /// A host stub is turned into a kernel handle.
    KernelOfStub,
    /// A host stub is turned into a function handle.
    FunctionOfStub,
}

/// What is done with contexts and devices.
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

/// What ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CollectiveCall {
    /// Ranks work on data.
    Operation(CollectiveOperation),
    /// Operations are held back from now on.
    GroupBegin,
    /// What was held back is issued.
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
