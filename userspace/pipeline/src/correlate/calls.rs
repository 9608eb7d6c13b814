//! Calls: what each call of a library does to the profile and to what later calls build on.
//!
//! Owns: one arm for each kind of call and of return. Because: a launch can only be named, bounded and placed by what the
//! calls before it said. Does not: know activities ([`super::activities`]).

use std::iter;

use deepctx_common::call::{Return, return_flag};
use deepctx_profile::activity::{Join, Tier};
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Time;
use deepctx_uprobes::event::{Event, Memory as MemoryKind, Scope, Timing};
use deepctx_uprobes::role::Role;

use super::counts::{Gap, Useless};
use super::kernels::{UNNAMED, kernel_frame};
use super::launches::Calling;
use super::memory::{self, Range};
use super::names::Named;
use super::process::{Answer, Asked, Work, WorkKind};
use super::streams::Waited;
use super::{CallAt, Correlate, borrowed, transfer};

impl Correlate {
    /// A call: its effects, and its place in the tree where it has any figures.
    pub(crate) fn call(&mut self, at: &CallAt<'_>, profile: &mut Profile) {
        let site = self.sites.site(&at.arguments, profile);
        let Some(event) = site.event else {
            self.counts.gap(Gap::SiteUnknown, 1);
            return;
        };
        let Self { sites, processes, ended, counts, work, answers, .. } = self;
        let Some(process) = processes.get_or_make(at.pid, at.time_ns, ended) else {
            counts.gap(Gap::StateFull, 1);
            return;
        };
        process.node.get_or_insert_with(|| profile.tree.node(at.thread).parent);
        process.graphs.next_call_of(at.tid);
        let given = sites.given(&at.arguments);
        let (symbol, returns) = (sites.symbol(at.arguments.call.site), sites.returns(at.arguments.call.site));
        let mut calling = Calling { at, site, given, api: None };
        let mut asked = None;
        let mut launched = None;
        let mut borrows = false;
        match event {
            Event::Launch
            | Event::LaunchEx
            | Event::LaunchCooperative
            | Event::LaunchMultiDevice
            | Event::LaunchLegacy
            | Event::LaunchFunction
            | Event::LaunchGlobal => {
                launched = process.launch(event, &mut calling, counts, profile);
            }
            Event::GraphLaunch => launched = process.graph_launch(&mut calling, counts, profile),
            Event::Copy(direction, timing) => {
                let known = process.host_memory_known();
                let copy = transfer::copy(direction, &given, &process.memory, known);
                launched = process.transfer(copy.bytes, copy.label, &mut calling, counts, profile);
                if timing == Timing::Blocking {
                    let stream = calling.target(process).stream;
                    let waited = copy.to_host.then_some(Waited::Stream(stream));
                    asked = Some(Answer::Sync { node: calling.api(counts, profile), waited });
                }
            }
            Event::Fill(element, timing) => {
                let bytes = transfer::fill_bytes(element, &given);
                launched = process.transfer(bytes, "memset", &mut calling, counts, profile);
                if timing == Timing::Blocking {
                    asked = Some(Answer::Sync { node: calling.api(counts, profile), waited: None });
                }
            }
            Event::Prefetch => {
                let bytes = given.get(Role::Bytes);
                launched = process.transfer(bytes, "prefetch", &mut calling, counts, profile);
            }
            Event::Alloc(kind) => {
                let bytes = given
                    .get(Role::Bytes)
                    .or_else(|| Some(given.get(Role::Width)?.saturating_mul(given.get(Role::Height)?)));
                let by_address = matches!(kind, MemoryKind::Registered | MemoryKind::Mapped);
                let address = given.get(Role::Address).filter(|_| by_address);
                let node = calling.api(counts, profile);
                asked = Some(Answer::Alloc { bytes: bytes.unwrap_or(0), kind, node, address });
            }
            Event::Free(kind) => process.free(kind, &mut calling, counts, profile),
            Event::Sync(scope) => {
                let waited = match scope {
                    Scope::Stream => Some(Waited::Stream(calling.target(process).stream)),
                    Scope::Event => process.streams.event(given.get(Role::Event).unwrap_or(0)),
                    Scope::Context | Scope::Device => {
                        let context = given.get(Role::Context).filter(|context| *context != 0);
                        Some(Waited::Context(context.unwrap_or(process.context(at.tid))))
                    }
                };
                asked = Some(Answer::Sync { node: calling.api(counts, profile), waited });
            }
            Event::Collective(_) => {
                let bytes = transfer::collective_bytes(site.family, &given).unwrap_or(0);
                let node = calling.api(counts, profile);
                profile.tree.add(node, Metric::CollectiveBytes, bytes);
            }
            Event::FunctionByName => {
                asked = calling
                    .kernel(profile)
                    .map(|frame| Answer::Name { frame, module: given.get(Role::Module).unwrap_or(0) });
            }
            Event::FunctionOfKernel | Event::KernelOfStub | Event::FunctionOfStub => {
                asked = given.get(Role::Function).map(|of| Answer::Alias { of });
            }
            Event::FunctionStub => {
                let named = calling.kernel(profile).zip(given.get(Role::Function));
                let module = given.get(Role::Module).unwrap_or(0);
                if let Some((frame, stub)) = named
                    && !process.names.name(stub, Named::told(frame, module))
                {
                    counts.gap(Gap::StateFull, 1);
                }
            }
            Event::ModuleUnload | Event::FatBinaryUnload => {
                let module = given.get(Role::Module).unwrap_or(0);
                process.names.unload(module);
                process.origins.unload(module);
            }
            Event::EventRecord => {
                let stream = calling.target(process).stream;
                let event = given.get(Role::Event).unwrap_or(0);
                if !process.streams.recorded(event, stream) {
                    counts.gap(Gap::StateFull, 1);
                }
            }
            Event::StreamWait => {
                let stream = calling.target(process).stream;
                process.streams.waits(stream, given.get(Role::Event).unwrap_or(0), at.time_ns);
            }
            Event::StreamDestroy => process.streams.destroyed(calling.target(process).stream),
            Event::CaptureBegin => {
                let stream = calling.target(process).stream;
                process.streams.capture_begins(stream);
            }
            Event::CaptureEnd => {
                let stream = calling.target(process).stream;
                asked =
                    process.streams.capture_ends(stream).map(|recording| Answer::CaptureEnd { recording });
            }
            Event::GraphInstantiate => {
                asked = given.get(Role::Graph).map(|graph| Answer::Instantiate { graph });
            }
            Event::GraphClone => asked = given.get(Role::Graph).map(|of| Answer::Clone { of }),
            Event::GraphUpdate => {
                if let (Some(launchable), Some(graph)) = (given.get(Role::GraphExec), given.get(Role::Graph))
                {
                    process.graphs.updated(launchable, graph);
                }
            }
            Event::GraphRelease => process.graphs.released(given.get(Role::GraphExec).unwrap_or(0)),
            Event::GraphNode => asked = process.graph_node(&mut calling, counts, profile),
            Event::ContextCreate => {
                // Whoever retains the primary context has yet to choose it.
                let current = !symbol.contains("PrimaryCtxRetain");
                asked = Some(Answer::Context { current });
            }
            Event::ContextCurrent => {
                // What is pushed will be popped by a call that is not watched.
                let context = given.get(Role::Context).filter(|_| !symbol.contains("Push"));
                process.choose_context(at.tid, context.unwrap_or(0));
            }
            Event::User => {
                let node = calling.api(counts, profile);
                if let Some(bytes) = given.get(Role::Bytes) {
                    profile.tree.add(node, Metric::CopyBytes, bytes);
                }
                profile.tree.add(node, Metric::Calls, 1);
            }
            Event::ActivityKindOn => borrows = given.get(Role::Kind).is_some_and(borrowed::tells_kernels),
            Event::ActivityKindOff if given.get(Role::Kind).is_some_and(borrowed::tells_kernels) => {
                process.borrowing_ends();
            }
            // They have no figures, and nothing builds on them.
            Event::HostFunction
            | Event::GraphUpload
            | Event::StreamCreate
            | Event::StreamValue
            | Event::ModuleLoad
            | Event::ModuleOfLibrary
            | Event::FunctionList
            | Event::ProcAddress
            | Event::FatBinary
            | Event::ContextDestroy
            | Event::DeviceCurrent
            | Event::GroupBegin
            | Event::GroupEnd
            | Event::CommunicatorCreate
            | Event::CommunicatorDestroy
            | Event::ActivityClient
            | Event::ActivityClientGone
            | Event::ActivityCallbacks
            | Event::ActivityKindOff
            | Event::ActivityFlush
            | Event::ActivityRecord
            | Event::StepCreated
            | Event::StepBegins
            | Event::BackwardBegins
            | Event::RangeNamed
            | Event::RangeBegins
            | Event::RangeEnds
            | Event::RangePushed
            | Event::RangePopped
            | Event::ProfilerStart
            | Event::ProfilerStop
            | Event::StepMarked
            | Event::TensorAlloc
            | Event::TensorFree
            | Event::TensorReport
            | Event::TensorRequest
            | Event::OperatorBegins
            | Event::OperatorNamed
            | Event::OperatorTensors
            | Event::TeamBegins
            | Event::ThunkBegins => {}
        }
        if asked.is_none() && returns && (event.is_launch() || event == Event::GraphLaunch) {
            asked = Some(Answer::Launch { node: calling.api(counts, profile) });
        }
        if let Some(answer) = asked {
            let asked = Asked { pid: at.pid, tid: at.tid, entered_ns: at.time_ns, answer };
            if answers.put(at.time_ns, at.number, asked).is_some() {
                counts.gap(Gap::ReturnMissing, 1);
            }
        }
        if let Some(one) = launched
            && let Some(gone) = work.put(at.time_ns, at.number, one)
        {
            self.given_up(gone, Gap::Expired, profile);
        }
        if borrows {
            // What came before belongs to an earlier collection.
            self.settle(at.pid, u64::MAX, profile);
            if let Some(process) = self.processes.get_mut(at.pid) {
                process.borrowing_begins();
            }
        }
    }

    /// A call returned.
    pub(crate) fn returned(&mut self, record: &Return, profile: &mut Profile) {
        self.sites.returned(record.site);
        let Some(Asked { pid, tid, entered_ns, answer }) = self.answers.take(record.call) else {
            match Event::from_number(record.event) {
                Some(event) if asks(event) => self.counts.useless(Useless::ReturnWithoutCall),
                _ => self.counts.merged(),
            }
            return;
        };
        self.counts.merged();
        let Some(process) = self.processes.get_mut(pid) else { return };
        let counts = &mut self.counts;
        let end_ns = record.header.time_ns;
        // All of these libraries return 0 for success, in 32 bits.
        let done = record.result as u32 == 0;
        let out = Some(record.out).filter(|_| done && record.flags & return_flag::OUT != 0);
        let fits = match answer {
            Answer::Name { frame, module } => {
                out.is_none_or(|handle| process.names.name(handle, Named::told(frame, module)))
            }
            Answer::Alias { of } => out.is_none_or(|handle| process.names.alias(handle, of)),
            Answer::Alloc { bytes, kind, node, address } => match address.filter(|_| done).or(out) {
                Some(address) => {
                    if memory::counts(kind) {
                        profile.tree.add(node, Metric::AllocBytes, bytes);
                    }
                    process.memory.allocated(address, Range { bytes, kind, node })
                }
                None => true,
            },
            Answer::Sync { node, waited } => {
                blocked(node, (entered_ns, end_ns), profile);
                if let Some(waited) = waited.filter(|_| done) {
                    process.bound(waited, entered_ns, end_ns, profile);
                }
                true
            }
            Answer::Launch { node } => {
                profile.tree.add(node, Metric::LaunchTime, end_ns.saturating_sub(entered_ns));
                true
            }
            Answer::CaptureEnd { recording } => {
                process.graphs.recorded(recording, out.unwrap_or(0));
                true
            }
            Answer::Instantiate { graph } => {
                if let Some(launchable) = out {
                    process.graphs.instantiated(launchable, graph);
                }
                true
            }
            Answer::Clone { of } => {
                if let Some(graph) = out {
                    process.graphs.cloned(graph, of);
                }
                true
            }
            Answer::Node { graph, recorded } => {
                if done {
                    process.graphs.add(graph, recorded);
                }
                true
            }
            Answer::Context { current } => {
                process.context_seen |= out.is_some();
                if let Some(context) = out.filter(|_| current) {
                    process.choose_context(tid, context);
                }
                true
            }
        };
        if !fits {
            counts.gap(Gap::StateFull, 1);
        }
    }

    /// Work that will get no more activities: what is known of it is entered, what is missing is counted.
    pub(super) fn given_up(&mut self, work: Work, why: Gap, profile: &mut Profile) {
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
            // Another tool's collection was begun, and nothing came of it that could be read.
        } else if work.seen == 0 {
            let gap = match why {
                Gap::LaunchWithoutActivity if work.correlation == 0 && process.info.join == Join::Exact => {
                    Gap::LaunchWithoutCorrelation
                }
                why => why,
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
}

impl Correlate {
    /// The id of work leads to it no more; ids come again, so it may lead to other work by now.
    pub(super) fn forget_id(&mut self, work: &Work) {
        let key = (work.pid, work.correlation);
        if self.ids.get(&key) == Some(&work.number) {
            self.ids.remove(&key);
        }
    }
}

/// The host was blocked in a call, between two times of `CLOCK_MONOTONIC`: in its context, and on the line of its thread.
pub(super) fn blocked(node: NodeId, (from_ns, to_ns): (u64, u64), profile: &mut Profile) {
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

/// Whether the return of such a call is waited for, if the call was seen.
fn asks(event: Event) -> bool {
    match event {
        Event::Copy(_, timing) | Event::Fill(_, timing) => timing == Timing::Blocking,
        Event::Alloc(_)
        | Event::Sync(_)
        | Event::FunctionByName
        | Event::FunctionOfKernel
        | Event::KernelOfStub
        | Event::FunctionOfStub
        | Event::GraphInstantiate
        | Event::GraphClone
        | Event::GraphNode
        | Event::ContextCreate => true,
        _ => false,
    }
}
