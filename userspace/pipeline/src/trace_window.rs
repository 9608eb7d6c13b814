//! Trace window: the part of a capture for which single events are recorded, and which of its events.
//!
//! Owns: [`TraceWindow`], its trigger, and [`TraceLevel`]. Because: the pipeline's config has one, and the recorder
//! obeys it. Does not: know when a training step begins.

use deepctx_profile::units::Nanos;
use serde::{Deserialize, Serialize};

/// When single events are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceWindow {
    /// So long from the start of the capture.
    First(Nanos),
    /// So long from the first launch, collective, range, step, operator or time off the CPU.
    FromWork(Nanos),
    /// From the begin of a training step to the begin of another, by their numbers at the first place that gets so far.
    Steps {
        /// The first step that is recorded.
        from: u64,
        /// The first step behind those that are.
        until: u64,
    },
    /// From a launch to another one, by their numbers in the first process that gets so far.
    Launches {
        /// The first launch that is recorded.
        from: u64,
        /// The first launch behind those that are.
        until: u64,
    },
    /// So long from a request on, and from those that come while the window is open.
    OnRequest(Nanos),
}

/// Which single events are recorded; each level has those of the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceLevel {
    /// Calls that give devices work, without their ends, and that work.
    Launches,
    /// All calls of accelerators' libraries that are probed, with begin, end and result.
    #[default]
    Calls,
    /// Operators as they begin, as far as they are probed.
    Context,
}

/// What the window waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedBegin {
    /// Anything that is recorded, but for calls that prepare it.
    Work,
    /// This training step.
    Step(u64),
    /// This launch.
    Launch(u64),
    /// A request.
    Request,
}
