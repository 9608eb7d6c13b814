//! Signalled: a thread that signals interrupt, for tests.
//!
//! Owns: the signal and its handler. Because: a signal interrupts a read that has a timeout, and the wait for an answer
//! must neither end nor begin anew with it. Does not: know what the thread does.

use std::os::unix::thread::JoinHandleExt as _;
use std::time::{Duration, Instant};

/// Does this on a thread that gets a signal every millisecond, which no other test uses.
pub(crate) fn while_signalled<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    extern "C" fn nothing(_signal: libc::c_int) {}
    let handler = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing, and all who set one for this signal set this one.
    unsafe { libc::signal(libc::SIGUSR1, handler) };
    let thread = std::thread::spawn(work);
    let begun = Instant::now();
    while !thread.is_finished() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it waits on and on");
        // SAFETY: the thread is not joined while there is a handle.
        unsafe { libc::pthread_kill(thread.as_pthread_t() as libc::pthread_t, libc::SIGUSR1) };
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap()
}
