//! Structures that calls pass by pointer: the members worth reading.
//!
//! Owns: their offsets. Because: `cuLaunchKernelEx` and copies of two and three dimensions pass all arguments in a
//! structure. Does not: read them. Offsets are those of `cuda.h` and `driver_types.h` (CUDA 13.0) and
//! `hip_runtime_api.h` (HIP 6.4), as a C compiler computes them: `tests/fixtures/layouts.tsv`.

use deepctx_events::Role;

use crate::abi::Field;
use crate::abi::Scalar;

macro_rules! structure {
    ($(#[$doc:meta])* $name:ident, $declared:literal, $through:ident: $($role:ident $scalar:ident $member:literal $offset:literal),*) => {
        $(#[$doc])*
        pub(super) const $name: &[Field] = &[$(Field {
            through: Role::$through,
            role: Role::$role,
            scalar: Scalar::$scalar,
            offset: $offset,
            declared: concat!($declared, ".", $member),
        }),*];
    };
}

structure!(
    /// For `nvtxRangePushEx`: the type of its message (1: ASCII), and the message.
    NVTX_EVENT, "nvtxEventAttributes_t", Config:
    Kind U32 "messageType" 32, Name POINTER "message" 40);
structure!(
    /// For `cuLaunchKernelEx`.
    DRIVER_LAUNCH_CONFIG, "CUlaunchConfig", Config:
    GridX U32 "gridDimX" 0, GridY U32 "gridDimY" 4, GridZ U32 "gridDimZ" 8,
    BlockX U32 "blockDimX" 12, BlockY U32 "blockDimY" 16, BlockZ U32 "blockDimZ" 20,
    SharedBytes U32 "sharedMemBytes" 24, Stream POINTER "hStream" 32);
structure!(
    /// For `cudaLaunchKernelExC`.
    RUNTIME_LAUNCH_CONFIG, "cudaLaunchConfig_t", Config:
    GridX U32 "gridDim" 0, GridY U32 "gridDim+4" 4, GridZ U32 "gridDim+8" 8,
    BlockX U32 "blockDim" 12, BlockY U32 "blockDim+4" 16, BlockZ U32 "blockDim+8" 20,
    SharedBytes U64 "dynamicSmemBytes" 24, Stream POINTER "stream" 32);
structure!(
    /// For `cuMemcpy2D` and its HIP counterpart, which agree.
    COPY_2D, "CUDA_MEMCPY2D", Copy:
    SourceKind U32 "srcMemoryType" 16, Source POINTER "srcHost" 24, DeviceSource POINTER "srcDevice" 32,
    DestinationKind U32 "dstMemoryType" 72, Destination POINTER "dstHost" 80, DeviceDestination POINTER "dstDevice" 88,
    Width U64 "WidthInBytes" 112, Height U64 "Height" 120);
structure!(
    /// For `cuMemcpy3D` and `cuMemcpy3DPeer`, which agree.
    COPY_3D, "CUDA_MEMCPY3D", Copy:
    SourceKind U32 "srcMemoryType" 32, Source POINTER "srcHost" 40, DeviceSource POINTER "srcDevice" 48,
    DestinationKind U32 "dstMemoryType" 120, Destination POINTER "dstHost" 128, DeviceDestination POINTER "dstDevice" 136,
    Width U64 "WidthInBytes" 176, Height U64 "Height" 184, Depth U64 "Depth" 192);
structure!(
    /// For `hipDrvMemcpy3D`: eight bytes shorter, since its source has no reserved word.
    HIP_DRIVER_COPY_3D, "HIP_MEMCPY3D", Copy:
    SourceKind U32 "srcMemoryType" 32, Source POINTER "srcHost" 40, DeviceSource POINTER "srcDevice" 48,
    DestinationKind U32 "dstMemoryType" 112, Destination POINTER "dstHost" 120, DeviceDestination POINTER "dstDevice" 128,
    Width U64 "WidthInBytes" 160, Height U64 "Height" 168, Depth U64 "Depth" 176);
structure!(
    /// For `cudaMemcpy3D` and `hipMemcpy3D`, which agree.
    RUNTIME_COPY_3D, "cudaMemcpy3DParms", Copy:
    Source POINTER "srcPtr" 32, Destination POINTER "dstPtr" 96,
    Width U64 "extent" 128, Height U64 "extent+8" 136, Depth U64 "extent+16" 144, Kind U32 "kind" 152);
structure!(
    /// For `cudaMemcpy3DPeer`.
    RUNTIME_COPY_3D_PEER, "cudaMemcpy3DPeerParms", Copy:
    Source POINTER "srcPtr" 32, Destination POINTER "dstPtr" 104,
    Width U64 "extent" 144, Height U64 "extent+8" 152, Depth U64 "extent+16" 160);
structure!(
    /// For `cuGraphAddKernelNode`.
    DRIVER_KERNEL_NODE, "CUDA_KERNEL_NODE_PARAMS", Parameters:
    Function POINTER "func" 0, GridX U32 "gridDimX" 8, GridY U32 "gridDimY" 12, GridZ U32 "gridDimZ" 16,
    BlockX U32 "blockDimX" 20, BlockY U32 "blockDimY" 24, BlockZ U32 "blockDimZ" 28, SharedBytes U32 "sharedMemBytes" 32);
structure!(
    /// For `cuGraphAddKernelNode_v2`: the kernel may be a library's (`kern`) if there is no function.
    DRIVER_KERNEL_NODE_2, "CUDA_KERNEL_NODE_PARAMS", Parameters:
    Function POINTER "func" 0, GridX U32 "gridDimX" 8, GridY U32 "gridDimY" 12, GridZ U32 "gridDimZ" 16,
    BlockX U32 "blockDimX" 20, BlockY U32 "blockDimY" 24, BlockZ U32 "blockDimZ" 28, SharedBytes U32 "sharedMemBytes" 32,
    Handle POINTER "kern" 56);
structure!(
    /// For `cuGraphAddNode`: the kind of node, and the members of a kernel node.
    DRIVER_NODE, "CUgraphNodeParams", Parameters:
    NodeKind U32 "type" 0,
    Function POINTER "kernel.func" 16, GridX U32 "kernel.gridDimX" 24, GridY U32 "kernel.gridDimY" 28,
    GridZ U32 "kernel.gridDimZ" 32, BlockX U32 "kernel.blockDimX" 36, BlockY U32 "kernel.blockDimY" 40,
    BlockZ U32 "kernel.blockDimZ" 44, SharedBytes U32 "kernel.sharedMemBytes" 48, Handle POINTER "kernel.kern" 72);
structure!(
    /// For `cuGraphAddMemsetNode`.
    DRIVER_FILL_NODE, "CUDA_MEMSET_NODE_PARAMS", Parameters:
    ElementBytes U32 "elementSize" 20, Width U64 "width" 24, Height U64 "height" 32);
structure!(
    /// For `cudaGraphAddKernelNode`.
    RUNTIME_KERNEL_NODE, "cudaKernelNodeParams", Parameters:
    Function POINTER "func" 0, GridX U32 "gridDim" 8, GridY U32 "gridDim+4" 12, GridZ U32 "gridDim+8" 16,
    BlockX U32 "blockDim" 20, BlockY U32 "blockDim+4" 24, BlockZ U32 "blockDim+8" 28, SharedBytes U32 "sharedMemBytes" 32);
structure!(
    /// For `hipGraphAddKernelNode`, in a different order than CUDA's.
    HIP_KERNEL_NODE, "hipKernelNodeParams", Parameters:
    Function POINTER "func" 24, GridX U32 "gridDim" 32, GridY U32 "gridDim+4" 36, GridZ U32 "gridDim+8" 40,
    BlockX U32 "blockDim" 0, BlockY U32 "blockDim+4" 4, BlockZ U32 "blockDim+8" 8, SharedBytes U32 "sharedMemBytes" 56);
