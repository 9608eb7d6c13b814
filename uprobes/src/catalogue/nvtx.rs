//! Ranges that programs name for profilers: NVTX, roctx, and the part of a run that is meant to be profiled.
//!
//! Owns: the rows for them, for each library that may have such functions. Because: they are the program's own names
//! for its parts, and it calls these functions whether or not a tool listens. Does not: see NVTX if its header was
//! compiled into code without symbols, or inlined: then there is no function. Nor ranges that end by id instead of in
//! order.
//!
//! Declarations: `nvToolsExt.h` (NVTX 2 and 3), `roctx.h` (ROCm 6), `cudaProfiler.h`, `hip_runtime_api.h`.

use std::borrow::Cow;

use deepctx_events::{Family, RangeEvent};

use super::table::table;
use crate::row::Row;

const NVTX: &[Row] = table! { Nvtx, Range:
    RangeEvent::Pushed, NotNeeded => nvtxRangePushA 1.0 (Name Pointer);
    RangeEvent::Pushed, NotNeeded => nvtxRangePushEx 1.0 (Config Pointer) with NVTX_EVENT;
    RangeEvent::Popped, NotNeeded => nvtxRangePop 1.0 ();
    RangeEvent::Pushed, NotNeeded => nvtxDomainRangePushEx 2.0 (Handle Pointer, Config Pointer) with NVTX_EVENT;
    RangeEvent::Popped, NotNeeded => nvtxDomainRangePop 2.0 (Handle Pointer);
};

const ROCTX: &[Row] = table! { Roctx, Range:
    RangeEvent::Pushed, NotNeeded => roctxRangePushA 1.0 (Name Pointer);
    RangeEvent::Popped, NotNeeded => roctxRangePop 1.0 ();
};

const CUDA: &[Row] = table! { CudaDriver, Range:
    RangeEvent::ProfilerStart, NotNeeded => cuProfilerStart 4.0 ();
    RangeEvent::ProfilerStop, NotNeeded => cuProfilerStop 4.0 ();
};

const HIP: &[Row] = table! { Hip, Range:
    RangeEvent::ProfilerStart, NotNeeded => hipProfilerStart 3.0 ();
    RangeEvent::ProfilerStop, NotNeeded => hipProfilerStop 3.0 ();
};

/// The rows of a library, which are probed when ranges are requested.
pub(super) fn rows(family: Family) -> Cow<'static, [Row]> {
    let of = |rows: &'static [Row]| rows.iter().map(|row| row.in_family(family)).collect();
    match family {
        Family::Nvtx => NVTX.into(),
        Family::Roctx => ROCTX.into(),
        Family::CudaDriver => CUDA.into(),
        Family::Hip => HIP.into(),
        Family::TorchPython => Cow::Owned(of(NVTX)),
        Family::RoctxSdk => Cow::Owned(of(ROCTX)),
        _ => Cow::Borrowed(&[]),
    }
}
