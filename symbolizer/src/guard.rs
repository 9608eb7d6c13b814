//! Protection against faults while reading mapped files that others may change.
//!
//! Owns: the SIGBUS handler, silencing parser panics, and turning both into values. Because: truncating a mapped file
//! (a rebuild that copies over a library is enough) raises SIGBUS at the next read, which kills the process; and a
//! third-party parser may panic on unexpected bytes. Neither may end a capture. Does not: restore the bytes: missing
//! pages read as zeros, and the result is discarded.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why a protected read has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The file was shortened while it was read.
    Truncated,
    /// The code panicked.
    Panicked,
}

thread_local! {
    /// Nesting depth of protected reads on this thread. Plain data: a signal handler reads it.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Pages replaced by zeros so far on this thread.
    static REPLACED: Cell<u32> = const { Cell::new(0) };
}

static INSTALLED: Once = Once::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Runs `read`, which may read mapped files that others can shorten. The first call installs a SIGBUS handler for the
/// process; faults and panics outside `catch_faults` are handled as usual.
///
/// # Errors
/// [`Fault`]. State that `read` changed must then be dropped, because it may have seen zeros.
pub fn catch_faults<T>(read: impl FnOnce() -> T) -> Result<T, Fault> {
    INSTALLED.call_once(install);
    let replaced_before = REPLACED.get();
    DEPTH.set(DEPTH.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(read));
    DEPTH.set(DEPTH.get() - 1);
    match result {
        Err(_) => Err(Fault::Panicked),
        Ok(_) if REPLACED.get() != replaced_before => Err(Fault::Truncated),
        Ok(result) => Ok(result),
    }
}

/// The previous signal action; written once, before the handler can run.
struct PreviousAction(std::cell::UnsafeCell<std::mem::MaybeUninit<libc::sigaction>>);

// SAFETY: written only under `INSTALLED`, before the handler is installed; read only by the handler after that.
unsafe impl Sync for PreviousAction {}

static PREVIOUS: PreviousAction = PreviousAction(std::cell::UnsafeCell::new(std::mem::MaybeUninit::uninit()));

fn install() {
    // A caught panic becomes a value; its message must not be written over a terminal user interface.
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| match DEPTH.get() {
        0 => previous(panic),
        _ => tracing::debug!(%panic, "a parser of untrusted bytes panicked"),
    }));
    // SAFETY: no pointers are involved.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PAGE_BYTES.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
    // SAFETY: all bytes zero are a valid `sigaction`; both pointers are to live values of that type. The previous
    // action is stored before the new one is in force, and `on_sigbus` only makes calls that are allowed in a
    // handler.
    unsafe {
        let previous = (*PREVIOUS.0.get()).as_mut_ptr();
        previous.write(std::mem::zeroed());
        libc::sigaction(libc::SIGBUS, std::ptr::null(), previous);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

/// Maps a page of zeros where the file no longer has a page; the interrupted read then continues.
extern "C" fn on_sigbus(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `siginfo_t`, and SIGBUS has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Only "no such page in the file", and only during a protected read.
    if code == libc::BUS_ADRERR && DEPTH.get() > 0 {
        let page = PAGE_BYTES.load(Ordering::Relaxed);
        let begin = (address & !(page - 1)) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page is part of a file mapping that cannot be read (the signal says so), so no valid data is
        // replaced; the owner of the mapping unmaps the whole range later. `mmap` is a plain system call.
        let mapped = unsafe { libc::mmap(begin, page, libc::PROT_READ, flags, -1, 0) };
        if mapped == begin {
            REPLACED.set(REPLACED.get().wrapping_add(1));
            return;
        }
    }
    // Another fault: restore the previous action, which gets the same fault again when this returns.
    // SAFETY: `install` wrote the previous action before this handler was in force.
    unsafe { libc::sigaction(libc::SIGBUS, (*PREVIOUS.0.get()).as_ptr(), std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn shortening_a_mapped_file_is_a_fault_not_a_crash() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * 65536]).unwrap();
        // SAFETY: the test changes the file on purpose; the mapping is read as plain bytes.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        let sum = || map.iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>();
        assert_eq!(catch_faults(sum), Ok(7 * 48));
        file.set_len(65536).unwrap();
        assert_eq!(catch_faults(sum), Err(Fault::Truncated));
        // The replaced pages stay: the bytes can be read again, as zeros.
        assert_eq!(catch_faults(sum), Ok(7 * 16));
    }

    #[test]
    fn a_panic_becomes_a_fault() {
        let panics: fn() = || panic!("a parser that panics");
        assert_eq!(catch_faults(panics), Err(Fault::Panicked));
        assert_eq!(catch_faults(|| catch_faults(|| 5)), Ok(Ok(5)));
        assert_eq!(DEPTH.get(), 0);
    }
}
