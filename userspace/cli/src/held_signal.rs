//! Held signals: signals that request something of a capture, blocked from the first moment on.
//!
//! Owns: blocking them until the capture waits for them, and surviving SIGXFSZ, which reports a file at its size
//! limit. Because: a signal that arrives before the capture runs must not end the program. Does not: wait for them;
//! the capture loop does.

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::failure::Failure;

/// Asks the flight recorder for what is kept.
pub(crate) const WRITE_KEPT: HeldSignal = HeldSignal(Signal::SIGUSR1);
/// Begins a window of single events.
pub(crate) const BEGIN_TRACE: HeldSignal = HeldSignal(Signal::SIGUSR2);

/// From now on, a file that may not grow (`ulimit -f`) fails a write, and does not end the program (SIGXFSZ). Programs
/// that this one starts are not affected: a handler ends with `exec`, which a signal that is ignored would not.
pub(crate) fn survive_file_limits() {
    extern "C" fn nothing(_: libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing, so it may run at any moment and in any thread.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, &action) };
}

/// A signal that would end the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldSignal(Signal);

impl HeldSignal {
    /// Holds it back, for this thread and those that it will start.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn hold(self) -> Result<(), Failure> {
        self.set().thread_block().map_err(|error| Failure::io("signals", &error.into()))
    }

    /// Lets it through again, once somebody waits for it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn release(self) -> io::Result<()> {
        Ok(self.set().thread_unblock()?)
    }

    fn set(self) -> SigSet {
        let mut set = SigSet::empty();
        set.add(self.0);
        set
    }
}
