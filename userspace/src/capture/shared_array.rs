//! Shared array: a kernel array map as memory.
//!
//! Owns: the mapping and the only writes to it. Because: filling a million rows by system calls takes seconds.
//! Does not: know what the elements mean; kernel programs may read any element at any time, so callers write only
//! elements that nothing points at yet, and publish them by a map update (a full barrier in the kernel).

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr::NonNull;

use deepctx_common::Plain;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// An array map of `T`, mapped into this process.
#[derive(Debug)]
pub struct SharedArray<T> {
    base: NonNull<u8>,
    bytes: usize,
    stride: usize,
    length: usize,
    _elements: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone, and its elements are plain data.
unsafe impl<T: Plain> Send for SharedArray<T> {}

impl<T: Plain> SharedArray<T> {
    /// Maps the array behind `map`, which has `length` elements and the flag `BPF_F_MMAPABLE`.
    pub fn map(map: &impl AsFd, length: u32) -> io::Result<Self> {
        let stride = size_of::<T>().next_multiple_of(8);
        let length = length as usize;
        let bytes = (stride * length).next_multiple_of(rustix::param::page_size());
        let fd = map.as_fd();
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, 0)
        }
        .map_err(|e| io::Error::new(e.kind(), format!("cannot map map {}: {e}", fd.as_raw_fd())))?;
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        Ok(Self { base, bytes, stride, length, _elements: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Writes one element.
    ///
    /// # Panics
    /// When `index` is out of range: indices come from an [`super::arena::Arena`] of the same size.
    pub fn set(&mut self, index: u32, value: T) {
        let index = index as usize;
        assert!(index < self.length, "element {index} of {}", self.length);
        // SAFETY: in range by the assertion, aligned to 8 (mappings start at a page, strides are multiples of 8), and
        // volatile since the kernel reads it too.
        unsafe { self.base.as_ptr().add(index * self.stride).cast::<T>().write_volatile(value) };
    }
}

impl<T> Drop for SharedArray<T> {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and is not used any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
