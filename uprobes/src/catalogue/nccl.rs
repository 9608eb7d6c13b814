//! Collectives: `libnccl.so` and `librccl.so`.
//!
//! Owns: their rows. Because: whether a rank computes, communicates or waits for another is the first question about a
//! distributed job. Does not: show transfers between ranks: a group issues all its operations at its end.
//!
//! Source: `nccl.h` (NCCL 2.32, package `nvidia-nccl-cu12`) and `rccl.h` (RCCL 2.13, package `librccl-dev`). Neither
//! names versions; those here are from the release notes, for functions later than 2.0.

use deepctx_events::GpuCall::{Collective, Memory};
use deepctx_events::{CollectiveCall, CollectiveOperation, MemoryCall, MemoryKind};

use super::table::table;
use crate::row::Row;

pub(super) const NCCL: &[Row] = table! { Nccl, Gpu:
    // Operations.
    Collective(CollectiveCall::Operation(CollectiveOperation::AllReduce)), NotNeeded => ncclAllReduce 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::AllReduce)), NotNeeded => ncclAllReduceConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer, Config Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Broadcast)), NotNeeded => ncclBcast 2.0
        (Source Pointer, Count U64, DataType U32, Root I32, Communicator Pointer, Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Broadcast)), NotNeeded => ncclBroadcast 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Broadcast)), NotNeeded => ncclBroadcastConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer, Config Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Reduce)), NotNeeded => ncclReduce 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Root I32,
         Communicator Pointer, Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Reduce)), NotNeeded => ncclReduceConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Root I32,
         Communicator Pointer, Stream Pointer, Config Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::AllGather)), NotNeeded => ncclAllGather 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::AllGather)), NotNeeded => ncclAllGatherConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer, Stream Pointer,
         Config Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::ReduceScatter)), NotNeeded => ncclReduceScatter 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::ReduceScatter)), NotNeeded => ncclReduceScatterConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer, Config Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::AllToAll)), NotNeeded => ncclAlltoAll 2.28
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::AllToAll)), NotNeeded => ncclAlltoAllConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer, Stream Pointer,
         Config Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Gather)), NotNeeded => ncclGather 2.28
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Gather)), NotNeeded => ncclGatherConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer, Config Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Scatter)), NotNeeded => ncclScatter 2.28
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Scatter)), NotNeeded => ncclScatterConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer, Config Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Send)), NotNeeded => ncclSend 2.7
        (Source Pointer, Count U64, DataType U32, Peer I32, Communicator Pointer, Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Receive)), NotNeeded => ncclRecv 2.7
        (Destination Pointer, Count U64, DataType U32, Peer I32, Communicator Pointer, Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::PutSignal)), NotNeeded => ncclPutSignal 2.29
        (Other Pointer, Count U64, DataType U32, Peer I32, Other Pointer, Other U64, Other I32, Context I32,
         Flags U32, Communicator Pointer, Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Signal)), NotNeeded => ncclSignal 2.29
        (Peer I32, Other I32, Context I32, Flags U32, Communicator Pointer, Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::WaitSignal)), NotNeeded => ncclWaitSignal 2.29
        (Other I32, Other Pointer, Communicator Pointer, Stream Pointer);

    // Groups: operations are only issued when the outermost group ends.
    Collective(CollectiveCall::GroupBegin), NotNeeded => ncclGroupStart 2.0 ();
    Collective(CollectiveCall::GroupEnd), Blocking => ncclGroupEnd 2.0 ();

    // Communicators.
    Collective(CollectiveCall::CommunicatorCreate), OutPointer => ncclCommInitAll 2.0 (Out Pointer, Ranks I32, Other Pointer);
    Collective(CollectiveCall::CommunicatorCreate), OutPointer => ncclCommInitRank 2.0
        (Out Pointer, Ranks I32, UniqueId Struct(128), Rank I32);
    Collective(CollectiveCall::CommunicatorCreate), OutPointer => ncclCommInitRankConfig 2.14
        (Out Pointer, Ranks I32, UniqueId Struct(128), Rank I32, Config Pointer);
    Collective(CollectiveCall::CommunicatorCreate), OutPointer => ncclCommInitRankScalable 2.23
        (Out Pointer, Ranks I32, Rank I32, Other I32, Other Pointer, Config Pointer);
    Collective(CollectiveCall::CommunicatorCreate), OutPointer => ncclCommGrow 2.29
        (Communicator Pointer, Ranks I32, Other Pointer, Rank I32, Out Pointer, Config Pointer);
    Collective(CollectiveCall::CommunicatorCreate), OutPointer => ncclCommShrink 2.27
        (Communicator Pointer, Other Pointer, Other I32, Out Pointer, Config Pointer, Other I32);
    Collective(CollectiveCall::CommunicatorCreate), OutPointer => ncclCommSplit 2.18
        (Communicator Pointer, Color I32, Other I32, Out Pointer, Config Pointer);
    Collective(CollectiveCall::CommunicatorDestroy), NotNeeded => ncclCommAbort 2.0 (Communicator Pointer);
    Collective(CollectiveCall::CommunicatorDestroy), NotNeeded => ncclCommDestroy 2.0 (Communicator Pointer);
    Collective(CollectiveCall::CommunicatorDestroy), NotNeeded => ncclCommFinalize 2.14 (Communicator Pointer);
    Memory(MemoryCall::Alloc(MemoryKind::Device)), OutPointer => ncclMemAlloc 2.19 (Out Pointer, Bytes U64);
    Memory(MemoryCall::Free(MemoryKind::Device)), NotNeeded => ncclMemFree 2.19 (Address Pointer);
};

pub(super) const RCCL: &[Row] = table! { Rccl, Gpu:
    // Operations.
    Collective(CollectiveCall::Operation(CollectiveOperation::AllReduce)), NotNeeded => ncclAllReduce 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Broadcast)), NotNeeded => ncclBcast 2.0
        (Source Pointer, Count U64, DataType U32, Root I32, Communicator Pointer, Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Broadcast)), NotNeeded => ncclBroadcast 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Reduce)), NotNeeded => ncclReduce 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Root I32,
         Communicator Pointer, Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::AllGather)), NotNeeded => ncclAllGather 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::ReduceScatter)), NotNeeded => ncclReduceScatter 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::AllToAll)), NotNeeded => ncclAllToAll 2.7
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::AllToAll)), NotNeeded => ncclAllToAllv 2.7
        (Source Pointer, Sizes Pointer, Other Pointer, Destination Pointer, Other Pointer, Other Pointer,
         DataType U32, Communicator Pointer, Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Gather)), NotNeeded => ncclGather 2.7
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Scatter)), NotNeeded => ncclScatter 2.7
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Send)), NotNeeded => ncclSend 2.7
        (Source Pointer, Count U64, DataType U32, Peer I32, Communicator Pointer, Stream Pointer);
    Collective(CollectiveCall::Operation(CollectiveOperation::Receive)), NotNeeded => ncclRecv 2.7
        (Destination Pointer, Count U64, DataType U32, Peer I32, Communicator Pointer, Stream Pointer);

    // Groups: operations are only issued when the outermost group ends.
    Collective(CollectiveCall::GroupBegin), NotNeeded => ncclGroupStart 2.0 ();
    Collective(CollectiveCall::GroupEnd), Blocking => ncclGroupEnd 2.0 ();

    // Communicators.
    Collective(CollectiveCall::CommunicatorCreate), OutPointer => ncclCommInitAll 2.0 (Out Pointer, Ranks I32, Other Pointer);
    Collective(CollectiveCall::CommunicatorCreate), OutPointer => ncclCommInitRank 2.0
        (Out Pointer, Ranks I32, UniqueId Struct(128), Rank I32);
    Collective(CollectiveCall::CommunicatorCreate), OutPointer => ncclCommInitRankMulti 2.0
        (Out Pointer, Ranks I32, UniqueId Struct(128), Rank I32, Other I32);
    Collective(CollectiveCall::CommunicatorDestroy), NotNeeded => ncclCommAbort 2.0 (Communicator Pointer);
    Collective(CollectiveCall::CommunicatorDestroy), NotNeeded => ncclCommDestroy 2.0 (Communicator Pointer);
};
