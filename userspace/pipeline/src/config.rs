//! Config: how much the pipeline may hold, and for how long.
//!
//! Owns: the bounds, and the reason for each. Because: every queue and cache has a bound, and their sum is the
//! profiler's memory budget. Does not: enforce them.

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Limits;

use crate::trace_window::{TraceLevel, TraceWindow};

/// Default prefix of the names of ranges that end a training step.
pub const STEP_MARKER: &str = "Optimizer.step#";
/// Default number of launches that may wait for their activities: those of 26 s at 10 000 a second. About 30 MiB when
/// full.
const LAUNCHES: usize = 1 << 18;
/// Most bytes of raw stacks in the cache: some ten thousand stacks of 60 frames.
const STACK_BYTES_MAX: usize = 12 << 20;

/// Bytes of raw stacks to cache for the samples of this many CPUs: some seconds of stacks that all differ.
pub fn stack_bytes(cpus: usize) -> usize {
    cpus.saturating_mul(512 << 10).saturating_add(4 << 20).min(STACK_BYTES_MAX)
}

/// How much the pipeline may hold, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bounds of the profile's tables.
    pub limits: Limits,
    /// Records that may wait for their turn; beyond it the oldest is used early.
    pub waiting_records: usize,
    /// Bytes of records that may wait for their turn.
    pub waiting_bytes: usize,
    /// How much longer samples wait than changes of processes, nanoseconds.
    pub mapping_lookahead_ns: u64,
    /// Bytes of raw stacks in the cache.
    pub stack_bytes: usize,
    /// What the period of a sample measures.
    pub timer: Metric,
    /// Waits are captured too: wall time is time on and off the CPU.
    pub off_cpu: bool,
    /// Launches that may wait for their activities.
    pub launches: usize,
    /// Prefixes of the names of ranges that end a training step.
    pub step_markers: Vec<String>,
    /// Ends of training steps are handed out ([`crate::Pipeline::ended_steps`]), and are also watched while probes with
    /// a budget are detached.
    pub hands_out_steps: bool,
    /// When single events are recorded; `None`: never.
    pub trace: Option<TraceWindow>,
    /// Which single events are recorded.
    pub trace_level: TraceLevel,
}

impl Default for Config {
    /// 32 MiB hold half a second of 99 samples/s on 512 CPUs at a kilobyte each. Together with the other bounds they
    /// stay below the profiler's limit of 150 MiB.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            waiting_records: 1 << 16,
            waiting_bytes: 32 << 20,
            mapping_lookahead_ns: 500_000_000,
            stack_bytes: STACK_BYTES_MAX,
            timer: Metric::CpuTime,
            off_cpu: false,
            launches: LAUNCHES,
            step_markers: vec![STEP_MARKER.to_owned()],
            hands_out_steps: false,
            trace: None,
            trace_level: TraceLevel::default(),
        }
    }
}
