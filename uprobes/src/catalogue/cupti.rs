//! NVIDIA's profiling interface, `libcupti.so`, as used by others.
//!
//! Owns: its rows. Because: when a process already collects activity records, they can be read where it reads them.
//! Does not: call any of it.
//!
//! Source: `cupti_activity.h` and `cupti_callbacks.h` (package `nvidia-cuda-cupti`, 13.5); versions by its release
//! notes, with CUDA 6.0 for what is older than that.

use super::{Row, table};
use crate::event::Event;

pub(super) const ROWS: &[Row] = table! { Cupti:
    // Who listens.
    Event::ActivityClient, OutPointer => cuptiSubscribe 6.0
        (Out Pointer, HostFunction Pointer, UserData Pointer);
    Event::ActivityClient, OutPointer => cuptiSubscribe_v2 13.2
        (Out Pointer, HostFunction Pointer, UserData Pointer, Other Pointer);
    Event::ActivityClientGone, NotNeeded => cuptiFinalize 10.0 ();
    Event::ActivityClientGone, NotNeeded => cuptiUnsubscribe 6.0 (Handle Pointer);
    Event::ActivityCallbacks, NotNeeded => cuptiActivityRegisterCallbacks 6.0
        (HostFunction Pointer, CompletedFunction Pointer);
    Event::ActivityCallbacks, NotNeeded => cuptiActivityRegisterCallbacks_v2 13.2
        (Handle Pointer, HostFunction Pointer, CompletedFunction Pointer);
    Event::ActivityKindOn, NotNeeded => cuptiActivityEnable 6.0 (Kind U32);
    Event::ActivityKindOn, NotNeeded => cuptiActivityEnable_v2 13.2
        (Handle Pointer, Kind U32, Other Pointer);
    Event::ActivityKindOff, NotNeeded => cuptiActivityDisable 6.0 (Kind U32);
    Event::ActivityKindOff, NotNeeded => cuptiActivityDisable_v2 13.2
        (Handle Pointer, Kind U32, Other Pointer);
    Event::ActivityFlush, Blocking => cuptiActivityFlushAll 6.0 (Other U32);

    // What they get.
    Event::ActivityRecord, OutPointer => cuptiActivityGetNextRecord 6.0
        (Buffer Pointer, Bytes U64, Out Pointer);
    Event::ActivityRecord, OutPointer => cuptiActivityGetNextRecord_v2 13.2
        (Handle Pointer, Buffer Pointer, Bytes U64, Out Pointer);
};
