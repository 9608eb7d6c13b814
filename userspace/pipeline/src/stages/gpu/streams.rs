//! Streams: the work submitted to each stream that no wait has covered yet.
//!
//! Owns: for each stream its launches since the last wait, whether it captures a graph, and what events mean.
//! Because: if a kernel is not measured, the next wait that covers it is an upper bound of its time. Does not: derive
//! bounds from anything else: a launch without a wait has no bound.

use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

/// Streams remembered per process. Programs that create one per request destroy it again.
const STREAMS_MAX: usize = 1 << 12;
/// Events remembered per process: frameworks keep pools of some thousand.
const EVENTS_MAX: usize = 1 << 16;
/// Outstanding launches per process.
const LAUNCHES_MAX: usize = 1 << 16;
/// Other streams that one waits for; beyond it some bounds are looser than possible.
const WAITS_MAX: usize = 64;

/// The default stream in its two forms; which one `0` means depends on the function's name.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// A stream within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StreamKey {
    handle: u64,
    /// The thread whose default stream it is; otherwise 0.
    tid: u32,
}

impl StreamKey {
    /// The stream that a call of a thread means; `own_default`: its function takes 0 as the thread's own.
    pub(super) fn new(handle: u64, tid: u32, own_default: bool) -> Self {
        match handle {
            0 if own_default => Self { handle: PER_THREAD, tid },
            0 => Self { handle: LEGACY, tid: 0 },
            PER_THREAD => Self { handle, tid },
            handle => Self { handle, tid: 0 },
        }
    }

    /// Its handle, and the thread whose default stream it is, otherwise 0.
    pub(super) fn parts(self) -> (u64, u32) {
        (self.handle, self.tid)
    }
}

/// A position in a stream: the number of launches before it.
pub(super) type Position = u64;

#[derive(Debug, Default)]
struct Stream {
    /// The context of its last launch; 0 if unknown.
    context: u64,
    /// Launches put into it so far.
    position: Position,
    /// Those not waited for yet, oldest first.
    launches: Vec<OutstandingLaunch>,
    /// Other streams, up to which position this one waits for them, and since when.
    waits: Vec<(StreamKey, Position, u64)>,
    /// The graph that it records.
    capture: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct OutstandingLaunch {
    node: NodeId,
    time_ns: u64,
    position: Position,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    stream: StreamKey,
    position: Position,
    capture: Option<u64>,
}

/// The target of a wait of the host.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitTarget {
    /// A stream.
    Stream(StreamKey),
    /// An event, as recorded when the wait began.
    Event(StreamKey, Position),
    /// Everything in a context; 0 if the context is unknown.
    Context(u64),
}

/// A launch with a bound on its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BoundedLaunch {
    pub(super) node: NodeId,
    /// When it was launched.
    pub(super) from_ns: u64,
}

/// The streams of one process.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: FxHashMap<StreamKey, Stream>,
    events: FxHashMap<u64, Event>,
    waiting: usize,
    /// Launches that were dropped.
    forgotten: u64,
    captures: u64,
    /// The contexts in which there were launches.
    contexts: Vec<u64>,
}

impl Streams {
    fn stream(&mut self, key: StreamKey) -> Option<&mut Stream> {
        if self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&key) {
            return None;
        }
        Some(self.streams.entry(key).or_default())
    }

    /// A thread with this context launched into a stream.
    pub(super) fn launched(&mut self, key: StreamKey, context: u64, node: NodeId, time_ns: u64) {
        if !self.contexts.contains(&context) && self.contexts.len() < WAITS_MAX {
            self.contexts.push(context);
        }
        if self.waiting >= LAUNCHES_MAX {
            self.forgotten += self.waiting as u64;
            self.waiting = 0;
            self.streams.values_mut().for_each(|stream| stream.launches.clear());
        }
        match self.stream(key) {
            Some(stream) => {
                stream.position += 1;
                stream.context = context;
                let position = stream.position;
                stream.launches.push(OutstandingLaunch { node, time_ns, position });
                self.waiting += 1;
            }
            None => self.forgotten += 1,
        }
    }

    /// The graph that a stream is recording.
    pub(super) fn capture(&self, key: StreamKey) -> Option<u64> {
        self.streams.get(&key)?.capture
    }

    /// A stream begins to record a graph; returns the graph's number.
    pub(super) fn capture_begins(&mut self, key: StreamKey) -> u64 {
        self.captures += 1;
        let number = self.captures;
        if let Some(stream) = self.stream(key) {
            stream.capture = Some(number);
        }
        number
    }

    /// The recording of a graph ends, in all streams that took part; returns the graph's number.
    pub(super) fn capture_ends(&mut self, key: StreamKey) -> Option<u64> {
        let number = self.capture(key)?;
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(number)) {
            stream.capture = None;
        }
        Some(number)
    }

    /// An event was recorded in a stream. False when there is no room for it.
    pub(super) fn recorded(&mut self, event: u64, key: StreamKey) -> bool {
        let (position, capture) =
            self.streams.get(&key).map_or((0, None), |stream| (stream.position, stream.capture));
        if self.events.len() >= EVENTS_MAX && !self.events.contains_key(&event) {
            return false;
        }
        self.events.insert(event, Event { stream: key, position, capture });
        true
    }

    /// The target of a wait for an event; `None` if its recording was not seen.
    pub(super) fn event(&self, event: u64) -> Option<WaitTarget> {
        self.events.get(&event).map(|event| WaitTarget::Event(event.stream, event.position))
    }

    /// A stream waits for an event. If the event is part of an open recording, the stream joins it.
    pub(super) fn waits(&mut self, key: StreamKey, event: u64, time_ns: u64) {
        let Some(&Event { stream: other, position, capture }) = self.events.get(&event) else { return };
        // The recording may have ended since the event was recorded.
        let capture = capture.filter(|number| self.capture(other) == Some(*number));
        let Some(stream) = self.stream(key) else { return };
        if stream.capture.is_none() {
            stream.capture = capture;
        }
        if let Some((_, known, since)) = stream.waits.iter_mut().find(|(known, ..)| *known == other) {
            (*known, *since) = (position.max(*known), time_ns);
        } else if stream.waits.len() < WAITS_MAX {
            stream.waits.push((other, position, time_ns));
        }
    }

    /// A stream is gone.
    pub(super) fn destroyed(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.remove(&key) {
            self.waiting -= stream.launches.len();
            self.forgotten += stream.launches.len() as u64;
        }
    }

    /// The host finished a wait that began at `entered_ns`: returns earlier launches that are complete now.
    pub(super) fn waited(&mut self, for_what: WaitTarget, entered_ns: u64) -> Vec<BoundedLaunch> {
        let mut reached: Vec<(StreamKey, Position)> = match for_what {
            WaitTarget::Stream(key) => vec![(key, Position::MAX)],
            WaitTarget::Event(key, position) => vec![(key, position)],
            WaitTarget::Context(context) => {
                // With a single context in use, it is this one.
                let all = self.contexts.len() <= 1;
                let known = context != 0;
                self.streams
                    .iter()
                    .filter(|(_, stream)| all || known && stream.context == context)
                    .map(|(key, _)| (*key, Position::MAX))
                    .collect()
            }
        };
        let mut bounded = Vec::new();
        let mut at = 0;
        while let Some(&(key, until)) = reached.get(at) {
            at += 1;
            let Some(stream) = self.streams.get_mut(&key) else { continue };
            let before = stream.launches.len();
            stream.launches.retain(|launch| {
                let done = launch.position <= until && launch.time_ns <= entered_ns;
                if done {
                    bounded.push(BoundedLaunch { node: launch.node, from_ns: launch.time_ns });
                }
                !done
            });
            self.waiting -= before - stream.launches.len();
            // What that stream waited for is complete too. A wait after an event says nothing about the event.
            if until == Position::MAX {
                stream.waits.retain(|(other, position, since)| {
                    let over = *since <= entered_ns && reached.len() < STREAMS_MAX;
                    if over {
                        reached.push((*other, *position));
                    }
                    !over
                });
            }
        }
        bounded
    }

    /// There will be no more waits.
    pub(super) fn close(&mut self) {
        self.forgotten += self.waiting as u64;
        self.waiting = 0;
        self.streams.clear();
    }

    /// Launches that will have no bound, so far.
    pub(super) fn unbounded(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::from_number(number)
    }

    fn key(handle: u64) -> StreamKey {
        StreamKey::new(handle, 7, false)
    }

    fn nodes(bounded: Vec<BoundedLaunch>) -> Vec<u32> {
        let mut nodes: Vec<_> = bounded.into_iter().map(|bounded| bounded.node.number()).collect();
        nodes.sort_unstable();
        nodes
    }

    #[test]
    fn the_default_stream_has_two_forms() {
        assert_eq!(StreamKey::new(0, 7, false), StreamKey::new(1, 8, true));
        assert_eq!(StreamKey::new(0, 7, true), StreamKey::new(2, 7, false));
        assert_ne!(StreamKey::new(0, 7, true), StreamKey::new(0, 8, true));
    }

    #[test]
    fn wait_bounds_work_launched_on_its_stream_before_it() {
        let mut streams = Streams::default();
        streams.launched(key(10), 0, node(1), 100);
        streams.launched(key(11), 0, node(2), 110);
        streams.launched(key(10), 0, node(3), 120);
        // Another thread launched while this one was waiting.
        streams.launched(key(10), 0, node(4), 130);
        assert_eq!(nodes(streams.waited(WaitTarget::Stream(key(10)), 125)), [1, 3]);
        assert_eq!(nodes(streams.waited(WaitTarget::Context(0), 200)), [2, 4]);
        assert_eq!(nodes(streams.waited(WaitTarget::Context(0), 200)), [0u32; 0]);
    }

    #[test]
    fn event_bounds_earlier_work_and_what_its_stream_awaited() {
        let mut streams = Streams::default();
        streams.launched(key(10), 0, node(1), 1);
        assert!(streams.recorded(70, key(10)));
        streams.launched(key(10), 0, node(2), 2);
        streams.waits(key(11), 70, 5);
        streams.launched(key(11), 0, node(3), 3);
        assert_eq!(nodes(streams.waited(WaitTarget::Stream(key(11)), 4)), [3], "it began to wait later");
        assert_eq!(nodes(streams.waited(WaitTarget::Stream(key(11)), 9)), [1]);
        let event = streams.event(70).unwrap();
        assert_eq!(nodes(streams.waited(event, 9)), [0u32; 0]);
        assert!(streams.event(71).is_none());
        assert_eq!(nodes(streams.waited(WaitTarget::Stream(key(10)), 9)), [2]);
    }

    #[test]
    fn context_wait_bounds_only_its_own_work_among_several() {
        let mut streams = Streams::default();
        streams.launched(key(10), 500, node(1), 1);
        streams.launched(key(11), 600, node(2), 2);
        assert_eq!(nodes(streams.waited(WaitTarget::Context(0), 9)), [0u32; 0]);
        assert_eq!(nodes(streams.waited(WaitTarget::Context(600), 9)), [2]);
    }

    #[test]
    fn streams_waiting_for_a_capture_join_it_until_it_ends() {
        let mut streams = Streams::default();
        let graph = streams.capture_begins(key(10));
        streams.recorded(70, key(10));
        streams.waits(key(11), 70, 1);
        assert_eq!((streams.capture(key(11)), streams.capture(key(12))), (Some(graph), None));
        assert_eq!(streams.capture_ends(key(10)), Some(graph));
        assert_eq!((streams.capture(key(10)), streams.capture(key(11))), (None, None));
        // The event is still recorded; its recording has ended.
        streams.waits(key(12), 70, 1);
        assert_eq!(streams.capture(key(12)), None);
        assert_eq!(streams.capture_ends(key(10)), None);
    }

    #[test]
    fn launches_beyond_the_bound_are_forgotten_and_counted() {
        let mut streams = Streams::default();
        for n in 0..LAUNCHES_MAX as u64 + 1 {
            streams.launched(key(10), 0, node(1), n);
        }
        assert_eq!(streams.unbounded(), LAUNCHES_MAX as u64);
        assert_eq!(streams.waited(WaitTarget::Stream(key(10)), u64::MAX).len(), 1);
    }
}
