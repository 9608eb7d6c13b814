//! Config: how much the pipeline may hold, and for how long.
//!
//! Owns: the bounds, and the reason for each. Because: every queue and cache has a bound, and their sum is the
//! profiler's memory budget. Does not: enforce them.

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Limits;

use crate::trace_window::{TraceLevel, TraceWindow};

/// How names of ranges begin that end a training step, unless the user names others.
pub const STEP_MARKER: &str = "Optimizer.step#";
/// Launches that may wait for their activities when nothing else is asked for: at 10 000 a second those of 26 s. About
/// 30 MiB when full.
const LAUNCHES: usize = 1 << 18;

/// How much the pipeline may hold, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bounds of the profile's tables.
    pub limits: Limits,
    /// Records that may wait for their turn; beyond it the oldest is used early.
    pub waiting_records: usize,
    /// Bytes of records that may wait for their turn.
    pub waiting_bytes: usize,
    /// How much longer samples wait than what changes processes, nanoseconds.
    pub mapping_lookahead_ns: u64,
    /// Bytes of raw stacks that are remembered.
    pub stack_bytes: usize,
    /// What the period of a sample measures.
    pub timer: Metric,
    /// Waits are captured too: wall time is time on and off the CPU.
    pub off_cpu: bool,
    /// Launches that may wait for what a device reports of them.
    pub launches: usize,
    /// How the names of ranges begin that end a training step.
    pub step_markers: Vec<String>,
    /// Ends of training steps are handed out ([`crate::Pipeline::ended_steps`]), and are watched also while probes that
    /// have a budget are detached.
    pub hands_out_steps: bool,
    /// When single events are recorded; `None`: never.
    pub trace: Option<TraceWindow>,
    /// Which single events those are.
    pub trace_level: TraceLevel,
}

impl Default for Config {
    /// Half a second of 99 samples/s on 512 CPUs with a kilobyte each waits in 32 MiB; 12 MiB of remembered stacks are
    /// some ten thousand of 60 frames. All of it together stays below the 150 MiB that the profiler allows itself.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            waiting_records: 1 << 16,
            waiting_bytes: 32 << 20,
            mapping_lookahead_ns: 500_000_000,
            stack_bytes: 12 << 20,
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
