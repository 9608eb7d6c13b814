//! Allocations.
//!
//! Owns: the functions around [`MEMORY`]. Because: programs allocate before they do anything. Does not: page, map or
//! share; reserved and mapped memory is not supported.

use super::context::working;
use super::stream;
use super::{MEMORY, context};
use crate::api::{Code, Out, Raw, api};
use crate::device::memory::TOTAL;
use crate::device::work::{MemoryKind, Work};

/// Alignment of a memory line, as devices prefer it.
const PITCH: u64 = 512;

/// Allocates lines; returns the address and the pitch in bytes.
pub(crate) fn allocate_lines(width: u64, height: u64) -> Result<(u64, u64), Code> {
    let pitch = width.checked_next_multiple_of(PITCH).ok_or(Code::OUT_OF_MEMORY)?;
    let bytes = pitch.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)?;
    Ok((MEMORY.allocate(bytes, MemoryKind::Device)?, pitch))
}

api! { Driver;
    fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) {
        working()?;
        address.put(MEMORY.allocate(bytes as u64, MemoryKind::Device)?)
    }
    fn cuMemAllocPitch_v2(address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, _element: u32) {
        working()?;
        let (found, bytes) = allocate_lines(width as u64, height as u64)?;
        pitch.put(bytes as usize)?;
        address.put(found)
    }
    fn cuMemFree_v2(address: u64) {
        working()?;
        // As in the real driver: the memory may still be in use.
        context::settle();
        MEMORY.free(address)
    }
    fn cuMemAllocAsync | cuMemAllocAsync_ptsz(address: Out<u64>, bytes: usize, stream: Raw) {
        stream::find(stream, PER_THREAD)?;
        address.put(MEMORY.allocate(bytes as u64, MemoryKind::Device)?)
    }
    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz(address: Out<u64>, bytes: usize, _pool: Raw, stream: Raw) {
        stream::find(stream, PER_THREAD)?;
        address.put(MEMORY.allocate(bytes as u64, MemoryKind::Device)?)
    }
    fn cuMemFreeAsync | cuMemFreeAsync_ptsz(address: u64, stream: Raw) {
        extern "C" fn free(address: *mut std::ffi::c_void) {
            // An error was reported by the request.
            let _ = MEMORY.free(address.addr() as u64);
        }
        let stream = stream::find(stream, PER_THREAD)?;
        if MEMORY.find(address).is_none_or(|(begin, ..)| begin != address) {
            return Err(Code::INVALID_VALUE);
        }
        let call = crate::device::work::HostCall::Plain(free, address as usize);
        stream.put(Work::Host(call)).map(drop)
    }
    fn cuMemAllocManaged(address: Out<u64>, bytes: usize, _flags: u32) {
        working()?;
        address.put(MEMORY.allocate(bytes as u64, MemoryKind::Managed)?)
    }
    fn cuMemAllocHost | cuMemAllocHost_v2(address: Out<u64>, bytes: usize) {
        working()?;
        address.put(MEMORY.allocate(bytes as u64, MemoryKind::Pinned)?)
    }
    fn cuMemHostAlloc(address: Out<u64>, bytes: usize, _flags: u32) {
        working()?;
        address.put(MEMORY.allocate(bytes as u64, MemoryKind::Pinned)?)
    }
    fn cuMemFreeHost(address: u64) { working()?; context::settle(); MEMORY.free(address) }
    fn cuMemHostRegister | cuMemHostRegister_v2(address: u64, bytes: usize, _flags: u32) {
        working()?;
        MEMORY.register(address, bytes as u64)
    }
    fn cuMemHostUnregister(address: u64) { working()?; MEMORY.unregister(address) }
    fn cuMemHostGetDevicePointer_v2(address: Out<u64>, host: u64, _flags: u32) { address.put(host) }
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        working()?;
        free.put((TOTAL - MEMORY.used().min(TOTAL)) as usize)?;
        total.put(TOTAL as usize)
    }
    fn cuMemGetAddressRange_v2(begin: Out<u64>, bytes: Out<usize>, address: u64) {
        let (found, size, _) = MEMORY.find(address).ok_or(Code::INVALID_VALUE)?;
        begin.put_if_wanted(found);
        bytes.put_if_wanted(size as usize);
        Ok(())
    }
    fn cuPointerGetAttribute(value: Out<u64>, attribute: u32, address: u64) {
        let (begin, bytes, place) = MEMORY.find(address).ok_or(Code::INVALID_VALUE)?;
        match attribute {
            // Context, kind of memory, addresses on either side, whether managed, start, size.
            1 => value.put(working()?.handle() as u64),
            // Both are four bytes wide.
            2 => value.cast::<u32>().put(if place.is_host() { 1 } else { 2 }),
            9 => value.cast::<u32>().put(0),
            3 | 4 => value.put(address),
            8 => value.cast::<u8>().put((place == MemoryKind::Managed).into()),
            11 => value.put(begin),
            12 => value.put(bytes),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
