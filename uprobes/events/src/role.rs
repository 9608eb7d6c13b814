//! What an argument means.
//!
//! Owns: [`Role`]. Because: vendors name the same thing `hStream`, `stream` and `hGraphStream`; the reader of an
//! event just wants the stream. Does not: say what type an argument has or where it is.

macro_rules! roles {
    ($($variant:ident = $n:literal, $label:literal, $sentence:literal;)*) => {
        /// The meaning of a parameter. Numbers are append-only.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Role { $(#[doc = $sentence] $variant = $n,)* }

        impl Role {
            /// Every role, in numeric order.
            pub const ALL: &'static [Role] = &[$(Role::$variant,)*];

            /// Stable machine-readable name, kebab-case.
            pub const fn name(self) -> &'static str {
                match self { $(Role::$variant => $label,)* }
            }
        }
    };
}

roles! {
    Other = 0, "other", "nothing that is recorded";
    Function = 1, "function", "the kernel: a function handle, or the host stub that stands for it";
    GridX = 2, "grid-x", "blocks in x";
    GridY = 3, "grid-y", "blocks in y";
    GridZ = 4, "grid-z", "blocks in z";
    BlockX = 5, "block-x", "threads of a block in x";
    BlockY = 6, "block-y", "threads of a block in y";
    BlockZ = 7, "block-z", "threads of a block in z";
    Grid = 8, "grid", "blocks, as a dim3";
    Block = 9, "block", "threads of a block, as a dim3";
    GlobalX = 10, "global-x", "threads (not blocks) in x";
    GlobalY = 11, "global-y", "threads (not blocks) in y";
    GlobalZ = 12, "global-z", "threads (not blocks) in z";
    SharedBytes = 13, "shared-bytes", "dynamic shared memory, bytes";
    Stream = 14, "stream", "the stream";
    KernelArguments = 15, "kernel-arguments", "pointers to the kernel's arguments";
    Extra = 16, "extra", "the kernel's arguments as one buffer";
    Config = 17, "config", "a structure that configures the operation";
    LaunchList = 18, "launch-list", "an array of launches, one for each device";
    HostFunction = 19, "host-function", "a function of the host";
    CompletedFunction = 20, "completed-function", "a function of the host that gets full buffers";
    UserData = 21, "user-data", "what is passed to that function";
    Graph = 22, "graph", "a graph";
    GraphExec = 23, "graph-exec", "an instantiated graph";
    Node = 24, "node", "a node of a graph";
    OutNode = 25, "out-node", "where the handle of the new node is written";
    Parameters = 26, "parameters", "a structure of parameters";
    Mode = 27, "mode", "a mode of capture";
    Out = 28, "out", "where the result is written";
    OutPitch = 29, "out-pitch", "where the pitch is written";
    Destination = 30, "destination", "what is written to";
    Source = 31, "source", "what is read from";
    DeviceDestination = 32, "device-destination", "memory of a device that is written to";
    DeviceSource = 33, "device-source", "memory of a device that is read from";
    Bytes = 34, "bytes", "a number of bytes";
    Width = 35, "width", "bytes (of an array: elements) of a line";
    Height = 36, "height", "lines";
    Depth = 37, "depth", "planes";
    Extent = 38, "extent", "width, height and depth";
    DestinationPitch = 39, "destination-pitch", "bytes from line to line where it is written";
    SourcePitch = 40, "source-pitch", "bytes from line to line where it is read";
    Kind = 41, "kind", "the direction of a copy, or a kind of record";
    DestinationKind = 42, "destination-kind", "the kind of memory that is written to";
    SourceKind = 43, "source-kind", "the kind of memory that is read from";
    DestinationDevice = 44, "destination-device", "the device that is written to";
    SourceDevice = 45, "source-device", "the device that is read from";
    DestinationContext = 46, "destination-context", "the context that is written to";
    SourceContext = 47, "source-context", "the context that is read from";
    Copy = 48, "copy", "a structure that describes a copy";
    Operations = 49, "operations", "an array of operations";
    Sizes = 50, "sizes", "an array of sizes";
    Count = 51, "count", "a number of elements";
    Value = 52, "value", "the value to write or to wait for";
    Address = 53, "address", "the memory that it is about";
    Handle = 54, "handle", "the object that it is about";
    Event = 55, "event", "an event";
    StartEvent = 56, "start-event", "an event that is recorded before";
    StopEvent = 57, "stop-event", "an event that is recorded after";
    Flags = 58, "flags", "flags";
    Module = 59, "module", "a module or library of device code";
    Image = 60, "image", "device code in memory";
    Path = 61, "path", "a path, as a C string";
    Name = 62, "name", "a name, as a C string";
    Version = 63, "version", "the requested version";
    Context = 64, "context", "a context";
    Device = 65, "device", "the number of a device";
    Communicator = 66, "communicator", "a communicator";
    DataType = 67, "data-type", "the type of an element";
    Reduction = 68, "reduction", "the operation that reduces";
    Root = 69, "root", "the rank that sends to all, or receives from all";
    Peer = 70, "peer", "the rank at the other end";
    Ranks = 71, "ranks", "how many ranks there are";
    Rank = 72, "rank", "the own rank";
    Buffer = 73, "buffer", "a buffer of records";
    User = 74, "user", "what the user calls it";
    Sequence = 75, "sequence", "the number of an autograd node, within the thread that created it";
    ForwardThread = 76, "forward-thread", "the thread that created an autograd node, as the framework counts threads";
    StackPointer = 77, "stack-pointer", "the stack pointer";
    TotalAllocated = 78, "total-allocated", "bytes that an allocator has allocated";
    TotalReserved = 79, "total-reserved", "bytes that an allocator has reserved from the system or the driver";
    PackedDevice = 80, "packed-device", "the kind of a device in the lower byte, its number in the upper one (`c10::Device`)";
    ReturnAddress = 81, "return-address", "where the function returns to";
    Scope = 82, "scope", "what the framework's profiler classifies the call as (`at::RecordScope`)";
    OverloadBytes = 83, "overload-bytes", "bytes of the name of an operator's overload";
    Overload = 84, "overload", "eight bytes of the name of an operator's overload";
    TensorRank = 85, "tensor-rank", "how many sizes a tensor has; what follows is of the same one";
    TensorType = 86, "tensor-type", "the type of its elements (`c10::ScalarType`), as numbered from 2.4 on";
    TensorTypeOld = 87, "tensor-type-old", "the same in earlier versions, which number the later types differently";
    TensorSize = 88, "tensor-size", "one of its sizes";
    Stride = 89, "stride", "how many strides a convolution is given, then up to three";
    Padding = 90, "padding", "how many paddings a convolution is given, then up to three";
    Dilation = 91, "dilation", "how many dilations a convolution is given, then up to three";
    Transposed = 92, "transposed", "whether a convolution is a transposed one";
    Groups = 93, "groups", "into how many groups the channels of a convolution are divided";
    TensorStride = 94, "tensor-stride", "how far apart its elements are along one of its dimensions";
    TensorThere = 95, "tensor-there", "whether an optional tensor is present; what follows is of that one";
    ListLength = 96, "list-length", "how many tensors a list has; what follows are its first ones";
    ItemRank = 97, "item-rank", "how many sizes the next tensor of a list has; what follows is of the same one";
    NameBytes = 98, "name-bytes", "bytes of the name";
    UnitNumber = 99, "unit-number", "the number of what was compiled together (a module of XLA)";
    UnitNameBytes = 100, "unit-name-bytes", "bytes of its name";
    UnitName = 101, "unit-name", "eight bytes of its name";
    FramePointer = 102, "frame-pointer", "the frame of the caller, then that of its caller, and so on";
    UniqueId = 103, "unique-id", "eight bytes of the id by which ranks find each other, in order";
    Color = 104, "color", "which of the new communicators a rank joins";
    Dependencies = 105, "dependencies", "an array of nodes of a graph that come before";
    Dependency = 106, "dependency", "a node of a graph that comes before, one of an array";
    Dependents = 107, "dependents", "an array of nodes of a graph that come after those of another array";
    Dependent = 108, "dependent", "a node of a graph that comes after, one of an array";
    EdgeData = 109, "edge-data", "an array that says how nodes depend on each other";
    NodeKind = 110, "node-kind", "the kind of a node of a graph";
    ElementBytes = 111, "element-bytes", "bytes of an element";
}

#[cfg(test)]
mod tests {
    use super::Role;

    #[test]
    fn numbers_are_dense_and_keys_are_unique() {
        for (i, role) in Role::ALL.iter().enumerate() {
            assert_eq!(*role as usize, i);
            assert_eq!(Role::ALL.iter().filter(|other| other.name() == role.name()).count(), 1);
        }
    }
}
