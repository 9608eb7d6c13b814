//! Host waits, and the order between streams that bounds what they wait for.
//!
//! Owns: what a wait reveals about the work before it, and how long the host was blocked. Because: without
//! activities, waits are the only bound on the time of kernels. Does not: store streams ([`super::super::streams`]).

use std::iter;

use deepctx_events::{Role, StreamCall, SyncScope};
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Nanos, Time};

use super::super::counts::{Counts, Gap};
use super::super::process::Process;
use super::super::streams::WaitTarget;
use super::api_call::ApiCall;
use super::pending::{Outcome, ReturnAction, ReturnedCall};

impl Process {
    pub(super) fn sync(
        &mut self,
        scope: SyncScope,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Outcome {
        let waited = match scope {
            SyncScope::Stream => Some(WaitTarget::Stream(call.target(self).stream)),
            SyncScope::Event => self.streams.event(call.given.get(Role::Event).unwrap_or(0)),
            SyncScope::Context | SyncScope::Device => {
                let context = call.given.get(Role::Context).filter(|context| *context != 0);
                Some(WaitTarget::Context(context.unwrap_or_else(|| call.context(self))))
            }
        };
        let node = call.node(counts, profile);
        Outcome::on_return(Some(ReturnAction::Sync { node, waited }))
    }

    /// A call that blocks has returned.
    pub(super) fn synchronized(
        &mut self,
        node: NodeId,
        waited: Option<WaitTarget>,
        returned: &ReturnedCall,
        profile: &mut Profile,
    ) {
        blocked(node, returned.entered_ns, returned.end_ns, profile);
        if let Some(waited) = waited.filter(|_| returned.done) {
            self.bound(waited, returned, profile);
        }
    }

    pub(super) fn stream(&mut self, kind: StreamCall, call: &ApiCall<'_>, counts: &mut Counts) {
        let event = || call.given.get(Role::Event).unwrap_or(0);
        match kind {
            StreamCall::EventRecord => {
                let stream = call.target(self).stream;
                if !self.streams.recorded(event(), stream) {
                    counts.gap(Gap::StateFull, 1);
                }
                self.graph_order.event(event(), stream, self.streams.capture(stream));
            }
            StreamCall::Wait => {
                let stream = call.target(self).stream;
                self.streams.waits(stream, event(), call.at.time_ns);
                self.graph_order.waits(stream, event(), self.streams.capture(stream));
            }
            StreamCall::Destroy => self.streams.destroyed(call.target(self).stream),
            // These calls have no figures, and nothing depends on them.
            StreamCall::Create | StreamCall::Value => {}
        }
    }

    /// The host has waited until now: work launched before cannot have taken longer.
    fn bound(&mut self, waited: WaitTarget, returned: &ReturnedCall, profile: &mut Profile) {
        let end_ns = returned.end_ns;
        let bounded = self.streams.waited(waited, returned.entered_ns);
        let first = bounded.iter().map(|launch| launch.from_ns).min();
        for launch in &bounded {
            profile.tree.add(launch.node, Metric::GpuTimeBound, end_ns.saturating_sub(launch.from_ns));
        }
        if let Some(first) = first {
            let busy = end_ns.saturating_sub(first);
            self.info.busy_at_most = self.info.busy_at_most.saturating_add(Nanos(busy));
        }
    }
}

/// Records that the host was blocked in a call, between two times of `CLOCK_MONOTONIC`: in its context, and on its
/// thread's line of the timeline.
pub(in crate::stages::gpu) fn blocked(node: NodeId, from_ns: u64, to_ns: u64, profile: &mut Profile) {
    let took_ns = to_ns.saturating_sub(from_ns);
    profile.tree.add(node, Metric::SyncTime, took_ns);
    let of_thread =
        |node: &NodeId| matches!(profile.frames.get(profile.tree.node(*node).frame), Frame::Thread { .. });
    let callers = iter::successors(Some(node), |node| Some(profile.tree.node(*node).parent));
    let thread = callers.take_while(|node| *node != NodeId::ROOT).find(of_thread);
    if let Some(thread) = thread {
        let at = |ns| Time::from_nanos(ns) - profile.meta.started_monotonic;
        profile.timeline.add_span(thread, Metric::SyncTime, at(from_ns), at(to_ns), took_ns);
    }
}
