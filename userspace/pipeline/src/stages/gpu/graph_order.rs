//! Graph order: the dependencies between nodes that are captured into graphs.
//!
//! Owns: for each stream that captures a graph, the nodes that its next node depends on, and what events mean within
//! a capture. Because: work of a graph runs in parallel where its edges allow it, and no device record contains the
//! edges of a graph. Does not: know graphs ([`super::graphs`]), or edges that are created by calls other than those
//! of streams and events ([`super::built_graphs`]).

use rustc_hash::FxHashMap;

use super::streams::StreamKey;

/// Nodes whose order is remembered.
const NODES_MAX: usize = 1 << 18;
/// Events and streams that mark positions in recordings.
const PLACES_MAX: usize = 1 << 16;
/// Predecessors of a node: streams that a recording joins at one place.
const AFTER_MAX: usize = 64;

/// A position in a recording: the next node comes after these nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CapturePosition {
    recording: u64,
    /// `None` when not all of them are known.
    after: Option<Vec<u64>>,
}

/// The order of nodes in the recordings of one process.
#[derive(Debug, Default)]
pub(super) struct GraphOrder {
    /// Nodes numbered so far: the first one is 1.
    numbered: u64,
    streams: FxHashMap<StreamKey, CapturePosition>,
    events: FxHashMap<u64, CapturePosition>,
    after: FxHashMap<u64, Box<[u64]>>,
    left_out: u64,
}

impl GraphOrder {
    /// A stream begins to record. `from_start`: nothing precedes what it records.
    pub(super) fn on_begin(&mut self, stream: StreamKey, recording: u64, from_start: bool) {
        self.put(stream, CapturePosition { recording, after: from_start.then(Vec::new) });
    }

    /// The number of a new node.
    pub(super) fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    /// A recording stream gets a node; returns its number.
    pub(super) fn add(&mut self, stream: StreamKey, recording: u64) -> u64 {
        let number = self.number();
        let place = self.streams.get(&stream).filter(|place| place.recording == recording);
        match place.and_then(|place| place.after.clone()) {
            Some(after) if self.after.len() < NODES_MAX => {
                self.after.insert(number, after.into());
            }
            Some(_) => self.left_out += 1,
            None => {}
        }
        self.put(stream, CapturePosition { recording, after: Some(vec![number]) });
        number
    }

    /// An event is recorded in a stream, which may record a graph.
    pub(super) fn event(&mut self, event: u64, stream: StreamKey, recording: Option<u64>) {
        let Some(recording) = recording else {
            self.events.remove(&event);
            return;
        };
        let place = self.streams.get(&stream).filter(|place| place.recording == recording).cloned();
        let place = place.unwrap_or(CapturePosition { recording, after: None });
        if self.events.len() < PLACES_MAX || self.events.contains_key(&event) {
            self.events.insert(event, place);
        } else {
            self.left_out += self.events.len() as u64 + 1;
            self.events.clear();
        }
    }

    /// A stream waits for an event. It records, or starts to with this wait.
    pub(super) fn waits(&mut self, stream: StreamKey, event: u64, recording: Option<u64>) {
        let Some(recording) = recording else { return };
        let other = self.events.get(&event).filter(|place| place.recording == recording);
        let other = other.and_then(|place| place.after.clone());
        let own = self.streams.get(&stream).filter(|place| place.recording == recording);
        // A stream that joins has no position of its own yet.
        let own = own.map_or(Some(Vec::new()), |place| place.after.clone());
        let after = own.zip(other).map(|(mut own, other)| {
            own.extend(other);
            own.sort_unstable();
            own.dedup();
            own
        });
        self.put(
            stream,
            CapturePosition { recording, after: after.filter(|after| after.len() <= AFTER_MAX) },
        );
    }

    /// A recording ends.
    pub(super) fn on_end(&mut self, recording: u64) {
        self.streams.retain(|_, place| place.recording != recording);
        self.events.retain(|_, place| place.recording != recording);
    }

    /// The predecessors of a node are unknown from now on.
    pub(super) fn forget(&mut self, number: u64) {
        self.after.remove(&number);
    }

    /// The predecessors of a node; `None` if not all are known.
    pub(super) fn after(&self, number: u64) -> Option<&[u64]> {
        self.after.get(&number).map(|after| &**after)
    }

    fn put(&mut self, stream: StreamKey, place: CapturePosition) {
        if self.streams.len() >= PLACES_MAX && !self.streams.contains_key(&stream) {
            // Streams without a position: their next nodes have no order.
            self.left_out += self.streams.len() as u64;
            self.streams.clear();
        }
        self.streams.insert(stream, place);
    }

    /// Nodes and positions for which there was no room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events of recording 1: `begin S`, `join S` (it begins within an existing graph), `node S`, `event E S`, `wait S
    /// E`, `end`. `expect`: predecessors of each node; `?` where unknown.
    fn check(steps: &str, expect: &[&str]) {
        let mut order = GraphOrder::default();
        let key = |word: &str| StreamKey::new(word.parse().unwrap(), 7, false);
        let mut nodes = 0;
        for step in steps.split(", ") {
            match *step.split(' ').collect::<Vec<_>>() {
                ["begin", stream] => order.on_begin(key(stream), 1, true),
                ["join", stream] => order.on_begin(key(stream), 1, false),
                ["node", stream] => nodes = order.add(key(stream), 1),
                ["event", event, stream] => order.event(event.parse().unwrap(), key(stream), Some(1)),
                ["outside", event, stream] => order.event(event.parse().unwrap(), key(stream), None),
                ["wait", stream, event] => order.waits(key(stream), event.parse().unwrap(), Some(1)),
                ["end"] => order.on_end(1),
                _ => panic!("{step}"),
            }
        }
        let shown = |after: &[u64]| after.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let found: Vec<String> = (1..=nodes).map(|n| order.after(n).map_or("?".to_owned(), shown)).collect();
        assert_eq!(found, expect, "{steps}");
    }

    #[test]
    fn nodes_come_after_those_of_their_stream_and_events() {
        check("begin 10, node 10, node 10", &["", "1"]);
        // Two branches that join again.
        check(
            "begin 10, node 10, event 70 10, wait 11 70, node 11, node 10, event 71 11, wait 10 71, node 10",
            &["", "1", "1", "2 3"],
        );
        // An event marks the position of its stream.
        check("begin 10, node 10, event 70 10, node 10, wait 11 70, node 11", &["", "1", "1"]);
        // Two waits for one position are one edge; an event before all nodes is none.
        check(
            "begin 10, event 70 10, wait 11 70, node 11, node 10, event 71 11, wait 10 71, wait 10 71, node 10",
            &["", "", "1 2"],
        );
    }

    #[test]
    fn nodes_behind_what_was_not_seen_have_no_order() {
        // An existing graph; an event that was recorded elsewhere; a stream that was not seen joining.
        check("join 10, node 10, node 10", &["?", "1"]);
        check("begin 10, node 10, outside 70 9, wait 10 70, node 10", &["", "?"]);
        check("begin 10, node 12, node 12", &["?", "1"]);
        // Positions of a recording that ended are gone.
        check("begin 10, event 70 10, end, node 11", &["?"]);
    }

    #[test]
    fn nodes_and_positions_without_room_are_counted() {
        let mut order = GraphOrder::default();
        let (stream, most) = (StreamKey::new(10, 7, false), PLACES_MAX as u64);
        order.on_begin(stream, 1, true);
        for _ in 0..=NODES_MAX {
            order.add(stream, 1);
        }
        assert_eq!(order.left_out(), 1);
        (0..=most).for_each(|event| order.event(event, stream, Some(1)));
        assert_eq!(order.left_out(), 1 + most + 1);
        (0..=most).for_each(|handle| order.on_begin(StreamKey::new(handle + 10, 7, false), 1, true));
        assert_eq!(order.left_out(), 1 + most + 1 + most);
    }

    #[test]
    fn a_place_with_too_many_nodes_is_unknown() {
        let mut order = GraphOrder::default();
        let key = |handle| StreamKey::new(handle, 7, false);
        order.on_begin(key(1000), 1, true);
        for other in 0..=AFTER_MAX as u64 {
            order.on_begin(key(other + 10), 1, true);
            order.add(key(other + 10), 1);
            order.event(other, key(other + 10), Some(1));
            order.waits(key(1000), other, Some(1));
        }
        let node = order.add(key(1000), 1);
        assert_eq!((order.after(1), order.after(node)), (Some(&[][..]), None));
    }
}
