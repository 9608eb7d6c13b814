//! `libnccl.so`: collectives.
//!
//! Owns: operations of communicators, each of which launches a kernel. Because: in a profile a collective is a call of
//! this library that ends in a launch of the driver. Does not: move data between ranks: a rank is alone with itself.

mod driver;

use std::cell::RefCell;
use std::ffi::c_char;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::api::{Code, Out, Raw, Status, UniqueId, api};

mod rest {
    //! Functions of the catalogue that have no behaviour.
    include!(concat!(env!("OUT_DIR"), "/nccl.rs"));
}

/// `ncclInvalidArgument`, `ncclUnhandledCudaError`.
const INVALID_ARGUMENT: Code = Code(4);
const CUDA_ERROR: Code = Code(1);
/// A communicator's handle: this, combined with its process-wide number (upper part) and its rank count (lower part).
const COMMUNICATOR: usize = 0x0cc1_0000_0000;
const RANKS_MAX: i32 = 0xffff;

fn communicator(ranks: i32) -> Result<usize, Code> {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    if !(1..=RANKS_MAX).contains(&ranks) {
        return Err(INVALID_ARGUMENT);
    }
    let number = MADE.fetch_add(1, Ordering::Relaxed) & 0xffff;
    Ok(COMMUNICATOR + (number << 16) + ranks as usize)
}

fn check(communicator: usize) -> Status {
    if communicator.wrapping_sub(COMMUNICATOR) <= 0xffff_ffff { Ok(()) } else { Err(INVALID_ARGUMENT) }
}

/// Element count from which an all-reduce uses another protocol and takes long.
const LARGE: usize = 1 << 20;

thread_local! {
    /// Number of open groups of this thread, and the kernels to launch when the outermost one ends.
    static GROUP: RefCell<(usize, Vec<(usize, Raw)>)> = const { RefCell::new((0, Vec::new())) };
}

/// Launches the kernel of an operation, or defers it to the end of the group.
fn operate(kernel: usize, communicator: usize, stream: Raw) -> Status {
    check(communicator)?;
    let waits = GROUP.with_borrow_mut(|(open, waiting)| {
        if *open > 0 {
            waiting.push((kernel, stream));
        }
        *open > 0
    });
    if waits { Ok(()) } else { driver::launch(kernel, stream).ok_or(CUDA_ERROR) }
}

/// Ends a group.
fn end_group() -> Status {
    let due = GROUP.with_borrow_mut(|(open, waiting)| {
        *open = open.saturating_sub(1);
        if *open == 0 { std::mem::take(waiting) } else { Vec::new() }
    });
    due.into_iter().try_for_each(|(kernel, stream)| driver::launch(kernel, stream).ok_or(CUDA_ERROR))
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
    fn ncclCommSplit(parent: Raw, color: i32, _key: i32, out: Out<Raw>, _config: Raw) {
        check(parent)?;
        // A rank without a color (`NCCL_SPLIT_NOCOLOR`) gets none.
        out.put(if color < 0 { 0 } else { communicator(1)? })
    }
    fn ncclCommDestroy | ncclCommAbort | ncclCommFinalize(communicator: Raw) { check(communicator) }
    fn ncclCommCount(communicator: Raw, count: Out<i32>) {
        check(communicator)?;
        count.put(((communicator - COMMUNICATOR) & RANKS_MAX as usize) as i32)
    }
    fn ncclGroupStart() {
        GROUP.with_borrow_mut(|(open, _)| *open += 1);
        Ok(())
    }
    fn ncclGroupEnd() { end_group() }
    fn ncclAllReduce(_from: Raw, _to: Raw, count: usize, _data: u32, _operation: u32, communicator: Raw, stream: Raw) {
        operate(if count < LARGE { 0 } else { 6 }, communicator, stream)
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
