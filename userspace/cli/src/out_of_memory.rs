//! Out of memory: how a command ends that reaches its memory limit.
//!
//! Owns: the global allocator, which wraps the system's, and its message when an allocation fails. Because: a profile
//! crafted to exceed a command's memory limit must end it like any other unreadable profile: with a sentence and exit
//! code 2, not by a signal. Does not: limit memory; [`super::confinement`] does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

use super::failure::COULD_NOT_RUN;

/// Whether the program ends when memory is exhausted. A capture continues where it can do without the memory.
static ENDS: AtomicBool = AtomicBool::new(false);

const SAID: &str = "error: memory: the input needs more memory than this command may use\n\
    hint: the limit is half of the machine's memory, or less if `ulimit -d` says so; a small file that needs this \
    much may be malicious\n";

/// The system's allocator. Once a command has opened files others may have made, it ends the program when memory is
/// exhausted.
#[derive(Debug)]
pub struct Allocator;

/// From now on, the program ends with a message when memory is exhausted.
pub(crate) fn ends_in_a_sentence() {
    ENDS.store(true, Ordering::Relaxed);
}

#[cold]
fn no_memory() {
    if !ENDS.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: nothing here allocates, and `_exit` runs no code of this program; other threads end at any point, as by a
    // signal. Incomplete files have no name yet. The reader of standard error may be gone.
    unsafe {
        libc::write(libc::STDERR_FILENO, SAID.as_ptr().cast(), SAID.len());
        libc::_exit(COULD_NOT_RUN.into())
    }
}

fn checked(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        no_memory();
    }
    memory
}

// SAFETY: each call is passed to the system's allocator unchanged, as is its result.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        checked(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        checked(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        checked(unsafe { System.realloc(memory, layout, size) })
    }
}
