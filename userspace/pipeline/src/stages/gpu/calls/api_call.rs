//! One library call, with its arguments and its place in the tree.
//!
//! Owns: [`ApiCall`]. Because: every group of calls needs the same values: the stream, the context, the kernel's
//! name, and the node that figures are added to. Does not: know what the call means.

use deepctx_common::call::call_flag;
use deepctx_common::reason::Reason;
use deepctx_events::{Family, Role};
use deepctx_profile::device::activity::Launch;
use deepctx_profile::frame::{Frame, Origin};
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::super::TimedCall;
use super::super::counts::{Counts, Gap};
use super::super::kernels::named_kernel;
use super::super::process::Process;
use super::super::sites::{CallArguments, Site, small};
use super::super::streams::StreamKey;
use super::super::transfer;
use super::super::work::Target;
use crate::reason::{STACK_LIMITED, STACK_NOT_TAKEN};

/// One call, as the handlers of its group see it.
pub(super) struct ApiCall<'a> {
    pub(super) at: &'a TimedCall<'a>,
    pub(super) site: Site,
    pub(super) given: CallArguments<'a>,
    /// The exported name of the function.
    pub(super) symbol: &'a str,
    /// Returns of this function are recorded.
    pub(super) returns: bool,
    /// The context of the call; created when needed.
    node: Option<NodeId>,
}

impl<'a> ApiCall<'a> {
    pub(super) fn new(
        at: &'a TimedCall<'a>,
        site: Site,
        given: CallArguments<'a>,
        symbol: &'a str,
        returns: bool,
    ) -> Self {
        Self { at, site, given, symbol, returns, node: None }
    }

    /// The context of the call: below its stack, or below the reason why it has none.
    pub(super) fn node(&mut self, counts: &mut Counts, profile: &mut Profile) -> NodeId {
        if let Some(node) = self.node {
            return node;
        }
        let caller = match self.without_stack() {
            None => self.at.node,
            Some(reason) => {
                counts.gap(Gap::WithoutStack, 1);
                let reason = profile.text(reason.key);
                let frame = profile.frame(Frame::Unresolved { reason, origin: Origin::Gpu });
                profile.tree.child(self.at.thread, frame)
            }
        };
        *self.node.insert(profile.tree.child(caller, self.site.frame))
    }

    /// Why the call has no stack; `None` if it has one.
    pub(super) fn without_stack(&self) -> Option<&'static Reason> {
        let flags = self.at.arguments.call.flags;
        if flags & call_flag::STACK_LIMITED != 0 {
            Some(STACK_LIMITED)
        } else if self.at.has_stack {
            None
        } else {
            Some(STACK_NOT_TAKEN)
        }
    }

    /// The stream that the call means, and the context of its thread.
    pub(super) fn target(&self, process: &Process) -> Target {
        let handle = self.given.get(Role::Stream).unwrap_or(0);
        let stream = StreamKey::new(handle, self.at.tid, self.site.own_default_stream);
        Target { stream, context: self.context(process) }
    }

    /// The context that the thread of the call has chosen; 0 if unknown. In HIP it is a device, counted from 1, and a
    /// thread that chooses none has the first.
    pub(super) fn context(&self, process: &Process) -> u64 {
        let has_first = self.site.family == Family::Hip && process.from_start;
        process.context(self.at.tid).unwrap_or(u64::from(has_first))
    }

    /// Bytes that this rank contributes to a collective; 0 if unknown.
    pub(super) fn exchanged_bytes(&self) -> u64 {
        transfer::collective_bytes(self.site.family, &self.given).unwrap_or(0)
    }

    /// The kernel named by the text.
    pub(super) fn kernel(&self, profile: &mut Profile) -> Option<FrameId> {
        self.given.text().map(|name| named_kernel(name, profile))
    }

    /// The launch configuration.
    pub(super) fn shape(&self) -> Launch {
        let three = |roles: [Role; 3]| roles.map(|role| self.given.get(role));
        let block = three([Role::BlockX, Role::BlockY, Role::BlockZ]).map(small);
        let grid = match three([Role::GridX, Role::GridY, Role::GridZ]) {
            [None, None, None] => {
                let threads = three([Role::GlobalX, Role::GlobalY, Role::GlobalZ]).map(small);
                std::array::from_fn(|n| threads[n].div_ceil(block[n].max(1)))
            }
            grid => grid.map(small),
        };
        let dynamic_shared = self.given.small(Role::SharedBytes);
        Launch {
            grid,
            block,
            dynamic_shared,
            static_shared: None,
            registers: None,
            arch: None,
            device_arch: None,
        }
    }
}
