//! AMD's runtime interface, `libamdhip64.so`.
//!
//! Owns: its rows. Because: HIP has no separate driver library: programs and frameworks call here directly. Does not:
//! cover the layer below (`libhsa-runtime64`).
//!
//! Source: `hip_runtime_api.h` and `hip_ext.h` (HIP 6.4, package `libamdhip64-dev`); versions are the symbol versions
//! of the library itself (`hipMallocAsync@@hip_5.1`). `_spt` names have the parameters of the plain ones.
//! `__hipRegister*` are in no header; their parameters are those of CUDA's, as clang's code generator for offloading
//! emits them.

use deepctx_events::GpuCall::{Context, Graph, HostFunction, Launch, Memory, Module, Stream, Sync, Transfer};
use deepctx_events::{
    ContextCall, Direction, GraphCall, LaunchCall, MemoryCall, MemoryKind, ModuleCall, StreamCall, SyncScope,
    Timing, TransferCall,
};

use super::table::table;
use crate::row::Row;

pub(super) const ROWS: &[Row] = table! { Hip, Gpu:
    // Launches.
    Launch(LaunchCall::Kernel), NotNeeded => hipLaunchKernel 4.2, hipLaunchKernel_spt 5.2
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U64, Stream Pointer);
    Launch(LaunchCall::Kernel), NotNeeded => hipExtLaunchKernel 4.2
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U64, Stream Pointer,
         StartEvent Pointer, StopEvent Pointer, Flags I32);
    Launch(LaunchCall::Function), NotNeeded => hipModuleLaunchKernel 4.2
        (Function Pointer, GridX U32, GridY U32, GridZ U32, BlockX U32, BlockY U32, BlockZ U32,
         SharedBytes U32, Stream Pointer, KernelArguments Pointer, Extra Pointer);
    Launch(LaunchCall::Global), NotNeeded => hipExtModuleLaunchKernel 4.2
        (Function Pointer, GlobalX U32, GlobalY U32, GlobalZ U32, BlockX U32, BlockY U32, BlockZ U32,
         SharedBytes U64, Stream Pointer, KernelArguments Pointer, Extra Pointer, StartEvent Pointer,
         StopEvent Pointer, Flags U32);
    Launch(LaunchCall::Global), NotNeeded => hipHccModuleLaunchKernel 4.2
        (Function Pointer, GlobalX U32, GlobalY U32, GlobalZ U32, BlockX U32, BlockY U32, BlockZ U32,
         SharedBytes U64, Stream Pointer, KernelArguments Pointer, Extra Pointer, StartEvent Pointer,
         StopEvent Pointer);
    Launch(LaunchCall::Cooperative), NotNeeded => hipModuleLaunchCooperativeKernel 5.5
        (Function Pointer, GridX U32, GridY U32, GridZ U32, BlockX U32, BlockY U32, BlockZ U32,
         SharedBytes U32, Stream Pointer, KernelArguments Pointer);
    Launch(LaunchCall::MultiDevice), NotNeeded => hipExtLaunchMultiKernelMultiDevice 4.2
        (LaunchList Pointer, Count I32, Flags U32);
    Launch(LaunchCall::MultiDevice), NotNeeded => hipModuleLaunchCooperativeKernelMultiDevice 5.5
        (LaunchList Pointer, Count U32, Flags U32);
    Launch(LaunchCall::MultiDevice), NotNeeded => hipLaunchCooperativeKernelMultiDevice 4.2
        (LaunchList Pointer, Count I32, Flags U32);
    Launch(LaunchCall::Legacy), NotNeeded => hipLaunchByPtr 4.2 (Function Pointer);
    Launch(LaunchCall::Cooperative), NotNeeded => hipLaunchCooperativeKernel 4.2,
            hipLaunchCooperativeKernel_spt 5.2
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U32, Stream Pointer);
    HostFunction, NotNeeded => hipLaunchHostFunc 5.3, hipLaunchHostFunc_spt 5.3
        (Stream Pointer, HostFunction Pointer, UserData Pointer);
    HostFunction, NotNeeded => hipStreamAddCallback 4.2, hipStreamAddCallback_spt 5.3
        (Stream Pointer, HostFunction Pointer, UserData Pointer, Flags U32);

    // Graphs.
    Graph(GraphCall::Launch), NotNeeded => hipGraphLaunch 4.3, hipGraphLaunch_spt 5.3
        (GraphExec Pointer, Stream Pointer);
    Graph(GraphCall::Upload), NotNeeded => hipGraphUpload 5.3 (GraphExec Pointer, Stream Pointer);
    Graph(GraphCall::CaptureBegin), NotNeeded => hipStreamBeginCapture 4.3, hipStreamBeginCapture_spt 5.3
        (Stream Pointer, Mode U32);
    Graph(GraphCall::CaptureBegin), NotNeeded => hipStreamBeginCaptureToGraph 6.1
        (Stream Pointer, Graph Pointer, Other Pointer, Other Pointer, Other U64, Mode U32);
    Graph(GraphCall::CaptureEnd), OutPointer => hipStreamEndCapture 4.3, hipStreamEndCapture_spt 5.3
        (Stream Pointer, Out Pointer);
    Graph(GraphCall::Instantiate), OutPointer => hipGraphInstantiate 4.3
        (Out Pointer, Graph Pointer, Other Pointer, Other Pointer, Other U64);
    Graph(GraphCall::Instantiate), OutPointer => hipGraphInstantiateWithFlags 4.5
        (Out Pointer, Graph Pointer, Flags U64);
    Graph(GraphCall::Instantiate), OutPointer => hipGraphInstantiateWithParams 6.1
        (Out Pointer, Graph Pointer, Parameters Pointer);
    Graph(GraphCall::Update), Status => hipGraphExecUpdate 4.5
        (GraphExec Pointer, Graph Pointer, Other Pointer, Other Pointer);
    Graph(GraphCall::Release), NotNeeded => hipGraphExecDestroy 4.3 (GraphExec Pointer);
    Graph(GraphCall::Release), NotNeeded => hipGraphDestroy 4.3 (Graph Pointer);
    Graph(GraphCall::NodeWithoutWork), OutPointer => hipGraphAddHostNode 4.5
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::Node), OutPointer => hipGraphAddKernelNode 4.3
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer) with HIP_KERNEL_NODE;
    Graph(GraphCall::NodeWithoutWork), OutPointer => hipGraphAddMemAllocNode 5.5
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::NodeWithoutWork), OutPointer => hipGraphAddMemFreeNode 5.5
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Address Pointer);
    Graph(GraphCall::Node), OutPointer => hipGraphAddMemcpyNode 4.3
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Copy Pointer) with RUNTIME_COPY_3D;
    Graph(GraphCall::Node), OutPointer => hipGraphAddMemsetNode 4.3
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::Node), OutPointer => hipGraphAddNode 5.5
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::Clone), OutPointer => hipGraphClone 4.5 (Out Pointer, Graph Pointer);

    // Copies.
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Blocking)), Blocking => hipMemcpy 4.2, hipMemcpy_spt 5.2
        (Destination Pointer, Source Pointer, Bytes U64, Kind U32);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Async)), NotNeeded => hipMemcpyAsync 4.2, hipMemcpyAsync_spt 5.2
        (Destination Pointer, Source Pointer, Bytes U64, Kind U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Blocking)), Blocking => hipMemcpy2D 4.2, hipMemcpy2D_spt 5.2
        (Destination Pointer, DestinationPitch U64, Source Pointer, SourcePitch U64, Width U64, Height U64,
         Kind U32);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Async)), NotNeeded => hipMemcpy2DAsync 4.2,
            hipMemcpy2DAsync_spt 5.3
        (Destination Pointer, DestinationPitch U64, Source Pointer, SourcePitch U64, Width U64, Height U64,
         Kind U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::Peer, Timing::Blocking)), Blocking => hipMemcpyPeer 4.2
        (Destination Pointer, DestinationDevice I32, Source Pointer, SourceDevice I32, Bytes U64);
    Transfer(TransferCall::Copy(Direction::Peer, Timing::Async)), NotNeeded => hipMemcpyPeerAsync 4.2
        (Destination Pointer, DestinationDevice I32, Source Pointer, SourceDevice I32, Bytes U64,
         Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Blocking)), Blocking => hipMemcpyFromSymbol 4.2,
            hipMemcpyFromSymbol_spt 5.2
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Blocking)), Blocking => hipMemcpyToSymbol 4.2,
            hipMemcpyToSymbol_spt 5.2
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Async)), NotNeeded => hipMemcpyFromSymbolAsync 4.2,
            hipMemcpyFromSymbolAsync_spt 5.3
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Async)), NotNeeded => hipMemcpyToSymbolAsync 4.2,
            hipMemcpyToSymbolAsync_spt 5.3
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Blocking)), Blocking => hipMemcpy3D 4.2, hipMemcpy3D_spt 5.2
        (Copy Pointer) with RUNTIME_COPY_3D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Async)), NotNeeded => hipMemcpy3DAsync 4.2,
            hipMemcpy3DAsync_spt 5.3
        (Copy Pointer, Stream Pointer) with RUNTIME_COPY_3D;
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Blocking)), Blocking => hipMemcpyWithStream 4.2
        (Destination Pointer, Source Pointer, Bytes U64, Kind U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::HostToDevice, Timing::Blocking)), Blocking => hipMemcpyHtoD 4.2
        (Destination Pointer, Source Pointer, Bytes U64);
    Transfer(TransferCall::Copy(Direction::HostToDevice, Timing::Async)), NotNeeded => hipMemcpyHtoDAsync 4.2
        (Destination Pointer, Source Pointer, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::DeviceToHost, Timing::Blocking)), Blocking => hipMemcpyDtoH 4.2
        (Destination Pointer, Source Pointer, Bytes U64);
    Transfer(TransferCall::Copy(Direction::DeviceToHost, Timing::Async)), NotNeeded => hipMemcpyDtoHAsync 4.2
        (Destination Pointer, Source Pointer, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::DeviceToDevice, Timing::Blocking)), Blocking => hipMemcpyDtoD 4.2
        (Destination Pointer, Source Pointer, Bytes U64);
    Transfer(TransferCall::Copy(Direction::DeviceToDevice, Timing::Async)), NotNeeded => hipMemcpyDtoDAsync 4.2
        (Destination Pointer, Source Pointer, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::HostToArray, Timing::Blocking)), Blocking => hipMemcpyHtoA 4.2
        (Destination Pointer, Other U64, Source Pointer, Bytes U64);
    Transfer(TransferCall::Copy(Direction::HostToArray, Timing::Async)), NotNeeded => hipMemcpyHtoAAsync 6.2
        (Destination Pointer, Other U64, Source Pointer, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ArrayToHost, Timing::Blocking)), Blocking => hipMemcpyAtoH 4.2
        (Destination Pointer, Source Pointer, Other U64, Bytes U64);
    Transfer(TransferCall::Copy(Direction::ArrayToHost, Timing::Async)), NotNeeded => hipMemcpyAtoHAsync 6.2
        (Destination Pointer, Source Pointer, Other U64, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ArrayToDevice, Timing::Blocking)), Blocking => hipMemcpyAtoD 6.2
        (Destination Pointer, Source Pointer, Other U64, Bytes U64);
    Transfer(TransferCall::Copy(Direction::DeviceToArray, Timing::Blocking)), Blocking => hipMemcpyDtoA 6.2
        (Destination Pointer, Other U64, Source Pointer, Bytes U64);
    Transfer(TransferCall::Copy(Direction::ArrayToArray, Timing::Blocking)), Blocking => hipMemcpyAtoA 6.2
        (Destination Pointer, Other U64, Source Pointer, Other U64, Bytes U64);
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Blocking)), Blocking => hipDrvMemcpy2DUnaligned 4.3
        (Copy Pointer) with COPY_2D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Blocking)), Blocking => hipDrvMemcpy3D 4.2
        (Copy Pointer) with HIP_DRIVER_COPY_3D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Blocking)), Blocking => hipMemcpyParam2D 4.2
        (Copy Pointer) with COPY_2D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Async)), NotNeeded => hipDrvMemcpy3DAsync 4.2
        (Copy Pointer, Stream Pointer) with HIP_DRIVER_COPY_3D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Async)), NotNeeded => hipMemcpyParam2DAsync 4.2
        (Copy Pointer, Stream Pointer) with COPY_2D;
    Transfer(TransferCall::Prefetch), NotNeeded => hipMemPrefetchAsync 4.2
        (Address Pointer, Bytes U64, Device I32, Stream Pointer);

    // Fills.
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => hipMemset 4.2, hipMemset_spt 5.2
        (Destination Pointer, Value I32, Bytes U64);
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => hipMemset2D 4.2, hipMemset2D_spt 5.2
        (Destination Pointer, DestinationPitch U64, Value I32, Width U64, Height U64);
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => hipMemset3D 4.2, hipMemset3D_spt 5.2
        (Destination PitchedPointer, Value I32, Extent Extent);
    Transfer(TransferCall::Fill(1, Timing::Async)), NotNeeded => hipMemset2DAsync 4.2, hipMemset2DAsync_spt 5.3
        (Destination Pointer, DestinationPitch U64, Value I32, Width U64, Height U64, Stream Pointer);
    Transfer(TransferCall::Fill(1, Timing::Async)), NotNeeded => hipMemset3DAsync 4.2, hipMemset3DAsync_spt 5.3
        (Destination PitchedPointer, Value I32, Extent Extent, Stream Pointer);
    Transfer(TransferCall::Fill(1, Timing::Async)), NotNeeded => hipMemsetAsync 4.2, hipMemsetAsync_spt 5.3
        (Destination Pointer, Value I32, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => hipMemsetD8 4.2
        (Destination Pointer, Value U8, Count U64);
    Transfer(TransferCall::Fill(1, Timing::Async)), NotNeeded => hipMemsetD8Async 4.2
        (Destination Pointer, Value U8, Count U64, Stream Pointer);
    Transfer(TransferCall::Fill(2, Timing::Blocking)), Blocking => hipMemsetD16 4.2
        (Destination Pointer, Value U16, Count U64);
    Transfer(TransferCall::Fill(2, Timing::Async)), NotNeeded => hipMemsetD16Async 4.2
        (Destination Pointer, Value U16, Count U64, Stream Pointer);
    Transfer(TransferCall::Fill(4, Timing::Blocking)), Blocking => hipMemsetD32 4.2
        (Destination Pointer, Value I32, Count U64);
    Transfer(TransferCall::Fill(4, Timing::Async)), NotNeeded => hipMemsetD32Async 4.2
        (Destination Pointer, Value I32, Count U64, Stream Pointer);

    // Memory.
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => hipMalloc 4.2 (Out Pointer, Bytes U64);
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => hipMalloc3D 4.2 (Out Pointer, Extent Extent);
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => hipMallocPitch 4.2
        (Out Pointer, OutPitch Pointer, Width U64, Height U64);
    Memory(MemoryCall::Free(MemoryKind::Device)), NotNeeded => hipFree 4.2 (Address Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Async)), OutPointer => hipMallocAsync 5.1 (Out Pointer, Bytes U64, Stream Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Async)), OutPointer => hipMallocFromPoolAsync 5.1
        (Out Pointer, Bytes U64, Other Pointer, Stream Pointer);
    Memory(MemoryCall::Free(MemoryKind::Async)), NotNeeded => hipFreeAsync 5.1 (Address Pointer, Stream Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Managed)), OutPointer => hipMallocManaged 4.2 (Out Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Alloc(MemoryKind::Host)), OutPointer => hipHostAlloc 4.2 (Out Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Alloc(MemoryKind::Host)), OutPointer => hipMallocHost 4.2 (Out Pointer, Bytes U64);
    Memory(MemoryCall::Free(MemoryKind::Host)), NotNeeded => hipFreeHost 4.2 (Address Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Registered)), Status => hipHostRegister 4.2 (Address Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Free(MemoryKind::Registered)), NotNeeded => hipHostUnregister 4.2 (Address Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Host)), OutPointer => hipHostMalloc 4.2 (Out Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Alloc(MemoryKind::Host)), OutPointer => hipMemAllocHost 4.2 (Out Pointer, Bytes U64);
    Memory(MemoryCall::Free(MemoryKind::Host)), NotNeeded => hipHostFree 4.2 (Address Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => hipExtMallocWithFlags 4.2
        (Out Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => hipMemAllocPitch 4.2
        (Out Pointer, OutPitch Pointer, Width U64, Height U64, Other U32);
    Memory(MemoryCall::Alloc(MemoryKind::Reserved)), OutPointer => hipMemAddressReserve 5.1
        (Out Pointer, Bytes U64, Other U64, Address Pointer, Flags U64);
    Memory(MemoryCall::Free(MemoryKind::Reserved)), NotNeeded => hipMemAddressFree 5.1 (Address Pointer, Bytes U64);
    Memory(MemoryCall::Alloc(MemoryKind::Physical)), OutPointer => hipMemCreate 5.1
        (Out Pointer, Bytes U64, Other Pointer, Flags U64);
    Memory(MemoryCall::Free(MemoryKind::Physical)), NotNeeded => hipMemRelease 5.1 (Handle Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Mapped)), Status => hipMemMap 5.1
        (Address Pointer, Bytes U64, Other U64, Handle Pointer, Flags U64);
    Memory(MemoryCall::Free(MemoryKind::Mapped)), NotNeeded => hipMemUnmap 5.1 (Address Pointer, Bytes U64);

    // Waiting on the host.
    Sync(SyncScope::Stream), Blocking => hipStreamSynchronize 4.2, hipStreamSynchronize_spt 5.2
        (Stream Pointer);
    Sync(SyncScope::Device), Blocking => hipDeviceSynchronize 4.2 ();
    Sync(SyncScope::Event), Blocking => hipEventSynchronize 4.2 (Event Pointer);
    Sync(SyncScope::Context), Blocking => hipCtxSynchronize 4.2 ();

    // Streams and events.
    Stream(StreamCall::EventRecord), NotNeeded => hipEventRecord 4.2, hipEventRecord_spt 5.2
        (Event Pointer, Stream Pointer);
    Stream(StreamCall::EventRecord), NotNeeded => hipEventRecordWithFlags 6.4 (Event Pointer, Stream Pointer, Flags U32);
    Stream(StreamCall::Wait), NotNeeded => hipStreamWaitEvent 4.2, hipStreamWaitEvent_spt 5.2
        (Stream Pointer, Event Pointer, Flags U32);
    Stream(StreamCall::Create), OutPointer => hipStreamCreate 4.2 (Out Pointer);
    Stream(StreamCall::Create), OutPointer => hipStreamCreateWithFlags 4.2 (Out Pointer, Flags U32);
    Stream(StreamCall::Create), OutPointer => hipStreamCreateWithPriority 4.2 (Out Pointer, Flags U32, Other I32);
    Stream(StreamCall::Destroy), NotNeeded => hipStreamDestroy 4.2 (Stream Pointer);
    Stream(StreamCall::Value), NotNeeded => hipStreamWaitValue32 4.4
        (Stream Pointer, Address Pointer, Value U32, Flags U32, Other U32);
    Stream(StreamCall::Value), NotNeeded => hipStreamWaitValue64 4.4
        (Stream Pointer, Address Pointer, Value U64, Flags U32, Other U64);
    Stream(StreamCall::Value), NotNeeded => hipStreamWriteValue32 4.4
        (Stream Pointer, Address Pointer, Value U32, Flags U32);
    Stream(StreamCall::Value), NotNeeded => hipStreamWriteValue64 4.4
        (Stream Pointer, Address Pointer, Value U64, Flags U32);
    Stream(StreamCall::Value), NotNeeded => hipStreamBatchMemOp 6.4
        (Stream Pointer, Count U32, Operations Pointer, Flags U32);

    // Code and its names.
    Module(ModuleCall::FatBinary), Returned => __hipRegisterFatBinary 4.2 (Image Pointer);
    Module(ModuleCall::FunctionStub), NotNeeded => __hipRegisterFunction 4.2
        (Module Pointer, Function Pointer, Other Pointer, Name Pointer, Other I32, Other Pointer,
         Other Pointer, Other Pointer, Other Pointer, Other Pointer);
    Module(ModuleCall::FatBinaryUnload), NotNeeded => __hipUnregisterFatBinary 4.2 (Module Pointer);
    Module(ModuleCall::FunctionOfStub), OutPointer => hipGetFuncBySymbol 6.2 (Out Pointer, Function Pointer);
    Module(ModuleCall::Load), OutPointer => hipModuleLoad 4.2 (Out Pointer, Path Pointer);
    Module(ModuleCall::Load), OutPointer => hipModuleLoadData 4.2 (Out Pointer, Image Pointer);
    Module(ModuleCall::Load), OutPointer => hipModuleLoadDataEx 4.2
        (Out Pointer, Image Pointer, Other U32, Other Pointer, Other Pointer);
    Module(ModuleCall::Unload), NotNeeded => hipModuleUnload 4.2 (Module Pointer);
    Module(ModuleCall::FunctionByName), OutPointer => hipModuleGetFunction 4.2
        (Out Pointer, Module Pointer, Name Pointer);
    Module(ModuleCall::ProcAddress), OutPointer => hipGetProcAddress 6.1
        (Name Pointer, Out Pointer, Version I32, Flags U64, Other Pointer);

    // Devices.
    Context(ContextCall::Device), NotNeeded => hipSetDevice 4.2 (Device I32);
    Context(ContextCall::Create), OutPointer => hipCtxCreate 4.2 (Out Pointer, Flags U32, Device I32);
    Context(ContextCall::Create), OutPointer => hipDevicePrimaryCtxRetain 4.2 (Out Pointer, Device I32);
    Context(ContextCall::Current), NotNeeded => hipCtxPushCurrent 4.2 (Context Pointer);
    Context(ContextCall::Current), NotNeeded => hipCtxSetCurrent 4.2 (Context Pointer);
    Context(ContextCall::Destroy), NotNeeded => hipCtxDestroy 4.2 (Context Pointer);
};
