//! NVIDIA's profiling interface, `libcupti.so`, as used by other tools.
//!
//! Owns: its rows. Because: if a process already collects activity records, we can read them where it does. Does not:
//! call any of it.
//!
//! Source: `cupti_activity.h` and `cupti_callbacks.h` (package `nvidia-cuda-cupti`, 13.5); versions from its release
//! notes, with CUDA 6.0 for older functions.

use deepctx_events::CuptiEvent;

use super::table::table;
use crate::row::Row;

pub(super) const ROWS: &[Row] = table! { Cupti, Cupti:
    // Subscribers.
    CuptiEvent::Subscribe, OutPointer => cuptiSubscribe 6.0
        (Out Pointer, HostFunction Pointer, UserData Pointer);
    CuptiEvent::Subscribe, OutPointer => cuptiSubscribe_v2 13.0
        (Out Pointer, HostFunction Pointer, UserData Pointer, Other Pointer);
    CuptiEvent::Unsubscribe, NotNeeded => cuptiFinalize 10.0 ();
    CuptiEvent::Unsubscribe, NotNeeded => cuptiUnsubscribe 6.0 (Handle Pointer);
    CuptiEvent::Callbacks, NotNeeded => cuptiActivityRegisterCallbacks 6.0
        (HostFunction Pointer, CompletedFunction Pointer);
    CuptiEvent::Callbacks, NotNeeded => cuptiActivityRegisterCallbacks_v2 13.2
        (Handle Pointer, HostFunction Pointer, CompletedFunction Pointer);
    CuptiEvent::KindOn, NotNeeded => cuptiActivityEnable 6.0 (Kind U32);
    CuptiEvent::KindOn, NotNeeded => cuptiActivityEnable_v2 13.2
        (Handle Pointer, Kind U32, Other Pointer);
    CuptiEvent::KindOff, NotNeeded => cuptiActivityDisable 6.0 (Kind U32);
    CuptiEvent::KindOff, NotNeeded => cuptiActivityDisable_v2 13.2
        (Handle Pointer, Kind U32, Other Pointer);
    CuptiEvent::Flush, Blocking => cuptiActivityFlushAll 6.0 (Other U32);

    // Their records.
    CuptiEvent::Record, OutPointer => cuptiActivityGetNextRecord 6.0
        (Buffer Pointer, Bytes U64, Out Pointer);
    CuptiEvent::Record, OutPointer => cuptiActivityGetNextRecord_v2 13.2
        (Handle Pointer, Buffer Pointer, Bytes U64, Out Pointer);
};
