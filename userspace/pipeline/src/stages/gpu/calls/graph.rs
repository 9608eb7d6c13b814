//! Graphs: captured from streams, built by hand, instantiated and launched.
//!
//! Owns: how graph calls change graphs, and which work a graph launch runs. Because: a graph launch does not name its
//! kernels; the calls that built the graph did. Does not: store graphs ([`super::super::graphs`]).

use std::sync::Arc;

use deepctx_events::{Direction, GraphCall, Role};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::super::built_graphs::AddedNode;
use super::super::counts::{Counts, Gap};
use super::super::foreign_collection::LaunchIdentity;
use super::super::graphs::{NodeKind, RecordedNode};
use super::super::kernels::{UNNAMED, kernel_frame, recorded_below};
use super::super::process::Process;
use super::super::sites::CallArguments;
use super::super::streams::StreamKey;
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
            // This call has no figures, and nothing depends on it.
            GraphCall::Upload => None,
            GraphCall::CaptureBegin => {
                let stream = call.target(self).stream;
                let recording = self.streams.capture_begins(stream);
                // Nodes of an existing graph may come before.
                self.graph_order.on_begin(stream, recording, source.is_none());
                None
            }
            GraphCall::CaptureEnd => self.capture_ends(call),
            GraphCall::Instantiate => source.map(|graph| {
                self.built_graphs.copied(graph);
                GraphReturn::Instantiated { graph }
            }),
            GraphCall::Clone => source.map(|of| {
                self.built_graphs.copied(of);
                GraphReturn::Cloned { of }
            }),
            GraphCall::Update => launchable.zip(source).map(|(launchable, graph)| {
                self.built_graphs.copied(graph);
                GraphReturn::Updated { launchable, graph }
            }),
            GraphCall::Release => {
                self.released(launchable, source);
                None
            }
            GraphCall::Node => self.graph_node(call, counts, profile),
            GraphCall::NodeWithoutWork => source.map(|graph| {
                let added = self.added_node(call, false);
                GraphReturn::NodeAdded { graph, recorded: None, added }
            }),
            GraphCall::AddDependencies => source.and_then(|graph| self.add_dependencies(graph, call)),
            GraphCall::RemoveDependencies => {
                if let Some(graph) = source {
                    self.order_changes(graph, dependents(call).as_deref());
                }
                None
            }
        };
        Outcome::on_return(on_return.map(ReturnAction::Graph))
    }

    /// A launchable graph or a graph is gone: its handle may come to mean another.
    fn released(&mut self, launchable: Option<u64>, graph: Option<u64>) {
        if let Some(launchable) = launchable {
            self.graphs.released(launchable);
        }
        if let Some(graph) = graph {
            self.graphs.destroyed(graph);
            self.built_graphs.replaced(graph);
        }
    }

    fn capture_ends(&mut self, call: &ApiCall<'_>) -> Option<GraphReturn> {
        let stream = call.target(self).stream;
        let recording = self.streams.capture_ends(stream)?;
        self.graph_order.on_end(recording);
        Some(GraphReturn::Captured { recording })
    }

    pub(super) fn graph_returned(&mut self, action: GraphReturn, returned: &ReturnedCall) {
        match action {
            GraphReturn::Captured { recording } => {
                let graph = returned.out.unwrap_or(0);
                self.built_graphs.replaced(graph);
                self.graphs.recorded(recording, graph);
            }
            GraphReturn::Instantiated { graph } => {
                if let Some(launchable) = returned.out {
                    self.graphs.instantiated(launchable, graph);
                }
            }
            GraphReturn::Updated { launchable, graph } => {
                if returned.done {
                    self.graphs.updated(launchable, graph);
                }
            }
            GraphReturn::Cloned { of } => {
                if let Some(graph) = returned.out {
                    self.built_graphs.replaced(graph);
                    self.graphs.cloned(graph, of);
                }
            }
            GraphReturn::NodeAdded { graph, recorded, added } => {
                if let Some(recorded) = recorded.filter(|_| returned.done) {
                    self.graphs.add(graph, recorded);
                }
                if let Some(handle) = returned.out {
                    self.built_graphs.add(graph, handle, added);
                }
            }
            GraphReturn::Connected { graph, edges } => {
                if returned.done && !self.built_graphs.connect(graph, edges.into_iter()) {
                    self.order_changes(graph, None);
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
        let on_return = call.returns.then_some(ReturnAction::Launch { node: api });
        let expected = self.graphs.launchable(launchable).map(|graph| graph.nodes().len() as u32);
        if expected.is_none() {
            counts.gap(Gap::GraphUnknown, 1);
        }
        if let Some(recording) = self.streams.capture(target.stream) {
            self.record_graph(recording, target.stream, launchable);
            let launched = self.collecting.then(|| self.work(WorkKind::Recorded, api, api, at));
            return Outcome { launched, on_return };
        }
        self.info.graph_launches += 1;
        let counted = !self.has_activities();
        if counted {
            self.enter_graph(launchable, api, profile);
            self.streams.launched(target.stream, target.context, api, at.time_ns);
        }
        let kind = WorkKind::Graph { launchable };
        let work = Work { expected: expected.unwrap_or(0), counted, ..self.work(kind, api, api, at) };
        let launched = self.expect(work, LaunchIdentity::Graph);
        Outcome { launched, on_return }
    }

    /// The stream records a graph: the nodes of a launched one become nodes of it.
    fn record_graph(&mut self, recording: u64, stream: StreamKey, launchable: u64) {
        self.info.captured += 1;
        let nodes = self.graphs.launchable(launchable).map_or_else(Vec::new, |graph| graph.nodes().to_vec());
        for node in nodes {
            self.graphs.record(recording, RecordedNode { order: 0, ..node });
        }
        // What follows comes after nodes that have no number.
        self.graph_order.on_begin(stream, recording, false);
    }

    /// Counts the nodes of a graph, as recorded.
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

    /// The contexts of a graph's nodes when this call launches it.
    pub(in crate::stages::gpu) fn graph_contexts(
        &mut self,
        launchable: u64,
        api: NodeId,
        profile: &mut Profile,
    ) -> Arc<Vec<NodeId>> {
        let Some(graph) = self.graphs.launchable(launchable) else { return Default::default() };
        graph.contexts(api, |recorded| recorded_below(api, recorded.node, profile))
    }

    /// A node with work is added by hand.
    fn graph_node(
        &mut self,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Option<GraphReturn> {
        let graph = call.given.get(Role::Graph)?;
        if call.given.get(Role::NodeKind).is_some_and(has_no_work) {
            let added = self.added_node(call, false);
            return Some(GraphReturn::NodeAdded { graph, recorded: None, added });
        }
        let (frame, module, what, bytes) = self.node_work(&call.given, profile)?;
        let api = call.node(counts, profile);
        let node = self.kernel_node(api, frame, module, profile);
        let added = self.added_node(call, true);
        let recorded = RecordedNode { node, frame, what, bytes, order: added.order };
        self.graphs.recording_by(call.at.tid, recorded);
        Some(GraphReturn::NodeAdded { graph, recorded: Some(recorded), added })
    }

    /// The work of a node: its name, the module of its code, and bytes moved. `None` if the call does not show it.
    fn node_work(
        &self,
        given: &CallArguments<'_>,
        profile: &mut Profile,
    ) -> Option<(FrameId, u64, NodeKind, u64)> {
        if let Some(handle) = given.kernel_handle() {
            return Some(match self.names.get(handle) {
                Some(named) => (named.frame, named.module, NodeKind::Kernel, 0),
                None => (kernel_frame(UNNAMED, profile), 0, NodeKind::KernelUnnamed, 0),
            });
        }
        if let Some(bytes) = transfer::node_fill_bytes(given) {
            return Some((kernel_frame("memset", profile), 0, NodeKind::Transfer, bytes));
        }
        let copy = transfer::copy(Direction::ByParameters, given, &self.memory, self.host_memory_known());
        Some((kernel_frame(copy.label, profile), 0, NodeKind::Transfer, copy.bytes?))
    }

    /// A node that is added by hand, with its predecessors.
    fn added_node(&mut self, call: &ApiCall<'_>, works: bool) -> AddedNode {
        let given = &call.given;
        let after = given.get(Role::Count).filter(|_| edges_are_full(given));
        let after = after.and_then(|count| given.first(Role::Dependency, count));
        AddedNode { order: self.graph_order.number(), works, after }
    }

    /// Edges between nodes of a graph are added.
    fn add_dependencies(&mut self, graph: u64, call: &ApiCall<'_>) -> Option<GraphReturn> {
        let before = call.given.get(Role::Count).and_then(|count| call.given.first(Role::Dependency, count));
        match before.zip(dependents(call)).filter(|_| edges_are_full(&call.given)) {
            Some((before, after)) => {
                Some(GraphReturn::Connected { graph, edges: before.into_iter().zip(after).collect() })
            }
            None => {
                self.order_changes(graph, dependents(call).as_deref());
                None
            }
        }
    }

    /// The predecessors of these nodes, by handle, change; `None` if the nodes are unknown.
    fn order_changes(&mut self, graph: u64, nodes: Option<&[u64]>) {
        if nodes.is_some_and(|nodes| self.built_graphs.disconnect(graph, nodes)) {
            return;
        }
        self.built_graphs.disconnect_all(graph);
        self.graphs.orders(graph).into_iter().for_each(|number| self.graph_order.forget(number));
    }
}

/// Whether a kind of node (`CUgraphNodeType`) gives a device no work and takes none of its time: host functions, empty
/// nodes, event records, memory.
const fn has_no_work(kind: u64) -> bool {
    matches!(kind, 3 | 5 | 7 | 10 | 11)
}

/// Whether successors wait for the end of a node: the call describes its edges no further.
fn edges_are_full(given: &CallArguments<'_>) -> bool {
    given.get(Role::EdgeData).is_none_or(|data| data == 0)
}

/// Handles of the nodes that get predecessors; `None` if they were not all read.
fn dependents(call: &ApiCall<'_>) -> Option<Vec<u64>> {
    call.given.first(Role::Dependent, call.given.get(Role::Count)?)
}
