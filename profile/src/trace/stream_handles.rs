//! Stream handles: mapping the stream handles of calls to the streams of devices.
//!
//! Owns: [`StreamsByHandle`], and synchronizations until their stream is known ([`PendingSync`]). Because: calls name
//! streams by handles, and activities by numbers; the work launched into a handle shows which stream it is. Does not:
//! guess: a handle without work maps to no stream.

use rustc_hash::FxHashMap;

use super::TraceTime;
use super::event::{Stream, SyncKind};
use super::recorded::{RecordedEvent, RecordedKind};
use crate::intern::Id;
use crate::units::Nanos;

/// A stream as calls name it: its handle, and the thread if it is that thread's own.
pub(super) type Handle = (u64, u32);

/// A synchronization whose stream is not known yet.
pub(super) struct PendingSync {
    pub(super) handle: Handle,
    pub(super) kind: SyncKind,
    pub(super) begin: TraceTime,
    pub(super) duration: Nanos,
    /// Number of the call.
    pub(super) call: u64,
    /// Number of the call that recorded the event.
    pub(super) record: Option<u64>,
}

impl PendingSync {
    pub(super) fn new(handle: Handle, event: &RecordedEvent) -> Self {
        let kind = match event.kind {
            RecordedKind::StreamSync => SyncKind::Stream,
            RecordedKind::StreamWait => SyncKind::StreamWait,
            RecordedKind::EventSync => SyncKind::Event,
            _ => SyncKind::Context,
        };
        let duration = if kind == SyncKind::StreamWait { Nanos(0) } else { event.end.duration() };
        let record = event.cause.map(|cause| cause.id);
        let record = record.filter(|_| matches!(kind, SyncKind::Event | SyncKind::StreamWait));
        let begin = TraceTime::from_nanos(event.start.0);
        PendingSync { handle, kind, begin, duration, call: event.id, record }
    }
}

/// The stream of a handle over time: handles of destroyed streams are reused. One row for each run of launches whose
/// work ran on one stream, with the first of them.
#[derive(Default)]
pub(super) struct StreamsByHandle(FxHashMap<Handle, Vec<(TraceTime, Id<Stream>)>>);

impl StreamsByHandle {
    /// Work of a launch at this time ran on a stream.
    pub(super) fn add(&mut self, handle: Handle, at: TraceTime, stream: Id<Stream>) {
        let runs = self.0.entry(handle).or_default();
        match runs.last_mut() {
            Some((first, of)) if *of == stream => *first = at.min(*first),
            _ => runs.push((at, stream)),
        }
    }

    pub(super) fn sorted(mut self) -> Self {
        self.0.values_mut().for_each(|runs| runs.sort_unstable());
        self
    }

    /// The stream of the last launch before a time, otherwise of the first one.
    pub(super) fn at(&self, handle: Handle, time: TraceTime) -> Option<Id<Stream>> {
        let list = self.0.get(&handle)?;
        let before = list.partition_point(|(at, _)| *at <= time);
        list.get(before.saturating_sub(1)).map(|(_, stream)| *stream)
    }
}
