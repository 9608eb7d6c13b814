//! Ending: how long the end of a session waits for a thread that writes.
//!
//! Owns: what counts as progress of such a thread. Because: encoding takes the time that it takes, but a disk may hang,
//! and the program must end all the same. Does not: write, or report what is missing.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use deepctx_capture::cost::cpu_time;

/// Longest wait without progress: the program must end within 5 s.
pub(crate) const END_LONGEST: Duration = Duration::from_secs(4);
/// How often progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// CPU time of the process that counts as progress: at the end it does little but encode.
const BUSY: Duration = Duration::from_millis(100);

/// What is left to write, and CPU time in units of [`BUSY`].
type Progress = (usize, u128);

/// A thread that writes its last part.
#[derive(Debug)]
pub(crate) struct EndingThread {
    /// Closed when it has ended.
    end: Receiver<()>,
    /// Progress when it was last looked at, and since when it has been that.
    seen: Progress,
    since: Instant,
}

impl EndingThread {
    /// From now on it has to make progress. `left`: what is left to write.
    pub(crate) fn new(end: Receiver<()>, left: usize) -> Self {
        Self { end, seen: progress(left), since: Instant::now() }
    }

    /// Waits until it has ended; false if it makes no progress for [`END_LONGEST`]. Calls `goes_on` whenever it does.
    pub(crate) fn wait(self, left: impl Fn() -> usize, goes_on: impl Fn()) -> bool {
        let Self { end, mut seen, mut since } = self;
        // Nothing is ever sent.
        while end.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            let now = progress(left());
            if now != seen {
                (seen, since) = (now, Instant::now());
                goes_on();
            } else if since.elapsed() >= END_LONGEST {
                return false;
            }
        }
        true
    }
}

fn progress(left: usize) -> Progress {
    (left, cpu_time().as_millis() / BUSY.as_millis())
}
