//! Messages: what a running capture sends to the pipeline.
//!
//! Owns: [`Message`]. Because: records, mappings and counters come from three threads and are consumed by one. Does
//! not: decode records.

use deepctx_common::end::Counter;
use deepctx_pipeline::input::{DutyWindow, SiteInfo};
use deepctx_pipeline::system::SystemSample;
use deepctx_symbolizer::maps::Maps;

use super::cpus::CpuCounters;
use super::gpus::GpuCounters;
use super::probe_counters::ProbeCounters;
use super::processes::ScanCounters;

/// What a capture sends, in the order in which it was learned.
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
    /// Totals of the kernel programs' counters, by [`Counter`] number.
    Counters([u64; Counter::ALL.len()]),
    /// What scans of processes found and missed so far.
    Scans(ScanCounters),
    /// Probes that are about to be attached, and what their calls mean. Sent before the first call of any of them.
    Sites(Vec<SiteInfo>),
    /// Numbers of probes that were taken away a while ago, since no process maps their file: others will have them.
    SitesFreed(Vec<u32>),
    /// Calls of each site so far, including those whose records were lost.
    SiteCounts(Vec<u64>),
    /// No calls are recorded after this time, `CLOCK_MONOTONIC` nanoseconds. Collectors still report what was
    /// launched before.
    CallsEnd(u64),
    /// The probes that have a budget were attached or detached: a duty window begins or ends.
    DutyWindow(DutyWindow),
    /// What the machine did since the last time.
    System(SystemSample),
    /// Readings of GPUs that are missing so far.
    Gpus(GpuCounters),
    /// What was missed so far of CPUs that came.
    Cpus(CpuCounters),
    /// What is attached so far.
    Probes(ProbeCounters),
    /// A target process has ended.
    TargetGone {
        /// The process.
        pid: u32,
    },
    /// Something the user should know.
    Notice(String),
}
