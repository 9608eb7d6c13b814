//! Out of memory: how a command ends that reaches its memory limit.
//!
//! Owns: the global allocator, which wraps the system's, its message when an allocation fails, and the number of
//! calling contexts that is refused before anything is computed. Because: a profile crafted to exceed a command's
//! memory limit must end it like any other unreadable profile: with a sentence and exit code 2, not by a signal. Does
//! not: limit memory; [`super::confinement`] does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, getrlimit};

use super::failure::{COULD_NOT_RUN, Failure};

/// Whether the program ends when memory is exhausted. A capture continues where it can do without the memory.
static ENDS: AtomicBool = AtomicBool::new(false);

const MESSAGE: &str = "memory: the input needs more memory than this command may use";
const HINT: &str = "the limit is half of the machine's memory, or less if `ulimit -d` says so; a small file that needs \
    this much may be malicious";

/// Bytes that every analysis takes for a calling context, at least. With 16 million of them, in bytes for each:
/// `analyze` 76, `report` 88, `diff` 95, `view` 740.
const CONTEXT_BYTES_MIN: u64 = 64;

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
        for part in ["error: ", MESSAGE, "\nhint: ", HINT, "\n"] {
            libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len());
        }
        libc::_exit(COULD_NOT_RUN.into())
    }
}

/// Refuses profiles with more calling contexts than can be analyzed within the memory limit, which would only be
/// noticed after minutes of work.
///
/// # Errors
/// The contexts need more than the limit.
pub(crate) fn refuse_beyond_limit(contexts: usize) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Data).current;
    match limit.is_some_and(|limit| is_beyond(contexts, limit)) {
        true => Err(Failure::new(MESSAGE).hint(HINT)),
        false => Ok(()),
    }
}

fn is_beyond(contexts: usize, limit: u64) -> bool {
    (contexts as u64).saturating_mul(CONTEXT_BYTES_MIN) > limit
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

#[cfg(test)]
mod tests {
    use super::is_beyond;

    #[test]
    fn contexts_that_cannot_fit_are_refused() {
        assert!(is_beyond(18_000_000, 1 << 30));
        assert!(!is_beyond(16_000_000, 1 << 30));
        assert!(!is_beyond(0, 0));
        assert!(is_beyond(usize::MAX, u64::MAX / 2));
    }
}
