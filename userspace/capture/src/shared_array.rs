//! Shared array: part of a kernel array map, mapped while it is written.
//!
//! Owns: the mapping and the only writes to it. Because: filling a million rows by system calls takes seconds, and
//! pages that stay mapped are counted as this process's memory although they are the kernel's already.
//! Does not: know what the elements mean; kernel programs may read any element at any time, so callers write only
//! elements that nothing points at yet, and publish them by a map update (a full barrier in the kernel).

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr::NonNull;

use deepctx_common::Plain;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Elements of an array map of `T`, mapped into this process.
#[derive(Debug)]
pub(crate) struct SharedArray<T> {
    base: NonNull<u8>,
    bytes: usize,
    /// The elements whose memory is completely mapped.
    elements: Range<u32>,
    /// Offset of the first of them in the mapping.
    skipped: usize,
    _elements: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone, and its elements are plain data.
unsafe impl<T: Plain> Send for SharedArray<T> {}

impl<T: Plain> SharedArray<T> {
    /// Distance of two elements; arrays of the kernel keep them at multiples of 8 bytes.
    const STRIDE: usize = size_of::<T>().next_multiple_of(8);

    /// Maps `elements` of the array behind `map`, which has the flag `BPF_F_MMAPABLE`.
    pub(crate) fn map(map: &impl AsFd, elements: Range<u32>) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let first = elements.start as usize * Self::STRIDE;
        let offset = first / page * page;
        // An empty mapping is an error; a page is mapped instead, and never written.
        let bytes = (elements.end as usize * Self::STRIDE - offset).next_multiple_of(page).max(page);
        let fd = map.as_fd();
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let base = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, offset as u64)
        }
        .map_err(|e| io::Error::new(e.kind(), format!("cannot map map {}: {e}", fd.as_raw_fd())))?;
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        Ok(Self { base, bytes, elements, skipped: first - offset, _elements: PhantomData })
    }

    /// Writes one element.
    ///
    /// # Panics
    /// When `index` is not among the mapped elements.
    pub(crate) fn set(&mut self, index: u32, value: T) {
        let at = self.place(index..index + 1).start;
        // SAFETY: mapped (`place` asserts it), aligned to 8 (mappings start at a page, strides are multiples of 8), and
        // volatile since the kernel reads it too.
        unsafe { self.base.as_ptr().add(at).cast::<T>().write_volatile(value) };
    }

    /// The memory of runs of elements, which ascend and do not overlap.
    ///
    /// # Panics
    /// When a run is not among the mapped elements or begins before the end of the one before it.
    pub(crate) fn runs(&mut self, runs: impl IntoIterator<Item = Range<u32>>) -> Vec<&mut [u8]> {
        let mut next = 0;
        let memory = |run: Range<u32>| {
            assert!(run.start >= next, "run {run:?} overlaps one before it");
            next = run.end;
            let place = self.place(run);
            // SAFETY: mapped (`place` asserts it) and, as runs ascend, no part is given twice while `self` is borrowed.
            // The kernel may read it at the same time but does not: nothing points there yet.
            unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(place.start), place.len()) }
        };
        runs.into_iter().map(memory).collect()
    }

    /// Byte range of a run within the mapping.
    fn place(&self, run: Range<u32>) -> Range<usize> {
        let inside = run.start >= self.elements.start && run.end <= self.elements.end && run.start <= run.end;
        assert!(inside, "elements {run:?} of {:?}", self.elements);
        let at = |index: u32| self.skipped + (index - self.elements.start) as usize * Self::STRIDE;
        at(run.start)..at(run.end)
    }
}

impl<T> Drop for SharedArray<T> {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and is not used any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::SharedArray;

    /// A file may stand in for a map: both are mapped in pages.
    #[test]
    fn elements_stand_where_the_kernel_looks_for_them() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let read = |index: usize| {
            let mut bytes = [0; 16];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, index as u64 * 16).unwrap();
            bytes
        };
        for range in [0..1000, 300..301, 255..257, 65_535..65_536] {
            let mut array = SharedArray::<[u64; 2]>::map(&file, range.clone()).unwrap();
            array.set(range.start, [7, 1]);
            array.set(range.end - 1, [9, 2]);
            assert_eq!(read(range.end as usize - 1)[..8], 9u64.to_ne_bytes());
            let middle = range.start + range.len() as u32 / 2;
            for (n, run) in array.runs([range.start..middle, middle..range.end]).into_iter().enumerate() {
                run.fill(n as u8 + 1);
            }
            drop(array);
            assert_eq!(read(range.end as usize - 1), [2; 16]);
            if range.len() > 1 {
                assert_eq!(read(range.start as usize), [1; 16]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "overlaps")]
    fn memory_is_not_given_twice() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        SharedArray::<u64>::map(&file, 0..10).unwrap().runs([0..5, 4..6]);
    }

    #[test]
    #[should_panic(expected = "elements")]
    fn nothing_outside_is_written() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        SharedArray::<u64>::map(&file, 3..10).unwrap().set(2, 0);
    }
}
