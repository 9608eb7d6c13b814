//! Messages: what a running capture sends to the pipeline.
//!
//! Owns: [`Message`]. Because: records, mappings and counters come from three threads and are consumed by one. Does
//! not: decode records.

use deepctx_common::end::Counter;
use deepctx_pipeline::input::{DutyWindow, Refusals, SiteInfo};
use deepctx_pipeline::system::SystemSample;
use deepctx_symbolizer::maps::Maps;

use super::cpus::CpuCounters;
use super::gpus::GpuCounters;
use super::probe_counters::ProbeCounters;
use super::processes::ScanCounters;
use super::wait_counters::WaitCounters;

/// A message of a capture, in the order in which it was learned.
#[derive(Debug)]
pub enum Message {
    /// Records, one after the other.
    Records(Vec<u8>),
    /// The executable mappings of a process at a time (`CLOCK_MONOTONIC`, nanoseconds).
    Space {
        /// The process.
        pid: u32,
        /// When the mappings were read.
        time_ns: u64,
        /// The mappings.
        maps: Maps,
    },
    /// Processes that the kernel programs got no unwind data of, since the last time. One that is accepted later has a
    /// [`Message::Space`] then.
    Refused(Refusals),
    /// Totals of the kernel programs' counters, by [`Counter`] number.
    Counters([u64; Counter::ALL.len()]),
    /// Counts of process scans so far.
    Scans(ScanCounters),
    /// Probes that are about to be attached, and the meaning of their calls. Sent before the first call of any of them.
    Sites(Vec<SiteInfo>),
    /// Numbers of probes detached a while ago, since no process maps their file: new probes will reuse them.
    SitesFreed(Vec<u32>),
    /// Calls of each site so far, including those whose records were lost.
    SiteCounts(Vec<u64>),
    /// No calls are recorded after this time, `CLOCK_MONOTONIC` nanoseconds. Collectors still report what was
    /// launched before.
    CallsEnd(u64),
    /// The probes that have a budget were attached or detached: a duty window begins or ends.
    DutyWindow(DutyWindow),
    /// Resource usage of the machine since the last time.
    System(SystemSample),
    /// Missing readings of GPUs so far.
    Gpus(GpuCounters),
    /// Gaps of CPUs that came online, so far.
    Cpus(CpuCounters),
    /// Waits that are not followed, so far.
    Waits(WaitCounters),
    /// Counts of probes so far.
    Probes(ProbeCounters),
    /// A target process has ended.
    TargetGone {
        /// The process.
        pid: u32,
    },
    /// A notice for the user.
    Notice(String),
}
