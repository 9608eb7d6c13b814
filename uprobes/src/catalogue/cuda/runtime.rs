//! NVIDIA's runtime interface, `libcudart.so`, or its archive within any file.
//!
//! Owns: its rows. Because: host stubs and the device code of a program are registered only here, and if the driver
//! cannot be probed this is the next best layer. Does not: count what the driver's rows count.
//!
//! Source: parameters and versions of `generated_cuda_runtime_api_meta.h` and `cupti_runtime_cbid.h` (package
//! `nvidia-cuda-cupti`, 13.5 and for `@12` rows 12.9), `__cudaRegister*` of `crt/host_runtime.h` (package
//! `nvidia-cuda-crt`). `__cudaLaunchKernel` and `__cudaGetKernel` are in no header: the compiler declares them, and
//! `crt/host_runtime.h` calls them. 12.0.146 and later export them.

use deepctx_events::GpuCall::{Context, Graph, HostFunction, Launch, Memory, Module, Stream, Sync, Transfer};
use deepctx_events::{
    ContextCall, Direction, GraphCall, LaunchCall, MemoryCall, MemoryKind, ModuleCall, StreamCall, SyncScope,
    Timing, TransferCall,
};

use crate::catalogue::table::table;
use crate::row::Row;

pub(in crate::catalogue) const ROWS: &[Row] = table! { CudaRuntime, Gpu:
    // Launches.
    Launch(LaunchCall::Kernel), NotNeeded => cudaLaunchKernel 7.0, cudaLaunchKernel_ptsz 7.0
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U64, Stream Pointer);
    Launch(LaunchCall::Kernel), NotNeeded => __cudaLaunchKernel 12.0, __cudaLaunchKernel_ptsz 12.0
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U64, Stream Pointer);
    Launch(LaunchCall::KernelEx), NotNeeded => cudaLaunchKernelExC 11.6, cudaLaunchKernelExC_ptsz 11.6
        (Config Pointer, Function Pointer, KernelArguments Pointer) with RUNTIME_LAUNCH_CONFIG;
    Launch(LaunchCall::Cooperative), NotNeeded => cudaLaunchCooperativeKernel 9.0,
            cudaLaunchCooperativeKernel_ptsz 9.0
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U64, Stream Pointer);
    HostFunction, NotNeeded => cudaLaunchHostFunc 10.0, cudaLaunchHostFunc_ptsz 10.0
        (Stream Pointer, HostFunction Pointer, UserData Pointer);
    HostFunction, NotNeeded => cudaLaunchHostFunc_v2 13.2, cudaLaunchHostFunc_v2_ptsz 13.2
        (Stream Pointer, HostFunction Pointer, UserData Pointer, Other U32);
    HostFunction, NotNeeded => cudaStreamAddCallback 5.0, cudaStreamAddCallback_ptsz 7.0
        (Stream Pointer, HostFunction Pointer, UserData Pointer, Flags U32);

    // Graphs.
    Graph(GraphCall::Launch), NotNeeded => cudaGraphLaunch 10.0, cudaGraphLaunch_ptsz 10.0
        (GraphExec Pointer, Stream Pointer);
    Graph(GraphCall::Upload), NotNeeded => cudaGraphUpload 10.0, cudaGraphUpload_ptsz 10.0
        (GraphExec Pointer, Stream Pointer);
    Graph(GraphCall::CaptureBegin), NotNeeded => cudaStreamBeginCapture 10.0, cudaStreamBeginCapture_ptsz 10.0
        (Stream Pointer, Mode U32);
    Graph(GraphCall::CaptureBegin), NotNeeded => cudaStreamBeginCaptureToGraph 12.3,
            cudaStreamBeginCaptureToGraph_ptsz 12.3
        (Stream Pointer, Graph Pointer, Other Pointer, Other Pointer, Other U64, Mode U32);
    Graph(GraphCall::CaptureBegin), NotNeeded => cudaStreamBeginRecaptureToGraph 13.3,
            cudaStreamBeginRecaptureToGraph_ptsz 13.3
        (Stream Pointer, Mode U32, Graph Pointer, Other Pointer);
    Graph(GraphCall::CaptureEnd), OutPointer => cudaStreamEndCapture 10.0, cudaStreamEndCapture_ptsz 10.0
        (Stream Pointer, Out Pointer);
    Graph(GraphCall::Instantiate), OutPointer => cudaGraphInstantiate @13 12.0, cudaGraphInstantiate @12 12.0
        (Out Pointer, Graph Pointer, Flags U64);
    Graph(GraphCall::Instantiate), OutPointer => cudaGraphInstantiateWithFlags 11.4
        (Out Pointer, Graph Pointer, Flags U64);
    Graph(GraphCall::Instantiate), OutPointer => cudaGraphInstantiateWithParams 12.0,
            cudaGraphInstantiateWithParams_ptsz 12.0
        (Out Pointer, Graph Pointer, Parameters Pointer);
    Graph(GraphCall::Update), Status => cudaGraphExecUpdate 10.2
        (GraphExec Pointer, Graph Pointer, Other Pointer);
    Graph(GraphCall::Release), NotNeeded => cudaGraphExecDestroy 10.0 (GraphExec Pointer);
    Graph(GraphCall::Release), NotNeeded => cudaGraphDestroy 10.0 (Graph Pointer);
    Graph(GraphCall::NodeWithoutWork), OutPointer => cudaGraphAddHostNode 10.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::Node), OutPointer => cudaGraphAddKernelNode 10.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64,
         Parameters Pointer) with RUNTIME_KERNEL_NODE;
    Graph(GraphCall::NodeWithoutWork), OutPointer => cudaGraphAddMemAllocNode 11.4
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::NodeWithoutWork), OutPointer => cudaGraphAddMemFreeNode 11.4
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Address Pointer);
    Graph(GraphCall::Node), OutPointer => cudaGraphAddMemcpyNode 10.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Copy Pointer) with RUNTIME_COPY_3D;
    Graph(GraphCall::Node), OutPointer => cudaGraphAddMemsetNode 10.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::Node), OutPointer => cudaGraphAddNode @13 13.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, EdgeData Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::Node), OutPointer => cudaGraphAddNode @12 12.2
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::Clone), OutPointer => cudaGraphClone 10.0 (Out Pointer, Graph Pointer);

    // Copies.
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Blocking)), Blocking => cudaMemcpy 3.2, cudaMemcpy_ptds 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Kind U32);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Async)), NotNeeded => cudaMemcpyAsync 3.2,
            cudaMemcpyAsync_ptsz 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Kind U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Blocking)), Blocking => cudaMemcpy2D 3.2, cudaMemcpy2D_ptds 7.0
        (Destination Pointer, DestinationPitch U64, Source Pointer, SourcePitch U64, Width U64, Height U64,
         Kind U32);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Async)), NotNeeded => cudaMemcpy2DAsync 3.2,
            cudaMemcpy2DAsync_ptsz 7.0
        (Destination Pointer, DestinationPitch U64, Source Pointer, SourcePitch U64, Width U64, Height U64,
         Kind U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::Peer, Timing::Blocking)), Blocking => cudaMemcpyPeer 4.0
        (Destination Pointer, DestinationDevice I32, Source Pointer, SourceDevice I32, Bytes U64);
    Transfer(TransferCall::Copy(Direction::Peer, Timing::Async)), NotNeeded => cudaMemcpyPeerAsync 4.0
        (Destination Pointer, DestinationDevice I32, Source Pointer, SourceDevice I32, Bytes U64,
         Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Blocking)), Blocking => cudaMemcpyFromSymbol 3.2,
            cudaMemcpyFromSymbol_ptds 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Blocking)), Blocking => cudaMemcpyToSymbol 3.2,
            cudaMemcpyToSymbol_ptds 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Async)), NotNeeded => cudaMemcpyFromSymbolAsync 3.2,
            cudaMemcpyFromSymbolAsync_ptsz 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ByKind, Timing::Async)), NotNeeded => cudaMemcpyToSymbolAsync 3.2,
            cudaMemcpyToSymbolAsync_ptsz 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Blocking)), Blocking => cudaMemcpy3D 3.2,
            cudaMemcpy3D_ptds 7.0
        (Copy Pointer) with RUNTIME_COPY_3D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Async)), NotNeeded => cudaMemcpy3DAsync 3.2,
            cudaMemcpy3DAsync_ptsz 7.0
        (Copy Pointer, Stream Pointer) with RUNTIME_COPY_3D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Blocking)), Blocking => cudaMemcpy3DPeer 4.0,
            cudaMemcpy3DPeer_ptds 7.0
        (Copy Pointer) with RUNTIME_COPY_3D_PEER;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Async)), NotNeeded => cudaMemcpy3DPeerAsync 4.0,
            cudaMemcpy3DPeerAsync_ptsz 7.0
        (Copy Pointer, Stream Pointer) with RUNTIME_COPY_3D_PEER;
    Transfer(TransferCall::Copy(Direction::Batch, Timing::Async)), NotNeeded => cudaMemcpy3DBatchAsync @13 13.0,
            cudaMemcpy3DBatchAsync_ptsz @13 13.0
        (Count U64, Operations Pointer, Flags U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::Batch, Timing::Async)), NotNeeded => cudaMemcpyBatchAsync @13 13.0,
            cudaMemcpyBatchAsync_ptsz @13 13.0
        (Destination Pointer, Source Pointer, Sizes Pointer, Count U64, Other Pointer, Other Pointer,
         Other U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::Batch, Timing::Async)), NotNeeded => cudaMemcpy3DBatchAsync @12 12.8,
            cudaMemcpy3DBatchAsync_ptsz @12 12.8
        (Count U64, Operations Pointer, Other Pointer, Flags U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::Batch, Timing::Async)), NotNeeded => cudaMemcpyBatchAsync @12 12.8,
            cudaMemcpyBatchAsync_ptsz @12 12.8
        (Destination Pointer, Source Pointer, Sizes Pointer, Count U64, Other Pointer, Other Pointer,
         Other U64, Other Pointer, Stream Pointer);
    Transfer(TransferCall::Prefetch), NotNeeded => cudaMemPrefetchAsync @13 13.0, cudaMemPrefetchAsync_ptsz @13 13.0
        (Address Pointer, Bytes U64, Other Struct(8), Flags U32, Stream Pointer);
    Transfer(TransferCall::Prefetch), NotNeeded => cudaMemPrefetchAsync @12 8.0, cudaMemPrefetchAsync_ptsz @12 8.0
        (Address Pointer, Bytes U64, DestinationDevice I32, Stream Pointer);

    // Fills.
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => cudaMemset 3.2, cudaMemset_ptds 7.0
        (Destination Pointer, Value I32, Bytes U64);
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => cudaMemset2D 3.2, cudaMemset2D_ptds 7.0
        (Destination Pointer, DestinationPitch U64, Value I32, Width U64, Height U64);
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => cudaMemset3D 3.2, cudaMemset3D_ptds 7.0
        (Destination PitchedPointer, Value I32, Extent Extent);
    Transfer(TransferCall::Fill(1, Timing::Async)), NotNeeded => cudaMemset2DAsync 3.2, cudaMemset2DAsync_ptsz 7.0
        (Destination Pointer, DestinationPitch U64, Value I32, Width U64, Height U64, Stream Pointer);
    Transfer(TransferCall::Fill(1, Timing::Async)), NotNeeded => cudaMemset3DAsync 3.2, cudaMemset3DAsync_ptsz 7.0
        (Destination PitchedPointer, Value I32, Extent Extent, Stream Pointer);
    Transfer(TransferCall::Fill(1, Timing::Async)), NotNeeded => cudaMemsetAsync 3.2, cudaMemsetAsync_ptsz 7.0
        (Destination Pointer, Value I32, Bytes U64, Stream Pointer);

    // Memory.
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => cudaMalloc 3.2 (Out Pointer, Bytes U64);
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => cudaMalloc3D 3.2 (Out Pointer, Extent Extent);
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => cudaMallocPitch 3.2
        (Out Pointer, OutPitch Pointer, Width U64, Height U64);
    Memory(MemoryCall::Free(MemoryKind::Device)), NotNeeded => cudaFree 3.2 (Address Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Async)), OutPointer => cudaMallocAsync 11.2, cudaMallocAsync_ptsz 11.2
        (Out Pointer, Bytes U64, Stream Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Async)), OutPointer => cudaMallocFromPoolAsync 11.2,
            cudaMallocFromPoolAsync_ptsz 11.2
        (Out Pointer, Bytes U64, Other Pointer, Stream Pointer);
    Memory(MemoryCall::Free(MemoryKind::Async)), NotNeeded => cudaFreeAsync 11.2, cudaFreeAsync_ptsz 11.2
        (Address Pointer, Stream Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Managed)), OutPointer => cudaMallocManaged 6.0 (Out Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Alloc(MemoryKind::Host)), OutPointer => cudaHostAlloc 3.2 (Out Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Alloc(MemoryKind::Host)), OutPointer => cudaMallocHost 3.2 (Out Pointer, Bytes U64);
    Memory(MemoryCall::Free(MemoryKind::Host)), NotNeeded => cudaFreeHost 3.2 (Address Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Registered)), Status => cudaHostRegister 4.0
        (Address Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Free(MemoryKind::Registered)), NotNeeded => cudaHostUnregister 4.0 (Address Pointer);

    // Waiting on the host.
    Sync(SyncScope::Stream), Blocking => cudaStreamSynchronize 3.2, cudaStreamSynchronize_ptsz 7.0
        (Stream Pointer);
    Sync(SyncScope::Device), Blocking => cudaDeviceSynchronize 3.2 ();
    Sync(SyncScope::Event), Blocking => cudaEventSynchronize 3.2 (Event Pointer);

    // Streams and events.
    Stream(StreamCall::EventRecord), NotNeeded => cudaEventRecord 3.2, cudaEventRecord_ptsz 7.0
        (Event Pointer, Stream Pointer);
    Stream(StreamCall::EventRecord), NotNeeded => cudaEventRecordWithFlags 11.1, cudaEventRecordWithFlags_ptsz 11.1
        (Event Pointer, Stream Pointer, Flags U32);
    Stream(StreamCall::Wait), NotNeeded => cudaStreamWaitEvent 3.2, cudaStreamWaitEvent_ptsz 7.0
        (Stream Pointer, Event Pointer, Flags U32);
    Stream(StreamCall::Create), OutPointer => cudaStreamCreate 3.2 (Out Pointer);
    Stream(StreamCall::Create), OutPointer => cudaStreamCreateWithFlags 5.0 (Out Pointer, Flags U32);
    Stream(StreamCall::Create), OutPointer => cudaStreamCreateWithPriority 5.5 (Out Pointer, Flags U32, Other I32);
    Stream(StreamCall::Destroy), NotNeeded => cudaStreamDestroy 5.5 (Stream Pointer);

    // Code and its names.
    Module(ModuleCall::FatBinary), Returned => __cudaRegisterFatBinary 2.0 (Image Pointer);
    Module(ModuleCall::FunctionStub), NotNeeded => __cudaRegisterFunction 2.0
        (Module Pointer, Function Pointer, Other Pointer, Name Pointer, Other I32, Other Pointer,
         Other Pointer, Other Pointer, Other Pointer, Other Pointer);
    Module(ModuleCall::FatBinaryUnload), NotNeeded => __cudaUnregisterFatBinary 2.0 (Module Pointer);
    Module(ModuleCall::KernelOfStub), OutPointer => __cudaGetKernel 12.0 (Out Pointer, Function Pointer);
    Module(ModuleCall::KernelOfStub), OutPointer => cudaGetKernel 12.0 (Out Pointer, Function Pointer);
    Module(ModuleCall::FunctionOfStub), OutPointer => cudaGetFuncBySymbol 11.0 (Out Pointer, Function Pointer);
    Module(ModuleCall::Load), OutPointer => cudaLibraryLoadData 12.6
        (Out Pointer, Image Pointer, Other Pointer, Other Pointer, Other U32, Other Pointer, Other Pointer,
         Other U32);
    Module(ModuleCall::Load), OutPointer => cudaLibraryLoadFromFile 12.6
        (Out Pointer, Path Pointer, Other Pointer, Other Pointer, Other U32, Other Pointer, Other Pointer,
         Other U32);
    Module(ModuleCall::Unload), NotNeeded => cudaLibraryUnload 12.6 (Module Pointer);
    Module(ModuleCall::FunctionByName), OutPointer => cudaLibraryGetKernel 12.6
        (Out Pointer, Module Pointer, Name Pointer);
    Module(ModuleCall::ProcAddress), OutPointer => cudaGetDriverEntryPoint 11.3, cudaGetDriverEntryPoint_ptsz 11.3
        (Name Pointer, Out Pointer, Flags U64, Other Pointer);
    Module(ModuleCall::ProcAddress), OutPointer => cudaGetDriverEntryPointByVersion 12.5,
            cudaGetDriverEntryPointByVersion_ptsz 12.5
        (Name Pointer, Out Pointer, Version U32, Flags U64, Other Pointer);

    // Devices.
    Context(ContextCall::Device), NotNeeded => cudaSetDevice 3.2 (Device I32);
};
