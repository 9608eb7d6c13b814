//! Steps: when a training step last ended at each place, and how many have ended.
//!
//! Owns: the time from one end to the next, and the number of the step between them. Because: a program marks where a
//! step ends, and nothing marks where it begins. Does not: know which ranges end a step ([`super::markers`]).
//!
//! ```text
//!  capture begins        end            end            end        capture ends
//!  ├── step 0: no begin ──┼── step 1 ────┼── step 2 ────┼── step 3: no end ──┤
//! ```

use deepctx_profile::frame::FrameKind;
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use crate::spans::{Span, SpanEnd, SpanKind, SpanThread, Spans};

/// Places whose last end is remembered.
const PLACES_MAX: usize = 1 << 12;

/// Places at which steps end, each by its first node.
///
/// One Python line can have several nodes: the interpreter's own code below it differs by the instruction, and changes
/// once the interpreter has specialized a function after a few calls.
#[derive(Debug, Default)]
pub(super) struct Places(FxHashMap<Box<[FrameId]>, NodeId>);

impl Places {
    /// The first node with the same Python frames; without any, the node itself.
    pub(super) fn first(&mut self, node: NodeId, profile: &Profile) -> NodeId {
        let kind = |frame: &FrameId| profile.frames.get(*frame).kind();
        let mut frames = profile.tree.stack(node);
        if !frames.iter().any(|frame| kind(frame) == FrameKind::Python) {
            return node;
        }
        frames.retain(|frame| !matches!(kind(frame), FrameKind::Native | FrameKind::Unresolved));
        if self.0.len() >= PLACES_MAX && !self.0.contains_key(&*frames) {
            self.0.clear();
        }
        *self.0.entry(frames.into()).or_insert(node)
    }
}

/// The last ends of steps, by place and thread: short-lived processes and threads share a node.
#[derive(Debug, Default)]
pub(super) struct Steps(FxHashMap<(NodeId, SpanThread), LastEnd>);

#[derive(Clone, Copy, Debug)]
struct LastEnd {
    /// `CLOCK_MONOTONIC` nanoseconds.
    at_ns: u64,
    /// The step that began then.
    number: u64,
}

impl LastEnd {
    fn step(self, node: NodeId, of: SpanThread, end: SpanEnd) -> Span {
        Span { kind: SpanKind::Step(self.number), of, node, began_ns: self.at_ns, end }
    }
}

impl Steps {
    /// A step ends at a place. Returns its duration, unless its begin is unknown, or `missed` reports that another may
    /// have ended since then.
    pub(super) fn on_end(
        &mut self,
        place: NodeId,
        of: SpanThread,
        now_ns: u64,
        missed: impl FnOnce(u64) -> bool,
        spans: &mut Spans,
    ) -> Option<u64> {
        let key = (place, of);
        if self.0.len() >= PLACES_MAX && !self.0.contains_key(&key) {
            self.all_end(|_| true, spans);
        }
        let before = self.0.get(&key).copied();
        let number = before.map_or(1, |before| before.number + 1);
        let last = LastEnd { at_ns: now_ns, number };
        self.0.insert(key, last);
        let took = before.and_then(|before| {
            let took = (!missed(before.at_ns)).then(|| now_ns.saturating_sub(before.at_ns));
            spans.add(before.step(place, of, took.map_or(SpanEnd::Lost, |_| SpanEnd::At(now_ns))));
            took
        });
        let begins = Span { kind: SpanKind::StepBegins(number), ..last.step(place, of, SpanEnd::Open) };
        spans.add(begins);
        took
    }

    /// No further step ends in these threads: those that have begun stay open.
    pub(super) fn all_end(&mut self, of: impl Fn(SpanThread) -> bool, spans: &mut Spans) {
        let gone = self.0.extract_if(|(_, thread), _| of(*thread));
        gone.for_each(|((place, thread), last)| spans.add(last.step(place, thread, SpanEnd::Open)));
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::frame::{Frame, Role};
    use deepctx_profile::intern::StrId;

    use super::*;

    const OF: SpanThread = SpanThread { pid: 7, tid: 8 };

    #[test]
    fn a_known_place_keeps_its_node_in_full_tables() {
        let (mut profile, mut places) =
            (Profile::new(Default::default(), Default::default()), Places::default());
        let (file, role) = (StrId::EMPTY, Role::Code);
        let mut nodes = Vec::new();
        for number in 0..PLACES_MAX as u32 {
            let function = StrId::from_number(number);
            let frame = profile.frame(Frame::Python { function, file, line: None, first_line: None, role });
            nodes.push(profile.tree.child(NodeId::ROOT, frame));
            places.first(nodes[number as usize], &profile);
        }
        let native = Frame::NativeUnnamed { module: file, offset: 1, reason: file, role };
        let native = profile.frame(native);
        let other = profile.tree.child(nodes[7], native);
        assert_eq!(places.first(other, &profile), nodes[7]);
    }

    #[test]
    fn steps_are_between_ends_at_one_place() {
        let (mut steps, mut spans) = (Steps::default(), Spans::default());
        spans.want();
        let places = [1, 2].map(NodeId::from_number);
        let mut end =
            |place: usize, now_ns, missed| steps.on_end(places[place], OF, now_ns, |_| missed, &mut spans);
        let took =
            [end(0, 10, false), end(1, 14, false), end(0, 30, false), end(0, 45, true), end(1, 50, false)];
        assert_eq!(took, [None, None, Some(20), None, Some(36)]);
        steps.all_end(|of| of.pid == 9, &mut spans);
        steps.all_end(|of| of.pid == 7, &mut spans);
        let mut found: Vec<_> =
            spans.take().map(|span| (span.node, span.kind, span.began_ns, span.end)).collect();
        let begins = |kind| matches!(kind, SpanKind::StepBegins(_));
        let begun: Vec<_> =
            found.extract_if(.., |(_, kind, ..)| begins(*kind)).map(|(.., at, _)| at).collect();
        assert_eq!(begun, [10, 14, 30, 45, 50]);
        found[3..].sort_by_key(|(node, ..)| *node);
        let [a, b] = places;
        let expect = [
            (a, SpanKind::Step(1), 10, SpanEnd::At(30)),
            (a, SpanKind::Step(2), 30, SpanEnd::Lost),
            (b, SpanKind::Step(1), 14, SpanEnd::At(50)),
            (a, SpanKind::Step(3), 45, SpanEnd::Open),
            (b, SpanKind::Step(2), 50, SpanEnd::Open),
        ];
        assert_eq!(found, expect);
    }

    #[test]
    fn processes_that_share_a_node_have_their_own_steps() {
        let (mut steps, mut spans) = (Steps::default(), Spans::default());
        let other = SpanThread { pid: 9, tid: 9 };
        let took = [(OF, 10), (other, 14), (OF, 30), (other, 44)]
            .map(|(of, now_ns)| steps.on_end(NodeId::from_number(1), of, now_ns, |_| false, &mut spans));
        assert_eq!(took, [None, None, Some(20), Some(30)]);
    }
}
