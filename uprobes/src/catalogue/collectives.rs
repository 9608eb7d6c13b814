//! Collectives: `libnccl.so` and `librccl.so`.
//!
//! Owns: their rows. Because: whether a rank computes, communicates or waits for another is the first question about
//! a distributed job. Does not: tell what is sent where: inside a group all is issued at its end.
//!
//! Source: `nccl.h` (NCCL 2.32, package `nvidia-nccl-cu12`) and `rccl.h` (RCCL 2.13, package `librccl-dev`). Neither
//! names versions; those here are the release notes', as far as a function came later than 2.0.

use super::{Row, table};
use crate::event::{Event, Memory, Operation};

pub(super) const NCCL: &[Row] = table! { Nccl:
    // Operations.
    Event::Collective(Operation::AllReduce), NotNeeded => ncclAllReduce 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::AllReduce), NotNeeded => ncclAllReduceConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer, Config Pointer);
    Event::Collective(Operation::Broadcast), NotNeeded => ncclBcast 2.0
        (Source Pointer, Count U64, DataType U32, Root I32, Communicator Pointer, Stream Pointer);
    Event::Collective(Operation::Broadcast), NotNeeded => ncclBroadcast 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::Broadcast), NotNeeded => ncclBroadcastConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer, Config Pointer);
    Event::Collective(Operation::Reduce), NotNeeded => ncclReduce 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Root I32,
         Communicator Pointer, Stream Pointer);
    Event::Collective(Operation::Reduce), NotNeeded => ncclReduceConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Root I32,
         Communicator Pointer, Stream Pointer, Config Pointer);
    Event::Collective(Operation::AllGather), NotNeeded => ncclAllGather 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::AllGather), NotNeeded => ncclAllGatherConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer, Stream Pointer,
         Config Pointer);
    Event::Collective(Operation::ReduceScatter), NotNeeded => ncclReduceScatter 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::ReduceScatter), NotNeeded => ncclReduceScatterConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer, Config Pointer);
    Event::Collective(Operation::AllToAll), NotNeeded => ncclAlltoAll 2.28
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::AllToAll), NotNeeded => ncclAlltoAllConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer, Stream Pointer,
         Config Pointer);
    Event::Collective(Operation::Gather), NotNeeded => ncclGather 2.28
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::Gather), NotNeeded => ncclGatherConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer, Config Pointer);
    Event::Collective(Operation::Scatter), NotNeeded => ncclScatter 2.28
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::Scatter), NotNeeded => ncclScatterConfig 2.32
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer, Config Pointer);
    Event::Collective(Operation::Send), NotNeeded => ncclSend 2.7
        (Source Pointer, Count U64, DataType U32, Peer I32, Communicator Pointer, Stream Pointer);
    Event::Collective(Operation::Receive), NotNeeded => ncclRecv 2.7
        (Destination Pointer, Count U64, DataType U32, Peer I32, Communicator Pointer, Stream Pointer);
    Event::Collective(Operation::PutSignal), NotNeeded => ncclPutSignal 2.29
        (Other Pointer, Count U64, DataType U32, Peer I32, Other Pointer, Other U64, Other I32, Context I32,
         Flags U32, Communicator Pointer, Stream Pointer);
    Event::Collective(Operation::Signal), NotNeeded => ncclSignal 2.29
        (Peer I32, Other I32, Context I32, Flags U32, Communicator Pointer, Stream Pointer);
    Event::Collective(Operation::WaitSignal), NotNeeded => ncclWaitSignal 2.29
        (Other I32, Other Pointer, Communicator Pointer, Stream Pointer);

    // Groups: operations are only issued when the outermost group ends.
    Event::GroupBegin, NotNeeded => ncclGroupStart 2.0 ();
    Event::GroupEnd, Blocking => ncclGroupEnd 2.0 ();

    // Communicators.
    Event::CommunicatorCreate, OutPointer => ncclCommInitAll 2.0 (Out Pointer, Ranks I32, Other Pointer);
    Event::CommunicatorCreate, OutPointer => ncclCommInitRank 2.0
        (Out Pointer, Ranks I32, Other Struct(128), Rank I32);
    Event::CommunicatorCreate, OutPointer => ncclCommInitRankConfig 2.14
        (Out Pointer, Ranks I32, Other Struct(128), Rank I32, Config Pointer);
    Event::CommunicatorCreate, OutPointer => ncclCommInitRankScalable 2.23
        (Out Pointer, Ranks I32, Rank I32, Other I32, Other Pointer, Config Pointer);
    Event::CommunicatorCreate, OutPointer => ncclCommGrow 2.29
        (Communicator Pointer, Ranks I32, Other Pointer, Rank I32, Out Pointer, Config Pointer);
    Event::CommunicatorCreate, OutPointer => ncclCommShrink 2.27
        (Communicator Pointer, Other Pointer, Other I32, Out Pointer, Config Pointer, Other I32);
    Event::CommunicatorCreate, OutPointer => ncclCommSplit 2.18
        (Communicator Pointer, Other I32, Other I32, Out Pointer, Config Pointer);
    Event::CommunicatorDestroy, NotNeeded => ncclCommAbort 2.0 (Communicator Pointer);
    Event::CommunicatorDestroy, NotNeeded => ncclCommDestroy 2.0 (Communicator Pointer);
    Event::CommunicatorDestroy, NotNeeded => ncclCommFinalize 2.14 (Communicator Pointer);
    Event::Alloc(Memory::Device), OutPointer => ncclMemAlloc 2.19 (Out Pointer, Bytes U64);
    Event::Free(Memory::Device), NotNeeded => ncclMemFree 2.19 (Address Pointer);
};

pub(super) const RCCL: &[Row] = table! { Rccl:
    // Operations.
    Event::Collective(Operation::AllReduce), NotNeeded => ncclAllReduce 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::Broadcast), NotNeeded => ncclBcast 2.0
        (Source Pointer, Count U64, DataType U32, Root I32, Communicator Pointer, Stream Pointer);
    Event::Collective(Operation::Broadcast), NotNeeded => ncclBroadcast 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::Reduce), NotNeeded => ncclReduce 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Root I32,
         Communicator Pointer, Stream Pointer);
    Event::Collective(Operation::AllGather), NotNeeded => ncclAllGather 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::ReduceScatter), NotNeeded => ncclReduceScatter 2.0
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Reduction U32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::AllToAll), NotNeeded => ncclAllToAll 2.7
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::AllToAll), NotNeeded => ncclAllToAllv 2.7
        (Source Pointer, Sizes Pointer, Other Pointer, Destination Pointer, Other Pointer, Other Pointer,
         DataType U32, Communicator Pointer, Stream Pointer);
    Event::Collective(Operation::Gather), NotNeeded => ncclGather 2.7
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::Scatter), NotNeeded => ncclScatter 2.7
        (Source Pointer, Destination Pointer, Count U64, DataType U32, Root I32, Communicator Pointer,
         Stream Pointer);
    Event::Collective(Operation::Send), NotNeeded => ncclSend 2.7
        (Source Pointer, Count U64, DataType U32, Peer I32, Communicator Pointer, Stream Pointer);
    Event::Collective(Operation::Receive), NotNeeded => ncclRecv 2.7
        (Destination Pointer, Count U64, DataType U32, Peer I32, Communicator Pointer, Stream Pointer);

    // Groups: operations are only issued when the outermost group ends.
    Event::GroupBegin, NotNeeded => ncclGroupStart 2.0 ();
    Event::GroupEnd, Blocking => ncclGroupEnd 2.0 ();

    // Communicators.
    Event::CommunicatorCreate, OutPointer => ncclCommInitAll 2.0 (Out Pointer, Ranks I32, Other Pointer);
    Event::CommunicatorCreate, OutPointer => ncclCommInitRank 2.0
        (Out Pointer, Ranks I32, Other Struct(128), Rank I32);
    Event::CommunicatorCreate, OutPointer => ncclCommInitRankMulti 2.0
        (Out Pointer, Ranks I32, Other Struct(128), Rank I32, Other I32);
    Event::CommunicatorDestroy, NotNeeded => ncclCommAbort 2.0 (Communicator Pointer);
    Event::CommunicatorDestroy, NotNeeded => ncclCommDestroy 2.0 (Communicator Pointer);
};
