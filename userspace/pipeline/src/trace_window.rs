//! Trace window: the part of a capture for which single events are recorded, and which of its events.
//!
//! Owns: [`TraceWindow`], its trigger, and [`TraceLevel`]. Because: the pipeline's config has one, and the recorder
//! obeys it. Does not: know when a training step begins.

use deepctx_profile::units::Nanos;
use serde::{Deserialize, Serialize};

/// When single events are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceWindow {
    /// This long from the start of the capture.
    First(Nanos),
    /// This long from the first launch, collective, range, step, operator or time off the CPU.
    FromWork(Nanos),
    /// From the begin of one training step to that of another, by their numbers at the first place that gets so far.
    Steps {
        /// The first step that is recorded.
        from: u64,
        /// The first step after those that are recorded.
        until: u64,
    },
    /// From one launch to another, by their numbers in the first process that gets so far.
    Launches {
        /// The first launch that is recorded.
        from: u64,
        /// The first launch after those that are recorded.
        until: u64,
    },
    /// This long from a request on; requests while the window is open extend it.
    OnRequest(Nanos),
}

/// Which single events are recorded; each level includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceLevel {
    /// Calls that give devices work, without their ends, and that work.
    Launches,
    /// All probed calls of accelerator libraries, with begin, end and result.
    #[default]
    Calls,
    /// Operators as they begin, if they are probed.
    Context,
}

/// What the window waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedBegin {
    /// Anything that is recorded, except calls that prepare it.
    Work,
    /// This training step.
    Step(u64),
    /// This launch.
    Launch(u64),
    /// A request.
    Request,
}
