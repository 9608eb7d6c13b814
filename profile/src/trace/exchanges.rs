//! Exchanges: matching the collectives of a recording with the device work that runs them.
//!
//! Owns: [`Exchanges`], the collectives of a process until its work is known. Because: a collective call ends in a
//! launch of the library's own kernel, which does not say what it exchanges; the work launched within the call is the
//! collective. Does not: guess: for several collectives issued together at the end of their group, as many kernels as
//! collectives match in order, and a single kernel is all of them.

use rustc_hash::FxHashMap;

use super::event::{CollectiveNote, DeviceOp, Thread};
use super::recorded::RecordedExchange;
use super::{Trace, TraceTime};
use crate::intern::{Id, StrId};

/// A call of a thread, as far as collectives are concerned.
#[derive(Clone, Copy, Debug)]
enum NcclCall {
    Collective { operation: StrId, exchange: RecordedExchange },
    GroupBegins,
    GroupEnds,
}

/// Collectives issued together: launches between two times on a thread run them.
#[derive(Debug)]
struct Issue {
    begin: TraceTime,
    end: TraceTime,
    collectives: Vec<(StrId, RecordedExchange)>,
    ops: Vec<Id<DeviceOp>>,
}

/// The collectives of a process.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    calls: FxHashMap<Id<Thread>, Vec<(TraceTime, TraceTime, NcclCall)>>,
}

impl Exchanges {
    /// Adds a collective.
    pub(super) fn collective(
        &mut self,
        thread: Id<Thread>,
        begin: TraceTime,
        end: TraceTime,
        operation: StrId,
        exchange: RecordedExchange,
    ) {
        self.calls.entry(thread).or_default().push((
            begin,
            end,
            NcclCall::Collective { operation, exchange },
        ));
    }

    /// Adds any other call, by its name: collectives within a group are issued at its end.
    pub(super) fn other(&mut self, thread: Id<Thread>, begin: TraceTime, end: TraceTime, name: &str) {
        let called = match name {
            "ncclGroupStart" => NcclCall::GroupBegins,
            "ncclGroupEnd" => NcclCall::GroupEnds,
            _ => return,
        };
        self.calls.entry(thread).or_default().push((begin, end, called));
    }

    /// Adds to the work of a trace which collectives it runs.
    pub(super) fn note(self, trace: &mut Trace) {
        if self.calls.is_empty() {
            return;
        }
        let mut issues: FxHashMap<Id<Thread>, Vec<Issue>> =
            self.calls.into_iter().map(|(thread, calls)| (thread, issues(calls))).collect();
        let launches: FxHashMap<u64, (Id<Thread>, TraceTime)> = trace
            .host
            .iter()
            .filter(|(_, op)| op.kind.is_call() && op.correlation != 0)
            .map(|(_, op)| (op.correlation, (op.thread, op.begin)))
            .collect();
        for (id, op) in trace.device.iter() {
            let Some((thread, at)) = launches.get(&op.correlation) else { continue };
            let Some(of_thread) = issues.get_mut(thread) else { continue };
            let place = of_thread.partition_point(|issue| issue.begin <= *at);
            if let Some(issue) = of_thread[..place].last_mut().filter(|issue| *at < issue.end) {
                issue.ops.push(id);
            }
        }
        let mut notes: Vec<(Id<DeviceOp>, StrId, RecordedExchange)> = Vec::new();
        for issue in issues.into_values().flatten() {
            let Issue { collectives, mut ops, .. } = issue;
            ops.sort_unstable();
            let fused = ops.len() == 1;
            if !fused && ops.len() != collectives.len() && collectives.len() > 1 {
                continue;
            }
            for (place, (operation, exchange)) in collectives.into_iter().enumerate() {
                notes.extend(ops.get(if fused { 0 } else { place }).map(|op| (*op, operation, exchange)));
            }
        }
        notes.sort_by_key(|(op, _, exchange)| (*op, exchange.communicator, exchange.ordinal));
        for (op, operation, exchange) in notes {
            let communicator = trace.text(&format!("{:016x}", exchange.communicator));
            let element = trace.text("byte");
            trace.collectives.push(CollectiveNote {
                op,
                operation,
                communicator,
                group_size: exchange.ranks,
                elements_in: exchange.bytes,
                element,
                ordinal: Some(exchange.ordinal),
                peer: None,
            });
        }
    }
}

/// Collectives that a thread issued together, by begin.
fn issues(mut calls: Vec<(TraceTime, TraceTime, NcclCall)>) -> Vec<Issue> {
    calls.sort_by_key(|(begin, end, _)| (*begin, *end));
    let mut issues = Vec::new();
    // Groups nest; the outermost one counts.
    let (mut depth, mut together) = (0_usize, Vec::new());
    for (begin, end, called) in calls {
        let collectives = match called {
            NcclCall::GroupBegins => {
                depth += 1;
                continue;
            }
            NcclCall::Collective { operation, exchange } if depth > 0 => {
                together.push((operation, exchange));
                continue;
            }
            NcclCall::Collective { operation, exchange } => vec![(operation, exchange)],
            NcclCall::GroupEnds => {
                depth = depth.saturating_sub(1);
                if depth > 0 || together.is_empty() {
                    continue;
                }
                std::mem::take(&mut together)
            }
        };
        issues.push(Issue { begin, end, collectives, ops: Vec::new() });
    }
    issues
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{DeviceKind, HostKind, HostOp, Status};
    use crate::tree::NodeId;
    use crate::units::Nanos;

    /// Calls by begin and end (`start`, `end` of a group, `N` the Nth collective, `!` a launch), each launch with a
    /// kernel of its number; notes as kernel and ordinal.
    fn check(calls: &[(u64, u64, &str)], expect: &[(u64, u64)]) {
        let (mut trace, mut exchanges) = (Trace::new(), Exchanges::default());
        let thread = trace.thread("1", "1");
        let (stream, name) = (trace.stream(0, Some(7)), trace.text("allreduce"));
        let mut launches = 0;
        for (begin, end, what) in calls {
            let at = (TraceTime::from_nanos(*begin), TraceTime::from_nanos(*end));
            match *what {
                "start" => exchanges.other(thread, at.0, at.1, "ncclGroupStart"),
                "end" => exchanges.other(thread, at.0, at.1, "ncclGroupEnd"),
                "!" => {
                    launches += 1;
                    let (kind, status, context) = (HostKind::DriverCall, Status::Unknown, NodeId::ROOT);
                    let (begin, duration, correlation) = (at.0, at.1 - at.0, launches);
                    trace.host.push(HostOp {
                        thread,
                        kind,
                        begin,
                        duration,
                        name,
                        correlation,
                        status,
                        context,
                    });
                    let (kind, begin) = (DeviceKind::Kernel, at.1);
                    trace.device.push(DeviceOp::correlated(stream, kind, begin, Nanos(5), name, launches));
                }
                number => {
                    let ordinal = number.parse().unwrap();
                    let exchange = RecordedExchange { communicator: 9, ordinal, ranks: 2, rank: 0, bytes: 8 };
                    exchanges.collective(thread, at.0, at.1, name, exchange);
                }
            }
        }
        exchanges.note(&mut trace);
        let found: Vec<_> = trace
            .collectives
            .iter()
            .map(|(_, note)| (trace.device.get(note.op).unwrap().correlation, note.ordinal.unwrap()))
            .collect();
        assert_eq!(found, expect, "{calls:?}");
    }

    #[test]
    fn what_a_collective_launches_runs_it() {
        check(&[(0, 9, "0"), (3, 4, "!"), (10, 11, "!"), (20, 29, "1"), (22, 23, "!")], &[(1, 0), (3, 1)]);
        // Within a group they are issued at its end.
        check(&[(0, 1, "start"), (2, 3, "0"), (4, 9, "end"), (5, 6, "!")], &[(1, 0)]);
        let group =
            [(0, 1, "start"), (1, 2, "start"), (2, 3, "0"), (3, 4, "1"), (4, 5, "end"), (6, 19, "end")];
        check(&[&group[..], &[(7, 8, "!"), (9, 10, "!")]].concat(), &[(1, 0), (2, 1)]);
        // One kernel of both, and three of two.
        check(&[&group[..], &[(7, 8, "!")]].concat(), &[(1, 0), (1, 1)]);
        check(&[&group[..], &[(7, 8, "!"), (9, 10, "!"), (11, 12, "!")]].concat(), &[]);
        // The begin of the group was not seen.
        check(&[(2, 3, "0"), (4, 9, "end"), (5, 6, "!")], &[]);
    }
}
