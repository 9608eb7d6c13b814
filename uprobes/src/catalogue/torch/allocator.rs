//! PyTorch's `libc10.so`: memory of tensors.
//!
//! Owns: the rows for it. Because: tensors are allocated by the framework's own allocators: the driver sees their large
//! segments, and the system's allocator nothing that differs from other memory. Does not: say which device's allocator
//! calls; that is an argument.
//!
//! Declarations: c10/core/CPUAllocator.h and c10/core/Allocator.h. `New` and `Delete` are called by the host's default
//! allocator for each piece of memory, `reportMemoryUsageToProfiler` by those of CUDA, HIP and XPU, whether or not a
//! profiler is on; with a profiler, the host's allocator calls it too. Its totals had a sign before 2.1.

use deepctx_events::TensorEvent;

use crate::catalogue::table::table;
use crate::row::Row;

pub(in crate::catalogue) const ROWS: &[Row] = table! { C10, Tensor:
    TensorEvent::Alloc, NotNeeded => _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm 1.0
        (Other Pointer, Address Pointer, Bytes U64);
    TensorEvent::Free, NotNeeded => _ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv 1.0
        (Other Pointer, Address Pointer);
    TensorEvent::Report, NotNeeded =>
        _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE 2.1,
        _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE 1.0
        (Address Pointer, Bytes I64, TotalAllocated U64, TotalReserved U64, PackedDevice U16);
};
