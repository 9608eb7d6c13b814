//! Wait counters: the counters of waits that are not followed.
//!
//! Owns: [`WaitCounters`]. Because: both messages and the thread that checks waiting threads use them. Does not: count.

use deepctx_common::reason::Reason;
use deepctx_common::reasons;

reasons! {
    class Gap, page "off-cpu.md";
    const OVER_SHARE = "waits-over-share",
        "waits not followed to their end: their user has most of the waiting threads, and others need the room";
}

/// Waits that are not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounters {
    /// Because their user has most of the waiting threads.
    pub over_share: u64,
}

impl WaitCounters {
    /// What is missing, and how often.
    pub fn gaps(&self) -> [(&'static Reason, u64); 1] {
        [(OVER_SHARE, self.over_share)]
    }
}
