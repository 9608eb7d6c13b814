//! PyTorch's `libc10.so`: memory of tensors.
//!
//! Owns: the rows for it. Because: the framework's own allocators allocate tensors: the driver sees only their large
//! segments, and the system's allocator cannot distinguish them from other memory. Does not: say which device's
//! allocator calls; that is an argument.
//!
//! Declarations: c10/core/CPUAllocator.h and c10/core/Allocator.h. The host's default allocator calls `New` and
//! `Delete` for each allocation; those of CUDA, HIP and XPU call `reportMemoryUsageToProfiler`, whether or not a
//! profiler is on, and with a profiler the host's allocator calls it too. Its totals were signed before 2.1.

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
