//! NVIDIA's driver interface, `libcuda.so.1`.
//!
//! Owns: its rows. Because: all access to an NVIDIA device goes through here, from any runtime, compiler or framework;
//! cudart gets these functions from `cuGetProcAddress`. Does not: repeat facts of the structures
//! ([`crate::catalogue::structs`]).
//!
//! Source: declarations and versions of `cudaTypedefs.h` (CUDA 13.5, package `nvidia-cuda-runtime`), where
//! `PFN_cuMemcpyHtoD_v3020` is the second of its name and hence the symbol `cuMemcpyHtoD_v2`. The first versions of
//! array, 2D and 3D copies (CUDA 2, 32-bit structures) are left out.

use deepctx_events::GpuCall::{Context, Graph, HostFunction, Launch, Memory, Module, Stream, Sync, Transfer};
use deepctx_events::{
    ContextCall, Direction, GraphCall, LaunchCall, MemoryCall, MemoryKind, ModuleCall, StreamCall, SyncScope,
    Timing, TransferCall,
};

use crate::catalogue::table::table;
use crate::row::Row;

pub(in crate::catalogue) const ROWS: &[Row] = table! { CudaDriver, Gpu:
    // Launches.
    Launch(LaunchCall::Kernel), NotNeeded => cuLaunchKernel 4.0, cuLaunchKernel_ptsz 7.0
        (Function Pointer, GridX U32, GridY U32, GridZ U32, BlockX U32, BlockY U32, BlockZ U32,
         SharedBytes U32, Stream Pointer, KernelArguments Pointer, Extra Pointer);
    Launch(LaunchCall::KernelEx), NotNeeded => cuLaunchKernelEx 11.6, cuLaunchKernelEx_ptsz 11.6
        (Config Pointer, Function Pointer, KernelArguments Pointer,
         Extra Pointer) with DRIVER_LAUNCH_CONFIG;
    Launch(LaunchCall::Cooperative), NotNeeded => cuLaunchCooperativeKernel 9.0, cuLaunchCooperativeKernel_ptsz 9.0
        (Function Pointer, GridX U32, GridY U32, GridZ U32, BlockX U32, BlockY U32, BlockZ U32,
         SharedBytes U32, Stream Pointer, KernelArguments Pointer);
    Launch(LaunchCall::MultiDevice), NotNeeded => cuLaunchCooperativeKernelMultiDevice 9.0
        (LaunchList Pointer, Count U32, Flags U32);
    Launch(LaunchCall::Legacy), NotNeeded => cuLaunch 2.0 (Function Pointer);
    Launch(LaunchCall::Legacy), NotNeeded => cuLaunchGrid 2.0 (Function Pointer, GridX I32, GridY I32);
    Launch(LaunchCall::Legacy), NotNeeded => cuLaunchGridAsync 2.0
        (Function Pointer, GridX I32, GridY I32, Stream Pointer);
    HostFunction, NotNeeded => cuLaunchHostFunc 10.0, cuLaunchHostFunc_ptsz 10.0
        (Stream Pointer, HostFunction Pointer, UserData Pointer);
    HostFunction, NotNeeded => cuLaunchHostFunc_v2 13.1, cuLaunchHostFunc_v2_ptsz 13.1
        (Stream Pointer, HostFunction Pointer, UserData Pointer, Other U32);
    HostFunction, NotNeeded => cuStreamAddCallback 5.0, cuStreamAddCallback_ptsz 7.0
        (Stream Pointer, HostFunction Pointer, UserData Pointer, Flags U32);

    // Graphs.
    Graph(GraphCall::Launch), NotNeeded => cuGraphLaunch 10.0, cuGraphLaunch_ptsz 10.0
        (GraphExec Pointer, Stream Pointer);
    Graph(GraphCall::Upload), NotNeeded => cuGraphUpload 11.1, cuGraphUpload_ptsz 11.1
        (GraphExec Pointer, Stream Pointer);
    Graph(GraphCall::CaptureBegin), NotNeeded => cuStreamBeginCapture 10.0, cuStreamBeginCapture_ptsz 10.0
        (Stream Pointer);
    Graph(GraphCall::CaptureBegin), NotNeeded => cuStreamBeginCaptureToCig 13.1, cuStreamBeginCaptureToCig_ptsz 13.1
        (Stream Pointer, Other Pointer);
    Graph(GraphCall::CaptureBegin), NotNeeded => cuStreamBeginCaptureToGraph 12.3,
            cuStreamBeginCaptureToGraph_ptsz 12.3
        (Stream Pointer, Graph Pointer, Other Pointer, Other Pointer, Other U64, Mode U32);
    Graph(GraphCall::CaptureBegin), NotNeeded => cuStreamBeginCapture_v2 10.1, cuStreamBeginCapture_v2_ptsz 10.1
        (Stream Pointer, Mode U32);
    Graph(GraphCall::CaptureBegin), NotNeeded => cuStreamBeginRecaptureToGraph 13.3,
            cuStreamBeginRecaptureToGraph_ptsz 13.3
        (Stream Pointer, Mode U32, Graph Pointer, Other Pointer, UserData Pointer);
    Graph(GraphCall::CaptureEnd), OutPointer => cuStreamEndCapture 10.0, cuStreamEndCapture_ptsz 10.0
        (Stream Pointer, Out Pointer);
    Graph(GraphCall::CaptureEnd), NotNeeded => cuStreamEndCaptureToCig 13.1, cuStreamEndCaptureToCig_ptsz 13.1
        (Stream Pointer);
    Graph(GraphCall::Instantiate), OutPointer => cuGraphInstantiate 10.0, cuGraphInstantiate_v2 11.0
        (Out Pointer, Graph Pointer, Other Pointer, Other Pointer, Other U64);
    Graph(GraphCall::Instantiate), OutPointer => cuGraphInstantiateWithFlags 11.4
        (Out Pointer, Graph Pointer, Flags U64);
    Graph(GraphCall::Instantiate), OutPointer => cuGraphInstantiateWithParams 12.0,
            cuGraphInstantiateWithParams_ptsz 12.0
        (Out Pointer, Graph Pointer, Parameters Pointer);
    Graph(GraphCall::Update), Status => cuGraphExecUpdate 10.2
        (GraphExec Pointer, Graph Pointer, Other Pointer, Other Pointer);
    Graph(GraphCall::Update), Status => cuGraphExecUpdate_v2 12.0
        (GraphExec Pointer, Graph Pointer, Other Pointer);
    Graph(GraphCall::Release), NotNeeded => cuGraphExecDestroy 10.0 (GraphExec Pointer);
    Graph(GraphCall::Release), NotNeeded => cuGraphDestroy 10.0 (Graph Pointer);
    Graph(GraphCall::NodeWithoutWork), OutPointer => cuGraphAddHostNode 10.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::Node), OutPointer => cuGraphAddKernelNode 10.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64,
         Parameters Pointer) with DRIVER_KERNEL_NODE;
    Graph(GraphCall::Node), OutPointer => cuGraphAddKernelNode_v2 12.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64,
         Parameters Pointer) with DRIVER_KERNEL_NODE_2;
    Graph(GraphCall::NodeWithoutWork), OutPointer => cuGraphAddMemAllocNode 11.4
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer);
    Graph(GraphCall::NodeWithoutWork), OutPointer => cuGraphAddMemFreeNode 11.4
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Address U64);
    Graph(GraphCall::Node), OutPointer => cuGraphAddMemcpyNode 10.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Copy Pointer,
         Context Pointer) with COPY_3D;
    Graph(GraphCall::Node), OutPointer => cuGraphAddMemsetNode 10.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Parameters Pointer,
         Context Pointer) with DRIVER_FILL_NODE;
    Graph(GraphCall::Node), OutPointer => cuGraphAddNode 12.2
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64,
         Parameters Pointer) with DRIVER_NODE;
    Graph(GraphCall::Node), OutPointer => cuGraphAddNode_v2 12.3, cuGraphAddNode_v3 13.4
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, EdgeData Pointer, Count U64,
         Parameters Pointer) with DRIVER_NODE;
    Graph(GraphCall::NodeWithoutWork), OutPointer => cuGraphAddEmptyNode 10.0
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64);
    Graph(GraphCall::NodeWithoutWork), OutPointer => cuGraphAddEventRecordNode 11.1
        (OutNode Pointer, Graph Pointer, Dependencies Pointer, Count U64, Other Pointer);
    Graph(GraphCall::AddDependencies), Status => cuGraphAddDependencies 10.0
        (Graph Pointer, Dependencies Pointer, Dependents Pointer, Count U64);
    Graph(GraphCall::AddDependencies), Status => cuGraphAddDependencies_v2 12.3
        (Graph Pointer, Dependencies Pointer, Dependents Pointer, EdgeData Pointer, Count U64);
    Graph(GraphCall::RemoveDependencies), NotNeeded => cuGraphRemoveDependencies 10.0
        (Graph Pointer, Dependencies Pointer, Dependents Pointer, Count U64);
    Graph(GraphCall::RemoveDependencies), NotNeeded => cuGraphRemoveDependencies_v2 12.3
        (Graph Pointer, Dependencies Pointer, Dependents Pointer, EdgeData Pointer, Count U64);
    Graph(GraphCall::Clone), OutPointer => cuGraphClone 10.0 (Out Pointer, Graph Pointer);

    // Copies.
    Transfer(TransferCall::Copy(Direction::HostToDevice, Timing::Blocking)), Blocking => cuMemcpyHtoD 2.0
        (Destination U32, Source Pointer, Bytes U32);
    Transfer(TransferCall::Copy(Direction::HostToDevice, Timing::Blocking)), Blocking => cuMemcpyHtoD_v2 3.2,
            cuMemcpyHtoD_v2_ptds 7.0
        (Destination U64, Source Pointer, Bytes U64);
    Transfer(TransferCall::Copy(Direction::HostToDevice, Timing::Async)), NotNeeded => cuMemcpyHtoDAsync 2.0
        (Destination U32, Source Pointer, Bytes U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::HostToDevice, Timing::Async)), NotNeeded => cuMemcpyHtoDAsync_v2 3.2,
            cuMemcpyHtoDAsync_v2_ptsz 7.0
        (Destination U64, Source Pointer, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::DeviceToHost, Timing::Blocking)), Blocking => cuMemcpyDtoH 2.0
        (Destination Pointer, Source U32, Bytes U32);
    Transfer(TransferCall::Copy(Direction::DeviceToHost, Timing::Blocking)), Blocking => cuMemcpyDtoH_v2 3.2,
            cuMemcpyDtoH_v2_ptds 7.0
        (Destination Pointer, Source U64, Bytes U64);
    Transfer(TransferCall::Copy(Direction::DeviceToHost, Timing::Async)), NotNeeded => cuMemcpyDtoHAsync 2.0
        (Destination Pointer, Source U32, Bytes U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::DeviceToHost, Timing::Async)), NotNeeded => cuMemcpyDtoHAsync_v2 3.2,
            cuMemcpyDtoHAsync_v2_ptsz 7.0
        (Destination Pointer, Source U64, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::DeviceToDevice, Timing::Blocking)), Blocking => cuMemcpyDtoD 2.0
        (Destination U32, Source U32, Bytes U32);
    Transfer(TransferCall::Copy(Direction::DeviceToDevice, Timing::Blocking)), Blocking => cuMemcpyDtoD_v2 3.2,
            cuMemcpyDtoD_v2_ptds 7.0
        (Destination U64, Source U64, Bytes U64);
    Transfer(TransferCall::Copy(Direction::DeviceToDevice, Timing::Async)), NotNeeded => cuMemcpyDtoDAsync 3.0
        (Destination U32, Source U32, Bytes U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::DeviceToDevice, Timing::Async)), NotNeeded => cuMemcpyDtoDAsync_v2 3.2,
            cuMemcpyDtoDAsync_v2_ptsz 7.0
        (Destination U64, Source U64, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::HostToArray, Timing::Blocking)), Blocking => cuMemcpyHtoA 2.0
        (Destination Pointer, Other U32, Source Pointer, Bytes U32);
    Transfer(TransferCall::Copy(Direction::HostToArray, Timing::Blocking)), Blocking => cuMemcpyHtoA_v2 3.2,
            cuMemcpyHtoA_v2_ptds 7.0
        (Destination Pointer, Other U64, Source Pointer, Bytes U64);
    Transfer(TransferCall::Copy(Direction::HostToArray, Timing::Async)), NotNeeded => cuMemcpyHtoAAsync 2.0
        (Destination Pointer, Other U32, Source Pointer, Bytes U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::HostToArray, Timing::Async)), NotNeeded => cuMemcpyHtoAAsync_v2 3.2,
            cuMemcpyHtoAAsync_v2_ptsz 7.0
        (Destination Pointer, Other U64, Source Pointer, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ArrayToHost, Timing::Blocking)), Blocking => cuMemcpyAtoH 2.0
        (Destination Pointer, Source Pointer, Other U32, Bytes U32);
    Transfer(TransferCall::Copy(Direction::ArrayToHost, Timing::Blocking)), Blocking => cuMemcpyAtoH_v2 3.2,
            cuMemcpyAtoH_v2_ptds 7.0
        (Destination Pointer, Source Pointer, Other U64, Bytes U64);
    Transfer(TransferCall::Copy(Direction::ArrayToHost, Timing::Async)), NotNeeded => cuMemcpyAtoHAsync 2.0
        (Destination Pointer, Source Pointer, Other U32, Bytes U32, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ArrayToHost, Timing::Async)), NotNeeded => cuMemcpyAtoHAsync_v2 3.2,
            cuMemcpyAtoHAsync_v2_ptsz 7.0
        (Destination Pointer, Source Pointer, Other U64, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ArrayToDevice, Timing::Blocking)), Blocking => cuMemcpyAtoD 2.0
        (Destination U32, Source Pointer, Other U32, Bytes U32);
    Transfer(TransferCall::Copy(Direction::ArrayToDevice, Timing::Blocking)), Blocking => cuMemcpyAtoD_v2 3.2,
            cuMemcpyAtoD_v2_ptds 7.0
        (Destination U64, Source Pointer, Other U64, Bytes U64);
    Transfer(TransferCall::Copy(Direction::DeviceToArray, Timing::Blocking)), Blocking => cuMemcpyDtoA 2.0
        (Destination Pointer, Other U32, Source U32, Bytes U32);
    Transfer(TransferCall::Copy(Direction::DeviceToArray, Timing::Blocking)), Blocking => cuMemcpyDtoA_v2 3.2,
            cuMemcpyDtoA_v2_ptds 7.0
        (Destination Pointer, Other U64, Source U64, Bytes U64);
    Transfer(TransferCall::Copy(Direction::ArrayToArray, Timing::Blocking)), Blocking => cuMemcpyAtoA 2.0
        (Destination Pointer, Other U32, Source Pointer, Other U32, Bytes U32);
    Transfer(TransferCall::Copy(Direction::ArrayToArray, Timing::Blocking)), Blocking => cuMemcpyAtoA_v2 3.2,
            cuMemcpyAtoA_v2_ptds 7.0
        (Destination Pointer, Other U64, Source Pointer, Other U64, Bytes U64);
    Transfer(TransferCall::Copy(Direction::ByPointers, Timing::Blocking)), Blocking => cuMemcpy 4.0, cuMemcpy_ptds 7.0
        (Destination U64, Source U64, Bytes U64);
    Transfer(TransferCall::Copy(Direction::ByPointers, Timing::Async)), NotNeeded => cuMemcpyAsync 4.0,
            cuMemcpyAsync_ptsz 7.0
        (Destination U64, Source U64, Bytes U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::Peer, Timing::Blocking)), Blocking => cuMemcpyPeer 4.0, cuMemcpyPeer_ptds 7.0
        (Destination U64, DestinationContext Pointer, Source U64, SourceContext Pointer, Bytes U64);
    Transfer(TransferCall::Copy(Direction::Peer, Timing::Async)), NotNeeded => cuMemcpyPeerAsync 4.0,
            cuMemcpyPeerAsync_ptsz 7.0
        (Destination U64, DestinationContext Pointer, Source U64, SourceContext Pointer, Bytes U64,
         Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Blocking)), Blocking => cuMemcpy2DUnaligned_v2 3.2,
            cuMemcpy2DUnaligned_v2_ptds 7.0
        (Copy Pointer) with COPY_2D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Blocking)), Blocking => cuMemcpy2D_v2 3.2,
            cuMemcpy2D_v2_ptds 7.0
        (Copy Pointer) with COPY_2D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Blocking)), Blocking => cuMemcpy3DPeer 4.0,
            cuMemcpy3DPeer_ptds 7.0
        (Copy Pointer) with COPY_3D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Blocking)), Blocking => cuMemcpy3D_v2 3.2,
            cuMemcpy3D_v2_ptds 7.0
        (Copy Pointer) with COPY_3D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Async)), NotNeeded => cuMemcpy2DAsync_v2 3.2,
            cuMemcpy2DAsync_v2_ptsz 7.0
        (Copy Pointer, Stream Pointer) with COPY_2D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Async)), NotNeeded => cuMemcpy3DAsync_v2 3.2,
            cuMemcpy3DAsync_v2_ptsz 7.0
        (Copy Pointer, Stream Pointer) with COPY_3D;
    Transfer(TransferCall::Copy(Direction::ByParameters, Timing::Async)), NotNeeded => cuMemcpy3DPeerAsync 4.0,
            cuMemcpy3DPeerAsync_ptsz 7.0
        (Copy Pointer, Stream Pointer) with COPY_3D;
    Transfer(TransferCall::Copy(Direction::Batch, Timing::Async)), NotNeeded => cuMemcpy3DBatchAsync 12.8,
            cuMemcpy3DBatchAsync_ptsz 12.8
        (Count U64, Operations Pointer, Other Pointer, Flags U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::Batch, Timing::Async)), NotNeeded => cuMemcpy3DBatchAsync_v2 13.0,
            cuMemcpy3DBatchAsync_v2_ptsz 13.0
        (Count U64, Operations Pointer, Flags U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::Batch, Timing::Async)), NotNeeded => cuMemcpyBatchAsync 12.8,
            cuMemcpyBatchAsync_ptsz 12.8
        (Destination Pointer, Source Pointer, Sizes Pointer, Count U64, Other Pointer, Other Pointer,
         Other U64, Other Pointer, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::Batch, Timing::Async)), NotNeeded => cuMemcpyBatchAsync_v2 13.0,
            cuMemcpyBatchAsync_v2_ptsz 13.0
        (Destination Pointer, Source Pointer, Sizes Pointer, Count U64, Other Pointer, Other Pointer,
         Other U64, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::ByPointers, Timing::Async)), NotNeeded => cuMemcpyWithAttributesAsync 13.2,
            cuMemcpyWithAttributesAsync_ptsz 13.2
        (Destination U64, Source U64, Bytes U64, Other Pointer, Stream Pointer);
    Transfer(TransferCall::Copy(Direction::Batch, Timing::Async)), NotNeeded => cuMemcpy3DWithAttributesAsync 13.2,
            cuMemcpy3DWithAttributesAsync_ptsz 13.2
        (Operations Pointer, Flags U64, Stream Pointer);
    Transfer(TransferCall::Prefetch), NotNeeded => cuMemPrefetchAsync 8.0, cuMemPrefetchAsync_ptsz 8.0
        (Address U64, Bytes U64, DestinationDevice I32, Stream Pointer);
    Transfer(TransferCall::Prefetch), NotNeeded => cuMemPrefetchAsync_v2 12.2, cuMemPrefetchAsync_v2_ptsz 12.2
        (Address U64, Bytes U64, Other Struct(8), Flags U32, Stream Pointer);
    Transfer(TransferCall::Prefetch), NotNeeded => cuMemDiscardAndPrefetchBatchAsync 13.0,
            cuMemDiscardAndPrefetchBatchAsync_ptsz 13.0
        (Destination Pointer, Sizes Pointer, Count U64, Other Pointer, Other Pointer, Other U64, Flags U64,
         Stream Pointer);
    Transfer(TransferCall::Prefetch), NotNeeded => cuMemPrefetchBatchAsync 13.0, cuMemPrefetchBatchAsync_ptsz 13.0
        (Destination Pointer, Sizes Pointer, Count U64, Other Pointer, Other Pointer, Other U64, Flags U64,
         Stream Pointer);

    // Fills.
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => cuMemsetD8 2.0 (Destination U32, Value U8, Count U32);
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => cuMemsetD8_v2 3.2, cuMemsetD8_v2_ptds 7.0
        (Destination U64, Value U8, Count U64);
    Transfer(TransferCall::Fill(1, Timing::Async)), NotNeeded => cuMemsetD8Async 3.2, cuMemsetD8Async_ptsz 7.0
        (Destination U64, Value U8, Count U64, Stream Pointer);
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => cuMemsetD2D8 2.0
        (Destination U32, DestinationPitch U32, Value U8, Width U32, Height U32);
    Transfer(TransferCall::Fill(1, Timing::Blocking)), Blocking => cuMemsetD2D8_v2 3.2, cuMemsetD2D8_v2_ptds 7.0
        (Destination U64, DestinationPitch U64, Value U8, Width U64, Height U64);
    Transfer(TransferCall::Fill(1, Timing::Async)), NotNeeded => cuMemsetD2D8Async 3.2, cuMemsetD2D8Async_ptsz 7.0
        (Destination U64, DestinationPitch U64, Value U8, Width U64, Height U64, Stream Pointer);
    Transfer(TransferCall::Fill(2, Timing::Blocking)), Blocking => cuMemsetD16 2.0 (Destination U32, Value U16, Count U32);
    Transfer(TransferCall::Fill(2, Timing::Blocking)), Blocking => cuMemsetD16_v2 3.2, cuMemsetD16_v2_ptds 7.0
        (Destination U64, Value U16, Count U64);
    Transfer(TransferCall::Fill(2, Timing::Async)), NotNeeded => cuMemsetD16Async 3.2, cuMemsetD16Async_ptsz 7.0
        (Destination U64, Value U16, Count U64, Stream Pointer);
    Transfer(TransferCall::Fill(2, Timing::Blocking)), Blocking => cuMemsetD2D16 2.0
        (Destination U32, DestinationPitch U32, Value U16, Width U32, Height U32);
    Transfer(TransferCall::Fill(2, Timing::Blocking)), Blocking => cuMemsetD2D16_v2 3.2, cuMemsetD2D16_v2_ptds 7.0
        (Destination U64, DestinationPitch U64, Value U16, Width U64, Height U64);
    Transfer(TransferCall::Fill(2, Timing::Async)), NotNeeded => cuMemsetD2D16Async 3.2, cuMemsetD2D16Async_ptsz 7.0
        (Destination U64, DestinationPitch U64, Value U16, Width U64, Height U64, Stream Pointer);
    Transfer(TransferCall::Fill(4, Timing::Blocking)), Blocking => cuMemsetD32 2.0 (Destination U32, Value U32, Count U32);
    Transfer(TransferCall::Fill(4, Timing::Blocking)), Blocking => cuMemsetD32_v2 3.2, cuMemsetD32_v2_ptds 7.0
        (Destination U64, Value U32, Count U64);
    Transfer(TransferCall::Fill(4, Timing::Async)), NotNeeded => cuMemsetD32Async 3.2, cuMemsetD32Async_ptsz 7.0
        (Destination U64, Value U32, Count U64, Stream Pointer);
    Transfer(TransferCall::Fill(4, Timing::Blocking)), Blocking => cuMemsetD2D32 2.0
        (Destination U32, DestinationPitch U32, Value U32, Width U32, Height U32);
    Transfer(TransferCall::Fill(4, Timing::Blocking)), Blocking => cuMemsetD2D32_v2 3.2, cuMemsetD2D32_v2_ptds 7.0
        (Destination U64, DestinationPitch U64, Value U32, Width U64, Height U64);
    Transfer(TransferCall::Fill(4, Timing::Async)), NotNeeded => cuMemsetD2D32Async 3.2, cuMemsetD2D32Async_ptsz 7.0
        (Destination U64, DestinationPitch U64, Value U32, Width U64, Height U64, Stream Pointer);

    // Memory.
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => cuMemAlloc 2.0 (Out Pointer, Bytes U32);
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => cuMemAlloc_v2 3.2 (Out Pointer, Bytes U64);
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => cuMemAllocPitch 2.0
        (Out Pointer, OutPitch Pointer, Width U32, Height U32, Other U32);
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => cuMemAllocPitch_v2 3.2
        (Out Pointer, OutPitch Pointer, Width U64, Height U64, Other U32);
    Memory(MemoryCall::Free(MemoryKind::Device)), NotNeeded => cuMemFree 2.0 (Address U32);
    Memory(MemoryCall::Free(MemoryKind::Device)), NotNeeded => cuMemFree_v2 3.2 (Address U64);
    Memory(MemoryCall::Alloc(MemoryKind::Async)), OutPointer => cuMemAllocAsync 11.2, cuMemAllocAsync_ptsz 11.2
        (Out Pointer, Bytes U64, Stream Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Async)), OutPointer => cuMemAllocFromPoolAsync 11.2,
            cuMemAllocFromPoolAsync_ptsz 11.2
        (Out Pointer, Bytes U64, Other Pointer, Stream Pointer);
    Memory(MemoryCall::Free(MemoryKind::Async)), NotNeeded => cuMemFreeAsync 11.2, cuMemFreeAsync_ptsz 11.2
        (Address U64, Stream Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Managed)), OutPointer => cuMemAllocManaged 6.0 (Out Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Alloc(MemoryKind::Host)), OutPointer => cuMemAllocHost 2.0 (Out Pointer, Bytes U32);
    Memory(MemoryCall::Alloc(MemoryKind::Host)), OutPointer => cuMemAllocHost_v2 3.2 (Out Pointer, Bytes U64);
    Memory(MemoryCall::Alloc(MemoryKind::Host)), OutPointer => cuMemHostAlloc 2.2 (Out Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Free(MemoryKind::Host)), NotNeeded => cuMemFreeHost 2.0 (Address Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Registered)), Status => cuMemHostRegister 4.0, cuMemHostRegister_v2 6.5
        (Address Pointer, Bytes U64, Flags U32);
    Memory(MemoryCall::Free(MemoryKind::Registered)), NotNeeded => cuMemHostUnregister 4.0 (Address Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Reserved)), OutPointer => cuMemAddressReserve 10.2
        (Out Pointer, Bytes U64, Other U64, Address U64, Flags U64);
    Memory(MemoryCall::Free(MemoryKind::Reserved)), NotNeeded => cuMemAddressFree 10.2 (Address U64, Bytes U64);
    Memory(MemoryCall::Alloc(MemoryKind::Physical)), OutPointer => cuMemCreate 10.2
        (Out Pointer, Bytes U64, Other Pointer, Flags U64);
    Memory(MemoryCall::Free(MemoryKind::Physical)), NotNeeded => cuMemRelease 10.2 (Handle U64);
    Memory(MemoryCall::Alloc(MemoryKind::Mapped)), Status => cuMemMap 10.2
        (Address U64, Bytes U64, Other U64, Handle U64, Flags U64);
    Memory(MemoryCall::Free(MemoryKind::Mapped)), NotNeeded => cuMemUnmap 10.2 (Address U64, Bytes U64);

    // Waiting on the host.
    Sync(SyncScope::Stream), Blocking => cuStreamSynchronize 2.0, cuStreamSynchronize_ptsz 7.0
        (Stream Pointer);
    Sync(SyncScope::Context), Blocking => cuCtxSynchronize 2.0 ();
    Sync(SyncScope::Context), Blocking => cuCtxSynchronize_v2 13.0 (Context Pointer);
    Sync(SyncScope::Event), Blocking => cuEventSynchronize 2.0 (Event Pointer);

    // Streams and events.
    Stream(StreamCall::EventRecord), NotNeeded => cuEventRecord 2.0, cuEventRecord_ptsz 7.0
        (Event Pointer, Stream Pointer);
    Stream(StreamCall::EventRecord), NotNeeded => cuEventRecordWithFlags 11.1, cuEventRecordWithFlags_ptsz 11.1
        (Event Pointer, Stream Pointer, Flags U32);
    Stream(StreamCall::Wait), NotNeeded => cuStreamWaitEvent 3.2, cuStreamWaitEvent_ptsz 7.0
        (Stream Pointer, Event Pointer, Flags U32);
    Stream(StreamCall::Create), OutPointer => cuStreamCreate 2.0 (Out Pointer, Flags U32);
    Stream(StreamCall::Create), OutPointer => cuStreamCreateWithPriority 5.5 (Out Pointer, Flags U32, Other I32);
    Stream(StreamCall::Destroy), NotNeeded => cuStreamDestroy 2.0, cuStreamDestroy_v2 4.0 (Stream Pointer);
    Stream(StreamCall::Value), NotNeeded => cuStreamWaitValue32 8.0, cuStreamWaitValue32_ptsz 8.0,
            cuStreamWaitValue32_v2 11.7, cuStreamWaitValue32_v2_ptsz 11.7
        (Stream Pointer, Address U64, Value U32, Flags U32);
    Stream(StreamCall::Value), NotNeeded => cuStreamWaitValue64 9.0, cuStreamWaitValue64_ptsz 9.0,
            cuStreamWaitValue64_v2 11.7, cuStreamWaitValue64_v2_ptsz 11.7
        (Stream Pointer, Address U64, Value U64, Flags U32);
    Stream(StreamCall::Value), NotNeeded => cuStreamWriteValue32 8.0, cuStreamWriteValue32_ptsz 8.0,
            cuStreamWriteValue32_v2 11.7, cuStreamWriteValue32_v2_ptsz 11.7
        (Stream Pointer, Address U64, Value U32, Flags U32);
    Stream(StreamCall::Value), NotNeeded => cuStreamWriteValue64 9.0, cuStreamWriteValue64_ptsz 9.0,
            cuStreamWriteValue64_v2 11.7, cuStreamWriteValue64_v2_ptsz 11.7
        (Stream Pointer, Address U64, Value U64, Flags U32);
    Stream(StreamCall::Value), NotNeeded => cuStreamBatchMemOp 8.0, cuStreamBatchMemOp_ptsz 8.0,
            cuStreamBatchMemOp_v2 11.7, cuStreamBatchMemOp_v2_ptsz 11.7
        (Stream Pointer, Count U32, Operations Pointer, Flags U32);

    // Code and its names.
    Module(ModuleCall::Load), OutPointer => cuModuleLoad 2.0 (Out Pointer, Path Pointer);
    Module(ModuleCall::Load), OutPointer => cuModuleLoadData 2.0 (Out Pointer, Image Pointer);
    Module(ModuleCall::Load), OutPointer => cuModuleLoadDataEx 2.1
        (Out Pointer, Image Pointer, Other U32, Other Pointer, Other Pointer);
    Module(ModuleCall::Load), OutPointer => cuModuleLoadFatBinary 2.0 (Out Pointer, Image Pointer);
    Module(ModuleCall::Unload), NotNeeded => cuModuleUnload 2.0 (Module Pointer);
    Module(ModuleCall::Load), OutPointer => cuLibraryLoadData 12.0
        (Out Pointer, Image Pointer, Other Pointer, Other Pointer, Other U32, Other Pointer, Other Pointer,
         Other U32);
    Module(ModuleCall::Load), OutPointer => cuLibraryLoadFromFile 12.0
        (Out Pointer, Path Pointer, Other Pointer, Other Pointer, Other U32, Other Pointer, Other Pointer,
         Other U32);
    Module(ModuleCall::Unload), NotNeeded => cuLibraryUnload 12.0 (Module Pointer);
    Module(ModuleCall::FunctionByName), OutPointer => cuModuleGetFunction 2.0
        (Out Pointer, Module Pointer, Name Pointer);
    Module(ModuleCall::FunctionByName), OutPointer => cuLibraryGetKernel 12.0
        (Out Pointer, Module Pointer, Name Pointer);
    Module(ModuleCall::FunctionOfKernel), OutPointer => cuKernelGetFunction 12.0 (Out Pointer, Function Pointer);
    Module(ModuleCall::ModuleOfLibrary), OutPointer => cuLibraryGetModule 12.0 (Out Pointer, Module Pointer);
    Module(ModuleCall::FunctionList), OutPointer => cuLibraryEnumerateKernels 12.4
        (Out Pointer, Count U32, Module Pointer);
    Module(ModuleCall::FunctionList), OutPointer => cuModuleEnumerateFunctions 12.4
        (Out Pointer, Count U32, Module Pointer);
    Module(ModuleCall::ProcAddress), OutPointer => cuGetProcAddress 11.3
        (Name Pointer, Out Pointer, Version I32, Flags U64);
    Module(ModuleCall::ProcAddress), OutPointer => cuGetProcAddress_v2 12.0
        (Name Pointer, Out Pointer, Version I32, Flags U64, Other Pointer);

    // Contexts.
    Context(ContextCall::Create), OutPointer => cuCtxCreate 2.0, cuCtxCreate_v2 3.2
        (Out Pointer, Flags U32, Device I32);
    Context(ContextCall::Create), OutPointer => cuCtxCreate_v3 11.4
        (Out Pointer, Other Pointer, Count I32, Flags U32, Device I32);
    Context(ContextCall::Create), OutPointer => cuCtxCreate_v4 12.5
        (Out Pointer, Other Pointer, Flags U32, Device I32);
    Context(ContextCall::Create), OutPointer => cuDevicePrimaryCtxRetain 7.0 (Out Pointer, Device I32);
    Context(ContextCall::Current), NotNeeded => cuCtxPushCurrent 2.0, cuCtxPushCurrent_v2 4.0 (Context Pointer);
    Context(ContextCall::Current), NotNeeded => cuCtxSetCurrent 4.0 (Context Pointer);
    Context(ContextCall::Destroy), NotNeeded => cuCtxDestroy 2.0, cuCtxDestroy_v2 4.0 (Context Pointer);
};
