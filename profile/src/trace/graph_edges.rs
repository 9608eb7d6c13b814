//! Edges of graphs: the order of the work within one graph launch.
//!
//! Owns: recorded edges until both ends are known ([`RecordedGraphs`]), and for each work item of a graph the work it
//! waits for ([`GraphWaits`]). Because: a graph is drawn as one stream, but its work runs in parallel where its edges
//! allow: the order of begin times does not show dependencies. Does not: know where edges come from.

use rustc_hash::FxHashMap;

use super::Trace;
use super::basis::Basis;
use super::event::{DeviceOp, GraphEdge};
use super::packed::{Column, PackedColumn};
use super::recorded::RecordedEvent;
use super::wait::{Wait, Waiter};
use crate::intern::Id;

/// Edges as recorded: predecessors are known by their index in the recording, which is the same for all copies of a
/// graph; the device numbers the nodes of each copy.
#[derive(Debug, Default)]
pub(super) struct RecordedGraphs {
    /// Indices of nodes in recordings.
    places: FxHashMap<u64, u64>,
    /// By node: indices of its predecessors.
    after: FxHashMap<u64, Vec<(u64, Basis)>>,
}

impl RecordedGraphs {
    /// Work of a graph ran.
    pub(super) fn ran(&mut self, work: &RecordedEvent) {
        if work.graph_node != 0 && work.position != 0 {
            self.places.insert(work.graph_node, work.position);
        }
    }

    /// An edge.
    pub(super) fn edge(&mut self, edge: &RecordedEvent) {
        let basis = edge.cause.map_or(Basis::Inferred, |cause| cause.basis);
        let after = self.after.entry(edge.graph_node).or_default();
        if !after.contains(&(edge.position, basis)) {
            after.push((edge.position, basis));
        }
    }

    /// Adds the edges to a trace: nodes of one copy run in one launch.
    pub(super) fn note(mut self, trace: &mut Trace) {
        let mut edges = Vec::new();
        self.after.retain(|&to, after| {
            if let [(0, basis)] = after[..] {
                edges.push(GraphEdge { from: 0, to, basis });
            }
            after.iter().all(|(place, _)| *place != 0)
        });
        let ran = trace.device.iter().map(|(_, op)| (op.correlation, op.graph_node));
        let mut ran: Vec<(u64, u64)> =
            ran.filter(|(launch, node)| *launch != 0 && self.places.contains_key(node)).collect();
        ran.sort_unstable();
        for launch in ran.chunk_by(|(a, _), (b, _)| a == b) {
            if self.after.is_empty() {
                break;
            }
            let by_place: FxHashMap<u64, u64> =
                launch.iter().filter_map(|(_, node)| Some((*self.places.get(node)?, *node))).collect();
            for (_, to) in launch {
                let Some(after) = self.after.get_mut(to) else { continue };
                after.retain(|(place, basis)| match by_place.get(place) {
                    Some(&from) => {
                        edges.push(GraphEdge { from, to: *to, basis: *basis });
                        false
                    }
                    None => true,
                });
                if after.is_empty() {
                    self.after.remove(to);
                }
            }
        }
        edges.sort_by_key(|edge| (edge.to, edge.from));
        edges.into_iter().for_each(|edge| _ = trace.graph_edges.push(edge));
    }
}

/// What is known about the order of work within its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphOrder {
    /// Nothing, or it belongs to no graph.
    Unknown,
    /// It comes after no other work of its graph.
    First,
    /// It comes after this predecessor, the one that ended last.
    After(Wait),
}

/// The wait of each operation of a graph.
#[derive(Clone, Debug, Default)]
pub(super) struct GraphWaits(PackedColumn);

/// Words of [`GraphWaits`]: unknown, first, and from here on three for each operation, by basis.
const FIRST: u64 = 1;
const AFTER: u64 = 2;
const BASES: [Basis; 3] = [Basis::Exact, Basis::ByOrder, Basis::Inferred];

impl GraphWaits {
    /// Finds the waits; a trace without edges needs no memory.
    pub(super) fn of(trace: &Trace) -> Self {
        let mut waits = GraphWaits::default();
        if trace.graph_edges.is_empty() {
            return waits;
        }
        let mut after: FxHashMap<u64, Vec<(u64, Basis)>> = FxHashMap::default();
        for (_, edge) in trace.graph_edges.iter() {
            after.entry(edge.to).or_default().push((edge.from, edge.basis));
        }
        let work = trace.device.iter().filter(|(_, op)| op.graph_node != 0 && op.correlation != 0);
        let mut work: Vec<(u64, u64, Id<DeviceOp>)> =
            work.map(|(id, op)| (op.correlation, op.graph_node, id)).collect();
        work.sort_unstable();
        let of = |launch: u64, node: u64| {
            let at = work.partition_point(|(of, number, _)| (*of, *number) < (launch, node));
            work.get(at).filter(|(of, number, _)| (*of, *number) == (launch, node)).map(|(.., id)| *id)
        };
        for (id, op) in trace.device.iter() {
            let word = match after.get(&op.graph_node).filter(|_| op.correlation != 0) {
                None => 0,
                Some(before) if before.iter().all(|(from, _)| *from == 0) => FIRST,
                Some(before) => {
                    let ends = before.iter().map(|(from, basis)| {
                        let on = of(op.correlation, *from).filter(|on| *on != id)?;
                        Some((trace.device.get(on)?.end(), on, *basis))
                    });
                    // If work is missing, it may have been the last.
                    let last = ends.collect::<Option<Vec<_>>>();
                    let last = last.and_then(|ends| ends.into_iter().max_by_key(|(end, on, _)| (*end, *on)));
                    last.map_or(0, |(_, on, basis)| AFTER + 3 * u64::from(on.number()) + basis as u64)
                }
            };
            waits.0.add(word);
        }
        waits
    }

    /// The order of an operation, as far as known.
    pub(super) fn get(&self, op: Id<DeviceOp>) -> GraphOrder {
        if op.index() >= Column::<u64>::count(&self.0) {
            return GraphOrder::Unknown;
        }
        match Column::<u64>::at(&self.0, op.index()) {
            0 => GraphOrder::Unknown,
            FIRST => GraphOrder::First,
            word => {
                let (on, basis) = ((word - AFTER) / 3, (word - AFTER) % 3);
                let on = Id::from_number(on as u32);
                GraphOrder::After(Wait { waiter: Waiter::Device(op), on, basis: BASES[basis as usize] })
            }
        }
    }

    /// Every wait.
    pub(super) fn iter(&self) -> impl Iterator<Item = Wait> + '_ {
        let ops = (0..Column::<u64>::count(&self.0) as u32).map(Id::from_number);
        ops.filter_map(|op| match self.get(op) {
            GraphOrder::After(wait) => Some(wait),
            GraphOrder::Unknown | GraphOrder::First => None,
        })
    }
}
