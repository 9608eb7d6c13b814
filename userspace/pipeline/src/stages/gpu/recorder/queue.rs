//! Queue: recorded events until they are drained.
//!
//! Owns: their capacity, their lanes, and the account of events that did not fit. Because: the pipeline never waits
//! for a writer, and dropped events must be counted by lane and time. Does not: know what events mean.

use deepctx_profile::trace::{Lane, NotTraced, RecordedAccount, RecordedBatch, RecordedEvent, RecordedGaps};
use deepctx_profile::units::Nanos;
use rustc_hash::FxHashMap;

/// Events in the queue: two ticks at a million a second, about 26 MiB.
pub(super) const QUEUE_MAX: usize = 1 << 18;
/// Threads and streams of a recording; events of further ones are counted as left out.
const LANES_MAX: usize = 1 << 16;

/// Queued events, and counts of all events.
#[derive(Debug, Default)]
pub(super) struct RecordQueue {
    events: Vec<RecordedEvent>,
    lanes: Vec<Lane>,
    lane_numbers: FxHashMap<Lane, u32>,
    /// Lanes that were already taken.
    lanes_taken: usize,
    lost: RecordedGaps,
    account: RecordedAccount,
}

impl RecordQueue {
    /// The number of a lane; `None` if there is no room for it, which counts as an event left out.
    pub(super) fn lane(&mut self, lane: Lane) -> Option<u32> {
        let number = self.number(lane);
        if number.is_none() {
            self.leave_out(NotTraced::QueueFull);
        }
        number
    }

    fn number(&mut self, lane: Lane) -> Option<u32> {
        if let Some(number) = self.lane_numbers.get(&lane) {
            return Some(*number);
        }
        if self.lanes.len() >= LANES_MAX {
            return None;
        }
        let number = self.lanes.len() as u32;
        self.lanes.push(lane);
        self.lane_numbers.insert(lane, number);
        Some(number)
    }

    /// The lane of an event.
    pub(super) fn lane_of(&self, event: &RecordedEvent) -> Option<Lane> {
        self.lanes.get(event.lane as usize).copied()
    }

    /// Queues an event, or counts it if there is no room.
    pub(super) fn keep(&mut self, event: RecordedEvent) {
        if self.events.len() < QUEUE_MAX {
            self.account.received += 1;
            self.account.kept += 1;
            self.events.push(event);
            return;
        }
        self.leave_out(NotTraced::QueueFull);
        self.lost.add(&event);
    }

    /// Counts an event that is not kept.
    pub(super) fn leave_out(&mut self, because: NotTraced) {
        self.account.received += 1;
        self.account.leave_out(because, 1);
    }

    /// Counts an event that is not kept, and leaves a gap at this time.
    pub(super) fn lose(&mut self, because: NotTraced, lane: Lane, at: Nanos) {
        self.leave_out(because);
        if let Some(lane) = self.number(lane) {
            self.lost.add(&RecordedEvent::gap(lane, at, at, 1));
        }
    }

    /// Takes the events queued since the last time; `None` if there are none.
    pub(super) fn take(&mut self) -> Option<RecordedBatch> {
        self.events.extend(self.lost.take());
        if self.events.is_empty() && self.lanes_taken == self.lanes.len() {
            return None;
        }
        let first_lane = self.lanes_taken as u32;
        let lanes = self.lanes[self.lanes_taken..].to_vec();
        self.lanes_taken = self.lanes.len();
        Some(RecordedBatch { lanes, first_lane, events: std::mem::take(&mut self.events) })
    }

    /// Counts of the events so far.
    pub(super) fn account(&self) -> RecordedAccount {
        self.account
    }
}
