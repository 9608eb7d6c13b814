use deepctx_profile::metric::Metric;
use proptest::prelude::*;

use super::super::streams::StreamKey;
use super::queue::QUEUE_MAX;
use super::*;
use crate::spans::{CounterValue, SpanThread};

const STARTED_NS: u64 = 1_000;

fn recorder() -> Recorder {
    Recorder::new(STARTED_NS, TraceWindow::First(Nanos(100_000)), TraceLevel::Calls)
}

fn call(kind: RecordedKind, number: u64, stream: u64, object: u64) -> RecordedCall {
    RecordedCall {
        kind,
        number,
        time_ns: STARTED_NS + number * 10,
        pid: 7,
        tid: 8,
        node: NodeId::ROOT,
        stream: StreamKey::new(stream, 8, false),
        object,
        is_captured: false,
        exchange: None,
    }
}

fn work(launch: u64, begin_ns: u64) -> RecordedWork<'static> {
    let launch = Some((launch, STARTED_NS + launch * 10));
    let times = Some((begin_ns, Nanos(5)));
    RecordedWork { pid: 7, node: NodeId::ROOT, launch, basis: Basis::Exact, times, order: 0, after: None }
}

fn kernel() -> Activity {
    Activity { kind: kind::KERNEL, stream: 13, correlation: 70, ..Activity::default() }
}

/// Calls as (kind, stream, object), numbered from 1, each returning 4 ns later; the result as `kind position <cause`.
fn check(calls: &[(RecordedKind, u64, u64)], expect: &[&str]) {
    let mut recorder = recorder();
    for (number, (kind, stream, object)) in (1..).zip(calls) {
        let call = call(*kind, number, *stream, *object);
        recorder.called(&call);
        recorder.returned(number, 0, call.time_ns + 4);
    }
    let events = recorder.take().unwrap().events;
    let shown: Vec<String> = events
        .iter()
        .map(|event| {
            assert_eq!(event.end, End::After(Nanos(4)));
            let cause = event.cause.map_or(String::new(), |c| format!(" <{} {:?}", c.id, c.basis));
            format!("{} {}{cause}", event.kind.name(), event.position)
        })
        .collect();
    assert_eq!(shown, expect, "{calls:?}");
}

#[test]
fn a_wait_for_an_event_is_caused_by_its_record() {
    use RecordedKind::{EventSync, Launch, Record, StreamWait};
    check(
        &[(Launch, 10, 0), (Record, 10, 70), (StreamWait, 11, 70), (EventSync, 0, 70), (EventSync, 0, 71)],
        &[
            "launch 1",
            "record 2 <1 ByOrder",
            "stream-wait 0 <2 Exact",
            "event-sync 0 <2 Exact",
            "event-sync 0",
        ],
    );
}

#[test]
fn a_stream_wait_is_caused_by_its_last_launch() {
    use RecordedKind::{ContextSync, Launch, StreamSync, Transfer};
    check(
        &[(StreamSync, 10, 0), (Launch, 10, 0), (Transfer, 10, 0), (Launch, 11, 0), (StreamSync, 10, 0)],
        &["stream-sync 0", "launch 1", "transfer 2", "launch 1", "stream-sync 2 <3 ByOrder"],
    );
    check(&[(Launch, 10, 0), (ContextSync, 0, 0)], &["launch 1", "context-sync 0"]);
}

#[test]
fn captured_launches_have_no_place_in_their_stream() {
    let mut recorder = recorder();
    recorder.called(&RecordedCall { is_captured: true, ..call(RecordedKind::Launch, 1, 10, 0) });
    recorder.called(&call(RecordedKind::StreamSync, 2, 10, 0));
    recorder.finish(None);
    let events = recorder.take().unwrap().events;
    assert!(events.iter().all(|event| event.position == 0 && event.cause.is_none()), "{events:?}");
    assert!(events.iter().all(|event| event.end == End::NotReturned));
}

#[test]
fn work_is_caused_by_its_launch_also_behind_the_window() {
    let mut recorder = recorder();
    recorder.worked(&work(1, STARTED_NS + 200_000), &kernel());
    recorder.worked(&RecordedWork { launch: None, ..work(1, STARTED_NS + 200_000) }, &kernel());
    recorder.worked(&RecordedWork { times: None, ..work(1, 0) }, &kernel());
    let events = recorder.take().unwrap().events;
    let [event, gap] = events[..] else { panic!("{events:?}") };
    assert_eq!(event.cause, Some(Cause { id: 1, basis: Basis::Exact }));
    // When work without times ran is not known; when it was launched is.
    assert_eq!(gap, RecordedEvent::gap(event.lane, Nanos(10), Nanos(10), 1));
    let account = recorder.account();
    assert_eq!((account.received, account.kept, account.left_out(NotTraced::WithoutTimes)), (2, 1, 1));
}

#[test]
fn calls_outside_the_window_are_not_recorded() {
    let mut recorder = recorder();
    recorder.called(&RecordedCall { time_ns: STARTED_NS - 1, ..call(RecordedKind::Launch, 1, 10, 0) });
    recorder.called(&RecordedCall { time_ns: STARTED_NS + 100_000, ..call(RecordedKind::Launch, 2, 10, 0) });
    recorder.finish(None);
    assert_eq!((recorder.take(), recorder.account().received), (None, 0));
}

#[test]
fn spans_that_begin_in_the_window_keep_their_end() {
    let mut recorder = recorder();
    let of = SpanThread { pid: 7, tid: 8 };
    let mut span = |kind, began_ns, end| {
        recorder.span(&Span { kind, of, node: NodeId::ROOT, began_ns, end });
    };
    span(SpanKind::Range, STARTED_NS - 1, SpanEnd::At(STARTED_NS + 5));
    span(SpanKind::Range, STARTED_NS + 1, SpanEnd::At(STARTED_NS + 200_000));
    span(SpanKind::Step(3), STARTED_NS + 2, SpanEnd::Lost);
    span(SpanKind::Step(4), STARTED_NS + 3, SpanEnd::Open);
    span(SpanKind::Step(5), STARTED_NS + 100_000, SpanEnd::Open);
    let events = recorder.take().unwrap().events;
    let shown: Vec<_> =
        events.iter().map(|event| (event.kind.name(), event.start.0, event.end, event.position)).collect();
    let expect = [
        ("range", 1, End::After(Nanos(199_999)), 0),
        ("step", 2, End::ReturnLost, 3),
        ("step", 3, End::NotReturned, 4),
    ];
    assert_eq!(shown, expect);
    assert_eq!((recorder.account().received, recorder.account().kept), (3, 3));
}

#[test]
fn what_began_before_the_capture_is_not_recorded() {
    let window = TraceWindow::FromWork(Nanos(100_000));
    let mut recorder = Recorder::new(STARTED_NS, window, TraceLevel::Calls);
    let of = SpanThread { pid: 7, tid: 8 };
    for began_ns in [STARTED_NS - 5, STARTED_NS + 5] {
        let (kind, end) = (SpanKind::OffCpu(None), SpanEnd::At(STARTED_NS + 9));
        recorder.span(&Span { kind, of, node: NodeId::ROOT, began_ns, end });
        let number = began_ns;
        recorder.called(&RecordedCall { time_ns: began_ns, ..call(RecordedKind::Launch, number, 10, 0) });
    }
    recorder.finish(None);
    let starts: Vec<u64> = recorder.take().unwrap().events.iter().map(|event| event.start.0).collect();
    assert_eq!(starts, [5, 5]);
}

#[test]
fn levels_record_what_they_say() {
    use RecordedKind::{Call, Launch, Operator, StreamSync, Transfer};
    let check = |level, expect: &[(RecordedKind, End)]| {
        let mut recorder = Recorder::new(STARTED_NS, TraceWindow::First(Nanos(100_000)), level);
        for (number, kind) in (1..).zip([Launch, Transfer, StreamSync, Call]) {
            recorder.called(&call(kind, number, 10, 0));
            recorder.returned(number, 0, STARTED_NS + number * 10 + 4);
        }
        let of = SpanThread { pid: 7, tid: 8 };
        let (node, began_ns, end) = (NodeId::ROOT, STARTED_NS + 70, SpanEnd::Open);
        // Stages hand over only what the level asks for.
        if recorder.trace_level() == TraceLevel::Context {
            recorder.span(&Span { kind: SpanKind::Operator, of, node, began_ns, end });
        }
        let events = recorder.take().unwrap().events;
        let found: Vec<_> = events.iter().map(|event| (event.kind, event.end)).collect();
        assert_eq!(found, expect, "{level:?}");
    };
    let known = End::After(Nanos(4));
    check(TraceLevel::Launches, &[(Launch, End::NotWatched), (Transfer, End::NotWatched)]);
    let calls = [(Launch, known), (Transfer, known), (StreamSync, known), (Call, known)];
    check(TraceLevel::Calls, &calls);
    check(TraceLevel::Context, &[&calls[..], &[(Operator, End::NotWatched)]].concat());
}

#[test]
fn a_window_of_steps_ends_where_it_began() {
    let window = TraceWindow::Steps { from: 5, until: 7 };
    let mut recorder = Recorder::new(STARTED_NS, window, TraceLevel::Calls);
    let of = SpanThread { pid: 7, tid: 8 };
    let mut number = 0;
    let mut begins = |recorder: &mut Recorder, place, step, at_ns| {
        let kind = SpanKind::StepBegins(step);
        let node = NodeId::from_number(place);
        recorder.span(&Span { kind, of, node, began_ns: at_ns, end: SpanEnd::Open });
        number += 1;
        recorder.called(&RecordedCall { time_ns: at_ns, ..call(RecordedKind::Launch, number, 10, 0) });
    };
    begins(&mut recorder, 1, 4, 2_000);
    assert_eq!(recorder.awaited(), Some(AwaitedBegin::Step(5)));
    // Steps of another place neither begin nor end the window.
    for (place, step, at_ns) in [(1, 5, 2_100), (2, 7, 2_200), (1, 6, 2_300), (1, 7, 2_400), (1, 8, 2_500)] {
        begins(&mut recorder, place, step, at_ns);
    }
    recorder.finish(None);
    assert_eq!(recorder.awaited(), None);
    let times: Vec<u64> = recorder.take().unwrap().events.iter().map(|event| event.start.0).collect();
    assert_eq!(times, [1_100, 1_200, 1_300]);
}

#[test]
fn a_full_queue_leaves_a_gap_in_its_lane() {
    let mut recorder = recorder();
    for _ in 0..QUEUE_MAX + 3 {
        recorder.worked(&work(1, STARTED_NS + 50), &kernel());
    }
    let batch = recorder.take().unwrap();
    let last = batch.events.last().unwrap();
    assert_eq!((last.kind, last.position, last.start), (RecordedKind::Gap, 3, Nanos(50)));
    assert_eq!(recorder.account().left_out(NotTraced::QueueFull), 3);
}

proptest! {
    #[test]
    fn every_event_is_kept_or_left_out(
        steps in prop::collection::vec((0u8..5, 1u64..40), 0..300),
    ) {
        let mut recorder = recorder();
        let (mut events, mut expected) = (0u64, std::collections::BTreeSet::new());
        let mut works = 0u64;
        for (step, number) in steps {
            match step {
                0 | 1 if !expected.contains(&number) => {
                    expected.insert(number);
                    recorder.called(&call(RecordedKind::Launch, number, number % 3, 0));
                }
                2 => recorder.returned(number, 0, STARTED_NS + 1000),
                3 => {
                    works += 1;
                    recorder.worked(&work(number, STARTED_NS + number), &kernel());
                }
                _ => events += recorder.take().map_or(0, |batch| batch.events.len() as u64),
            }
        }
        recorder.finish(None);
        events += recorder.take().map_or(0, |batch| batch.events.len() as u64);
        let account = recorder.account();
        prop_assert_eq!(account.received, account.kept + account.lost());
        prop_assert_eq!((account.kept, events), (expected.len() as u64 + works, account.kept));
    }
}

/// The recorded counter values: metric, begin, end, value, and number of merged values.
fn counted(recorder: &mut Recorder) -> Vec<String> {
    let Some(batch) = recorder.take() else { return Vec::new() };
    let shown = |event: &RecordedEvent| {
        let Lane::Counter { pid, metric, .. } = batch.lanes[event.lane as usize] else { panic!("{event:?}") };
        let counted = event.counted().unwrap();
        let end = event.start.0 + event.end.duration().0;
        format!("{pid} {metric} {}..{end} {} +{}", event.start.0, counted.value, counted.merged)
    };
    batch.events.iter().map(shown).collect()
}

fn counter_value(pid: u32, metric: Metric, from: u64, to: u64, value: u64) -> CounterValue {
    let (from_ns, to_ns) = (STARTED_NS + from, STARTED_NS + to);
    CounterValue { pid, metric, node: NodeId::ROOT, from_ns, to_ns, value }
}

#[test]
fn a_level_has_one_value_in_a_millisecond() {
    const MS: u64 = 1_000_000;
    let mut recorder = Recorder::new(STARTED_NS, TraceWindow::First(Nanos(10 * MS)), TraceLevel::Calls);
    let values = [(0, 1), (10, 2), (MS - 1, 3), (MS, 4), (3 * MS, 5), (3 * MS + 1, 6), (10 * MS, 7)];
    for (at, value) in values {
        recorder.level(counter_value(7, Metric::LiveBytes, at, at, value));
    }
    // Another level is separate from these.
    recorder.level(counter_value(7, Metric::ReservedBytes, 20, 20, 9));
    recorder.advance(u64::MAX);
    let expect = [
        "7 live-bytes 999999..999999 3 +2",
        "7 live-bytes 1000000..1000000 4 +0",
        "7 live-bytes 3000001..3000001 6 +1",
        "7 reserved-bytes 20..20 9 +0",
    ];
    let mut found = counted(&mut recorder);
    found.sort_by_key(|line| line.contains("reserved"));
    assert_eq!(found, expect);
    assert_eq!((recorder.account().received, recorder.account().kept), (4, 4));
}

#[test]
fn the_level_as_the_window_begins_is_recorded() {
    let mut recorder = Recorder::new(STARTED_NS, TraceWindow::OnRequest(Nanos(1000)), TraceLevel::Calls);
    let level = |recorder: &mut Recorder, at, value| {
        recorder.level(counter_value(7, Metric::LiveBytes, at, at, value));
    };
    level(&mut recorder, 10, 1);
    level(&mut recorder, 20, 2);
    recorder.advance(STARTED_NS + 30);
    assert_eq!(counted(&mut recorder), [""; 0]);
    recorder.request_window(STARTED_NS + 50);
    recorder.advance(STARTED_NS + 40);
    assert_eq!(counted(&mut recorder), [""; 0], "the records have not come to the window");
    recorder.advance(STARTED_NS + 60);
    assert_eq!(counted(&mut recorder), ["7 live-bytes 50..50 2 +0"]);
    level(&mut recorder, 2000, 3);
    recorder.advance(u64::MAX);
    assert_eq!(counted(&mut recorder), [""; 0], "the window is over");
}

#[test]
fn readings_of_the_machine_wait_for_the_records() {
    let mut recorder = Recorder::new(STARTED_NS, TraceWindow::OnRequest(Nanos(1000)), TraceLevel::Launches);
    let readings = [
        (Metric::CpuBusyTime, 0, 500, 1),
        (Metric::CpuBusyTime, 500, 1000, 2),
        (Metric::CpuBusyTime, 1000, 1500, 2),
        (Metric::MemoryUsedBytes, 500, 1000, 9),
        (Metric::MemoryUsedBytes, 1000, 1500, 9),
        (Metric::CpuStealTime, 500, 1000, 0),
        (Metric::CpuStealTime, 1000, 1500, 0),
        (Metric::CpuBusyTime, 2000, 2500, 3),
    ];
    for (metric, from, to, value) in readings {
        recorder.machine(counter_value(0, metric, from, to, value));
    }
    assert_eq!(counted(&mut recorder), [""; 0]);
    // The request comes after the values.
    recorder.request_window(STARTED_NS + 600);
    recorder.advance(u64::MAX);
    let expect = [
        "0 system:cpu-busy-time 500..1000 2 +0",
        // An equal sum is an equal rate only over an equal length, which a reader sees.
        "0 system:cpu-busy-time 1000..1500 2 +0",
        "0 system:memory-used-bytes 500..1000 9 +0",
        "0 system:cpu-steal-time 500..1000 0 +0",
    ];
    assert_eq!(counted(&mut recorder), expect);
}
