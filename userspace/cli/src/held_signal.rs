//! Held signals: signals that request something of a capture, blocked from the first moment on.
//!
//! Owns: blocking them until the capture waits for them, and surviving SIGXFSZ, which reports a file at its size
//! limit. Because: a signal that arrives before the capture runs must not end the program. Does not: wait for them;
//! the capture loop does.

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::failure::Failure;

/// Requests the data that the flight recorder keeps.
pub(crate) const WRITE_KEPT: HeldSignal = HeldSignal(Signal::SIGUSR1);
/// Begins a window of single events.
pub(crate) const BEGIN_TRACE: HeldSignal = HeldSignal(Signal::SIGUSR2);

/// From now on, writes beyond the file size limit (`ulimit -f`) fail instead of ending the program (SIGXFSZ). Started
/// programs are not affected: `exec` resets a handler, but would keep an ignored signal.
pub(crate) fn survive_file_limits() {
    extern "C" fn nothing(_: libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing, so it may run at any time on any thread.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, &action) };
}

/// A signal that would end the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldSignal(Signal);

impl HeldSignal {
    /// Blocks the signal for this thread and the threads it will start.
    ///
    /// # Errors
    /// A system call failed.
    pub(crate) fn hold(self) -> Result<(), Failure> {
        self.set().thread_block().map_err(|error| Failure::io("signals", &error.into()))
    }

    /// Unblocks the signal, once something handles it.
    ///
    /// # Errors
    /// A system call failed.
    pub(crate) fn release(self) -> io::Result<()> {
        Ok(self.set().thread_unblock()?)
    }

    fn set(self) -> SigSet {
        let mut set = SigSet::empty();
        set.add(self.0);
        set
    }
}
