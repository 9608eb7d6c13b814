//! Counters of what is probed.
//!
//! Owns: [`ProbeCounters`]. Because: both messages and the thread that attaches probes need them. Does not: count.

/// What is attached so far, and what could not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounters {
    /// Files with probes.
    pub files: u64,
    /// Functions with a probe.
    pub probes: u64,
    /// Functions whose return is probed.
    pub returns: u64,
    /// Functions of the catalogue that a file lacks, or where no probe can go.
    pub missing: u64,
    /// Places that the kernel refused.
    pub refused: u64,
    /// Functions left out because there are too many.
    pub left_out: u64,
    /// Processes that could not be scanned.
    pub unreadable: u64,
    /// Requests that found no room.
    pub put_off: u64,
    /// Collectors whose messages are read.
    pub collectors: u64,
    /// Time spent looking through files, nanoseconds.
    pub planning_ns: u64,
    /// Time spent attaching, nanoseconds.
    pub attaching_ns: u64,
}
