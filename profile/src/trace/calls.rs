//! Calls by the ids that join them with their work.
//!
//! Owns: [`Calls`]. Because: an id should be of one call, but some traces have millions of one id, and each of as many
//! kernels asks for the latest before it. Does not: decide what a link is worth.

use super::basis::Basis;
use super::event::HostOp;
use super::packed::{Column, PackedColumn};
use super::{Trace, TraceTime};
use crate::intern::Id;

/// The calls of a trace, by correlation id, and those of one id by begin.
pub(super) struct Calls {
    correlations: PackedColumn,
    ids: Vec<Id<HostOp>>,
}

impl Calls {
    /// The calls of a trace.
    pub(super) fn of(trace: &Trace) -> Self {
        let calls = trace.host.iter().filter(|(_, op)| op.kind.is_call() && op.correlation != 0);
        let mut calls: Vec<(u64, Id<HostOp>)> = calls.map(|(id, op)| (op.correlation, id)).collect();
        calls.sort_unstable();
        for several in calls.chunk_by_mut(|a, b| a.0 == b.0).filter(|of| of.len() > 1) {
            several.sort_by_key(|(_, id)| trace.host.get(*id).map(|op| op.begin));
        }
        let mut correlations = PackedColumn::default();
        calls.iter().for_each(|(correlation, _)| correlations.add(*correlation));
        Calls { correlations, ids: calls.into_iter().map(|(_, id)| id).collect() }
    }

    /// The least id.
    pub(super) fn least(&self) -> Option<u64> {
        (!self.ids.is_empty()).then(|| self.correlations.at(0))
    }

    /// The call with an id; of several, the latest that began before a time, or else the first: inferred.
    pub(super) fn before(
        &self,
        trace: &Trace,
        correlation: u64,
        at: TraceTime,
    ) -> Option<(Id<HostOp>, Basis)> {
        match self.near(&mut 0, correlation) {
            [] => None,
            [call] => Some((*call, Basis::Exact)),
            several @ [first, ..] => {
                Some((latest_before(trace, several, at).unwrap_or(*first), Basis::Inferred))
            }
        }
    }

    /// The calls with an id, searched around `place` first, which is then updated: work comes in about the order of its
    /// calls.
    pub(super) fn near(&self, place: &mut usize, correlation: u64) -> &[Id<HostOp>] {
        let of = |at: usize| (at < self.ids.len()).then(|| Column::<u64>::at(&self.correlations, at));
        let is_below = |at: usize| of(at).is_some_and(|of| of < correlation);
        let (mut low, mut step) = (*place, 1);
        while low > 0 && !is_below(low - 1) {
            low = low.saturating_sub(step);
            step *= 2;
        }
        let first = first_without(low, is_below);
        let end = first_without(first, |at| of(at) == Some(correlation));
        *place = first;
        &self.ids[first..end]
    }
}

/// The first place that does not hold, of those from `from` on, where all that hold come first.
fn first_without(from: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high, mut step) = (from, from, 1);
    while holds(high) {
        low = high + 1;
        high += step;
        step *= 2;
    }
    // All before `low` hold, and `high` does not.
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Of these calls, which are sorted by begin, the latest that began before.
pub(super) fn latest_before(trace: &Trace, calls: &[Id<HostOp>], at: TraceTime) -> Option<Id<HostOp>> {
    let begin = |id: &Id<HostOp>| trace.host.get(*id).map(|op| op.begin);
    calls.get(calls.partition_point(|id| begin(id) <= Some(at)).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{DeviceKind, DeviceOp, HostKind, Launch, Links, Status};
    use crate::tree::NodeId;
    use crate::units::Nanos;

    /// With a search through all calls of the id for each kernel, this would take minutes.
    #[test]
    fn an_id_of_very_many_calls_is_no_burden() {
        const CALLS: u64 = 100_000;
        let mut trace = Trace::new();
        let (thread, stream) = (trace.thread("1", "1"), trace.stream(0, Some(7)));
        let name = trace.text("cudaLaunchKernel");
        let at = |number: u64| TraceTime::from_nanos(number * 10);
        for number in (0..CALLS).rev() {
            trace.host.push(HostOp {
                thread,
                kind: HostKind::RuntimeCall,
                begin: at(number),
                duration: Nanos(1),
                name,
                correlation: 9,
                status: Status::Unknown,
                context: NodeId::ROOT,
            });
            let begin = at(number) + Nanos(5);
            trace.device.push(DeviceOp::correlated(stream, DeviceKind::Kernel, begin, Nanos(1), name, 9));
        }
        let links = Links::of(&trace);
        for (id, op) in trace.device.iter() {
            let Launch::Ambiguous(call) = links.launch(id) else { panic!("{:?}", links.launch(id)) };
            assert_eq!(trace.host.get(call).unwrap().begin + Nanos(5), op.begin);
        }
    }
}
