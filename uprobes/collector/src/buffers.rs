//! Buffers that CUPTI fills.
//!
//! Owns: their memory. Because: CUPTI requests one for each thread, holds them for long, and would take any number.
//! Does not: read them.

use std::alloc::{Layout, alloc, dealloc};
use std::sync::{Mutex, PoisonError};

/// Bytes of one buffer: about a thousand records. CUPTI advises megabytes, but larger buffers delay records and cost
/// much memory with many threads.
pub(crate) const BYTES: usize = 256 << 10;
/// Maximum number of buffers, 64 MiB together. Beyond it, CUPTI counts the records that it drops; they are reported.
const COUNT_MAX: usize = 256;
/// Empty buffers kept for reuse.
const SPARE_MAX: usize = 8;

/// Addresses of empty buffers, and the total number of buffers.
static POOL: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

const fn layout() -> Layout {
    // CUPTI requires an alignment of eight.
    match Layout::from_size_align(BYTES, 64) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    }
}

/// An empty buffer; null when the limit is reached or memory is exhausted.
pub(crate) fn take() -> *mut u8 {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(address) = pool.0.pop() {
        return std::ptr::with_exposed_provenance_mut(address);
    }
    if pool.1 >= COUNT_MAX {
        return std::ptr::null_mut();
    }
    // SAFETY: the size is not zero.
    let buffer = unsafe { alloc(layout()) };
    if !buffer.is_null() {
        pool.1 += 1;
    }
    buffer
}

/// Returns a buffer of [`take`] to the pool.
pub(crate) fn put_back(buffer: *mut u8) {
    if buffer.is_null() {
        return;
    }
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if pool.0.len() < SPARE_MAX {
        pool.0.push(buffer.expose_provenance());
        return;
    }
    pool.1 = pool.1.saturating_sub(1);
    drop(pool);
    // SAFETY: allocated by `take` with this layout; CUPTI has returned it and keeps no pointer to it.
    unsafe { dealloc(buffer, layout()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_than_the_bound() {
        let all: Vec<_> = (0..COUNT_MAX).map(|_| take()).collect();
        assert!(all.iter().all(|buffer| !buffer.is_null()));
        assert!(take().is_null());
        all.into_iter().for_each(put_back);
        assert_eq!(POOL.lock().unwrap().1, SPARE_MAX);
        let one = take();
        assert!(!one.is_null());
        put_back(one);
    }
}
