//! Probe counters: the counters of probes.
//!
//! Owns: [`ProbeCounters`]. Because: both messages and the thread that attaches probes use them. Does not: count.

use deepctx_common::reason::Reason;
use deepctx_common::reasons;

reasons! {
    class Unprobed, page "probes.md";
    const REFUSED = "probe-refused", "functions where the kernel refused a probe: their calls are not counted";
    const LEFT_OUT = "probe-left-out", "functions without a probe, since there are too many";
    const OVER_SHARE = "probe-over-share",
        "functions without a probe: the user of their file has most of the probes, and others need the rest";
    const CALLS_OVER_SHARE = "calls-over-share",
        "calls whose return is not followed: their user has most of the calls in progress, and others need the room",
        class Gap;
    const PUT_OFF = "probe-scan-put-off",
        "new code that was not looked through at once: the calls of its libraries count from its next mapping on";
}

/// Probes attached so far, and those that could not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounters {
    /// Files with probes.
    pub files: u64,
    /// Functions with a probe.
    pub probes: u64,
    /// Functions whose return is probed.
    pub returns: u64,
    /// Functions of the catalogue that a file lacks, or that cannot be probed.
    pub missing: u64,
    /// Places that the kernel refused.
    pub refused: u64,
    /// Functions left out because there are too many.
    pub left_out: u64,
    /// Functions left out because their user has most of the probes.
    pub over_share: u64,
    /// Calls in progress that are no longer followed because their user has most of them.
    pub calls_over_share: u64,
    /// Processes that could not be scanned.
    pub unreadable: u64,
    /// Requests for which there was no room.
    pub put_off: u64,
    /// Collectors whose messages are read.
    pub collectors: u64,
    /// Time spent looking through files, nanoseconds.
    pub planning_ns: u64,
    /// Time spent attaching, nanoseconds.
    pub attaching_ns: u64,
}

impl ProbeCounters {
    /// What is not probed, and how often.
    pub fn gaps(&self) -> [(&'static Reason, u64); 5] {
        [
            (REFUSED, self.refused),
            (LEFT_OUT, self.left_out),
            (OVER_SHARE, self.over_share),
            (CALLS_OVER_SHARE, self.calls_over_share),
            (PUT_OFF, self.put_off),
        ]
    }
}
