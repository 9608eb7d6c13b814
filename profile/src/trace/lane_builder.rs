//! Builds lanes: cuts the events of a thread or a stream into segments that do not overlap.
//!
//! Owns: [`EventLanes::new`]. Because: events are cut once, but drawn at every key press. Does not: answer questions
//! about lanes.

use std::sync::Arc;

use super::job_time::at;
use super::lanes::{ClassTimes, EventClass, EventLane, EventLanes, STRIDE, Segment, busy};
use super::{HostKind, Job, RankTrace, counter_lanes};
use crate::units::Nanos;

impl EventLanes {
    /// The lanes of a job. `offset_ns`: how far the clock of a rank is ahead.
    pub fn new(job: Arc<Job>, offset_ns: impl Fn(u32) -> i64) -> Self {
        Self::with_unaligned(job, offset_ns, Vec::new())
    }

    /// The same, where the clocks of some ranks are not aligned with the first rank's: labels of their lanes say so.
    pub fn with_unaligned(job: Arc<Job>, offset_ns: impl Fn(u32) -> i64, unaligned: Vec<u32>) -> Self {
        let zero_of = |of: &RankTrace| {
            let (first, last) = of.span?;
            let zero = i128::from(of.trace.clock.epoch_ns.unwrap_or(0)) - i128::from(offset_ns(of.rank));
            Some((zero, zero + i128::from(first.as_nanos()), zero + i128::from(last.as_nanos())))
        };
        let spans: Vec<_> = job.ranks().iter().map(zero_of).collect();
        let first = spans.iter().flatten().map(|(_, first, _)| *first).min().unwrap_or(0);
        let last = spans.iter().flatten().map(|(.., last)| *last).max().unwrap_or(0);
        let length = Nanos(u64::try_from(last - first).unwrap_or(u64::MAX).max(1));
        let (mut lanes, mut counters) = (Vec::new(), Vec::new());
        for (place, (of, span)) in job.ranks().iter().zip(&spans).enumerate() {
            let Some((zero, ..)) = span else { continue };
            let rank = match job.ranks().len() {
                0 | 1 => String::new(),
                _ if unaligned.contains(&of.rank) => format!("rank {} own clock ", of.rank),
                _ => format!("rank {} ", of.rank),
            };
            let lane = Builder { of, place, rank, shift: zero - first };
            lane.streams(&mut lanes);
            lane.threads(&mut lanes);
            counter_lanes::add(of, &lane.rank, lane.shift, length, &mut counters);
        }
        EventLanes { job, length, lanes, counters, unaligned }
    }
}

/// An event before it is cut.
struct UncutEvent {
    from: Nanos,
    to: Nanos,
    class: EventClass,
    event: u32,
}

/// The lanes of one rank.
struct Builder<'t> {
    of: &'t RankTrace,
    /// Index of the rank in the job.
    place: usize,
    /// Prefix of the name of each lane.
    rank: String,
    /// Added to a time of the trace.
    shift: i128,
}

impl Builder<'_> {
    /// A lane for each stream with work.
    fn streams(&self, lanes: &mut Vec<EventLane>) {
        let mut own = Vec::new();
        for (number, (stream, ids)) in self.of.trace.streams().iter().zip(self.of.links.streams()).enumerate()
        {
            let label = match stream.stream {
                Some(number) => format!("gpu{} stream {number}", stream.device),
                None => format!("gpu{}", stream.device),
            };
            let events = ids.iter().filter_map(|id| {
                let op = self.of.trace.device.get(*id)?;
                let class = EventClass::of_device(op.kind, self.of.trace.name(op.name));
                let (from, to) = (at(self.shift, op.begin), at(self.shift, op.end()));
                Some(UncutEvent { from, to, class, event: id.number() })
            });
            own.push(self.lane(label, true, number, events));
        }
        self.add(own, lanes);
    }

    /// A lane for each thread with events.
    fn threads(&self, lanes: &mut Vec<EventLane>) {
        let mut own = Vec::new();
        for (number, (thread, ids)) in self.of.trace.threads().iter().zip(self.of.links.threads()).enumerate()
        {
            let events = ids.iter().filter_map(|id| {
                let op = self.of.trace.host.get(*id).filter(|op| op.kind != HostKind::Process)?;
                let (from, to) = (at(self.shift, op.begin), at(self.shift, op.end()));
                Some(UncutEvent { from, to, class: EventClass::of_host(op.kind), event: id.number() })
            });
            let name = crate::frame::clean(self.of.trace.name(thread.thread));
            own.push(self.lane(format!("thread {name}"), false, number, events));
        }
        self.add(own, lanes);
    }

    /// The busiest lane first; lanes without events are left out.
    fn add(&self, mut own: Vec<EventLane>, lanes: &mut Vec<EventLane>) {
        let busy = |lane: &EventLane| busy(&lane.times(Nanos(0), Nanos(u64::MAX)));
        own.retain(|lane| !lane.segments.is_empty());
        own.sort_by_cached_key(|lane| (std::cmp::Reverse(busy(lane)), lane.label.clone()));
        lanes.extend(own);
    }

    fn lane(
        &self,
        label: String,
        is_stream: bool,
        number: usize,
        events: impl Iterator<Item = UncutEvent>,
    ) -> EventLane {
        let segments = cut(events);
        let mut sums = Vec::with_capacity(segments.len() / STRIDE + 1);
        let mut times = ClassTimes::default();
        for (place, segment) in segments.iter().enumerate() {
            if place % STRIDE == 0 {
                sums.push(times);
            }
            times[segment.class.place()] += segment.to.saturating_sub(segment.from).0;
        }
        let label = format!("{}{label}", self.rank);
        EventLane { label, is_stream, number, rank: self.place, shift: self.shift, segments, sums }
    }
}

/// Cuts events, sorted by begin and outer ones first, so that the innermost one shows at each moment.
fn cut(events: impl Iterator<Item = UncutEvent>) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut open: Vec<UncutEvent> = Vec::new();
    let mut done = Nanos(0);
    for mut event in events {
        // An event without length can still be selected.
        event.to = event.to.max(event.from.saturating_add(Nanos(1)));
        while let Some(ended) = open.pop_if(|top| top.to <= event.from) {
            segment(&ended, ended.to, &mut done, &mut segments);
        }
        if let Some(interrupted) = open.last() {
            segment(interrupted, event.from, &mut done, &mut segments);
        }
        done = done.max(event.from);
        open.push(event);
    }
    while let Some(ended) = open.pop() {
        segment(&ended, ended.to, &mut done, &mut segments);
    }
    segments
}

/// The part of an event up to a moment that no inner one covers.
fn segment(of: &UncutEvent, to: Nanos, done: &mut Nanos, segments: &mut Vec<Segment>) {
    let from = of.from.max(*done);
    if from < to {
        segments.push(Segment { from, to, class: of.class, event: of.event });
        *done = to;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use crate::trace::{ClassTimes, EventLane, EventLanes, Job, text};
    use crate::units::Nanos;

    fn lanes(input: &str) -> EventLanes {
        let job = Job::new(vec![("a.json".to_owned(), text::parse(input).unwrap())]).unwrap();
        EventLanes::new(Arc::new(job), |_| 0)
    }

    fn shown(lanes: &EventLanes, lane: &EventLane) -> Vec<String> {
        let of = lane.between(Nanos(0), Nanos(u64::MAX)).iter();
        let one = |segment: &super::Segment| {
            let (from, to) = (segment.from.0 / 1000, segment.to.0 / 1000);
            format!("{from}..{to} {}", lanes.name(lane, *segment))
        };
        of.map(one).collect()
    }

    #[test]
    fn an_event_around_one_of_its_name_counts_once() {
        let lanes = lanes("op main 0..100 forward\nop main 10..20 forward\nop main 30..40 other");
        let rows = lanes.range(Nanos(0), lanes.length()).host;
        let rows: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.count, row.time.0 / 1000)).collect();
        assert_eq!(rows, [("forward", 2, 90), ("other", 1, 10)]);
    }

    #[test]
    fn at_each_moment_stands_what_began_last() {
        let check = |input: &str, expect: &[&str]| {
            let found = lanes(input);
            assert_eq!(shown(&found, &found.lanes()[0]), expect, "{input}");
        };
        check("op m 0..9 f\n op m 2..5 g\n op m 3..4 h", &["0..2 f", "2..3 g", "3..4 h", "4..5 g", "5..9 f"]);
        check("op m 5..9 f\n op m 12..15 g", &["0..4 f", "7..10 g"]);
        // It ends after what it is in.
        check("op m 0..5 f\n op m 3..8 g", &["0..3 f", "3..8 g"]);
        check("kernel 0/7 0..10 a\n kernel 0/7 2..4 b", &["0..2 a", "2..4 b", "4..10 a"]);
    }

    #[test]
    fn lanes_are_streams_then_threads_by_time() {
        let found = lanes("op m 0..2 f\n op n 0..9 g\n kernel 0/7 0..1 a\n kernel 0/8 0..5 b");
        let labels: Vec<_> = found.lanes().iter().map(|lane| lane.label.as_str()).collect();
        assert_eq!(labels, ["gpu0 stream 8", "gpu0 stream 7", "thread n", "thread m"]);
    }

    #[test]
    fn lanes_of_a_rank_with_its_own_clock_say_so() {
        let parse = |input: &str| text::parse(input).unwrap();
        let one = "kernel 0/7 5..6 a\n op m 0..9 f\n counter 1 3 bytes=5 live";
        let traces = vec![("a".to_owned(), parse(one)), ("b".to_owned(), parse(one))];
        let found = EventLanes::with_unaligned(Arc::new(Job::new(traces).unwrap()), |_| 0, vec![1]);
        let lanes = found.lanes().iter().map(|lane| lane.label.as_str());
        let counters = found.counters().iter().map(|counter| counter.label.as_str());
        let expect = [
            "rank 0 gpu0 stream 7",
            "rank 0 thread m",
            "rank 1 own clock gpu0 stream 7",
            "rank 1 own clock thread m",
            "rank 0 live",
            "rank 1 own clock live",
        ];
        assert_eq!(lanes.chain(counters).collect::<Vec<_>>(), expect);
        assert_eq!(found.unaligned(), [1]);
    }

    #[test]
    fn sums_over_many_lanes_stay_at_the_largest_number() {
        // Each as long as an import accepts.
        let found = lanes(&(0..700).map(|n| format!("op m{n} 0..31622400000000 f\n")).collect::<String>());
        let rows = found.range(Nanos(0), found.length()).host;
        assert_eq!((rows[0].count, rows[0].time), (700, Nanos(u64::MAX)));
    }

    #[test]
    fn the_nearest_event_is_found_in_gaps() {
        let found = lanes("kernel 0/7 0..10 a\n kernel 0/7 20..30 b");
        let lane = &found.lanes()[0];
        let check = |at: u64, expect: &str| {
            let segment = lane.nearest(Nanos(at * 1000)).unwrap();
            assert_eq!(found.name(lane, segment), expect, "at {at}");
        };
        for (at, expect) in [(0, "a"), (9, "a"), (14, "a"), (16, "b"), (29, "b"), (99, "b")] {
            check(at, expect);
        }
    }

    #[test]
    fn work_is_told_with_its_launch() {
        let found = lanes("call m 0..2 cudaLaunchKernel #1\n copy 0/7 10..20 Memcpy #1 4096B");
        let lane = &found.lanes()[0];
        let facts = found.facts(lane, lane.nearest(Nanos(12_000)).unwrap()).unwrap();
        let launch = facts.launch.unwrap();
        assert_eq!((launch.call.as_str(), launch.thread.as_str()), ("cudaLaunchKernel", "m"));
        assert_eq!((launch.delay, facts.duration, facts.bytes.0), (Nanos(8_000), Nanos(10_000), 4096));
    }

    #[test]
    fn ranks_stand_on_one_clock() {
        let parse = |input: &str| text::parse(input).unwrap();
        let traces = vec![
            ("a".to_owned(), parse("kernel 0/7 5..6 a")),
            ("b".to_owned(), parse("kernel 0/7 105..106 a")),
        ];
        let job = Arc::new(Job::new(traces).unwrap());
        let begins = |offset: i64| {
            let found = EventLanes::new(Arc::clone(&job), |rank| if rank == 1 { offset } else { 0 });
            found.lanes().iter().map(|lane| lane.nearest(Nanos(0)).unwrap().from.0).collect::<Vec<_>>()
        };
        assert_eq!(begins(0), [0, 100_000]);
        assert_eq!(begins(100_000), [0, 0]);
    }

    fn any_trace() -> impl Strategy<Value = String> {
        let event = (0u8..3, 0u8..2, 0u64..200, 0u64..60).prop_map(|(kind, lane, begin, length)| {
            let end = begin + length;
            match kind {
                0 => format!("op t{lane} {begin}..{end} f"),
                1 => format!("call t{lane} {begin}..{end} cudaLaunchKernel"),
                _ => format!("kernel 0/{lane} {begin}..{end} a"),
            }
        });
        prop::collection::vec(event, 1..200).prop_map(|events| events.join("\n"))
    }

    proptest! {
        #[test]
        fn parts_of_the_time_make_the_whole(input in any_trace(), cuts in prop::collection::vec(0u64..260_000, 0..5)) {
            let found = lanes(&input);
            let mut cuts = cuts;
            cuts.extend([0, 300_000]);
            cuts.sort_unstable();
            for lane in found.lanes() {
                let whole = lane.times(Nanos(0), Nanos(300_000));
                let parts = cuts.array_windows::<2>().map(|[from, to]| lane.times(Nanos(*from), Nanos(*to)));
                let sum = parts.fold(ClassTimes::default(), |sum, part| std::array::from_fn(|at| sum[at] + part[at]));
                prop_assert_eq!(sum, whole);
                let plain: u64 = lane
                    .between(Nanos(0), Nanos(300_000))
                    .iter()
                    .map(|segment| segment.to.0 - segment.from.0)
                    .sum();
                prop_assert_eq!(whole.iter().sum::<u64>(), plain);
            }
        }

        #[test]
        fn tables_of_a_range_have_the_time_of_its_lanes(
            input in any_trace(),
            from in 0u64..260_000,
            length in 0u64..99_000,
        ) {
            let found = lanes(&input);
            let (from, to) = (Nanos(from), Nanos(from + length));
            let tables = found.range(from, to);
            let of = |streams: bool| -> u64 {
                let lanes = found.lanes().iter().filter(|lane| lane.is_stream == streams);
                lanes.flat_map(|lane| lane.times(from, to)).sum()
            };
            prop_assert_eq!(tables.device.iter().map(|row| row.time.0).sum::<u64>(), of(true));
            prop_assert_eq!(tables.host.iter().map(|row| row.time.0).sum::<u64>(), of(false));
        }
    }
}
