//! Causes: the position of a call in its stream, and the call that it waits for.
//!
//! Owns: the last launch into each stream, and the call that last recorded each event. Because: a wait names a stream
//! or an event, and waits for earlier operations on it, in the order of calls. Does not: store causes: the recorded
//! events do.

use deepctx_profile::trace::{Basis, Cause, RecordedKind};
use rustc_hash::FxHashMap;

use super::super::streams::StreamKey;
use super::call::RecordedCall;

/// Streams and events whose last launch is remembered; beyond it all are dropped, and causes are unknown.
const HANDLES_MAX: usize = 1 << 16;

/// A position in a stream.
#[derive(Clone, Copy, Debug, Default)]
struct StreamPosition {
    /// Launches and records up to then.
    position: u64,
    /// The last launch; 0 before the first.
    launch: u64,
}

/// Positions of streams and events, by process.
#[derive(Debug, Default)]
pub(super) struct Causes {
    streams: FxHashMap<(u32, StreamKey), StreamPosition>,
    /// The call that recorded each event last.
    recorded: FxHashMap<(u32, u64), u64>,
}

impl Causes {
    /// The position of a call in its stream, and its cause.
    pub(super) fn place(&mut self, call: &RecordedCall) -> (u64, Option<Cause>) {
        if self.streams.len() >= HANDLES_MAX {
            self.streams.clear();
        }
        if self.recorded.len() >= HANDLES_MAX {
            self.recorded.clear();
        }
        let by_order = |launch| (launch != 0).then_some(Cause { id: launch, basis: Basis::ByOrder });
        let exactly = |call: &u64| Cause { id: *call, basis: Basis::Exact };
        let key = (call.pid, call.stream);
        match call.kind {
            RecordedKind::Launch | RecordedKind::Transfer | RecordedKind::Record if call.is_captured => {
                (0, None)
            }
            RecordedKind::Launch | RecordedKind::Transfer => {
                let place = self.streams.entry(key).or_default();
                *place = StreamPosition { position: place.position + 1, launch: call.number };
                (place.position, None)
            }
            RecordedKind::Record => {
                self.recorded.insert((call.pid, call.object), call.number);
                let place = self.streams.entry(key).or_default();
                place.position += 1;
                (place.position, by_order(place.launch))
            }
            RecordedKind::StreamWait | RecordedKind::EventSync => {
                let position = self.streams.get(&key).map_or(0, |place| place.position);
                (position, self.recorded.get(&(call.pid, call.object)).map(exactly))
            }
            RecordedKind::StreamSync => {
                let place = self.streams.get(&key).copied().unwrap_or_default();
                (place.position, by_order(place.launch))
            }
            _ => (0, None),
        }
    }

    /// A process is gone.
    pub(super) fn forget(&mut self, pid: u32) {
        self.streams.retain(|(of, _), _| *of != pid);
        self.recorded.retain(|(of, _), _| *of != pid);
    }
}
