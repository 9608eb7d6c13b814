//! Graphs: recorded from streams, built by hand, instantiated and launched.
//!
//! Owns: what calls about graphs change, and what a launch of one runs. Because: a graph is launched without its
//! kernels' names, which the calls that built it gave. Does not: keep graphs ([`super::super::graphs`]).

use std::sync::Arc;

use deepctx_events::{Direction, GraphCall, Role};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::super::counts::{Counts, Gap};
use super::super::foreign_collection::LaunchIdentity;
use super::super::graphs::{NodeKind, RecordedNode};
use super::super::kernels::{UNNAMED, kernel_frame, recorded_below};
use super::super::process::Process;
use super::super::transfer;
use super::super::work::{Work, WorkKind};
use super::api_call::ApiCall;
use super::pending::{GraphReturn, Outcome, ReturnAction, ReturnedCall};

impl Process {
    pub(super) fn graph(
        &mut self,
        graph: GraphCall,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Outcome {
        let source = call.given.get(Role::Graph);
        let launchable = call.given.get(Role::GraphExec);
        let on_return = match graph {
            GraphCall::Launch => return self.launch_graph(call, counts, profile),
            // It has no figures, and nothing builds on it.
            GraphCall::Upload => None,
            GraphCall::CaptureBegin => {
                let stream = call.target(self).stream;
                let recording = self.streams.capture_begins(stream);
                // Nodes of a graph that is there already may come before.
                self.graph_order.begins(stream, recording, source.is_none());
                None
            }
            GraphCall::CaptureEnd => {
                let stream = call.target(self).stream;
                self.streams.capture_ends(stream).map(|recording| {
                    self.graph_order.ends(recording);
                    GraphReturn::Captured { recording }
                })
            }
            GraphCall::Instantiate => source.map(|graph| GraphReturn::Instantiated { graph }),
            GraphCall::Clone => source.map(|of| GraphReturn::Cloned { of }),
            GraphCall::Update => {
                if let (Some(launchable), Some(graph)) = (launchable, source) {
                    self.graphs.updated(launchable, graph);
                }
                None
            }
            GraphCall::Release => {
                self.graphs.released(launchable.unwrap_or(0));
                None
            }
            GraphCall::Node => self.graph_node(call, counts, profile),
        };
        Outcome::on_return(on_return.map(ReturnAction::Graph))
    }

    pub(super) fn graph_returned(&mut self, action: GraphReturn, returned: &ReturnedCall) {
        match action {
            GraphReturn::Captured { recording } => {
                self.graphs.recorded(recording, returned.out.unwrap_or(0));
            }
            GraphReturn::Instantiated { graph } => {
                if let Some(launchable) = returned.out {
                    self.graphs.instantiated(launchable, graph);
                }
            }
            GraphReturn::Cloned { of } => {
                if let Some(graph) = returned.out {
                    self.graphs.cloned(graph, of);
                }
            }
            GraphReturn::NodeAdded { graph, recorded } => {
                if returned.done {
                    self.graphs.add(graph, recorded);
                }
            }
        }
    }

    fn launch_graph(
        &mut self,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Outcome {
        let at = call.at;
        let api = call.node(counts, profile);
        let target = call.target(self);
        let launchable = call.given.get(Role::GraphExec).unwrap_or(0);
        self.info.graph_launches += 1;
        let expected = self.graphs.launchable(launchable).map(|graph| graph.nodes().len() as u32);
        if expected.is_none() {
            counts.gap(Gap::GraphUnknown, 1);
        }
        let counted = !self.has_activities();
        if counted {
            self.enter_graph(launchable, api, profile);
            self.streams.launched(target.stream, target.context, api, at.time_ns);
        }
        let kind = WorkKind::Graph { launchable };
        let work = Work { expected: expected.unwrap_or(0), counted, ..self.work(kind, api, api, at) };
        let launched = self.expect(work, LaunchIdentity::Graph);
        let on_return = call.returns.then_some(ReturnAction::Launch { node: api });
        Outcome { launched, on_return }
    }

    /// Counts what a graph runs, as it was recorded.
    pub(super) fn enter_graph(&mut self, launchable: u64, api: NodeId, profile: &mut Profile) {
        let contexts = self.graph_contexts(launchable, api, profile);
        let Some(graph) = self.graphs.launchable(launchable) else { return };
        for (recorded, node) in graph.nodes().iter().zip(contexts.iter()) {
            match recorded.what {
                NodeKind::Kernel | NodeKind::KernelUnnamed => profile.tree.add(*node, Metric::Kernels, 1),
                NodeKind::Transfer => profile.tree.add(*node, Metric::CopyBytes, recorded.bytes),
            }
        }
    }

    /// The contexts of what a graph runs when it is launched by this call.
    pub(in crate::stages::gpu) fn graph_contexts(
        &mut self,
        launchable: u64,
        api: NodeId,
        profile: &mut Profile,
    ) -> Arc<Vec<NodeId>> {
        let Some(graph) = self.graphs.launchable(launchable) else { return Default::default() };
        graph.contexts(api, |recorded| recorded_below(api, recorded.node, profile))
    }

    /// A node is added by hand: a kernel, or a copy.
    fn graph_node(
        &mut self,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Option<GraphReturn> {
        let given = &call.given;
        let graph = given.get(Role::Graph)?;
        let mut module = 0;
        let (frame, what, bytes) = match given.kernel_handle() {
            Some(handle) => match self.names.get(handle) {
                Some(named) => {
                    module = named.module;
                    (named.frame, NodeKind::Kernel, 0)
                }
                None => (kernel_frame(UNNAMED, profile), NodeKind::KernelUnnamed, 0),
            },
            None => {
                let direction = Direction::ByParameters;
                let copy = transfer::copy(direction, given, &self.memory, self.host_memory_known());
                // What has no extent is no copy: a fill, a function of the host, or memory.
                (kernel_frame(copy.label, profile), NodeKind::Transfer, copy.bytes?)
            }
        };
        let api = call.node(counts, profile);
        let node = self.kernel_node(api, frame, module, profile);
        // What it comes after is in the memory of the program.
        let recorded = RecordedNode { node, frame, what, bytes, order: 0 };
        self.graphs.recording_by(call.at.tid, recorded);
        Some(GraphReturn::NodeAdded { graph, recorded })
    }
}
