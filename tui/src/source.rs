//! Source: where the screen gets its snapshots from.
//!
//! Owns: the door through which they come. Because: a running capture, a stored file and a test must look the same to a
//! terminal. Does not: know any of the three.

use std::sync::Arc;

use deepctx_profile::metric::Metric;
use deepctx_profile::snapshot::Snapshot;
use deepctx_profile::view::Selection;

/// Gives snapshots to the event loop.
///
/// No method may wait: the loop calls them between two key presses. Work that takes longer than a few milliseconds
/// belongs on the source's own thread, which leaves its newest result where `latest` can pick it up.
pub trait Snapshots {
    /// Metrics that can be asked for.
    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::CpuTime]
    }

    /// Newest snapshot of what `request` selects, or `None` when there is none newer than the one handed out before, or
    /// none yet.
    ///
    /// After the request changed, a snapshot that answers an older request is never handed out.
    fn latest(&mut self, request: &Selection) -> Option<Arc<Snapshot>>;

    /// Whether more can still come: false for a stored profile and once the capture has ended.
    fn live(&self) -> bool {
        true
    }
}
