//! Trace window: which part of a capture single events are recorded of.
//!
//! Owns: [`TraceWindow`], and what a window waits for. Because: the bounds of the pipeline have one, and the recorder
//! keeps to it. Does not: know when a training step begins.

use deepctx_profile::units::Nanos;

/// When single events are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceWindow {
    /// So long from the start of the capture.
    First(Nanos),
    /// From the begin of a training step to the begin of another, by their numbers at the first place that gets so far.
    Steps {
        /// The first step that is recorded.
        from: u64,
        /// The first step behind those that are.
        until: u64,
    },
    /// So long from a request on, and from those that come while the window is open.
    OnRequest(Nanos),
}

/// What the window waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedBegin {
    /// This training step.
    Step(u64),
    /// A request.
    Request,
}
