//! Memory, copies and fills.
//!
//! Owns: HIP's functions for them. Because: their parameters differ from CUDA's where their meaning does not. Does not:
//! copy arrays and symbols, or map memory.

use super::{find, ready};
use crate::api::{Code, Extent, In, Out, PitchedPointer, Raw, Status, api};
use crate::cuda::copy::{self, Parameters2, blocking, flat, queued};
use crate::cuda::{MEMORY, context, fill, memory};
use crate::device::work::{Copy, MemoryKind, Region, Size};

fn allocate(out: Out<u64>, bytes: usize, place: MemoryKind) -> Status {
    ready()?;
    out.put(MEMORY.allocate(bytes as u64, place)?)
}

fn free(address: u64) -> Status {
    ready()?;
    context::settle();
    MEMORY.free(address)
}

/// Lines of memory.
fn lines(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize) -> Copy {
    Copy {
        from: Region { address: from, pitch: from_pitch, plane: 0 },
        to: Region { address: to, pitch: to_pitch, plane: 0 },
        size: Size(width, height, 1),
        ..flat(to, from, 0, true)
    }
}

/// A fill of memory planes.
fn planes(to: PitchedPointer, value: i32, extent: Extent) -> crate::device::work::Fill {
    let mut planes =
        fill::lines(to.address, to.pitch, u32::from(value as u8), 1, extent.width, extent.height);
    planes.to.plane = to.pitch * to.height;
    planes.size.2 = extent.depth;
    planes
}

/// The destination device by number.
fn peer(device: i32) -> Result<Option<u32>, Code> {
    u32::try_from(device).map(Some).map_err(|_| Code::INVALID_DEVICE)
}

api! { Hip;
    fn hipMalloc(out: Out<u64>, bytes: usize) { allocate(out, bytes, MemoryKind::Device) }
    fn hipExtMallocWithFlags(out: Out<u64>, bytes: usize, _flags: u32) { allocate(out, bytes, MemoryKind::Device) }
    fn hipMallocManaged(out: Out<u64>, bytes: usize, _flags: u32) { allocate(out, bytes, MemoryKind::Managed) }
    fn hipMallocAsync(out: Out<u64>, bytes: usize, _stream: Raw) { allocate(out, bytes, MemoryKind::Device) }
    fn hipHostAlloc | hipHostMalloc(out: Out<u64>, bytes: usize, _flags: u32) { allocate(out, bytes, MemoryKind::Pinned) }
    fn hipMallocHost | hipMemAllocHost(out: Out<u64>, bytes: usize) { allocate(out, bytes, MemoryKind::Pinned) }
    fn hipMallocPitch(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize) {
        ready()?;
        let (address, bytes) = memory::allocate_lines(width as u64, height as u64)?;
        pitch.put(bytes as usize)?;
        out.put(address)
    }
    fn hipFree(address: u64) { free(address) }
    fn hipFreeHost | hipHostFree(address: u64) { free(address) }
    fn hipFreeAsync(address: u64, stream: Raw) {
        find(stream, PER_THREAD)?.synchronize()?;
        MEMORY.free(address)
    }
    fn hipHostRegister(address: u64, bytes: usize, _flags: u32) { ready()?; MEMORY.register(address, bytes as u64) }
    fn hipHostUnregister(address: u64) { ready()?; MEMORY.unregister(address) }
    fn hipMemcpy | hipMemcpy_spt(to: u64, from: u64, bytes: usize, _kind: u32) {
        blocking(flat(to, from, bytes, false), &*find(0, PER_THREAD)?)
    }
    fn hipMemcpyWithStream(to: u64, from: u64, bytes: usize, _kind: u32, stream: Raw) {
        blocking(flat(to, from, bytes, false), &*find(stream, PER_THREAD)?)
    }
    fn hipMemcpyAsync | hipMemcpyAsync_spt(to: u64, from: u64, bytes: usize, _kind: u32, stream: Raw) {
        queued(flat(to, from, bytes, true), &*find(stream, PER_THREAD)?)
    }
    fn hipMemcpyHtoD | hipMemcpyDtoH | hipMemcpyDtoD(to: u64, from: u64, bytes: usize) {
        blocking(flat(to, from, bytes, false), &*find(0, PER_THREAD)?)
    }
    fn hipMemcpyHtoDAsync | hipMemcpyDtoHAsync | hipMemcpyDtoDAsync(to: u64, from: u64, bytes: usize, stream: Raw) {
        queued(flat(to, from, bytes, true), &*find(stream, PER_THREAD)?)
    }
    fn hipMemcpy2D | hipMemcpy2D_spt(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, _kind: u32) {
        blocking(lines(to, to_pitch, from, from_pitch, width, height), &*find(0, PER_THREAD)?)
    }
    fn hipMemcpy2DAsync | hipMemcpy2DAsync_spt(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, _kind: u32, stream: Raw) {
        queued(lines(to, to_pitch, from, from_pitch, width, height), &*find(stream, PER_THREAD)?)
    }
    fn hipMemcpyParam2D | hipDrvMemcpy2DUnaligned(parameters: In<Parameters2>) {
        ready()?;
        blocking(parameters.get()?.copy()?, &*find(0, PER_THREAD)?)
    }
    fn hipMemcpyParam2DAsync(parameters: In<Parameters2>, stream: Raw) {
        queued(parameters.get()?.copy()?, &*find(stream, PER_THREAD)?)
    }
    fn hipMemcpyPeer(to: u64, to_device: i32, from: u64, _from_device: i32, bytes: usize) {
        blocking(Copy { peer: peer(to_device)?, ..copy::flat(to, from, bytes, false) }, &*find(0, PER_THREAD)?)
    }
    fn hipMemcpyPeerAsync(to: u64, to_device: i32, from: u64, _from_device: i32, bytes: usize, stream: Raw) {
        queued(Copy { peer: peer(to_device)?, ..copy::flat(to, from, bytes, true) }, &*find(stream, PER_THREAD)?)
    }
    fn hipMemset | hipMemset_spt(to: u64, value: i32, bytes: usize) {
        fill::blocking(fill::lines(to, 0, u32::from(value as u8), 1, bytes, 1), &*find(0, PER_THREAD)?)
    }
    fn hipMemsetAsync | hipMemsetAsync_spt(to: u64, value: i32, bytes: usize, stream: Raw) {
        fill::queued(fill::lines(to, 0, u32::from(value as u8), 1, bytes, 1), &*find(stream, PER_THREAD)?)
    }
    fn hipMemset2D | hipMemset2D_spt(to: u64, pitch: usize, value: i32, width: usize, height: usize) {
        fill::blocking(fill::lines(to, pitch, u32::from(value as u8), 1, width, height), &*find(0, PER_THREAD)?)
    }
    fn hipMemset2DAsync | hipMemset2DAsync_spt(to: u64, pitch: usize, value: i32, width: usize, height: usize, stream: Raw) {
        fill::queued(fill::lines(to, pitch, u32::from(value as u8), 1, width, height), &*find(stream, PER_THREAD)?)
    }
    fn hipMemset3D | hipMemset3D_spt(to: PitchedPointer, value: i32, extent: Extent) {
        fill::blocking(planes(to, value, extent), &*find(0, PER_THREAD)?)
    }
    fn hipMemset3DAsync | hipMemset3DAsync_spt(to: PitchedPointer, value: i32, extent: Extent, stream: Raw) {
        fill::queued(planes(to, value, extent), &*find(stream, PER_THREAD)?)
    }
    fn hipMemsetD8(to: u64, value: u8, count: usize) {
        fill::blocking(fill::lines(to, 0, value.into(), 1, count, 1), &*find(0, PER_THREAD)?)
    }
    fn hipMemsetD8Async(to: u64, value: u8, count: usize, stream: Raw) {
        fill::queued(fill::lines(to, 0, value.into(), 1, count, 1), &*find(stream, PER_THREAD)?)
    }
    fn hipMemsetD16(to: u64, value: u16, count: usize) {
        fill::blocking(fill::lines(to, 0, value.into(), 2, fill::scaled(count, 2)?, 1), &*find(0, PER_THREAD)?)
    }
    fn hipMemsetD16Async(to: u64, value: u16, count: usize, stream: Raw) {
        fill::queued(fill::lines(to, 0, value.into(), 2, fill::scaled(count, 2)?, 1), &*find(stream, PER_THREAD)?)
    }
    fn hipMemsetD32(to: u64, value: i32, count: usize) {
        fill::blocking(fill::lines(to, 0, value.cast_unsigned(), 4, fill::scaled(count, 4)?, 1), &*find(0, PER_THREAD)?)
    }
    fn hipMemsetD32Async(to: u64, value: i32, count: usize, stream: Raw) {
        fill::queued(fill::lines(to, 0, value.cast_unsigned(), 4, fill::scaled(count, 4)?, 1), &*find(stream, PER_THREAD)?)
    }
}
