//! Counters: values over the time of a window.
//!
//! Owns: which counter values are events of the window, and at which rate. Because: a program may allocate tensors a
//! million times a second, and readings of the machine arrive before the records of the same interval. Does not: read
//! or count anything.
//!
//! For a level that the program changes, the last value of each millisecond is recorded, with the number of values
//! that it replaces; the value that held when the window opened is recorded at its start. Readings of the machine
//! wait until the records have reached their end, since only then it is known whether the window was open; a reading
//! that equals the one before it is not recorded again.

use std::collections::VecDeque;

use deepctx_profile::metric::Metric;
use deepctx_profile::trace::{Lane, NotTraced, RecordedEvent, RecordedValue};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;
use rustc_hash::FxHashMap;

use super::super::event_window::EventWindow;
use super::queue::RecordQueue;
use crate::spans::CounterValue;

/// A level is recorded at most once in this time.
const BIN_NS: u64 = 1_000_000;
/// Pending readings of the machine: those of a thousand CPUs for several seconds.
const WAITING_MAX: usize = 1 << 16;

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CounterKey {
    pid: u32,
    metric: Metric,
    node: NodeId,
}

/// A level's value that is not recorded yet.
#[derive(Clone, Copy, Debug)]
struct PendingValue {
    at_ns: u64,
    counted: RecordedValue,
    /// It is from before the window.
    is_before: bool,
}

/// Counters and their pending values.
#[derive(Debug, Default)]
pub(super) struct CounterStates {
    /// Readings of the machine.
    waiting: VecDeque<CounterValue>,
    /// The last reading: its end, and its value.
    last: FxHashMap<CounterKey, (u64, u64)>,
    pending: FxHashMap<CounterKey, PendingValue>,
}

/// The destination of values.
pub(super) struct CounterSink<'r> {
    pub(super) started_ns: u64,
    pub(super) window: &'r EventWindow,
    pub(super) queue: &'r mut RecordQueue,
}

impl CounterSink<'_> {
    fn keep(&mut self, key: CounterKey, from_ns: u64, to_ns: u64, counted: RecordedValue) {
        let CounterKey { pid, metric, node } = key;
        let Some(lane) = self.queue.lane(Lane::Counter { pid, metric, node }) else { return };
        let since = |ns: u64| Nanos(ns.saturating_sub(self.started_ns));
        self.queue.keep(RecordedEvent::counter(lane, since(from_ns), since(to_ns), node, counted));
    }
}

impl CounterStates {
    /// Resource usage of the machine between two times.
    pub(super) fn read(&mut self, value: CounterValue, out: &mut CounterSink<'_>) {
        match self.waiting.len() < WAITING_MAX {
            true => self.waiting.push_back(value),
            false => out.queue.leave_out(NotTraced::QueueFull),
        }
    }

    /// A level has another value.
    pub(super) fn changed(&mut self, value: CounterValue, out: &mut CounterSink<'_>) {
        let CounterValue { pid, metric, node, from_ns: at_ns, value, .. } = value;
        let key = CounterKey { pid, metric, node };
        let is_before = at_ns < out.window.begin();
        if !is_before && !out.window.contains(at_ns) {
            return;
        }
        let bin = |at_ns: u64| at_ns.saturating_sub(out.started_ns) / BIN_NS;
        let mut merged = 0;
        match self.pending.get(&key) {
            // Of the values before the window, only the last one is needed.
            Some(before) if is_before && before.is_before => {}
            Some(before) if !before.is_before && bin(before.at_ns) == bin(at_ns) => {
                merged = before.counted.merged.saturating_add(1);
            }
            Some(before) => flush(key, *before, out),
            None => {}
        }
        let counted = RecordedValue { value, merged };
        self.pending.insert(key, PendingValue { at_ns, counted, is_before });
    }

    /// The records have come to a time.
    pub(super) fn advance(&mut self, until_ns: u64, out: &mut CounterSink<'_>) {
        while let Some(value) = self.waiting.pop_front_if(|value| value.to_ns <= until_ns) {
            self.use_reading(value, out);
        }
        let due_ns = until_ns.saturating_sub(BIN_NS);
        let is_open = out.window.begin() <= until_ns;
        self.pending.retain(|key, value| {
            let is_due = if value.is_before { is_open } else { value.at_ns <= due_ns };
            if is_due {
                flush(*key, *value, out);
            }
            !is_due
        });
    }

    fn use_reading(&mut self, value: CounterValue, out: &mut CounterSink<'_>) {
        let CounterValue { pid, metric, node, from_ns, to_ns, value } = value;
        if !out.window.overlaps(from_ns, to_ns) {
            return;
        }
        let key = CounterKey { pid, metric, node };
        let before = self.last.insert(key, (to_ns, value));
        // Equal sums are equal rates only over equal lengths; a sum of zero always is.
        let is_same = (metric.is_level() || value == 0) && before == Some((from_ns, value));
        if !is_same {
            out.keep(key, from_ns, to_ns, RecordedValue { value, merged: 0 });
        }
    }

    /// A process has ended: its counters no longer change.
    pub(super) fn forget(&mut self, pid: u32, out: &mut CounterSink<'_>) {
        self.pending.retain(|key, value| {
            let is_of = key.pid == pid;
            if is_of && !value.is_before {
                flush(*key, *value, out);
            }
            !is_of
        });
    }
}

fn flush(key: CounterKey, value: PendingValue, out: &mut CounterSink<'_>) {
    // A value from before the window, which has not begun.
    if out.window.awaited().is_some() {
        return;
    }
    let at_ns = value.at_ns.max(out.window.begin());
    out.keep(key, at_ns, at_ns, value.counted);
}
