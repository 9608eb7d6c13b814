//! Memory, copies and fills.
//!
//! Owns: what the runtime's functions mean in the driver's. Because: they have directions and pitches of their own.
//! Does not: copy arrays and symbols.

use super::driver::check;
use super::ready;
use crate::api::{Code, Extent, In, Out, PitchedPointer, Raw, Status, api};

/// `CUDA_MEMCPY2D`: x, y, kind of memory (4: by the address), host, device, array, pitch for both sides, then the size.
#[repr(C)]
struct Lines {
    from: [usize; 2],
    from_kind: u64,
    from_host: u64,
    from_device: u64,
    from_array: u64,
    from_pitch: usize,
    to: [usize; 2],
    to_kind: u64,
    to_host: u64,
    to_device: u64,
    to_array: u64,
    to_pitch: usize,
    width: usize,
    height: usize,
}

const _: () = assert!(size_of::<Lines>() == 128);

fn lines(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize) -> Lines {
    Lines {
        from: [0; 2],
        from_kind: 4,
        from_host: 0,
        from_device: from,
        from_array: 0,
        from_pitch,
        to: [0; 2],
        to_kind: 4,
        to_host: 0,
        to_device: to,
        to_array: 0,
        to_pitch,
        width,
        height,
    }
}

/// Host to host, host to device, device to host, within the device, by the addresses.
fn check_kind(kind: u32) -> Status {
    if kind <= 4 { Ok(()) } else { Err(Code(21)) }
}

/// The used part of `cudaMemcpy3DParms`: positions in arrays are not.
#[repr(C)]
#[derive(Clone, Copy)]
struct Planes {
    from_array: usize,
    from_position: [usize; 3],
    from: PitchedPointer,
    to_array: usize,
    to_position: [usize; 3],
    to: PitchedPointer,
    extent: Extent,
    kind: u32,
}

api! { Runtime;
    fn cudaMalloc(out: Out<u64>, bytes: usize) {
        let mut address = 0;
        check((ready()?.cuMemAlloc)(&raw mut address, bytes))?;
        out.put(address)
    }
    fn cudaMallocPitch(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize) {
        let (mut address, mut bytes) = (0, 0);
        check((ready()?.cuMemAllocPitch)(&raw mut address, &raw mut bytes, width, height, 4))?;
        pitch.put(bytes)?;
        out.put(address)
    }
    fn cudaMalloc3D(out: Out<PitchedPointer>, extent: Extent) {
        let (mut address, mut pitch) = (0, 0);
        let lines = extent.height.checked_mul(extent.depth).ok_or(Code::OUT_OF_MEMORY)?;
        check((ready()?.cuMemAllocPitch)(&raw mut address, &raw mut pitch, extent.width, lines, 4))?;
        out.put(PitchedPointer { address, pitch, width: extent.width, height: extent.height })
    }
    fn cudaMallocManaged(out: Out<u64>, bytes: usize, flags: u32) {
        let mut address = 0;
        check((ready()?.cuMemAllocManaged)(&raw mut address, bytes, flags))?;
        out.put(address)
    }
    fn cudaMallocAsync | cudaMallocAsync_ptsz(out: Out<u64>, bytes: usize, stream: Raw) {
        let mut address = 0;
        check((ready()?.cuMemAllocAsync[usize::from(PER_THREAD)])(&raw mut address, bytes, stream))?;
        out.put(address)
    }
    fn cudaFreeAsync | cudaFreeAsync_ptsz(address: u64, stream: Raw) {
        check((ready()?.cuMemFreeAsync[usize::from(PER_THREAD)])(address, stream))
    }
    fn cudaFree(address: u64) {
        let driver = ready()?;
        // Programs free null to start the runtime.
        if address == 0 { Ok(()) } else { check((driver.cuMemFree)(address)) }
    }
    fn cudaMallocHost(out: Out<u64>, bytes: usize) {
        let mut address = 0;
        check((ready()?.cuMemHostAlloc)(&raw mut address, bytes, 0))?;
        out.put(address)
    }
    fn cudaHostAlloc(out: Out<u64>, bytes: usize, flags: u32) {
        let mut address = 0;
        check((ready()?.cuMemHostAlloc)(&raw mut address, bytes, flags))?;
        out.put(address)
    }
    fn cudaFreeHost(address: u64) { check((ready()?.cuMemFreeHost)(address)) }
    fn cudaHostRegister(address: u64, bytes: usize, flags: u32) { check((ready()?.cuMemHostRegister)(address, bytes, flags)) }
    fn cudaHostUnregister(address: u64) { check((ready()?.cuMemHostUnregister)(address)) }
    fn cudaMemGetInfo(free: Out<usize>, total: Out<usize>) {
        let (mut left, mut all) = (0, 0);
        check((ready()?.cuMemGetInfo)(&raw mut left, &raw mut all))?;
        free.put(left)?;
        total.put(all)
    }
    fn cudaMemcpy | cudaMemcpy_ptds(to: u64, from: u64, bytes: usize, kind: u32) {
        check_kind(kind)?;
        check((ready()?.cuMemcpy[usize::from(PER_THREAD)])(to, from, bytes))
    }
    fn cudaMemcpyAsync | cudaMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, kind: u32, stream: Raw) {
        check_kind(kind)?;
        check((ready()?.cuMemcpyAsync[usize::from(PER_THREAD)])(to, from, bytes, stream))
    }
    fn cudaMemcpy2D | cudaMemcpy2D_ptds(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32) {
        check_kind(kind)?;
        let lines = lines(to, to_pitch, from, from_pitch, width, height);
        check((ready()?.cuMemcpy2D[usize::from(PER_THREAD)])((&raw const lines).cast()))
    }
    fn cudaMemcpy2DAsync | cudaMemcpy2DAsync_ptsz(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32, stream: Raw) {
        check_kind(kind)?;
        let lines = lines(to, to_pitch, from, from_pitch, width, height);
        check((ready()?.cuMemcpy2DAsync[usize::from(PER_THREAD)])((&raw const lines).cast(), stream))
    }
    fn cudaMemcpy3DAsync | cudaMemcpy3DAsync_ptsz(parameters: In<Planes>, stream: Raw) {
        let Planes { from, to, extent, .. } = parameters.get()?;
        // Plane by plane.
        let copy = ready()?.cuMemcpy2DAsync[usize::from(PER_THREAD)];
        (0..extent.depth.max(1)).try_for_each(|z| {
            let at = |side: &PitchedPointer| side.address + (z * side.pitch * side.height) as u64;
            let lines = lines(at(&to), to.pitch, at(&from), from.pitch, extent.width, extent.height.max(1));
            check(copy((&raw const lines).cast(), stream))
        })
    }
    fn cudaMemset | cudaMemset_ptds(to: u64, value: i32, bytes: usize) {
        check((ready()?.cuMemsetD8[usize::from(PER_THREAD)])(to, value as u8, bytes))
    }
    fn cudaMemsetAsync | cudaMemsetAsync_ptsz(to: u64, value: i32, bytes: usize, stream: Raw) {
        check((ready()?.cuMemsetD8Async[usize::from(PER_THREAD)])(to, value as u8, bytes, stream))
    }
    fn cudaMemset2D | cudaMemset2D_ptds(to: u64, pitch: usize, value: i32, width: usize, height: usize) {
        check((ready()?.cuMemsetD2D8[usize::from(PER_THREAD)])(to, pitch, value as u8, width, height))
    }
    fn cudaMemset2DAsync | cudaMemset2DAsync_ptsz(to: u64, pitch: usize, value: i32, width: usize, height: usize, stream: Raw) {
        check((ready()?.cuMemsetD2D8Async[usize::from(PER_THREAD)])(to, pitch, value as u8, width, height, stream))
    }
}
