//! Launches: what a call gives a device to do.
//!
//! Owns: one call and its arguments ([`Calling`]), and the launches, copies, graphs and frees of a process. Because: these
//! are the calls that have figures, each with a context of its own. Does not: know activities ([`super::activities`]).

use std::sync::Arc;

use deepctx_common::call::call_flag;
use deepctx_common::record::StackSample;
use deepctx_names::kernel_of_readable_stub;
use deepctx_profile::activity::{Launch, Tier};
use deepctx_profile::frame::{Frame, Origin};
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_uprobes::event::{Direction, Event, Memory as MemoryKind};
use deepctx_uprobes::role::Role;

use super::borrowed::{Queued, QueuedWhat};
use super::counts::{Counts, Gap};
use super::graphs::{Recorded, What};
use super::kernels::{UNNAMED, kernel_frame, named_kernel, recorded_below, recovered_kernel};
use super::names::Named;
use super::process::{Answer, Held, Process, Target, Work, WorkKind};
use super::sites::{Given, Site, small};
use super::streams::{StreamKey, Waited};
use super::{CallAt, Correlate, Question};
use super::{memory, transfer};
use crate::decode::Arguments;

/// Stands for the kernels of a launch on several devices, which are listed in memory.
const LISTED: &str = "[unknown: launch-list-not-read]";
/// Between a stub and the driver's function are so many frames of the runtime at most.
const STUB_WITHIN: usize = 16;
/// What one call works with.
pub(super) struct Calling<'a> {
    pub(super) at: &'a CallAt<'a>,
    pub(super) site: Site,
    pub(super) given: Given<'a>,
    /// The call as a context; made when it is needed.
    pub(super) api: Option<NodeId>,
}

/// The kernel whose host stub made a call: a stub does nothing but launch its kernel, and compilers name it after that.
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

impl Calling<'_> {
    /// The call as a context: below its stack, or below the reason why it has none.
    pub(super) fn api(&mut self, counts: &mut Counts, profile: &mut Profile) -> NodeId {
        if let Some(api) = self.api {
            return api;
        }
        let caller = match self.without_stack() {
            None => self.at.node,
            Some(reason) => {
                counts.gap(Gap::WithoutStack, 1);
                let reason = profile.text(reason);
                let frame = profile.frame(Frame::Unresolved { reason, origin: Origin::Gpu });
                profile.tree.child(self.at.thread, frame)
            }
        };
        *self.api.insert(profile.tree.child(caller, self.site.frame))
    }

    /// Why the call has no stack; `None` when it has one.
    fn without_stack(&self) -> Option<&'static str> {
        let flags = self.at.arguments.call.flags;
        if flags & call_flag::STACK_LIMITED != 0 {
            Some("stack-limited")
        } else if self.at.has_stack {
            None
        } else {
            Some("stack-not-taken")
        }
    }

    /// The stream that the call means, and the context of its thread.
    pub(super) fn target(&self, process: &Process) -> Target {
        let handle = self.given.get(Role::Stream).unwrap_or(0);
        let stream = StreamKey::new(handle, self.at.tid, self.site.own_default_stream);
        Target { stream, context: process.context(self.at.tid) }
    }

    /// The kernel that the text names.
    pub(super) fn kernel(&self, profile: &mut Profile) -> Option<FrameId> {
        self.given.text().map(|name| named_kernel(name, profile))
    }

    /// How a kernel is launched.
    fn launch(&self) -> Launch {
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

impl Correlate {
    /// A call is about to be entered, of the caller at this node: whether there is something to ask before, since it launches a
    /// kernel.
    #[inline]
    pub(crate) fn launches_unknown(
        &mut self,
        of: &StackSample,
        arguments: &Arguments<'_>,
        caller: NodeId,
        profile: &mut Profile,
    ) -> bool {
        let Some(
            Event::Launch
            | Event::LaunchEx
            | Event::LaunchCooperative
            | Event::LaunchLegacy
            | Event::LaunchFunction
            | Event::LaunchGlobal
            | Event::GraphNode,
        ) = Event::from_number(arguments.call.event)
        else {
            return false;
        };
        let Self { sites, processes, ended, .. } = self;
        let time_ns = of.header.time_ns;
        let Some(process) = processes.get_or_make(of.pid, time_ns, ended) else { return false };
        let handle = sites.given(arguments).kernel_handle();
        let named = handle.and_then(|handle| process.names.get(handle));
        let kernel = named.map(|named| (named.frame, named.module));
        process.origins.launched(caller, kernel, &process.names, time_ns, profile);
        process.origins.asks()
    }

    /// What is to be asked of compiled kernels, since the last time.
    pub(crate) fn questions(&mut self) -> Vec<Question> {
        let mut questions = Vec::new();
        for (pid, process) in self.processes.by_pid.iter_mut().filter(|(_, process)| process.origins.asks()) {
            let asked = process.origins.questions().into_iter();
            questions.extend(asked.map(|(time_ns, about)| Question { pid: *pid, time_ns, about }));
        }
        questions
    }

    /// What a kernel of a process was compiled from.
    pub(crate) fn kernel_known(
        &mut self,
        (pid, kernel): (u32, (FrameId, u64)),
        siblings: usize,
        frames: Vec<FrameId>,
        time_ns: u64,
        later: bool,
    ) {
        if let Some(process) = self.processes.get_mut(pid) {
            process.origins.kernel_known(kernel, siblings, frames, time_ns, later);
        }
    }

    /// What a generated file of a process launches.
    pub(crate) fn file_known(
        &mut self,
        (pid, file): (u32, StrId),
        launches: Vec<super::origins::Launch>,
        time_ns: u64,
        later: bool,
    ) {
        if let Some(process) = self.processes.get_mut(pid) {
            process.origins.file_known(file, launches, time_ns, later);
        }
    }
}

impl Process {
    /// The context of a kernel of a module (0: not known) that a call launches: below what it was compiled from.
    pub(super) fn kernel_node(
        &mut self,
        api: NodeId,
        kernel: FrameId,
        module: u64,
        profile: &mut Profile,
    ) -> NodeId {
        let caller = profile.tree.node(api).parent;
        let above = self.origins.of(caller, (kernel, module), profile);
        profile.tree.path(api, above.iter().copied().chain([kernel]))
    }

    pub(super) fn launch(
        &mut self,
        event: Event,
        calling: &mut Calling<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Option<Work> {
        let at = calling.at;
        let api = calling.api(counts, profile);
        let target = calling.target(self);
        let mut launch = calling.launch();
        let several = event == Event::LaunchMultiDevice;
        let handle = calling.given.kernel_handle().unwrap_or(0);
        // What the next activity will tell is surer than what was found in the process.
        let known = self.names.get(handle).filter(|named| !named.recovered || !self.is_told());
        let known = known.or_else(|| {
            let asks = !several && !self.is_told();
            let looks = asks && at.has_stack && self.names.may_have_stub(handle);
            let stub = looks.then(|| stub_above(at.node, profile)).flatten();
            match stub {
                Some(name) => {
                    let frame = recovered_kernel(&name, profile);
                    let named = Named { frame, module: 0, recovered: true, code: None };
                    self.names.name(handle, named);
                    Some(named)
                }
                None => {
                    if asks {
                        self.names.want(handle, at.time_ns);
                    }
                    None
                }
            }
        });
        let named =
            if several { Some(kernel_frame(LISTED, profile)) } else { known.map(|named| named.frame) };
        let module = known.map_or(0, |named| named.module);
        if let Some(code) = known.and_then(|named| named.code) {
            launch.registers = code.registers;
            launch.static_shared = code.static_shared;
            launch.arch = code.arch;
        }
        if let Some(recording) = self.streams.capture(target.stream) {
            let what = if named.is_some() { What::Kernel } else { What::KernelUnnamed };
            let frame = named.unwrap_or_else(|| kernel_frame(UNNAMED, profile));
            let node = self.kernel_node(api, frame, module, profile);
            self.info.captured += 1;
            let recorded = Recorded { node, frame, what, bytes: 0 };
            self.graphs.record(recording, recorded);
            self.graphs.recording_by(at.tid, recorded);
            return self.collecting.then(|| self.work(WorkKind::Recorded, api, node, at));
        }
        let kernels = if several { calling.given.get(Role::Count).unwrap_or(1).min(64) } else { 1 };
        self.info.launches += kernels;
        self.info.launches_without_stack += kernels * u64::from(calling.without_stack().is_some());
        // While activities come, the first one can still tell the name.
        let held = (self.is_told() && named.is_none()).then_some(Held { handle, launch });
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
                profile.gpu.shape(node, &launch);
            }
            node
        };
        if !self.is_told() {
            self.streams.launched(target.stream, target.context, node, at.time_ns);
        }
        let kind = if several { WorkKind::Kernels } else { WorkKind::Kernel };
        let what = QueuedWhat::Kernel(named, launch);
        self.expect(Work { held, expected: kernels as u32, ..self.work(kind, api, node, at) }, what)
    }

    /// Whether the devices' side of launches is told now: by a collector, or by another tool's that was heard of.
    fn is_told(&self) -> bool {
        self.collecting || self.borrowed.is_on() && self.info.tier == Tier::Borrowed
    }

    /// Work of which activities may come: remembered if they may.
    fn expect(&mut self, work: Work, what: QueuedWhat) -> Option<Work> {
        let kernels = match work.kind {
            WorkKind::Kernel | WorkKind::Kernels => u64::from(work.expected),
            WorkKind::Transfer { .. } | WorkKind::Graph { .. } | WorkKind::Recorded => 0,
        };
        let transfers = u64::from(matches!(work.kind, WorkKind::Transfer { .. }));
        if self.collecting {
            self.info.launches_collected += kernels;
            self.info.transfers_collected += transfers;
        } else if self.borrowed.is_on() {
            self.count_borrowed(kernels);
            self.borrowed.queue(Queued { number: work.number, time_ns: work.time_ns, what });
        } else {
            return None;
        }
        Some(work)
    }

    fn work(&self, kind: WorkKind, api: NodeId, node: NodeId, at: &CallAt<'_>) -> Work {
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

    pub(super) fn graph_launch(
        &mut self,
        calling: &mut Calling<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Option<Work> {
        let at = calling.at;
        let api = calling.api(counts, profile);
        let target = calling.target(self);
        let launchable = calling.given.get(Role::GraphExec).unwrap_or(0);
        self.info.graph_launches += 1;
        let expected = self.graphs.launchable(launchable).map(|graph| graph.nodes().len() as u32);
        if expected.is_none() {
            counts.gap(Gap::GraphUnknown, 1);
        }
        let counted = !self.is_told();
        if counted {
            self.enter_graph(launchable, api, profile);
            self.streams.launched(target.stream, target.context, api, at.time_ns);
        }
        let kind = WorkKind::Graph { launchable };
        let work = Work { expected: expected.unwrap_or(0), counted, ..self.work(kind, api, api, at) };
        self.expect(work, QueuedWhat::Graph)
    }

    /// Counts what a graph runs, as it was recorded.
    pub(super) fn enter_graph(&mut self, launchable: u64, api: NodeId, profile: &mut Profile) {
        let contexts = self.graph_contexts(launchable, api, profile);
        let Some(graph) = self.graphs.launchable(launchable) else { return };
        for (recorded, node) in graph.nodes().iter().zip(contexts.iter()) {
            match recorded.what {
                What::Kernel | What::KernelUnnamed => profile.tree.add(*node, Metric::Kernels, 1),
                What::Transfer => profile.tree.add(*node, Metric::CopyBytes, recorded.bytes),
            }
        }
    }

    /// The contexts of what a graph runs when it is launched by this call.
    pub(super) fn graph_contexts(
        &mut self,
        launchable: u64,
        api: NodeId,
        profile: &mut Profile,
    ) -> Arc<Vec<NodeId>> {
        let Some(graph) = self.graphs.launchable(launchable) else { return Default::default() };
        graph.contexts(api, |recorded| recorded_below(api, recorded.node, profile))
    }

    pub(super) fn transfer(
        &mut self,
        bytes: Option<u64>,
        label: &str,
        calling: &mut Calling<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Option<Work> {
        let at = calling.at;
        let api = calling.api(counts, profile);
        let target = calling.target(self);
        let frame = kernel_frame(label, profile);
        let node = profile.tree.child(api, frame);
        if let Some(recording) = self.streams.capture(target.stream) {
            let bytes = bytes.unwrap_or(0);
            let recorded = Recorded { node, frame, what: What::Transfer, bytes };
            self.graphs.record(recording, recorded);
            self.graphs.recording_by(at.tid, recorded);
            return self.collecting.then(|| self.work(WorkKind::Recorded, api, node, at));
        }
        self.info.transfers += 1;
        match bytes {
            Some(bytes) => profile.tree.add(node, Metric::CopyBytes, bytes),
            None if !self.is_told() => counts.gap(Gap::SizeUnknown, 1),
            None => {}
        }
        let kind = WorkKind::Transfer { sized: bytes.is_some() };
        self.expect(self.work(kind, api, node, at), QueuedWhat::Transfer(bytes))
    }

    pub(super) fn free(
        &mut self,
        kind: MemoryKind,
        calling: &mut Calling<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) {
        let handle = if kind == MemoryKind::Physical { Role::Handle } else { Role::Address };
        let Some(address) = calling.given.get(handle).filter(|address| *address != 0) else { return };
        match self.memory.freed(address, kind) {
            Some(range) if memory::counts(range.kind) => {
                let node = calling.api(counts, profile);
                profile.tree.add(node, Metric::FreeBytes, range.bytes);
                profile.tree.add(range.node, Metric::ReturnedBytes, range.bytes);
            }
            Some(_) => {}
            None => counts.gap(Gap::FreeUnknown, u64::from(memory::counts(kind))),
        }
    }

    pub(super) fn graph_node(
        &mut self,
        calling: &mut Calling<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Option<Answer> {
        let given = &calling.given;
        let graph = given.get(Role::Graph)?;
        let mut module = 0;
        let (frame, what, bytes) = match given.kernel_handle() {
            Some(handle) => match self.names.get(handle) {
                Some(named) => {
                    module = named.module;
                    (named.frame, What::Kernel, 0)
                }
                None => (kernel_frame(UNNAMED, profile), What::KernelUnnamed, 0),
            },
            None => {
                let direction = Direction::ByParameters;
                let copy = transfer::copy(direction, given, &self.memory, self.host_memory_known());
                // What has no extent is no copy: a fill, a function of the host, or memory.
                (kernel_frame(copy.label, profile), What::Transfer, copy.bytes?)
            }
        };
        let api = calling.api(counts, profile);
        let node = self.kernel_node(api, frame, module, profile);
        let recorded = Recorded { node, frame, what, bytes };
        self.graphs.recording_by(calling.at.tid, recorded);
        Some(Answer::Node { graph, recorded })
    }

    /// The host has waited until now: what was launched before cannot have taken longer.
    pub(super) fn bound(&mut self, waited: Waited, entered_ns: u64, end_ns: u64, profile: &mut Profile) {
        let bounded = self.streams.waited(waited, entered_ns);
        let first = bounded.iter().map(|launch| launch.from_ns).min();
        for launch in &bounded {
            profile.tree.add(launch.node, Metric::GpuTimeBound, end_ns.saturating_sub(launch.from_ns));
        }
        if let Some(first) = first {
            let busy = end_ns.saturating_sub(first);
            self.info.busy_at_most_ns = self.info.busy_at_most_ns.saturating_add(busy);
        }
    }
}
