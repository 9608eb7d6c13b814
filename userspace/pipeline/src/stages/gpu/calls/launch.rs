//! Launches of kernels.
//!
//! Owns: the name, shape and context of each kernel launch. Because: a kernel belongs to the context of its launch,
//! and its handle has a name only if earlier calls gave it one. Does not: know graphs ([`super::graph`]) or
//! activities.

use deepctx_events::{LaunchCall, Role};
use deepctx_names::kernel_of_readable_stub;
use deepctx_profile::device::activity::Launch;
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::super::TimedCall;
use super::super::counts::{Counts, Gap};
use super::super::foreign_collection::LaunchIdentity;
use super::super::graphs::{NodeKind, RecordedNode};
use super::super::kernels::{UNNAMED, kernel_frame, recovered_kernel};
use super::super::names::{KernelKey, NamedKernel};
use super::super::process::Process;
use super::super::streams::StreamKey;
use super::super::work::{HeldLaunch, Work, WorkKind};
use super::api_call::ApiCall;
use super::pending::{Outcome, ReturnAction};

/// Stands for the kernels of a launch on several devices, whose list was not read.
const LISTED: &str = "[unknown: launch-list-not-read]";
/// Most frames of the runtime between a stub and the driver's function.
const STUB_WITHIN: usize = 16;

/// The kernel of a launch.
struct LaunchedKernel {
    /// The kernel; `None` if no call has named it.
    frame: Option<FrameId>,
    handle: u64,
    /// Its module; 0 if unknown.
    module: u64,
    shape: Launch,
    /// One on each of several devices.
    several: bool,
}

/// The kernel whose host stub made a call: a stub only launches its kernel, and compilers derive its name from that.
fn stub_above(caller: NodeId, profile: &Profile) -> Option<String> {
    let frames = std::iter::successors(Some(caller), |node| Some(profile.tree.node(*node).parent));
    let symbols =
        frames.take(STUB_WITHIN).map_while(|node| match profile.frames.get(profile.tree.node(node).frame) {
            Frame::Native { symbol, .. } => Some(profile.strings.get(symbol)),
            Frame::NativeUnnamed { .. } => Some(""),
            _ => None,
        });
    symbols.into_iter().find_map(kernel_of_readable_stub)
}

impl Process {
    pub(super) fn launch(
        &mut self,
        launch: LaunchCall,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Outcome {
        let api = call.node(counts, profile);
        let several = launch == LaunchCall::MultiDevice;
        let handle = call.given.kernel_handle().unwrap_or(0);
        let known = self.name_of(handle, several, call.at, profile);
        let mut shape = call.shape();
        if let Some(code) = known.and_then(|named| named.code) {
            shape.registers = code.registers;
            shape.static_shared = code.static_shared;
            shape.arch = code.arch;
        }
        let frame =
            if several { Some(kernel_frame(LISTED, profile)) } else { known.map(|named| named.frame) };
        let module = known.map_or(0, |named| named.module);
        let launched = LaunchedKernel { frame, handle, module, shape, several };
        let stream = call.target(self).stream;
        let launched = match self.streams.capture(stream) {
            Some(recording) => self.record_launch(recording, stream, &launched, call.at, api, profile),
            None => self.run(&launched, call, counts, profile),
        };
        let on_return = call.returns.then_some(ReturnAction::Launch { node: api });
        Outcome { launched, on_return }
    }

    /// The name of a handle: reported by a call, found in process memory, or that of the stub that launches it.
    fn name_of(
        &mut self,
        handle: u64,
        several: bool,
        at: &TimedCall<'_>,
        profile: &mut Profile,
    ) -> Option<NamedKernel> {
        // The name in the next activity is surer than one found in process memory.
        let has_activities = self.has_activities();
        let known = self.names.get(handle).filter(|named| !named.recovered || !has_activities);
        if known.is_some() || several || has_activities {
            return known;
        }
        let may_have_stub = at.has_stack && self.names.may_have_stub(handle);
        let Some(name) = may_have_stub.then(|| stub_above(at.node, profile)).flatten() else {
            self.names.want(handle, at.time_ns);
            return None;
        };
        let frame = recovered_kernel(&name, profile);
        let named = NamedKernel { frame, module: 0, recovered: true, code: None };
        self.names.name(handle, named);
        Some(named)
    }

    /// The stream records a graph: the launch becomes one of its nodes.
    fn record_launch(
        &mut self,
        recording: u64,
        stream: StreamKey,
        launched: &LaunchedKernel,
        at: &TimedCall<'_>,
        api: NodeId,
        profile: &mut Profile,
    ) -> Option<Work> {
        let what = if launched.frame.is_some() { NodeKind::Kernel } else { NodeKind::KernelUnnamed };
        let frame = launched.frame.unwrap_or_else(|| kernel_frame(UNNAMED, profile));
        let node = self.kernel_node(api, frame, launched.module, profile);
        self.info.captured += 1;
        let order = self.graph_order.add(stream, recording);
        let recorded = RecordedNode { node, frame, what, bytes: 0, order };
        self.graphs.record(recording, recorded);
        self.graphs.recording_by(at.tid, recorded);
        self.collecting.then(|| self.work(WorkKind::Recorded, api, node, at))
    }

    /// The device runs it.
    fn run(
        &mut self,
        launched: &LaunchedKernel,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Option<Work> {
        let LaunchedKernel { frame: named, handle, module, shape, several } = *launched;
        let at = call.at;
        let api = call.node(counts, profile);
        let kernels = if several { call.given.get(Role::Count).unwrap_or(1).min(64) } else { 1 };
        self.info.launches += kernels;
        self.info.launches_without_stack += kernels * u64::from(call.without_stack().is_some());
        // While activities come, the first one can still supply the name.
        let held = (self.has_activities() && named.is_none()).then_some(HeldLaunch { handle, launch: shape });
        let node = if held.is_some() {
            self.samples.unknown += 1;
            api
        } else {
            if named.is_none() {
                counts.gap(Gap::NameUnknown, 1);
            }
            let frame = named.unwrap_or_else(|| kernel_frame(UNNAMED, profile));
            let node = self.kernel_node(api, frame, module, profile);
            self.samples.ran(frame, node);
            self.samples.unknown += u64::from(several || named.is_none());
            profile.tree.add(node, Metric::Kernels, kernels);
            if !several {
                profile.gpu.shape(node, &shape);
            }
            node
        };
        if !self.has_activities() {
            let target = call.target(self);
            self.streams.launched(target.stream, target.context, node, at.time_ns);
        }
        let kind = if several { WorkKind::Kernels } else { WorkKind::Kernel };
        let what = LaunchIdentity::Kernel(named, shape);
        self.expect(Work { held, expected: kernels as u32, ..self.work(kind, api, node, at) }, what)
    }

    /// The context of a launched kernel of a module (0: unknown): below its origin.
    pub(in crate::stages::gpu) fn kernel_node(
        &mut self,
        api: NodeId,
        kernel: FrameId,
        module: u64,
        profile: &mut Profile,
    ) -> NodeId {
        let caller = profile.tree.node(api).parent;
        let above = self.origins.of(caller, KernelKey { frame: kernel, module }, profile);
        profile.tree.path(api, above.iter().copied().chain([kernel]))
    }
}
