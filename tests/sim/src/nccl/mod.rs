//! `libnccl.so`: collectives.
//!
//! Owns: operations of communicators, each of which launches a kernel. Because: in a profile a collective is a call of
//! this library that ends in a launch of the driver. Does not: move data between ranks: a rank is alone with itself.

mod driver;

use std::ffi::c_char;

use crate::api::{Code, Out, Raw, Status, UniqueId, api};

mod rest {
    //! Functions of the catalogue that have no behaviour.
    include!(concat!(env!("OUT_DIR"), "/nccl.rs"));
}

/// `ncclInvalidArgument`, `ncclUnhandledCudaError`.
const INVALID_ARGUMENT: Code = Code(4);
const CUDA_ERROR: Code = Code(1);
/// A communicator's handle: this and its number of ranks.
const COMMUNICATOR: usize = 0x0cc1_0000;
const RANKS_MAX: i32 = 0xffff;

fn communicator(ranks: i32) -> Result<usize, Code> {
    if (1..=RANKS_MAX).contains(&ranks) { Ok(COMMUNICATOR + ranks as usize) } else { Err(INVALID_ARGUMENT) }
}

fn check(communicator: usize) -> Status {
    if communicator.wrapping_sub(COMMUNICATOR) <= RANKS_MAX as usize { Ok(()) } else { Err(INVALID_ARGUMENT) }
}

/// Launches the kernel of an operation.
fn operate(kernel: usize, communicator: usize, stream: Raw) -> Status {
    check(communicator)?;
    driver::launch(kernel, stream).ok_or(CUDA_ERROR)
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: i32) -> *const c_char {
    match code {
        0 => c"no error",
        1 => c"unhandled cuda error",
        4 => c"invalid argument",
        _ => c"unknown result code",
    }
    .as_ptr()
}

api! { Nccl;
    fn ncclGetVersion(version: Out<i32>) { version.put(23_203) }
    fn ncclGetUniqueId(id: Out<UniqueId>) { id.put(UniqueId([7; 128])) }
    fn ncclCommInitRank(out: Out<Raw>, ranks: i32, _id: UniqueId, _rank: i32) { out.put(communicator(ranks)?) }
    fn ncclCommInitRankConfig(out: Out<Raw>, ranks: i32, _id: UniqueId, _rank: i32, _config: Raw) { out.put(communicator(ranks)?) }
    fn ncclCommInitAll(out: Out<Raw>, ranks: i32, _devices: Raw) {
        let made = communicator(ranks)?;
        (0..ranks as usize).try_for_each(|rank| out.put_at(rank, made))
    }
    fn ncclCommDestroy | ncclCommAbort | ncclCommFinalize(communicator: Raw) { check(communicator) }
    fn ncclCommCount(communicator: Raw, count: Out<i32>) {
        check(communicator)?;
        count.put((communicator - COMMUNICATOR) as i32)
    }
    fn ncclGroupStart() { Ok(()) }
    fn ncclGroupEnd() { Ok(()) }
    fn ncclAllReduce(_from: Raw, _to: Raw, _count: usize, _data: u32, _operation: u32, communicator: Raw, stream: Raw) {
        operate(0, communicator, stream)
    }
    fn ncclReduce(_from: Raw, _to: Raw, _count: usize, _data: u32, _operation: u32, _root: i32, communicator: Raw, stream: Raw) {
        operate(1, communicator, stream)
    }
    fn ncclBroadcast(_from: Raw, _to: Raw, _count: usize, _data: u32, _root: i32, communicator: Raw, stream: Raw) {
        operate(2, communicator, stream)
    }
    fn ncclBcast(_data: Raw, _count: usize, _kind: u32, _root: i32, communicator: Raw, stream: Raw) {
        operate(2, communicator, stream)
    }
    fn ncclAllGather(_from: Raw, _to: Raw, _count: usize, _data: u32, communicator: Raw, stream: Raw) {
        operate(3, communicator, stream)
    }
    fn ncclReduceScatter(_from: Raw, _to: Raw, _count: usize, _data: u32, _operation: u32, communicator: Raw, stream: Raw) {
        operate(4, communicator, stream)
    }
    fn ncclSend | ncclRecv(_data: Raw, _count: usize, _kind: u32, _peer: i32, communicator: Raw, stream: Raw) {
        operate(5, communicator, stream)
    }
}
