//! NVIDIA's runtime interface, `libcudart.so`, or its archive within any file.
//!
//! Owns: its rows. Because: host stubs and the device code of a program are announced here and nowhere else, and where
//! the driver cannot be probed this is the next best layer. Does not: count what the driver's rows count.
//!
//! Source: parameters and versions of `generated_cuda_runtime_api_meta.h` and `cupti_runtime_cbid.h` (package
//! `nvidia-cuda-cupti`, 13.5 and for `@12` rows 12.9), `__cudaRegister*` of `crt/host_runtime.h` (package
//! `nvidia-cuda-crt`). `__cudaLaunchKernel` and `__cudaGetKernel` stand in no header: the compiler declares them, and
//! `crt/host_runtime.h` calls them. They are exported from 12.9 on.

use super::{Row, table};
use crate::event::{Direction, Event, Memory, Scope, Timing};

pub(super) const ROWS: &[Row] = table! { CudaRuntime:
    // Launches.
    Event::Launch, NotNeeded => cudaLaunchKernel 7.0, cudaLaunchKernel_ptsz 7.0
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U64, Stream Pointer);
    Event::Launch, NotNeeded => __cudaLaunchKernel 12.9, __cudaLaunchKernel_ptsz 12.9
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U64, Stream Pointer);
    Event::LaunchEx, NotNeeded => cudaLaunchKernelExC 11.6, cudaLaunchKernelExC_ptsz 11.6
        (Config Pointer, Function Pointer, KernelArguments Pointer) with RUNTIME_LAUNCH_CONFIG;
    Event::LaunchCooperative, NotNeeded => cudaLaunchCooperativeKernel 9.0,
            cudaLaunchCooperativeKernel_ptsz 9.0
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U64, Stream Pointer);
    Event::HostFunction, NotNeeded => cudaLaunchHostFunc 10.0, cudaLaunchHostFunc_ptsz 10.0
        (Stream Pointer, HostFunction Pointer, UserData Pointer);
    Event::HostFunction, NotNeeded => cudaLaunchHostFunc_v2 13.2, cudaLaunchHostFunc_v2_ptsz 13.2
        (Stream Pointer, HostFunction Pointer, UserData Pointer, Other U32);
    Event::HostFunction, NotNeeded => cudaStreamAddCallback 5.0, cudaStreamAddCallback_ptsz 7.0
        (Stream Pointer, HostFunction Pointer, UserData Pointer, Flags U32);

    // Graphs.
    Event::GraphLaunch, NotNeeded => cudaGraphLaunch 10.0, cudaGraphLaunch_ptsz 10.0
        (GraphExec Pointer, Stream Pointer);
    Event::GraphUpload, NotNeeded => cudaGraphUpload 10.0, cudaGraphUpload_ptsz 10.0
        (GraphExec Pointer, Stream Pointer);
    Event::CaptureBegin, NotNeeded => cudaStreamBeginCapture 10.0, cudaStreamBeginCapture_ptsz 10.0
        (Stream Pointer, Mode U32);
    Event::CaptureBegin, NotNeeded => cudaStreamBeginCaptureToGraph 12.3,
            cudaStreamBeginCaptureToGraph_ptsz 12.3
        (Stream Pointer, Graph Pointer, Other Pointer, Other Pointer, Other U64, Mode U32);
    Event::CaptureBegin, NotNeeded => cudaStreamBeginRecaptureToGraph 13.3,
            cudaStreamBeginRecaptureToGraph_ptsz 13.3
        (Stream Pointer, Mode U32, Graph Pointer, Other Pointer);
    Event::CaptureEnd, OutPointer => cudaStreamEndCapture 10.0, cudaStreamEndCapture_ptsz 10.0
        (Stream Pointer, Out Pointer);
    Event::GraphInstantiate, OutPointer => cudaGraphInstantiate 12.0
        (Out Pointer, Graph Pointer, Flags U64);
    Event::GraphInstantiate, OutPointer => cudaGraphInstantiateWithFlags 11.4
        (Out Pointer, Graph Pointer, Flags U64);
    Event::GraphInstantiate, OutPointer => cudaGraphInstantiateWithParams 12.0,
            cudaGraphInstantiateWithParams_ptsz 12.0
        (Out Pointer, Graph Pointer, Parameters Pointer);
    Event::GraphUpdate, NotNeeded => cudaGraphExecUpdate 10.2
        (GraphExec Pointer, Graph Pointer, Other Pointer);
    Event::GraphRelease, NotNeeded => cudaGraphExecDestroy 10.0 (GraphExec Pointer);
    Event::GraphNode, OutPointer => cudaGraphAddHostNode 10.0
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Parameters Pointer);
    Event::GraphNode, OutPointer => cudaGraphAddKernelNode 10.0
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64,
         Parameters Pointer) with RUNTIME_KERNEL_NODE;
    Event::GraphNode, OutPointer => cudaGraphAddMemAllocNode 11.4
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Parameters Pointer);
    Event::GraphNode, OutPointer => cudaGraphAddMemFreeNode 11.4
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Address Pointer);
    Event::GraphNode, OutPointer => cudaGraphAddMemcpyNode 10.0
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Copy Pointer) with RUNTIME_COPY_3D;
    Event::GraphNode, OutPointer => cudaGraphAddMemsetNode 10.0
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Parameters Pointer);
    Event::GraphNode, OutPointer => cudaGraphAddNode @13 13.0
        (OutNode Pointer, Graph Pointer, Other Pointer, Other Pointer, Other U64, Parameters Pointer);
    Event::GraphNode, OutPointer => cudaGraphAddNode @12 12.2
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Parameters Pointer);
    Event::GraphClone, OutPointer => cudaGraphClone 10.0 (Out Pointer, Graph Pointer);

    // Copies.
    Event::Copy(Direction::ByKind, Timing::Blocking), Blocking => cudaMemcpy 3.2, cudaMemcpy_ptds 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Kind U32);
    Event::Copy(Direction::ByKind, Timing::Async), NotNeeded => cudaMemcpyAsync 3.2,
            cudaMemcpyAsync_ptsz 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Kind U32, Stream Pointer);
    Event::Copy(Direction::ByKind, Timing::Blocking), Blocking => cudaMemcpy2D 3.2, cudaMemcpy2D_ptds 7.0
        (Destination Pointer, DestinationPitch U64, Source Pointer, SourcePitch U64, Width U64, Height U64,
         Kind U32);
    Event::Copy(Direction::ByKind, Timing::Async), NotNeeded => cudaMemcpy2DAsync 3.2,
            cudaMemcpy2DAsync_ptsz 7.0
        (Destination Pointer, DestinationPitch U64, Source Pointer, SourcePitch U64, Width U64, Height U64,
         Kind U32, Stream Pointer);
    Event::Copy(Direction::Peer, Timing::Blocking), Blocking => cudaMemcpyPeer 4.0
        (Destination Pointer, DestinationDevice I32, Source Pointer, SourceDevice I32, Bytes U64);
    Event::Copy(Direction::Peer, Timing::Async), NotNeeded => cudaMemcpyPeerAsync 4.0
        (Destination Pointer, DestinationDevice I32, Source Pointer, SourceDevice I32, Bytes U64,
         Stream Pointer);
    Event::Copy(Direction::ByKind, Timing::Blocking), Blocking => cudaMemcpyFromSymbol 3.2,
            cudaMemcpyFromSymbol_ptds 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32);
    Event::Copy(Direction::ByKind, Timing::Blocking), Blocking => cudaMemcpyToSymbol 3.2,
            cudaMemcpyToSymbol_ptds 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32);
    Event::Copy(Direction::ByKind, Timing::Async), NotNeeded => cudaMemcpyFromSymbolAsync 3.2,
            cudaMemcpyFromSymbolAsync_ptsz 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32, Stream Pointer);
    Event::Copy(Direction::ByKind, Timing::Async), NotNeeded => cudaMemcpyToSymbolAsync 3.2,
            cudaMemcpyToSymbolAsync_ptsz 7.0
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32, Stream Pointer);
    Event::Copy(Direction::ByParameters, Timing::Blocking), Blocking => cudaMemcpy3D 3.2,
            cudaMemcpy3D_ptds 7.0
        (Copy Pointer) with RUNTIME_COPY_3D;
    Event::Copy(Direction::ByParameters, Timing::Async), NotNeeded => cudaMemcpy3DAsync 3.2,
            cudaMemcpy3DAsync_ptsz 7.0
        (Copy Pointer, Stream Pointer) with RUNTIME_COPY_3D;
    Event::Copy(Direction::ByParameters, Timing::Blocking), Blocking => cudaMemcpy3DPeer 4.0,
            cudaMemcpy3DPeer_ptds 7.0
        (Copy Pointer) with RUNTIME_COPY_3D_PEER;
    Event::Copy(Direction::ByParameters, Timing::Async), NotNeeded => cudaMemcpy3DPeerAsync 4.0,
            cudaMemcpy3DPeerAsync_ptsz 7.0
        (Copy Pointer, Stream Pointer) with RUNTIME_COPY_3D_PEER;
    Event::Copy(Direction::Batch, Timing::Async), NotNeeded => cudaMemcpy3DBatchAsync @13 13.0,
            cudaMemcpy3DBatchAsync_ptsz @13 13.0
        (Count U64, Operations Pointer, Flags U64, Stream Pointer);
    Event::Copy(Direction::Batch, Timing::Async), NotNeeded => cudaMemcpyBatchAsync @13 13.0,
            cudaMemcpyBatchAsync_ptsz @13 13.0
        (Destination Pointer, Source Pointer, Sizes Pointer, Count U64, Other Pointer, Other Pointer,
         Other U64, Stream Pointer);
    Event::Copy(Direction::Batch, Timing::Async), NotNeeded => cudaMemcpy3DBatchAsync @12 12.8,
            cudaMemcpy3DBatchAsync_ptsz @12 12.8
        (Count U64, Operations Pointer, Other Pointer, Flags U64, Stream Pointer);
    Event::Copy(Direction::Batch, Timing::Async), NotNeeded => cudaMemcpyBatchAsync @12 12.8,
            cudaMemcpyBatchAsync_ptsz @12 12.8
        (Destination Pointer, Source Pointer, Sizes Pointer, Count U64, Other Pointer, Other Pointer,
         Other U64, Other Pointer, Stream Pointer);
    Event::Prefetch, NotNeeded => cudaMemPrefetchAsync @13 13.0, cudaMemPrefetchAsync_ptsz @13 13.0
        (Address Pointer, Bytes U64, Other Struct(8), Flags U32, Stream Pointer);
    Event::Prefetch, NotNeeded => cudaMemPrefetchAsync @12 8.0, cudaMemPrefetchAsync_ptsz @12 8.0
        (Address Pointer, Bytes U64, DestinationDevice I32, Stream Pointer);

    // Fills.
    Event::Fill(1, Timing::Blocking), Blocking => cudaMemset 3.2, cudaMemset_ptds 7.0
        (Destination Pointer, Value I32, Bytes U64);
    Event::Fill(1, Timing::Blocking), Blocking => cudaMemset2D 3.2, cudaMemset2D_ptds 7.0
        (Destination Pointer, DestinationPitch U64, Value I32, Width U64, Height U64);
    Event::Fill(1, Timing::Blocking), Blocking => cudaMemset3D 3.2, cudaMemset3D_ptds 7.0
        (Destination PitchedPointer, Value I32, Extent Extent);
    Event::Fill(1, Timing::Async), NotNeeded => cudaMemset2DAsync 3.2, cudaMemset2DAsync_ptsz 7.0
        (Destination Pointer, DestinationPitch U64, Value I32, Width U64, Height U64, Stream Pointer);
    Event::Fill(1, Timing::Async), NotNeeded => cudaMemset3DAsync 3.2, cudaMemset3DAsync_ptsz 7.0
        (Destination PitchedPointer, Value I32, Extent Extent, Stream Pointer);
    Event::Fill(1, Timing::Async), NotNeeded => cudaMemsetAsync 3.2, cudaMemsetAsync_ptsz 7.0
        (Destination Pointer, Value I32, Bytes U64, Stream Pointer);

    // Memory.
    Event::Alloc(Memory::Device), OutPointer => cudaMalloc 3.2 (Out Pointer, Bytes U64);
    Event::Alloc(Memory::Device), OutPointer => cudaMalloc3D 3.2 (Out Pointer, Extent Extent);
    Event::Alloc(Memory::Device), OutPointer => cudaMallocPitch 3.2
        (Out Pointer, OutPitch Pointer, Width U64, Height U64);
    Event::Free(Memory::Device), NotNeeded => cudaFree 3.2 (Address Pointer);
    Event::Alloc(Memory::Async), OutPointer => cudaMallocAsync 11.2, cudaMallocAsync_ptsz 11.2
        (Out Pointer, Bytes U64, Stream Pointer);
    Event::Alloc(Memory::Async), OutPointer => cudaMallocFromPoolAsync 11.2,
            cudaMallocFromPoolAsync_ptsz 11.2
        (Out Pointer, Bytes U64, Other Pointer, Stream Pointer);
    Event::Free(Memory::Async), NotNeeded => cudaFreeAsync 11.2, cudaFreeAsync_ptsz 11.2
        (Address Pointer, Stream Pointer);
    Event::Alloc(Memory::Managed), OutPointer => cudaMallocManaged 6.0 (Out Pointer, Bytes U64, Flags U32);
    Event::Alloc(Memory::Host), OutPointer => cudaHostAlloc 3.2 (Out Pointer, Bytes U64, Flags U32);
    Event::Alloc(Memory::Host), OutPointer => cudaMallocHost 3.2 (Out Pointer, Bytes U64);
    Event::Free(Memory::Host), NotNeeded => cudaFreeHost 3.2 (Address Pointer);
    Event::Alloc(Memory::Registered), Status => cudaHostRegister 4.0
        (Address Pointer, Bytes U64, Flags U32);
    Event::Free(Memory::Registered), NotNeeded => cudaHostUnregister 4.0 (Address Pointer);

    // Waiting on the host.
    Event::Sync(Scope::Stream), Blocking => cudaStreamSynchronize 3.2, cudaStreamSynchronize_ptsz 7.0
        (Stream Pointer);
    Event::Sync(Scope::Device), Blocking => cudaDeviceSynchronize 3.2 ();
    Event::Sync(Scope::Event), Blocking => cudaEventSynchronize 3.2 (Event Pointer);

    // Streams and events.
    Event::EventRecord, NotNeeded => cudaEventRecord 3.2, cudaEventRecord_ptsz 7.0
        (Event Pointer, Stream Pointer);
    Event::EventRecord, NotNeeded => cudaEventRecordWithFlags 11.1, cudaEventRecordWithFlags_ptsz 11.1
        (Event Pointer, Stream Pointer, Flags U32);
    Event::StreamWait, NotNeeded => cudaStreamWaitEvent 3.2, cudaStreamWaitEvent_ptsz 7.0
        (Stream Pointer, Event Pointer, Flags U32);
    Event::StreamCreate, OutPointer => cudaStreamCreate 3.2 (Out Pointer);
    Event::StreamCreate, OutPointer => cudaStreamCreateWithFlags 5.0 (Out Pointer, Flags U32);
    Event::StreamCreate, OutPointer => cudaStreamCreateWithPriority 5.5 (Out Pointer, Flags U32, Other I32);
    Event::StreamDestroy, NotNeeded => cudaStreamDestroy 5.5 (Stream Pointer);

    // Code and its names.
    Event::FatBinary, Returned => __cudaRegisterFatBinary 2.0 (Image Pointer);
    Event::FunctionStub, NotNeeded => __cudaRegisterFunction 2.0
        (Module Pointer, Function Pointer, Other Pointer, Name Pointer, Other I32, Other Pointer,
         Other Pointer, Other Pointer, Other Pointer, Other Pointer);
    Event::FatBinaryUnload, NotNeeded => __cudaUnregisterFatBinary 2.0 (Module Pointer);
    Event::KernelOfStub, OutPointer => __cudaGetKernel 12.9 (Out Pointer, Function Pointer);
    Event::KernelOfStub, OutPointer => cudaGetKernel 12.0 (Out Pointer, Function Pointer);
    Event::FunctionOfStub, OutPointer => cudaGetFuncBySymbol 11.0 (Out Pointer, Function Pointer);
    Event::ModuleLoad, OutPointer => cudaLibraryLoadData 12.6
        (Out Pointer, Image Pointer, Other Pointer, Other Pointer, Other U32, Other Pointer, Other Pointer,
         Other U32);
    Event::ModuleLoad, OutPointer => cudaLibraryLoadFromFile 12.6
        (Out Pointer, Path Pointer, Other Pointer, Other Pointer, Other U32, Other Pointer, Other Pointer,
         Other U32);
    Event::ModuleUnload, NotNeeded => cudaLibraryUnload 12.6 (Module Pointer);
    Event::FunctionByName, OutPointer => cudaLibraryGetKernel 12.6
        (Out Pointer, Module Pointer, Name Pointer);
    Event::ProcAddress, OutPointer => cudaGetDriverEntryPoint 11.3, cudaGetDriverEntryPoint_ptsz 11.3
        (Name Pointer, Out Pointer, Flags U64, Other Pointer);
    Event::ProcAddress, OutPointer => cudaGetDriverEntryPointByVersion 12.5,
            cudaGetDriverEntryPointByVersion_ptsz 12.5
        (Name Pointer, Out Pointer, Version U32, Flags U64, Other Pointer);

    // Devices.
    Event::DeviceCurrent, NotNeeded => cudaSetDevice 3.2 (Device I32);
};
