//! Copies, memsets and prefetches.
//!
//! Owns: where their bytes are counted. Because: they are device work like kernels, recorded and joined in the same
//! way. Does not: read how much is moved ([`super::super::transfer`]).

use deepctx_events::{Role, Timing, TransferCall};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;

use super::super::counts::{Counts, Gap};
use super::super::foreign_collection::LaunchIdentity;
use super::super::graphs::{NodeKind, RecordedNode};
use super::super::kernels::kernel_frame;
use super::super::process::Process;
use super::super::streams::WaitTarget;
use super::super::transfer;
use super::super::work::{Work, WorkKind};
use super::api_call::ApiCall;
use super::pending::{Outcome, ReturnAction};

impl Process {
    pub(super) fn transfer(
        &mut self,
        kind: TransferCall,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Outcome {
        let mut waited = None;
        let (bytes, label, timing) = match kind {
            TransferCall::Copy(direction, timing) => {
                let known = self.host_memory_known();
                let copy = transfer::copy(direction, &call.given, &self.memory, known);
                waited = copy.to_host.then(|| WaitTarget::Stream(call.target(self).stream));
                (copy.bytes, copy.label, timing)
            }
            TransferCall::Fill(element, timing) => {
                (transfer::fill_bytes(element, &call.given), "memset", timing)
            }
            TransferCall::Prefetch => (call.given.get(Role::Bytes), "prefetch", Timing::Async),
        };
        // A prefetch moves pages: no activity has the id of its call.
        let is_reported = kind != TransferCall::Prefetch;
        let launched = self.transferred(bytes, label, is_reported, call, counts, profile);
        let on_return = (timing == Timing::Blocking)
            .then(|| ReturnAction::Sync { node: call.node(counts, profile), waited });
        Outcome { launched, on_return }
    }

    /// `is_reported`: the transfer has activities, if any are collected.
    fn transferred(
        &mut self,
        bytes: Option<u64>,
        label: &str,
        is_reported: bool,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Option<Work> {
        let at = call.at;
        let api = call.node(counts, profile);
        let target = call.target(self);
        let frame = kernel_frame(label, profile);
        let node = profile.tree.child(api, frame);
        if let Some(recording) = self.streams.capture(target.stream) {
            let bytes = bytes.unwrap_or(0);
            let order = self.graph_order.add(target.stream, recording);
            let recorded = RecordedNode { node, frame, what: NodeKind::Transfer, bytes, order };
            self.graphs.record(recording, recorded);
            self.graphs.recording_by(at.tid, recorded);
            return self.collecting.then(|| self.work(WorkKind::Recorded, api, node, at));
        }
        self.info.transfers += 1;
        match bytes {
            Some(bytes) => profile.tree.add(node, Metric::CopyBytes, bytes),
            None if !is_reported || !self.has_activities() => counts.gap(Gap::SizeUnknown, 1),
            None => {}
        }
        if !is_reported {
            return None;
        }
        let kind = WorkKind::Transfer { sized: bytes.is_some() };
        self.expect(self.work(kind, api, node, at), LaunchIdentity::Transfer(bytes))
    }
}
