//! Reason: what a session counts of the capture itself.
//!
//! Owns: the reason for restarts of the capture's threads. Because: what a thread was doing when it stopped is missing,
//! and a profile must tell. Does not: restart.

use deepctx_common::reasons;

reasons! {
    class Gap, page "loss.md";
    pub(crate) const THREAD_RESTARTED = "thread-restarted",
        "threads of the profiler were started again after a defect: what they were reading then is missing";
}
