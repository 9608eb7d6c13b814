//! Fills of memory with a value.
//!
//! Owns: the family of `cuMemset`. Because: widths, lines and blocking make eighteen functions of one. Does not: fill
//! arrays.

use super::MEMORY;
use super::stream::{self, Stream};
use crate::api::{Code, Raw, Status, api};
use crate::device::work::{Fill, Region, Size, Work};

/// A fill of lines: bytes of a value, width in bytes.
pub(crate) fn lines(
    to: u64,
    pitch: usize,
    value: u32,
    value_bytes: usize,
    width: usize,
    height: usize,
) -> Fill {
    Fill {
        to: Region { address: to, pitch, plane: 0 },
        size: Size(width, height, 1),
        value,
        value_bytes,
        place: MEMORY.place(to),
        is_async: true,
    }
}

/// A fill in stream order.
pub(crate) fn queued(fill: Fill, stream: &Stream) -> Status {
    if !fill.to.address.is_multiple_of(fill.value_bytes as u64) {
        return Err(Code::INVALID_VALUE);
    }
    if fill.size.bytes() == 0 {
        return Ok(());
    }
    stream.put(Work::Fill(fill)).map(drop)
}

/// A blocking fill: as on a real device, it waits only for host memory.
pub(crate) fn blocking(fill: Fill, stream: &Stream) -> Status {
    if fill.place.is_host() && fill.size.bytes() > 0 {
        return stream.put_and_wait(Work::Fill(Fill { is_async: false, ..fill }));
    }
    queued(Fill { is_async: false, ..fill }, stream)
}

/// Converts elements to bytes.
pub(crate) fn scaled(count: usize, bytes: usize) -> Result<usize, Code> {
    count.checked_mul(bytes).ok_or(Code::INVALID_VALUE)
}

api! { Driver;
    fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds(to: u64, value: u8, count: usize) {
        blocking(lines(to, 0, value.into(), 1, count, 1), &*stream::find(0, PER_THREAD)?)
    }
    fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds(to: u64, value: u16, count: usize) {
        blocking(lines(to, 0, value.into(), 2, scaled(count, 2)?, 1), &*stream::find(0, PER_THREAD)?)
    }
    fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds(to: u64, value: u32, count: usize) {
        blocking(lines(to, 0, value, 4, scaled(count, 4)?, 1), &*stream::find(0, PER_THREAD)?)
    }
    fn cuMemsetD8Async | cuMemsetD8Async_ptsz(to: u64, value: u8, count: usize, stream: Raw) {
        queued(lines(to, 0, value.into(), 1, count, 1), &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemsetD16Async | cuMemsetD16Async_ptsz(to: u64, value: u16, count: usize, stream: Raw) {
        queued(lines(to, 0, value.into(), 2, scaled(count, 2)?, 1), &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemsetD32Async | cuMemsetD32Async_ptsz(to: u64, value: u32, count: usize, stream: Raw) {
        queued(lines(to, 0, value, 4, scaled(count, 4)?, 1), &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds(to: u64, pitch: usize, value: u8, width: usize, height: usize) {
        blocking(lines(to, pitch, value.into(), 1, width, height), &*stream::find(0, PER_THREAD)?)
    }
    fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds(to: u64, pitch: usize, value: u16, width: usize, height: usize) {
        blocking(lines(to, pitch, value.into(), 2, scaled(width, 2)?, height), &*stream::find(0, PER_THREAD)?)
    }
    fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds(to: u64, pitch: usize, value: u32, width: usize, height: usize) {
        blocking(lines(to, pitch, value, 4, scaled(width, 4)?, height), &*stream::find(0, PER_THREAD)?)
    }
    fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Raw) {
        queued(lines(to, pitch, value.into(), 1, width, height), &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz(to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Raw) {
        queued(lines(to, pitch, value.into(), 2, scaled(width, 2)?, height), &*stream::find(stream, PER_THREAD)?)
    }
    fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz(to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Raw) {
        queued(lines(to, pitch, value, 4, scaled(width, 4)?, height), &*stream::find(stream, PER_THREAD)?)
    }
}
