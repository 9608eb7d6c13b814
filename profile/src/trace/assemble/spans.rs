//! Spans: ranges, operators, training steps and time off the CPU of a recording, as host operations of a trace.
//!
//! Owns: which recorded steps are the steps of a process, and what happens to spans without an end. Because: a
//! process has one row of steps, while its recording has steps from every place that ends some, and which place
//! counts is known only at the end. Does not: know calls or work of devices.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::super::event::{HostKind, HostOp, Status, WakeUpEvent, Waker};
use super::super::recorded::{
    End, OFF_CPU_END_MISSING, RANGE_END_MISSING, RecordedEvent, RecordedKind, WakeSource,
};
use super::super::{Trace, TraceTime};
use super::names::ContextNames;
use super::tables::{ThreadKey, count_pushed};
use crate::intern::{Id, StrId};
use crate::ledger::Stage;
use crate::profile::Profile;
use crate::tree::NodeId;

/// Training steps and their threads, by the place of their end.
#[derive(Default)]
pub(super) struct RecordedSteps(BTreeMap<NodeId, Vec<(ThreadKey, RecordedEvent)>>);

impl RecordedSteps {
    /// Adds a step. Without a known end it has no length that any table could use.
    pub(super) fn take(&mut self, trace: &mut Trace, thread: ThreadKey, event: &RecordedEvent) {
        if has_end(trace, event) {
            self.0.entry(event.node).or_default().push((thread, *event));
        }
    }

    /// Steps of a process are consecutive at one place: the one with most of them (the first of several). Steps at
    /// other places, of a second optimizer or thread, are ranges.
    pub(super) fn place(self, trace: &mut Trace, names: &mut ContextNames, profile: &Profile) {
        let most = self.0.iter().max_by_key(|(_, steps)| (steps.len(), Reverse(steps[0].1.start)));
        let Some(most) = most.map(|(place, _)| *place) else { return };
        for (place, steps) in self.0 {
            let name = names.name(trace, profile, place);
            let kind = if place == most { HostKind::Step } else { HostKind::Annotation };
            for (thread, event) in steps {
                let name = format!("{}#{}", trace.name(name), event.position);
                let name = trace.strings.intern(&name);
                add(trace, thread, kind, name, &event);
            }
        }
    }
}

/// Adds a range. Without a known end it has no length that any table could use.
pub(super) fn range(trace: &mut Trace, thread: ThreadKey, name: StrId, event: &RecordedEvent) {
    if has_end(trace, event) {
        add(trace, thread, HostKind::Annotation, name, event);
    }
}

/// An operator, whose end is not watched.
pub(super) fn operator(trace: &mut Trace, thread: ThreadKey, name: StrId, event: &RecordedEvent) {
    add(trace, thread, HostKind::Operator, name, event);
}

/// Time off the CPU, and its wake-up.
pub(super) fn off_cpu(trace: &mut Trace, thread: ThreadKey, name: StrId, event: &RecordedEvent) {
    if !has_end(trace, event) {
        return;
    }
    let ends = add(trace, thread, HostKind::OffCpu, name, event);
    let (Some(ends), Some(wake_up)) = (ends, event.wake_up()) else { return };
    let by = match wake_up.by {
        WakeSource::Thread { pid, tid } if pid == thread.pid => {
            Waker::Thread(ThreadKey { pid, tid }.add_to(trace))
        }
        WakeSource::Thread { pid, tid } => Waker::OtherProcess { pid, tid },
        WakeSource::ThreadOutside => Waker::Outside,
        WakeSource::Interrupt => Waker::Interrupt,
    };
    let at = TraceTime::from_nanos(event.start.0) + wake_up.after;
    let pushed = trace.wake_ups.push(WakeUpEvent { ends, at, by });
    count_pushed(trace, pushed);
}

/// Whether the end of a span is known; counts it if not.
fn has_end(trace: &mut Trace, event: &RecordedEvent) -> bool {
    let ends = matches!(event.end, End::After(_));
    if !ends {
        let missing = match event.kind {
            RecordedKind::OffCpu => OFF_CPU_END_MISSING,
            _ => RANGE_END_MISSING,
        };
        trace.ledger.gap(Stage::Store, missing, 1);
    }
    ends
}

fn add(
    trace: &mut Trace,
    thread: ThreadKey,
    kind: HostKind,
    name: StrId,
    event: &RecordedEvent,
) -> Option<Id<HostOp>> {
    let op = HostOp {
        thread: thread.add_to(trace),
        kind,
        begin: TraceTime::from_nanos(event.start.0),
        duration: event.end.duration(),
        name,
        correlation: 0,
        status: Status::Unknown,
        context: event.node,
    };
    let pushed = trace.host.push(op);
    count_pushed(trace, pushed)
}
