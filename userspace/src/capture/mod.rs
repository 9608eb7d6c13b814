//! Capture: the kernel programs, loaded, attached and read.
//!
//! Owns: the kernel side of a session and the messages that come out of it. Because: only here meet BPF, perf events
//! and `/proc`. Does not: look into records, name anything, or build profiles.

pub mod cost;
pub mod doctor;

use std::path::PathBuf;

use crossbeam_channel::Receiver;
use deepctx_common::end::Counter;
use deepctx_symbolizer::maps::Maps;

use cost::OwnCost;

/// What the kernel side tells.
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
    /// A process that was named as a target has ended.
    TargetGone {
        /// The process.
        pid: u32,
    },
    /// Something the user should know.
    Notice(String),
}

/// What to capture.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Processes to sample.
    pub pids: Vec<u32>,
    /// Names of processes to sample.
    pub comms: Vec<String>,
    /// Folder of a cgroup whose processes are sampled.
    pub cgroup: Option<PathBuf>,
    /// Sample everything.
    pub all: bool,
    /// Sample what the targets start.
    pub follow_children: bool,
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// Record kernel frames.
    pub kernel: bool,
    /// Record native frames.
    pub native: bool,
    /// Record Python frames.
    pub python: bool,
}

/// Why a capture could not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CaptureError {
    /// One line.
    pub message: String,
    /// What the user can do.
    pub hint: Option<String>,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    messages: Receiver<Message>,
}

impl Capture {
    /// Starts one.
    pub fn start(_options: CaptureOptions) -> Result<Self, CaptureError> {
        Err(CaptureError { message: "this build cannot capture".into(), hint: None })
    }

    /// What it tells. The channel is closed after the last message.
    pub fn messages(&self) -> Receiver<Message> {
        self.messages.clone()
    }

    /// Stops sampling, drains the rings, and gives the last counters.
    pub fn stop(self) -> [u64; Counter::ALL.len()] {
        [0; Counter::ALL.len()]
    }

    /// What the profiler itself used so far.
    pub fn cost(&self) -> OwnCost {
        cost::measure(0)
    }
}
