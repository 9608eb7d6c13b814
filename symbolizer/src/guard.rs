//! A fence around reading mapped files of other people.
//!
//! Owns: the handler of SIGBUS, the silence of panics within the fence, and turning both into values. Because: a file that is
//! mapped and then shortened (a library copied over by a rebuild is enough) raises SIGBUS at the next read, which ends
//! the process; and a parser that meets bytes it did not expect may panic. Neither may end a capture. Does not: make
//! the bytes true: inside the fence missing pages read as zeros, and the answer is thrown away.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why what was done within the fence has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The file became shorter while it was read.
    Truncated,
    /// The code panicked.
    Panicked,
}

thread_local! {
    /// Depth of fences on this thread. Plain data: a signal handler reads it.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    /// Pages replaced since the outermost fence was entered.
    static REPLACED: Cell<u32> = const { Cell::new(0) };
}

static INSTALLED: Once = Once::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Runs `read`, which may read mapped files that others can shorten. The first call installs a handler of SIGBUS for
/// the process; faults and panics outside of fences go where they went before.
///
/// # Errors
/// [`Fault`]; whatever `read` was working on must then be dropped, because it may have seen zeros.
pub fn fenced<T>(read: impl FnOnce() -> T) -> Result<T, Fault> {
    INSTALLED.call_once(install);
    let replaced_before = REPLACED.get();
    INSIDE.set(INSIDE.get() + 1);
    let answer = catch_unwind(AssertUnwindSafe(read));
    INSIDE.set(INSIDE.get() - 1);
    match answer {
        Err(_) => Err(Fault::Panicked),
        Ok(_) if REPLACED.get() != replaced_before => Err(Fault::Truncated),
        Ok(answer) => Ok(answer),
    }
}

/// The action that was in force before, as `sigaction` gave it; written once, before the handler can run.
struct Previous(std::cell::UnsafeCell<std::mem::MaybeUninit<libc::sigaction>>);

// SAFETY: written only under `INSTALLED`, before the handler is installed; read only by the handler after that.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(std::cell::UnsafeCell::new(std::mem::MaybeUninit::uninit()));

fn install() {
    // A panic within a fence becomes a value; its message must not be written over a terminal view.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| match INSIDE.get() {
        0 => report(panic),
        _ => tracing::debug!(%panic, "a reader of foreign bytes gave up"),
    }));
    // SAFETY: no pointers are involved.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PAGE_BYTES.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
    // SAFETY: all bytes zero are a valid `sigaction`; both pointers are to live values of that type. The previous action
    // is stored before the new one is in force, and `on_bus` only calls what is allowed in a handler.
    unsafe {
        let previous = (*PREVIOUS.0.get()).as_mut_ptr();
        previous.write(std::mem::zeroed());
        libc::sigaction(libc::SIGBUS, std::ptr::null(), previous);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

/// Puts a page of zeros where the file has none any more; the interrupted read then goes on.
extern "C" fn on_bus(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `siginfo_t`, and SIGBUS has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Only "no such page in the file", and only where the fence says that files are being read.
    if code == libc::BUS_ADRERR && INSIDE.get() > 0 {
        let page = PAGE_BYTES.load(Ordering::Relaxed);
        let begin = (address & !(page - 1)) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page is part of a file mapping that cannot be read (that is what this signal says), so no valid
        // data is replaced; whoever owns the mapping unmaps the whole range later. `mmap` is a plain system call.
        let mapped = unsafe { libc::mmap(begin, page, libc::PROT_READ, flags, -1, 0) };
        if mapped == begin {
            REPLACED.set(REPLACED.get().wrapping_add(1));
            return;
        }
    }
    // Not ours: the previous action is put back, and gets the same fault again when this returns.
    // SAFETY: `install` wrote the previous action before this handler was in force.
    unsafe { libc::sigaction(libc::SIGBUS, (*PREVIOUS.0.get()).as_ptr(), std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_that_is_shortened_while_mapped_is_a_fault_and_not_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * 65536]).unwrap();
        // SAFETY: that the bytes change under the mapping is what is tested; they are read as plain bytes.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        let sum = || map.iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>();
        assert_eq!(fenced(sum), Ok(7 * 48));
        file.set_len(65536).unwrap();
        assert_eq!(fenced(sum), Err(Fault::Truncated));
        // The pages are there now: the same bytes can be read, and they are known to be wrong.
        assert_eq!(fenced(sum), Ok(7 * 16));
    }

    #[test]
    fn a_panic_inside_is_an_answer_outside() {
        let given_up: fn() = || panic!("a parser that gave up");
        assert_eq!(fenced(given_up), Err(Fault::Panicked));
        assert_eq!(fenced(|| fenced(|| 5)), Ok(Ok(5)));
        assert_eq!(INSIDE.get(), 0);
    }
}
