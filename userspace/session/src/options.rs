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

/// What a session is made of.
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
    /// Takes single events, where [`Config::trace`] asks for them.
    pub trace: Option<TraceSink>,
    /// Keeps the last part of the capture and writes it when it is asked to.
    pub flight_recorder: Option<FlightOptions>,
}

/// What a session leaves behind.
#[derive(Debug)]
pub struct SessionResult {
    /// The profile.
    pub profile: Profile,
    /// How the session went.
    pub status: Status,
}

/// What the pipeline's thread and the owner of the session share.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    pub(crate) status: Mutex<Status>,
    pub(crate) cost: Mutex<OwnCost>,
    /// Counts what the pipeline's thread has done: while it stands still, so does that thread.
    pub(crate) progress: AtomicU64,
    /// Notices of the session's owner that the pipeline's thread has not taken over yet.
    pub(crate) notices: Mutex<Vec<String>>,
    /// When single events were requested, as far as the pipeline's thread has not taken it over yet; `CLOCK_MONOTONIC`
    /// nanoseconds.
    pub(crate) trace_requests: Mutex<Vec<u64>>,
    /// Training steps that have ended, as far as the session's owner has not taken them.
    pub(crate) ended_steps: Mutex<Vec<EndedStep>>,
}
