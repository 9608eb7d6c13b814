//! Calls: how each library call changes the profile and the state that later calls depend on.
//!
//! Owns: routing a call to the handler of its group, and a return to the state that waits for it. Because: earlier
//! calls supply what is needed to name, bound and place a launch. Does not: know activities ([`super::activities`]).
//!
//! | group | file |
//! |---|---|
//! | [`GpuCall::Launch`] | `launch.rs` |
//! | [`GpuCall::Graph`] | `graph.rs` |
//! | [`GpuCall::Transfer`] | `transfer.rs` |
//! | [`GpuCall::Collective`] | `collective.rs` |
//! | [`GpuCall::Memory`] | `memory.rs` |
//! | [`GpuCall::Sync`], [`GpuCall::Stream`] | `sync.rs` |
//! | [`GpuCall::Module`] | `module.rs` |
//! | [`GpuCall::Context`] | `context.rs` |

mod api_call;
mod collective;
mod context;
mod graph;
mod launch;
mod memory;
mod module;
mod pending;
mod sync;
mod transfer;
mod work;

use deepctx_common::call::{Return, return_flag};
use deepctx_events::{
    ContextCall, CuptiEvent, Event, GpuCall, GraphCall, MemoryCall, ModuleCall, Role, Timing, TransferCall,
};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::trace::RecordedKind;

use super::communicators::Exchange;
use super::counts::{Counts, Gap, UnmatchedRecord};
use super::foreign_collection;
use super::process::Process;
use super::recorder::{self, RecordedCall, Recorder};
use super::{Gpu, TimedCall};
use api_call::ApiCall;
use pending::ReturnedCall;
pub(super) use pending::{Outcome, PendingCall, ReturnAction};
pub(super) use sync::blocked;

impl Gpu {
    /// A call: its effects, and its context if it has figures.
    pub(crate) fn call(&mut self, at: &TimedCall<'_>, profile: &mut Profile) {
        let site = self.sites.site(&at.arguments, profile);
        let Some(event) = site.event else {
            self.counts.gap(Gap::SiteUnknown, 1);
            return;
        };
        let Self { sites, processes, counts, recorder, .. } = self;
        let Some(process) = processes.get_mut(at.pid) else {
            counts.gap(Gap::StateFull, 1);
            return;
        };
        process.node.get_or_insert_with(|| profile.tree.node(at.thread).parent);
        process.graphs.next_call_of(at.tid);
        let number = at.arguments.call.site;
        let given = sites.given(&at.arguments);
        let mut call = ApiCall::new(at, site, given, sites.symbol(number), sites.returns(number));
        let outcome = match event {
            Event::Gpu(gpu) => {
                let exchange = process.exchange(gpu, &call);
                if let Some(recorder) = recorder {
                    process.record_call(gpu, exchange, &mut call, recorder, counts, profile);
                }
                process.gpu_call(gpu, &mut call, counts, profile)
            }
            Event::Cupti(cupti) => {
                let kernels = given.get(Role::Kind).is_some_and(foreign_collection::reports_kernels);
                return self.cupti_call(cupti, kernels, at.pid, profile);
            }
            Event::User => {
                user_call(&mut call, counts, profile);
                Outcome::default()
            }
            // Calls of other stages.
            Event::Autograd(_)
            | Event::Range(_)
            | Event::Tensor(_)
            | Event::Operator(_)
            | Event::OpenMp(_)
            | Event::Xla(_) => Outcome::default(),
        };
        self.keep(outcome, at, profile);
    }

    /// Keeps the state of a call until its return and its activities come.
    fn keep(&mut self, outcome: Outcome, at: &TimedCall<'_>, profile: &mut Profile) {
        if let Some(action) = outcome.on_return {
            let pending = PendingCall { pid: at.pid, tid: at.tid, entered_ns: at.time_ns, action };
            if self.pending.put(at.time_ns, at.number, pending).is_some() {
                self.counts.gap(Gap::ReturnMissing, 1);
            }
        }
        if let Some(work) = outcome.launched
            && let Some(oldest) = self.work.put(at.time_ns, at.number, work)
        {
            self.expire_work(oldest, Gap::Expired, profile);
        }
    }

    /// Another tool uses CUPTI. `kernels`: the call concerns records of kernels.
    fn cupti_call(&mut self, event: CuptiEvent, kernels: bool, pid: u32, profile: &mut Profile) {
        match event {
            CuptiEvent::KindOn if kernels => {
                // Earlier records belong to an earlier collection.
                self.settle(pid, u64::MAX, profile);
                if let Some(process) = self.processes.get_mut(pid) {
                    process.foreign.on_begin();
                }
            }
            CuptiEvent::KindOff if kernels => {
                if let Some(process) = self.processes.get_mut(pid) {
                    process.foreign.on_end();
                }
            }
            _ => {}
        }
    }

    /// A call returned.
    pub(crate) fn returned(&mut self, record: &Return, profile: &mut Profile) {
        self.sites.returned(record.site);
        if let Some(recorder) = &mut self.recorder {
            recorder.returned(record.call, record.result as u32, record.header.time_ns);
        }
        let Some(pending) = self.pending.take(record.call) else {
            match Event::from_number(record.event) {
                Some(Event::Gpu(call)) if needs_return(call) => {
                    self.counts.unmatched(UnmatchedRecord::ReturnWithoutCall);
                }
                _ => self.counts.merged(),
            }
            return;
        };
        self.counts.merged();
        let Some(process) = self.processes.get_mut(pending.pid) else { return };
        // All of these libraries return 0 for success, in 32 bits.
        let done = record.result as u32 == 0;
        let returned = ReturnedCall {
            tid: pending.tid,
            entered_ns: pending.entered_ns,
            end_ns: record.header.time_ns,
            done,
            out: Some(record.out).filter(|_| done && record.flags & return_flag::OUT != 0),
        };
        if !process.call_returned(pending.action, &returned, profile) {
            self.counts.gap(Gap::StateFull, 1);
        }
    }
}

impl Process {
    /// Records a call that gives work or waits, before it changes the state of its stream.
    fn record_call(
        &self,
        gpu: GpuCall,
        exchange: Option<Exchange>,
        call: &mut ApiCall<'_>,
        recorder: &mut Recorder,
        counts: &mut Counts,
        profile: &mut Profile,
    ) {
        let kind = exchange.map(|_| RecordedKind::Collective).or_else(|| recorder::kind_of(gpu));
        let Some(kind) = kind else { return };
        if !recorder.takes(kind, call.at.pid, call.at.time_ns) {
            return;
        }
        let stream = call.target(self).stream;
        recorder.called(&RecordedCall {
            kind,
            number: call.at.number,
            time_ns: call.at.time_ns,
            pid: call.at.pid,
            tid: call.at.tid,
            node: call.node(counts, profile),
            stream,
            object: recorder::object_role(kind).and_then(|role| call.given.get(role)).unwrap_or(0),
            is_captured: self.streams.capture(stream).is_some(),
            exchange: exchange.map(|exchange| (exchange, call.exchanged_bytes())),
        });
    }

    fn gpu_call(
        &mut self,
        gpu: GpuCall,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Outcome {
        match gpu {
            GpuCall::Launch(launch) => return self.launch(launch, call, counts, profile),
            GpuCall::Graph(graph) => return self.graph(graph, call, counts, profile),
            GpuCall::Transfer(transfer) => return self.transfer(transfer, call, counts, profile),
            GpuCall::Memory(memory) => return self.memory(memory, call, counts, profile),
            GpuCall::Sync(scope) => return self.sync(scope, call, counts, profile),
            GpuCall::Module(module) => return self.module(module, call, counts, profile),
            GpuCall::Context(context) => return self.context_call(context, call),
            GpuCall::Stream(stream) => self.stream(stream, call, counts),
            GpuCall::Collective(collective) => return self.collective(collective, call, counts, profile),
            // This call has no figures, and nothing depends on it.
            GpuCall::HostFunction => {}
        }
        Outcome::default()
    }

    /// A call has returned. False if there is no room for its result.
    fn call_returned(
        &mut self,
        action: ReturnAction,
        returned: &ReturnedCall,
        profile: &mut Profile,
    ) -> bool {
        match action {
            ReturnAction::Module(action) => return self.module_returned(action, returned),
            ReturnAction::Alloc(alloc) => return self.allocated(&alloc, returned, profile),
            ReturnAction::Sync { node, waited } => self.synchronized(node, waited, returned, profile),
            ReturnAction::Launch { node } => {
                let took_ns = returned.end_ns.saturating_sub(returned.entered_ns);
                profile.tree.add(node, Metric::LaunchTime, took_ns);
            }
            ReturnAction::Graph(action) => self.graph_returned(action, returned),
            ReturnAction::Context { current } => self.context_returned(current, returned),
            ReturnAction::Communicator(made) => {
                return returned.out.is_none_or(|handle| self.communicators.made(handle, made));
            }
        }
        true
    }
}

/// A call of a function listed by the user.
fn user_call(call: &mut ApiCall<'_>, counts: &mut Counts, profile: &mut Profile) {
    let node = call.node(counts, profile);
    if let Some(bytes) = call.given.get(Role::Bytes) {
        profile.tree.add(node, Metric::CopyBytes, bytes);
    }
    profile.tree.add(node, Metric::Calls, 1);
}

/// Whether the effect of such a call depends on its return.
fn needs_return(call: GpuCall) -> bool {
    match call {
        GpuCall::Transfer(TransferCall::Copy(_, timing) | TransferCall::Fill(_, timing)) => {
            timing == Timing::Blocking
        }
        GpuCall::Sync(_)
        | GpuCall::Memory(MemoryCall::Alloc(_))
        | GpuCall::Module(
            ModuleCall::FunctionByName
            | ModuleCall::FunctionOfKernel
            | ModuleCall::KernelOfStub
            | ModuleCall::FunctionOfStub,
        )
        | GpuCall::Graph(
            GraphCall::Instantiate
            | GraphCall::Update
            | GraphCall::Clone
            | GraphCall::Node
            | GraphCall::NodeWithoutWork
            | GraphCall::AddDependencies,
        )
        | GpuCall::Context(ContextCall::Create) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
