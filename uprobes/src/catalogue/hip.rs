//! AMD's runtime interface, `libamdhip64.so`.
//!
//! Owns: its rows. Because: HIP has no separate driver library: programs and frameworks call here directly. Does not:
//! cover what lies below (`libhsa-runtime64`).
//!
//! Source: `hip_runtime_api.h` and `hip_ext.h` (HIP 6.4, package `libamdhip64-dev`); versions are the symbol versions
//! of the library itself (`hipMallocAsync@@hip_5.1`). `_spt` names have the parameters of the plain ones.
//! `__hipRegister*` stand in no header; they take what CUDA's take, as clang's code generator for offloading writes it.

use super::{Row, table};
use crate::event::{Direction, Event, Memory, Scope, Timing};

pub(super) const ROWS: &[Row] = table! { Hip:
    // Launches.
    Event::Launch, NotNeeded => hipLaunchKernel 4.2, hipLaunchKernel_spt 5.2
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U64, Stream Pointer);
    Event::Launch, NotNeeded => hipExtLaunchKernel 4.2
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U64, Stream Pointer,
         StartEvent Pointer, StopEvent Pointer, Flags I32);
    Event::LaunchFunction, NotNeeded => hipModuleLaunchKernel 4.2
        (Function Pointer, GridX U32, GridY U32, GridZ U32, BlockX U32, BlockY U32, BlockZ U32,
         SharedBytes U32, Stream Pointer, KernelArguments Pointer, Extra Pointer);
    Event::LaunchGlobal, NotNeeded => hipExtModuleLaunchKernel 4.2
        (Function Pointer, GlobalX U32, GlobalY U32, GlobalZ U32, BlockX U32, BlockY U32, BlockZ U32,
         SharedBytes U64, Stream Pointer, KernelArguments Pointer, Extra Pointer, StartEvent Pointer,
         StopEvent Pointer, Flags U32);
    Event::LaunchGlobal, NotNeeded => hipHccModuleLaunchKernel 4.2
        (Function Pointer, GlobalX U32, GlobalY U32, GlobalZ U32, BlockX U32, BlockY U32, BlockZ U32,
         SharedBytes U64, Stream Pointer, KernelArguments Pointer, Extra Pointer, StartEvent Pointer,
         StopEvent Pointer);
    Event::LaunchCooperative, NotNeeded => hipModuleLaunchCooperativeKernel 5.5
        (Function Pointer, GridX U32, GridY U32, GridZ U32, BlockX U32, BlockY U32, BlockZ U32,
         SharedBytes U32, Stream Pointer, KernelArguments Pointer);
    Event::LaunchMultiDevice, NotNeeded => hipExtLaunchMultiKernelMultiDevice 4.2
        (LaunchList Pointer, Count I32, Flags U32);
    Event::LaunchMultiDevice, NotNeeded => hipModuleLaunchCooperativeKernelMultiDevice 5.5
        (LaunchList Pointer, Count U32, Flags U32);
    Event::LaunchMultiDevice, NotNeeded => hipLaunchCooperativeKernelMultiDevice 4.2
        (LaunchList Pointer, Count I32, Flags U32);
    Event::LaunchLegacy, NotNeeded => hipLaunchByPtr 4.2 (Function Pointer);
    Event::LaunchCooperative, NotNeeded => hipLaunchCooperativeKernel 4.2,
            hipLaunchCooperativeKernel_spt 5.2
        (Function Pointer, Grid Dim3, Block Dim3, KernelArguments Pointer, SharedBytes U32, Stream Pointer);
    Event::HostFunction, NotNeeded => hipLaunchHostFunc 5.3, hipLaunchHostFunc_spt 5.3
        (Stream Pointer, HostFunction Pointer, UserData Pointer);
    Event::HostFunction, NotNeeded => hipStreamAddCallback 4.2, hipStreamAddCallback_spt 5.3
        (Stream Pointer, HostFunction Pointer, UserData Pointer, Flags U32);

    // Graphs.
    Event::GraphLaunch, NotNeeded => hipGraphLaunch 4.3, hipGraphLaunch_spt 5.3
        (GraphExec Pointer, Stream Pointer);
    Event::GraphUpload, NotNeeded => hipGraphUpload 5.3 (GraphExec Pointer, Stream Pointer);
    Event::CaptureBegin, NotNeeded => hipStreamBeginCapture 4.3, hipStreamBeginCapture_spt 5.3
        (Stream Pointer, Mode U32);
    Event::CaptureBegin, NotNeeded => hipStreamBeginCaptureToGraph 6.1
        (Stream Pointer, Graph Pointer, Other Pointer, Other Pointer, Other U64, Mode U32);
    Event::CaptureEnd, OutPointer => hipStreamEndCapture 4.3, hipStreamEndCapture_spt 5.3
        (Stream Pointer, Out Pointer);
    Event::GraphInstantiate, OutPointer => hipGraphInstantiate 4.3
        (Out Pointer, Graph Pointer, Other Pointer, Other Pointer, Other U64);
    Event::GraphInstantiate, OutPointer => hipGraphInstantiateWithFlags 4.5
        (Out Pointer, Graph Pointer, Flags U64);
    Event::GraphInstantiate, OutPointer => hipGraphInstantiateWithParams 6.1
        (Out Pointer, Graph Pointer, Parameters Pointer);
    Event::GraphUpdate, NotNeeded => hipGraphExecUpdate 4.5
        (GraphExec Pointer, Graph Pointer, Other Pointer, Other Pointer);
    Event::GraphRelease, NotNeeded => hipGraphExecDestroy 4.3 (GraphExec Pointer);
    Event::GraphNode, OutPointer => hipGraphAddHostNode 4.5
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Parameters Pointer);
    Event::GraphNode, OutPointer => hipGraphAddKernelNode 4.3
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Parameters Pointer) with HIP_KERNEL_NODE;
    Event::GraphNode, OutPointer => hipGraphAddMemAllocNode 5.5
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Parameters Pointer);
    Event::GraphNode, OutPointer => hipGraphAddMemFreeNode 5.5
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Address Pointer);
    Event::GraphNode, OutPointer => hipGraphAddMemcpyNode 4.3
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Copy Pointer) with RUNTIME_COPY_3D;
    Event::GraphNode, OutPointer => hipGraphAddMemsetNode 4.3
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Parameters Pointer);
    Event::GraphNode, OutPointer => hipGraphAddNode 5.5
        (OutNode Pointer, Graph Pointer, Other Pointer, Other U64, Parameters Pointer);
    Event::GraphClone, OutPointer => hipGraphClone 4.5 (Out Pointer, Graph Pointer);

    // Copies.
    Event::Copy(Direction::ByKind, Timing::Blocking), Blocking => hipMemcpy 4.2, hipMemcpy_spt 5.2
        (Destination Pointer, Source Pointer, Bytes U64, Kind U32);
    Event::Copy(Direction::ByKind, Timing::Async), NotNeeded => hipMemcpyAsync 4.2, hipMemcpyAsync_spt 5.2
        (Destination Pointer, Source Pointer, Bytes U64, Kind U32, Stream Pointer);
    Event::Copy(Direction::ByKind, Timing::Blocking), Blocking => hipMemcpy2D 4.2, hipMemcpy2D_spt 5.2
        (Destination Pointer, DestinationPitch U64, Source Pointer, SourcePitch U64, Width U64, Height U64,
         Kind U32);
    Event::Copy(Direction::ByKind, Timing::Async), NotNeeded => hipMemcpy2DAsync 4.2,
            hipMemcpy2DAsync_spt 5.3
        (Destination Pointer, DestinationPitch U64, Source Pointer, SourcePitch U64, Width U64, Height U64,
         Kind U32, Stream Pointer);
    Event::Copy(Direction::Peer, Timing::Blocking), Blocking => hipMemcpyPeer 4.2
        (Destination Pointer, DestinationDevice I32, Source Pointer, SourceDevice I32, Bytes U64);
    Event::Copy(Direction::Peer, Timing::Async), NotNeeded => hipMemcpyPeerAsync 4.2
        (Destination Pointer, DestinationDevice I32, Source Pointer, SourceDevice I32, Bytes U64,
         Stream Pointer);
    Event::Copy(Direction::ByKind, Timing::Blocking), Blocking => hipMemcpyFromSymbol 4.2,
            hipMemcpyFromSymbol_spt 5.2
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32);
    Event::Copy(Direction::ByKind, Timing::Blocking), Blocking => hipMemcpyToSymbol 4.2,
            hipMemcpyToSymbol_spt 5.2
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32);
    Event::Copy(Direction::ByKind, Timing::Async), NotNeeded => hipMemcpyFromSymbolAsync 4.2,
            hipMemcpyFromSymbolAsync_spt 5.3
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32, Stream Pointer);
    Event::Copy(Direction::ByKind, Timing::Async), NotNeeded => hipMemcpyToSymbolAsync 4.2,
            hipMemcpyToSymbolAsync_spt 5.3
        (Destination Pointer, Source Pointer, Bytes U64, Other U64, Kind U32, Stream Pointer);
    Event::Copy(Direction::ByParameters, Timing::Blocking), Blocking => hipMemcpy3D 4.2, hipMemcpy3D_spt 5.2
        (Copy Pointer) with RUNTIME_COPY_3D;
    Event::Copy(Direction::ByParameters, Timing::Async), NotNeeded => hipMemcpy3DAsync 4.2,
            hipMemcpy3DAsync_spt 5.3
        (Copy Pointer, Stream Pointer) with RUNTIME_COPY_3D;
    Event::Copy(Direction::ByKind, Timing::Blocking), Blocking => hipMemcpyWithStream 4.2
        (Destination Pointer, Source Pointer, Bytes U64, Kind U32, Stream Pointer);
    Event::Copy(Direction::HostToDevice, Timing::Blocking), Blocking => hipMemcpyHtoD 4.2
        (Destination Pointer, Source Pointer, Bytes U64);
    Event::Copy(Direction::HostToDevice, Timing::Async), NotNeeded => hipMemcpyHtoDAsync 4.2
        (Destination Pointer, Source Pointer, Bytes U64, Stream Pointer);
    Event::Copy(Direction::DeviceToHost, Timing::Blocking), Blocking => hipMemcpyDtoH 4.2
        (Destination Pointer, Source Pointer, Bytes U64);
    Event::Copy(Direction::DeviceToHost, Timing::Async), NotNeeded => hipMemcpyDtoHAsync 4.2
        (Destination Pointer, Source Pointer, Bytes U64, Stream Pointer);
    Event::Copy(Direction::DeviceToDevice, Timing::Blocking), Blocking => hipMemcpyDtoD 4.2
        (Destination Pointer, Source Pointer, Bytes U64);
    Event::Copy(Direction::DeviceToDevice, Timing::Async), NotNeeded => hipMemcpyDtoDAsync 4.2
        (Destination Pointer, Source Pointer, Bytes U64, Stream Pointer);
    Event::Copy(Direction::HostToArray, Timing::Blocking), Blocking => hipMemcpyHtoA 4.2
        (Destination Pointer, Other U64, Source Pointer, Bytes U64);
    Event::Copy(Direction::HostToArray, Timing::Async), NotNeeded => hipMemcpyHtoAAsync 6.2
        (Destination Pointer, Other U64, Source Pointer, Bytes U64, Stream Pointer);
    Event::Copy(Direction::ArrayToHost, Timing::Blocking), Blocking => hipMemcpyAtoH 4.2
        (Destination Pointer, Source Pointer, Other U64, Bytes U64);
    Event::Copy(Direction::ArrayToHost, Timing::Async), NotNeeded => hipMemcpyAtoHAsync 6.2
        (Destination Pointer, Source Pointer, Other U64, Bytes U64, Stream Pointer);
    Event::Copy(Direction::ArrayToDevice, Timing::Blocking), Blocking => hipMemcpyAtoD 6.2
        (Destination Pointer, Source Pointer, Other U64, Bytes U64);
    Event::Copy(Direction::DeviceToArray, Timing::Blocking), Blocking => hipMemcpyDtoA 6.2
        (Destination Pointer, Other U64, Source Pointer, Bytes U64);
    Event::Copy(Direction::ArrayToArray, Timing::Blocking), Blocking => hipMemcpyAtoA 6.2
        (Destination Pointer, Other U64, Source Pointer, Other U64, Bytes U64);
    Event::Copy(Direction::ByParameters, Timing::Blocking), Blocking => hipDrvMemcpy2DUnaligned 4.3
        (Copy Pointer) with COPY_2D;
    Event::Copy(Direction::ByParameters, Timing::Blocking), Blocking => hipDrvMemcpy3D 4.2
        (Copy Pointer) with HIP_DRIVER_COPY_3D;
    Event::Copy(Direction::ByParameters, Timing::Blocking), Blocking => hipMemcpyParam2D 4.2
        (Copy Pointer) with COPY_2D;
    Event::Copy(Direction::ByParameters, Timing::Async), NotNeeded => hipDrvMemcpy3DAsync 4.2
        (Copy Pointer, Stream Pointer) with HIP_DRIVER_COPY_3D;
    Event::Copy(Direction::ByParameters, Timing::Async), NotNeeded => hipMemcpyParam2DAsync 4.2
        (Copy Pointer, Stream Pointer) with COPY_2D;
    Event::Prefetch, NotNeeded => hipMemPrefetchAsync 4.2
        (Address Pointer, Bytes U64, Device I32, Stream Pointer);

    // Fills.
    Event::Fill(1, Timing::Blocking), Blocking => hipMemset 4.2, hipMemset_spt 5.2
        (Destination Pointer, Value I32, Bytes U64);
    Event::Fill(1, Timing::Blocking), Blocking => hipMemset2D 4.2, hipMemset2D_spt 5.2
        (Destination Pointer, DestinationPitch U64, Value I32, Width U64, Height U64);
    Event::Fill(1, Timing::Blocking), Blocking => hipMemset3D 4.2, hipMemset3D_spt 5.2
        (Destination PitchedPointer, Value I32, Extent Extent);
    Event::Fill(1, Timing::Async), NotNeeded => hipMemset2DAsync 4.2, hipMemset2DAsync_spt 5.3
        (Destination Pointer, DestinationPitch U64, Value I32, Width U64, Height U64, Stream Pointer);
    Event::Fill(1, Timing::Async), NotNeeded => hipMemset3DAsync 4.2, hipMemset3DAsync_spt 5.3
        (Destination PitchedPointer, Value I32, Extent Extent, Stream Pointer);
    Event::Fill(1, Timing::Async), NotNeeded => hipMemsetAsync 4.2, hipMemsetAsync_spt 5.3
        (Destination Pointer, Value I32, Bytes U64, Stream Pointer);
    Event::Fill(1, Timing::Blocking), Blocking => hipMemsetD8 4.2
        (Destination Pointer, Value U8, Count U64);
    Event::Fill(1, Timing::Async), NotNeeded => hipMemsetD8Async 4.2
        (Destination Pointer, Value U8, Count U64, Stream Pointer);
    Event::Fill(2, Timing::Blocking), Blocking => hipMemsetD16 4.2
        (Destination Pointer, Value U16, Count U64);
    Event::Fill(2, Timing::Async), NotNeeded => hipMemsetD16Async 4.2
        (Destination Pointer, Value U16, Count U64, Stream Pointer);
    Event::Fill(4, Timing::Blocking), Blocking => hipMemsetD32 4.2
        (Destination Pointer, Value I32, Count U64);
    Event::Fill(4, Timing::Async), NotNeeded => hipMemsetD32Async 4.2
        (Destination Pointer, Value I32, Count U64, Stream Pointer);

    // Memory.
    Event::Alloc(Memory::Device), OutPointer => hipMalloc 4.2 (Out Pointer, Bytes U64);
    Event::Alloc(Memory::Device), OutPointer => hipMalloc3D 4.2 (Out Pointer, Extent Extent);
    Event::Alloc(Memory::Device), OutPointer => hipMallocPitch 4.2
        (Out Pointer, OutPitch Pointer, Width U64, Height U64);
    Event::Free(Memory::Device), NotNeeded => hipFree 4.2 (Address Pointer);
    Event::Alloc(Memory::Async), OutPointer => hipMallocAsync 5.1 (Out Pointer, Bytes U64, Stream Pointer);
    Event::Alloc(Memory::Async), OutPointer => hipMallocFromPoolAsync 5.1
        (Out Pointer, Bytes U64, Other Pointer, Stream Pointer);
    Event::Free(Memory::Async), NotNeeded => hipFreeAsync 5.1 (Address Pointer, Stream Pointer);
    Event::Alloc(Memory::Managed), OutPointer => hipMallocManaged 4.2 (Out Pointer, Bytes U64, Flags U32);
    Event::Alloc(Memory::Host), OutPointer => hipHostAlloc 4.2 (Out Pointer, Bytes U64, Flags U32);
    Event::Alloc(Memory::Host), OutPointer => hipMallocHost 4.2 (Out Pointer, Bytes U64);
    Event::Free(Memory::Host), NotNeeded => hipFreeHost 4.2 (Address Pointer);
    Event::Alloc(Memory::Registered), Status => hipHostRegister 4.2 (Address Pointer, Bytes U64, Flags U32);
    Event::Free(Memory::Registered), NotNeeded => hipHostUnregister 4.2 (Address Pointer);
    Event::Alloc(Memory::Host), OutPointer => hipHostMalloc 4.2 (Out Pointer, Bytes U64, Flags U32);
    Event::Alloc(Memory::Host), OutPointer => hipMemAllocHost 4.2 (Out Pointer, Bytes U64);
    Event::Free(Memory::Host), NotNeeded => hipHostFree 4.2 (Address Pointer);
    Event::Alloc(Memory::Device), OutPointer => hipExtMallocWithFlags 4.2
        (Out Pointer, Bytes U64, Flags U32);
    Event::Alloc(Memory::Device), OutPointer => hipMemAllocPitch 4.2
        (Out Pointer, OutPitch Pointer, Width U64, Height U64, Other U32);
    Event::Alloc(Memory::Reserved), OutPointer => hipMemAddressReserve 5.1
        (Out Pointer, Bytes U64, Other U64, Address Pointer, Flags U64);
    Event::Free(Memory::Reserved), NotNeeded => hipMemAddressFree 5.1 (Address Pointer, Bytes U64);
    Event::Alloc(Memory::Physical), OutPointer => hipMemCreate 5.1
        (Out Pointer, Bytes U64, Other Pointer, Flags U64);
    Event::Free(Memory::Physical), NotNeeded => hipMemRelease 5.1 (Handle Pointer);
    Event::Alloc(Memory::Mapped), Status => hipMemMap 5.1
        (Address Pointer, Bytes U64, Other U64, Handle Pointer, Flags U64);
    Event::Free(Memory::Mapped), NotNeeded => hipMemUnmap 5.1 (Address Pointer, Bytes U64);

    // Waiting on the host.
    Event::Sync(Scope::Stream), Blocking => hipStreamSynchronize 4.2, hipStreamSynchronize_spt 5.2
        (Stream Pointer);
    Event::Sync(Scope::Device), Blocking => hipDeviceSynchronize 4.2 ();
    Event::Sync(Scope::Event), Blocking => hipEventSynchronize 4.2 (Event Pointer);
    Event::Sync(Scope::Context), Blocking => hipCtxSynchronize 4.2 ();

    // Streams and events.
    Event::EventRecord, NotNeeded => hipEventRecord 4.2, hipEventRecord_spt 5.2
        (Event Pointer, Stream Pointer);
    Event::EventRecord, NotNeeded => hipEventRecordWithFlags 6.4 (Event Pointer, Stream Pointer, Flags U32);
    Event::StreamWait, NotNeeded => hipStreamWaitEvent 4.2, hipStreamWaitEvent_spt 5.2
        (Stream Pointer, Event Pointer, Flags U32);
    Event::StreamCreate, OutPointer => hipStreamCreate 4.2 (Out Pointer);
    Event::StreamCreate, OutPointer => hipStreamCreateWithFlags 4.2 (Out Pointer, Flags U32);
    Event::StreamCreate, OutPointer => hipStreamCreateWithPriority 4.2 (Out Pointer, Flags U32, Other I32);
    Event::StreamDestroy, NotNeeded => hipStreamDestroy 4.2 (Stream Pointer);
    Event::StreamValue, NotNeeded => hipStreamWaitValue32 4.4
        (Stream Pointer, Address Pointer, Value U32, Flags U32, Other U32);
    Event::StreamValue, NotNeeded => hipStreamWaitValue64 4.4
        (Stream Pointer, Address Pointer, Value U64, Flags U32, Other U64);
    Event::StreamValue, NotNeeded => hipStreamWriteValue32 4.4
        (Stream Pointer, Address Pointer, Value U32, Flags U32);
    Event::StreamValue, NotNeeded => hipStreamWriteValue64 4.4
        (Stream Pointer, Address Pointer, Value U64, Flags U32);
    Event::StreamValue, NotNeeded => hipStreamBatchMemOp 6.4
        (Stream Pointer, Count U32, Operations Pointer, Flags U32);

    // Code and its names.
    Event::FatBinary, Returned => __hipRegisterFatBinary 4.2 (Image Pointer);
    Event::FunctionStub, NotNeeded => __hipRegisterFunction 4.2
        (Module Pointer, Function Pointer, Other Pointer, Name Pointer, Other I32, Other Pointer,
         Other Pointer, Other Pointer, Other Pointer, Other Pointer);
    Event::FatBinaryUnload, NotNeeded => __hipUnregisterFatBinary 4.2 (Module Pointer);
    Event::FunctionOfStub, OutPointer => hipGetFuncBySymbol 6.2 (Out Pointer, Function Pointer);
    Event::ModuleLoad, OutPointer => hipModuleLoad 4.2 (Out Pointer, Path Pointer);
    Event::ModuleLoad, OutPointer => hipModuleLoadData 4.2 (Out Pointer, Image Pointer);
    Event::ModuleLoad, OutPointer => hipModuleLoadDataEx 4.2
        (Out Pointer, Image Pointer, Other U32, Other Pointer, Other Pointer);
    Event::ModuleUnload, NotNeeded => hipModuleUnload 4.2 (Module Pointer);
    Event::FunctionByName, OutPointer => hipModuleGetFunction 4.2
        (Out Pointer, Module Pointer, Name Pointer);
    Event::ProcAddress, OutPointer => hipGetProcAddress 6.1
        (Name Pointer, Out Pointer, Version I32, Flags U64, Other Pointer);

    // Devices.
    Event::DeviceCurrent, NotNeeded => hipSetDevice 4.2 (Device I32);
    Event::ContextCreate, OutPointer => hipCtxCreate 4.2 (Out Pointer, Flags U32, Device I32);
    Event::ContextCreate, OutPointer => hipDevicePrimaryCtxRetain 4.2 (Out Pointer, Device I32);
    Event::ContextCurrent, NotNeeded => hipCtxPushCurrent 4.2 (Context Pointer);
    Event::ContextCurrent, NotNeeded => hipCtxSetCurrent 4.2 (Context Pointer);
    Event::ContextDestroy, NotNeeded => hipCtxDestroy 4.2 (Context Pointer);
};
