//! Work that calls submit to devices, until its activities have arrived or never will.
//!
//! Owns: the state of a launch, a transfer or a graph, and what is attributed to it if its activities do not arrive.
//! Because: all groups of calls that launch work wait for activities in the same way. Does not: join activities
//! ([`super::super::activities`]).

use deepctx_profile::device::activity::{JoinMethod, Tier};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::super::counts::Gap;
use super::super::foreign_collection::{LaunchIdentity, QueuedLaunch};
use super::super::kernels::{UNNAMED, kernel_frame};
use super::super::process::Process;
use super::super::work::{Work, WorkKind};
use super::super::{Gpu, TimedCall};

impl Process {
    /// Whether device activities are reported: by a collector, or by another tool whose collection was seen.
    pub(super) fn has_activities(&self) -> bool {
        self.collecting || self.foreign.is_on() && self.info.tier == Tier::Borrowed
    }

    /// Work that may get activities: remembered if they can come.
    pub(super) fn expect(&mut self, work: Work, what: LaunchIdentity) -> Option<Work> {
        let kernels = match work.kind {
            WorkKind::Kernel | WorkKind::Kernels => u64::from(work.expected),
            WorkKind::Transfer { .. } | WorkKind::Graph { .. } | WorkKind::Recorded => 0,
        };
        let transfers = u64::from(matches!(work.kind, WorkKind::Transfer { .. }));
        if self.collecting {
            self.info.launches_collected += kernels;
            self.info.transfers_collected += transfers;
        } else if self.foreign.is_on() {
            self.foreign.count(kernels, &mut self.info);
            self.foreign.queue(QueuedLaunch { number: work.number, time_ns: work.time_ns, what });
        } else {
            return None;
        }
        Some(work)
    }

    pub(super) fn work(&self, kind: WorkKind, api: NodeId, node: NodeId, at: &TimedCall<'_>) -> Work {
        Work {
            number: at.number,
            pid: self.info.pid,
            time_ns: at.time_ns,
            kind,
            api,
            node,
            held: None,
            correlation: 0,
            counted: false,
            seen: 0,
            expected: 1,
        }
    }
}

impl Gpu {
    /// No more activities will come for this work: enters what is known, and counts what is missing.
    pub(in crate::stages::gpu) fn expire_work(&mut self, work: Work, cause: Gap, profile: &mut Profile) {
        self.forget_id(&work);
        if work.kind == WorkKind::Recorded {
            return;
        }
        if let Some(held) = work.held {
            let frame = kernel_frame(UNNAMED, profile);
            let node = profile.tree.child(work.api, frame);
            profile.tree.add(node, Metric::Kernels, 1);
            profile.gpu.shape(node, &held.launch);
            self.counts.gap(Gap::NameUnknown, 1);
        }
        let Some(process) = self.processes.get_mut(work.pid) else { return };
        if process.info.tier == Tier::Observed {
            // Another tool began a collection, but none of its records could be read.
        } else if work.seen == 0 {
            let gap = match cause {
                Gap::LaunchWithoutActivity
                    if work.correlation == 0 && process.info.join == JoinMethod::Exact =>
                {
                    Gap::LaunchWithoutCorrelation
                }
                cause => cause,
            };
            self.counts.gap(gap, 1);
            if let WorkKind::Graph { launchable } = work.kind
                && !work.counted
            {
                process.enter_graph(launchable, work.api, profile);
            }
        } else if work.seen < work.expected {
            self.counts.gap(Gap::GraphIncomplete, u64::from(work.expected - work.seen));
        }
    }

    /// Unlinks the id from its work; ids are reused, so it may belong to other work by now.
    pub(in crate::stages::gpu) fn forget_id(&mut self, work: &Work) {
        let key = (work.pid, work.correlation);
        if self.ids.get(&key) == Some(&work.number) {
            self.ids.remove(&key);
        }
    }
}
