//! Buffers that CUPTI fills.
//!
//! Owns: their memory. Because: CUPTI requests one for each thread, holds them for long, and would take any number.
//! Does not: read them.
//!
//! Before 13.2 CUPTI has one pair of buffer functions: if another tool registered its own before us, we may get back
//! its buffers. They are that tool's memory, and may be smaller than ours: they are neither freed nor used again.

use std::alloc::{Layout, alloc, dealloc};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of one buffer: about a thousand records. CUPTI advises megabytes, but larger buffers delay records and cost
/// much memory with many threads.
pub(crate) const BYTES: usize = 256 << 10;
/// Maximum number of buffers, 64 MiB together. Beyond it, CUPTI counts the records that it drops; they are reported.
const COUNT_MAX: usize = 256;
/// Empty buffers kept for reuse.
const SPARE_MAX: usize = 8;

/// All buffers, by address.
struct Pool {
    /// Empty ones.
    spare: Vec<usize>,
    /// Those that CUPTI has.
    lent: Vec<usize>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { spare: Vec::new(), lent: Vec::new() });

const fn layout() -> Layout {
    // CUPTI requires an alignment of eight.
    match Layout::from_size_align(BYTES, 64) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An empty buffer; null when the limit is reached or memory is exhausted.
pub(crate) fn take() -> *mut u8 {
    let mut pool = pool();
    if let Some(address) = pool.spare.pop() {
        pool.lent.push(address);
        return std::ptr::with_exposed_provenance_mut(address);
    }
    if pool.lent.len() >= COUNT_MAX {
        return std::ptr::null_mut();
    }
    // SAFETY: the size is not zero.
    let buffer = unsafe { alloc(layout()) };
    if !buffer.is_null() {
        pool.lent.push(buffer.expose_provenance());
    }
    buffer
}

/// Returns a buffer of [`take`] to the pool. Any other one is left alone.
pub(crate) fn put_back(buffer: *mut u8) {
    let mut pool = pool();
    let Some(at) = pool.lent.iter().position(|address| *address == buffer.addr()) else { return };
    let address = pool.lent.swap_remove(at);
    if pool.spare.len() < SPARE_MAX {
        pool.spare.push(address);
        return;
    }
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
        // Another tool's buffer, and one that comes back twice.
        let mut other = [0u8; 64];
        put_back(other.as_mut_ptr());
        assert!(take().is_null(), "it is not ours");
        put_back(all[0]);
        put_back(all[0]);
        assert!(!take().is_null() && take().is_null(), "it is one buffer");
        all.into_iter().for_each(put_back);
        let counts = {
            let pool = pool();
            (pool.spare.len(), pool.lent.len())
        };
        assert_eq!(counts, (SPARE_MAX, 0));
        let one = take();
        assert!(!one.is_null());
        put_back(one);
    }
}
