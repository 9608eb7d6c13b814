//! Options: the inputs of a session, and its results.
//!
//! Owns: the types that a session and its thread exchange. Because: both use them, and neither should depend on the
//! other for them. Does not: run anything.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use deepctx_capture::CalledFunctionMap;
use deepctx_capture::cost::OwnCost;
use deepctx_pipeline::{Config, EndedStep};
use deepctx_profile::profile::{Meta, Profile};
use deepctx_symbolizer::native::DebugInfo;

use crate::flight_recorder::FlightOptions;
use crate::hottest::HottestOperators;
use crate::sinks::{Sink, TraceSink};
use crate::status::Status;

/// Records of different CPUs are at most this far apart in one ring. Walking the deepest stack takes less than a
/// millisecond; the rest is for a virtual CPU that was not scheduled.
pub(crate) const SKEW_NS: u64 = 100_000_000;

/// The parts of a session.
#[derive(Debug, Default)]
pub struct Options {
    /// The target, the host and the options of the capture.
    pub meta: Meta,
    /// Bounds of the pipeline.
    pub config: Config,
    /// How much debug information is read.
    pub debug_info: DebugInfo,
    /// Targets that were given by pid. When all have ended, [`Status::over`] is set.
    pub named: Vec<u32>,
    /// Map in which kernel programs look up the function that calls modules of PyTorch; `None` when modules are not
    /// recorded.
    pub layers: Option<CalledFunctionMap>,
    /// Chooses the operators whose tensors are recorded; `None` when none are.
    pub hottest: Option<HottestOperators>,
    /// Consumers of the input and of the profile. They are called in this order and finished in reverse order.
    pub sinks: Vec<Box<dyn Sink>>,
    /// Receives single events, if [`Config::trace`] requests them.
    pub trace: Option<TraceSink>,
    /// Keeps the last part of the capture and writes it on request.
    pub flight_recorder: Option<FlightOptions>,
}

/// The result of a session.
#[derive(Debug)]
pub struct SessionResult {
    /// The profile.
    pub profile: Profile,
    /// The final status.
    pub status: Status,
}

/// State shared by the pipeline's thread and the owner of the session.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    pub(crate) status: Mutex<Status>,
    pub(crate) cost: Mutex<OwnCost>,
    /// Progress counter of the pipeline's thread: it is stuck while this does not change.
    pub(crate) progress: AtomicU64,
    /// Notices of the session's owner, not yet taken by the pipeline's thread.
    pub(crate) notices: Mutex<Vec<String>>,
    /// Restarts of the capture's threads.
    pub(crate) restarts: AtomicU64,
    /// Features that `--probe auto` chose.
    pub(crate) auto_probes: Mutex<Vec<String>>,
    /// Times at which single events were requested, not yet taken by the pipeline's thread; `CLOCK_MONOTONIC`
    /// nanoseconds.
    pub(crate) trace_requests: Mutex<Vec<u64>>,
    /// Ended training steps, not yet taken by the session's owner.
    pub(crate) ended_steps: Mutex<Vec<EndedStep>>,
}
