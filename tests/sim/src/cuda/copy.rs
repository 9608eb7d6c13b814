//! Copies.
//!
//! Owns: what each copy function means. Because: direction, blocking and layout are in the name here and in a structure
//! there. Does not: copy to arrays; textures are not simulated.

use std::sync::Arc;

use super::MEMORY;
use super::context::CONTEXTS;
use super::stream::{self, Stream};
use crate::api::{Code, In, Raw, Status, api};
use crate::device::work::{Copy, Region, Size, Work};

/// A copy between two addresses; the kinds of memory are looked up. `is_async` follows from the function's name.
pub(crate) fn flat(to: u64, from: u64, bytes: usize, is_async: bool) -> Copy {
    Copy {
        from: Region::flat(from),
        to: Region::flat(to),
        size: Size(bytes, 1, 1),
        from_place: MEMORY.place(from),
        to_place: MEMORY.place(to),
        is_async,
        peer: None,
    }
}

/// A copy for which the caller waits.
pub(crate) fn blocking(copy: Copy, stream: &Stream) -> Status {
    if copy.size.bytes() == 0 {
        return Ok(());
    }
    stream.put_and_wait(Work::Copy(Copy { is_async: false, ..copy }))
}

/// A copy in stream order.
pub(crate) fn queued(copy: Copy, stream: &Stream) -> Status {
    if copy.size.bytes() == 0 {
        return Ok(());
    }
    stream.put(Work::Copy(Copy { is_async: true, ..copy })).map(drop)
}

/// Kinds of memory in the structures below, `CUmemorytype`.
fn side(kind: u32, host: u64, device: u64) -> Result<u64, Code> {
    match kind {
        1 => Ok(host),
        2 | 4 => Ok(device),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Parameters2 {
    from_x: usize,
    from_y: usize,
    from_kind: u32,
    from_host: u64,
    from_device: u64,
    from_array: usize,
    from_pitch: usize,
    to_x: usize,
    to_y: usize,
    to_kind: u32,
    to_host: u64,
    to_device: u64,
    to_array: usize,
    to_pitch: usize,
    width: usize,
    height: usize,
}

impl Parameters2 {
    pub(crate) fn copy(&self) -> Result<Copy, Code> {
        let region = |address: u64, x: usize, y: usize, pitch: usize| Region {
            address: address.wrapping_add((y * pitch + x) as u64),
            pitch,
            plane: 0,
        };
        let from = side(self.from_kind, self.from_host, self.from_device)?;
        let to = side(self.to_kind, self.to_host, self.to_device)?;
        Ok(Copy {
            from: region(from, self.from_x, self.from_y, self.from_pitch),
            to: region(to, self.to_x, self.to_y, self.to_pitch),
            size: Size(self.width, self.height, 1),
            from_place: MEMORY.place(from),
            to_place: MEMORY.place(to),
            is_async: true,
            peer: None,
        })
    }
}

/// One side of a `CUDA_MEMCPY3D`; that of `CUDA_MEMCPY3D_PEER` has a context where this has padding.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side3 {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: usize,
    context: usize,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`, `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Parameters3 {
    from: Side3,
    to: Side3,
    width: usize,
    height: usize,
    depth: usize,
}

impl Side3 {
    fn region(&self) -> (u64, Region) {
        // The address is unchecked, because an array has none.
        let begin = side(self.kind, self.host, self.device).unwrap_or(0);
        let plane = self.pitch * self.height;
        let address = begin.wrapping_add((self.z * plane + self.y * self.pitch + self.x) as u64);
        (begin, Region { address, pitch: self.pitch, plane })
    }
}

impl Parameters3 {
    pub(crate) fn copy(&self, is_async: bool) -> Copy {
        let ((from_begin, from), (to_begin, to)) = (self.from.region(), self.to.region());
        Copy {
            from,
            to,
            size: Size(self.width, self.height.max(1), self.depth.max(1)),
            from_place: MEMORY.place(from_begin),
            to_place: MEMORY.place(to_begin),
            is_async,
            peer: None,
        }
    }
}

/// The device of the destination context.
fn peer(context: usize) -> Option<u32> {
    CONTEXTS.get(context).ok().map(|context| context.device.number)
}

/// The stream that blocking copies use.
fn default(per_thread: bool) -> Result<Arc<Stream>, Code> {
    stream::find(0, per_thread)
}

api! { Driver;
    fn cuMemcpy | cuMemcpy_ptds(to: u64, from: u64, bytes: usize) {
        blocking(flat(to, from, bytes, false), &*default(PER_THREAD)?)
    }
    fn cuMemcpyAsync | cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, stream: Raw) {
        queued(flat(to, from, bytes, true), &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(to: u64, from: u64, bytes: usize) {
        blocking(flat(to, from, bytes, false), &*default(PER_THREAD)?)
    }
    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Raw) {
        queued(flat(to, from, bytes, true), &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(to: u64, from: u64, bytes: usize) {
        blocking(flat(to, from, bytes, false), &*default(PER_THREAD)?)
    }
    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Raw) {
        queued(flat(to, from, bytes, true), &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize) {
        blocking(flat(to, from, bytes, false), &*default(PER_THREAD)?)
    }
    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Raw) {
        queued(flat(to, from, bytes, true), &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemcpyPeer | cuMemcpyPeer_ptds(to: u64, to_context: Raw, from: u64, _from_context: Raw, bytes: usize) {
        blocking(Copy { peer: peer(to_context), ..flat(to, from, bytes, false) }, &*default(PER_THREAD)?)
    }
    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz(to: u64, to_context: Raw, from: u64, _from_context: Raw, bytes: usize, stream: Raw) {
        queued(Copy { peer: peer(to_context), ..flat(to, from, bytes, true) }, &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds | cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds(parameters: In<Parameters2>) {
        blocking(parameters.get()?.copy()?, &*default(PER_THREAD)?)
    }
    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz(parameters: In<Parameters2>, stream: Raw) {
        queued(parameters.get()?.copy()?, &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds(parameters: In<Parameters3>) {
        blocking(parameters.get()?.copy(false), &*default(PER_THREAD)?)
    }
    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz(parameters: In<Parameters3>, stream: Raw) {
        queued(parameters.get()?.copy(true), &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds(parameters: In<Parameters3>) {
        let parameters = parameters.get()?;
        blocking(Copy { peer: peer(parameters.to.context), ..parameters.copy(false) }, &*default(PER_THREAD)?)
    }
    fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz(parameters: In<Parameters3>, stream: Raw) {
        let parameters = parameters.get()?;
        let copy = Copy { peer: peer(parameters.to.context), ..parameters.copy(true) };
        queued(copy, &*stream::find(stream, PER_THREAD)?)
    }
}

/// The copies of one batch: addresses, sizes.
pub(crate) fn batch(to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize) -> Result<Vec<Copy>, Code> {
    let (to, from, sizes) = (to.list(count)?, from.list(count)?, sizes.list(count)?);
    Ok(to.into_iter().zip(from).zip(sizes).map(|((to, from), bytes)| flat(to, from, bytes, true)).collect())
}

api! { Driver;
    fn cuMemcpyBatchAsync | cuMemcpyBatchAsync_ptsz(to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize, _attributes: Raw, _indices: Raw, _attribute_count: usize, _failed: Raw, stream: Raw) {
        let stream = stream::find(stream, PER_THREAD)?;
        batch(to, from, sizes, count)?.into_iter().try_for_each(|copy| queued(copy, &stream))
    }
    fn cuMemcpyBatchAsync_v2 | cuMemcpyBatchAsync_v2_ptsz(to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize, _attributes: Raw, _indices: Raw, _attribute_count: usize, stream: Raw) {
        let stream = stream::find(stream, PER_THREAD)?;
        batch(to, from, sizes, count)?.into_iter().try_for_each(|copy| queued(copy, &stream))
    }
}
