use super::super::event::{Status, Waker};
use super::super::recorded::{Cause, OFF_CPU_END_MISSING, RANGE_END_MISSING, WakeSource, WakeUp};
use super::super::{Launch, Links, Waiter};
use super::*;
use crate::device::activity::{ClockOffset, GpuProcess};
use crate::frame::Frame;
use crate::profile::{Limits, Meta};
use crate::units::Nanos;

const LANES: [Lane; 4] = [
    Lane::Thread { pid: 7, tid: 8 },
    Lane::Stream { pid: 7, device: 0, context: 1, stream: 13 },
    Lane::Stream { pid: 7, device: 0, context: 1, stream: 14 },
    Lane::Thread { pid: 9, tid: 9 },
];

/// `launch 0 10+2 #5 s700 <4 =0 launch`: kind, lane, start and length, number, stream, cause (`~4` by order),
/// result, name.
fn event(profile: &mut Profile, line: &str) -> RecordedEvent {
    let words: Vec<&str> = line.split_whitespace().collect();
    let find = |mark: &str| words[3..].iter().find_map(|word| word.strip_prefix(mark)?.parse().ok());
    let cause = |mark, basis| find(mark).map(|id| Cause { id, basis });
    let (start, length) = words[2].split_once('+').unwrap();
    let name = profile.text(words[words.len() - 1]);
    let frame = profile.frame(Frame::GpuApi { name });
    let result: Option<u32> = words[3..].iter().find_map(|word| word.strip_prefix('=')?.parse().ok());
    let event = RecordedEvent {
        kind: RecordedKind::from_name(words[0]).unwrap(),
        lane: words[1].parse().unwrap(),
        start: Nanos(start.parse().unwrap()),
        end: length.parse().map_or(End::NotReturned, |length| End::After(Nanos(length))),
        node: profile.tree.child(NodeId::ROOT, frame),
        id: find("#").unwrap_or(0),
        cause: cause("<", Basis::Exact).or_else(|| cause("~", Basis::ByOrder)),
        correlation: 0,
        stream: find("s").unwrap_or(0),
        object: 0,
        position: find("p").unwrap_or(0),
        bytes: 0,
        graph_node: find("n").unwrap_or(0),
    };
    result.map_or(event, |result| event.returned(result, event.end.duration()))
}

fn assembled(lines: &str) -> Vec<(u32, Trace)> {
    let mut profile = Profile::new(Meta::default(), Limits::default());
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let events: Vec<RecordedEvent> = lines.map(|line| event(&mut profile, line)).collect();
    assemble(&profile, &LANES, events)
}

/// Waits of the trace of process 7: waiter, target, and basis.
fn check(lines: &str, expect: &[&str]) {
    let traces = assembled(lines);
    let trace = &traces[0].1;
    let links = Links::of(trace);
    let device = |id| trace.name(trace.device.get(id).unwrap().name);
    let mut found: Vec<String> = links
        .waits()
        .map(|wait| {
            let waiter = match wait.waiter {
                Waiter::Host(call) => trace.name(trace.host.get(call).unwrap().name),
                Waiter::Device(op) => device(op),
            };
            format!("{waiter} waits for {} {:?}", device(wait.on), wait.basis)
        })
        .collect();
    found.sort();
    assert_eq!(found, expect, "{lines}");
}

#[test]
fn waits_refer_to_the_streams_of_their_handles() {
    check(
        "launch 0 10+2 #1 s700 cuLaunchKernel
         launch 0 14+2 #2 s701 cuLaunchKernel
         kernel 1 20+10 <1 first
         kernel 2 20+90 <2 second
         stream-sync 0 25+6 #3 s700 cuStreamSynchronize",
        &["cuStreamSynchronize waits for first Exact"],
    );
}

#[test]
fn work_that_was_joined_by_order_says_so() {
    let traces = assembled(
        "launch 0 10+1 #1 s700 cuLaunchKernel
         transfer 0 12+9 #2 s700 cuMemcpyHtoD
         launch 0 30+1 #3 s700 cuLaunchKernel
         kernel 1 11+1 ~1 by-order
         copy 1 13+5 ~2 blocking
         kernel 1 31+1 <3 exact",
    );
    let trace = &traces[0].1;
    let links = Links::of(trace);
    let is_exact = |(id, _)| matches!(links.launch(id), Launch::Exact(_));
    let is_by_order = |(id, _)| matches!(links.launch(id), Launch::ByOrder(_));
    assert!(trace.device.iter().map(is_exact).eq([false, false, true]));
    assert!(trace.device.iter().map(is_by_order).eq([true, true, false]));
    // A call that outlasts its copy waits for it; that this is its copy follows from the order.
    assert!(links.waits().map(|wait| wait.basis).eq([Basis::ByOrder]));
}

#[test]
fn work_behind_a_stream_wait_waits_for_recorded_work() {
    check(
        "launch 0 10+1 #1 s700 cuLaunchKernel
         record 0 12+1 #2 s700 cuEventRecord
         launch 0 13+1 #3 s700 cuLaunchKernel
         stream-wait 0 14+1 #4 s701 <2 cuStreamWaitEvent
         launch 0 16+1 #5 s701 cuLaunchKernel
         kernel 1 20+10 <1 recorded
         kernel 1 30+90 <3 later
         kernel 2 30+5 <5 behind",
        &["behind waits for recorded Exact"],
    );
}

#[test]
fn work_of_graphs_waits_for_the_nodes_before_it() {
    // Two copies of one graph: first, two branches, and the node after both. The second branch ends last in the first
    // launch, the first one in the second.
    check(
        "launch 0 10+1 #1 s700 cuGraphLaunch
         kernel 1 20+10 <1 p1 n91 first
         graph-edge 1 20+0 p0 n91 -
         kernel 1 31+5 <1 p2 n92 short
         graph-edge 1 31+0 ~0 p1 n92 -
         kernel 1 31+9 <1 p3 n93 long
         graph-edge 1 31+0 ~0 p1 n93 -
         kernel 1 41+5 <1 p4 n94 last
         graph-edge 1 41+0 ~0 p2 n94 -
         graph-edge 1 41+0 ~0 p3 n94 -
         launch 0 50+1 #2 s700 cuGraphLaunch
         kernel 1 61+1 <2 p1 n91 FIRST
         kernel 1 63+9 <2 p2 n92 SHORT
         kernel 1 63+4 <2 p3 n93 LONG
         kernel 1 73+1 <2 p4 n94 LAST
         launch 0 80+1 #3 s700 cuGraphLaunch
         kernel 1 91+1 <3 p1 n81 copied
         kernel 1 93+9 <3 p2 n82 alone
         graph-edge 1 93+0 ~0 p1 n82 -",
        &[
            "LAST waits for SHORT ByOrder",
            "LONG waits for FIRST ByOrder",
            "SHORT waits for FIRST ByOrder",
            "alone waits for copied ByOrder",
            "last waits for long ByOrder",
            "long waits for first ByOrder",
            "short waits for first ByOrder",
        ],
    );
    // If the work of a node is missing, it is unknown what the next one waited for.
    check(
        "kernel 1 20+10 <1 p2 n92 one
         kernel 1 40+10 <1 p4 n94 last
         graph-edge 1 41+0 ~0 p2 n94 -
         graph-edge 1 41+0 ~0 p3 n94 -
         kernel 1 60+10 <2 p2 n92 two
         kernel 1 61+10 <2 p3 n93 three
         kernel 1 80+10 <2 p4 n94 end",
        &["end waits for three ByOrder"],
    );
}

#[test]
fn a_handle_that_came_again_is_another_stream() {
    check(
        "launch 0 10+1 #1 s700 cuLaunchKernel
         kernel 1 12+3 <1 old
         launch 0 20+1 #2 s700 cuLaunchKernel
         kernel 2 22+3 <2 new
         stream-sync 0 23+4 #3 s700 cuStreamSynchronize",
        &["cuStreamSynchronize waits for new Exact"],
    );
}

#[test]
fn each_process_has_its_own_trace() {
    let traces = assembled("launch 0 1+1 #1 s1 cuLaunchKernel\nlaunch 3 2+1 #2 s1 cudaLaunchKernel");
    let pids: Vec<u32> = traces.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(pids, [7, 9]);
    let kinds = traces.iter().map(|(_, trace)| trace.host.iter().next().unwrap().1.kind);
    assert_eq!(kinds.collect::<Vec<_>>(), [HostKind::DriverCall, HostKind::RuntimeCall]);
}

#[test]
fn copies_are_called_as_other_tools_call_them() {
    let traces = assembled("copy 1 1+1 memcpy\n fill 1 2+1 memset\n kernel 1 3+1 memcpy\n copy 1 4+1 [x]");
    let trace = &traces[0].1;
    let names = trace.device.iter().map(|(_, op)| trace.name(op.name));
    assert!(names.eq(["Memcpy", "Memset", "memcpy", "[x]"]));
}

#[test]
fn traces_say_how_well_their_devices_clock_is_known() {
    let mut profile = Profile::new(Meta::default(), Limits::default());
    let clock = ClockOffset { offset_ns: -5, uncertainty: Nanos(1_500), drift_ns: 20, readings: 7 };
    profile.gpu.processes.push(GpuProcess { pid: 9, clock: Some(clock), ..GpuProcess::default() });
    let lines = ["launch 0 1+1 #1 s1 x", "launch 3 2+1 #2 s1 x"];
    let events: Vec<RecordedEvent> = lines.iter().map(|line| event(&mut profile, line)).collect();
    let traces = assemble(&profile, &LANES, events);
    assert!(traces.iter().map(|(pid, of)| (*pid, of.device_clock)).eq([(7, None), (9, Some(clock))]));
}

#[test]
fn what_is_missing_is_counted() {
    let check = |line: &str, key: &str, count: u64| {
        let trace = &assembled(&format!("launch 0 1+1 #1 s1 x\n{line}"))[0].1;
        let store = trace.ledger.stage(Stage::Store);
        assert_eq!(store.dropped.count(key) + store.gaps.count(key), count, "{line}");
    };
    // Rows for lost events say when; the recorder's account says how many, and why.
    check("gap 0 5+5 p42 lost", NotTraced::QueueFull.reason().key, 0);
    let trace = &assembled("launch 0 1+1 #1 s1 x\ngap 0 5+5 p42 lost\ngap 1 7+1 p3 lost")[0].1;
    let found = trace
        .lost
        .iter()
        .map(|(_, lost)| (trace.name(lost.lane), lost.from.as_nanos(), lost.to.as_nanos(), lost.events));
    assert!(found.eq([("thread 8", 5, 10, 42), ("gpu0 stream 13", 7, 8, 3)]));
    check("launch 99 5+5 #2 s1 x", NotTraced::Unreadable.reason().key, 1);
    check("gap 99 5+5 p42 x", NotTraced::Unreadable.reason().key, 0);
    check("launch 0 5+? #2 s1 x", CALL_END_MISSING.key, 1);
    check("range 0 5+? x", RANGE_END_MISSING.key, 1);
    check("step 0 5+? p3 x", RANGE_END_MISSING.key, 1);
    check("off-cpu 0 5+? x", OFF_CPU_END_MISSING.key, 1);
}

#[test]
fn events_without_their_lanes_are_lost_for_every_process() {
    let mut profile = Profile::new(Meta::default(), Limits::default());
    let lines = ["launch 0 1+1 #1 s1 x", "launch 1 2+1 #1 s1 x", "kernel 2 20+5 <1 x", "kernel 9 40+5 <1 x"];
    let events: Vec<RecordedEvent> = lines.iter().map(|line| event(&mut profile, line)).collect();
    let traces = assemble(&profile, &[LANES[0], LANES[3], LOST_LANE], events);
    for (pid, trace) in &traces {
        let lost = trace.lost.iter().map(|(_, lost)| {
            assert_eq!(trace.name(lost.lane), UNKNOWN_LANE);
            (lost.from.as_nanos(), lost.to.as_nanos(), lost.events)
        });
        assert!(lost.eq([(20, 25, 1), (40, 45, 1)]), "{pid}");
    }
    let unreadable =
        |trace: &Trace| trace.ledger.stage(Stage::Store).dropped.count(NotTraced::Unreadable.reason().key);
    assert!(traces.iter().map(|(pid, trace)| (*pid, unreadable(trace))).eq([(7, 2), (9, 0)]));
}

#[test]
fn rows_without_their_lanes_are_few_and_never_overflow() {
    let mut profile = Profile::new(Meta::default(), Limits::default());
    let launch = event(&mut profile, "launch 0 1+1 #1 s1 x");
    let gap = |lane| RecordedEvent::gap(lane, Nanos(5), Nanos(9), u64::MAX);
    let events = std::iter::once(launch).chain((4..2004).map(gap));
    let lost = &assemble(&profile, &LANES, events)[0].1.lost;
    assert_eq!(lost.len(), 256);
    assert!(lost.iter().all(|(_, lost)| lost.events == u64::MAX));
}

#[test]
fn calls_say_what_they_returned() {
    let trace = &assembled(
        "launch 0 10+2 #1 s700 =0 cuLaunchKernel
         stream-sync 0 14+2 #2 s700 =719 cuStreamSynchronize
         transfer 0 20+2 #3 s700 cuMemcpyHtoD",
    )[0]
    .1;
    let status = trace.host.iter().map(|(_, op)| op.status);
    assert!(status.eq([Status::Returned(0), Status::Returned(719), Status::Unknown]));
}

#[test]
fn who_ended_time_off_the_cpu_is_kept() {
    let mut profile = Profile::new(Meta::default(), Limits::default());
    let mut events = vec![event(&mut profile, "launch 0 1+1 #1 s1 x")];
    let wakers = [
        None,
        Some(WakeSource::Thread { pid: 7, tid: 8 }),
        Some(WakeSource::Thread { pid: 9, tid: 9 }),
        Some(WakeSource::ThreadOutside),
        Some(WakeSource::Interrupt),
    ];
    for by in wakers {
        let wake_up = by.map(|by| WakeUp { after: Nanos(3), by });
        let event =
            RecordedEvent::off_cpu(0, Nanos(10), End::After(Nanos(5)), NodeId::from_number(1), wake_up);
        assert_eq!(event.wake_up(), wake_up);
        events.push(event);
    }
    let trace = &assemble(&profile, &LANES, events)[0].1;
    let waits = trace.host.iter().filter(|(_, op)| op.kind == HostKind::OffCpu);
    assert!(waits.map(|(_, op)| (op.begin.as_nanos(), op.duration.0)).eq([(10, 5); 5]));
    let by: Vec<_> = trace.wake_ups.iter().map(|(_, event)| (event.at.as_nanos(), event.by)).collect();
    let own = Waker::Thread(Id::from_number(0));
    let expect = [own, Waker::OtherProcess { pid: 9, tid: 9 }, Waker::Outside, Waker::Interrupt];
    assert_eq!(by, expect.map(|by| (13, by)));
}

#[test]
fn steps_of_the_busiest_place_are_the_steps() {
    let traces = assembled(
        "range 0 2+9 outer
         step 0 3+4 p1 optimizer
         step 0 7+3 p2 optimizer
         step 0 5+4 p1 other",
    );
    let trace = &traces[0].1;
    let shown = |kind| -> Vec<_> {
        let of_kind = trace.host.iter().filter(|(_, op)| op.kind == kind);
        of_kind.map(|(_, op)| (trace.name(op.name), op.begin.as_nanos(), op.duration.0)).collect()
    };
    assert_eq!(shown(HostKind::Step), [("optimizer#1", 3, 4), ("optimizer#2", 7, 3)]);
    assert_eq!(shown(HostKind::Annotation), [("outer", 2, 9), ("other#1", 5, 4)]);
}

#[test]
fn counters_belong_to_their_process_or_the_first_trace() {
    use crate::metric::Metric;
    use crate::trace::recorded::{COUNTER_VALUES_MERGED, RecordedValue};

    let mut profile = Profile::new(Meta::default(), Limits::default());
    let mut node = |name: &str| {
        let name = profile.text(name);
        let frame = profile.frame(Frame::Resource { name });
        profile.tree.child(NodeId::ROOT, frame)
    };
    let (cpu, pool) = (node("cpu 0"), node("pool"));
    let lane = |pid, metric, node| Lane::Counter { pid, metric, node };
    let lanes = [
        LANES[0],
        LANES[3],
        lane(0, Metric::CpuBusyTime, cpu),
        lane(9, Metric::LiveBytes, pool),
        lane(11, Metric::LiveBytes, pool),
    ];
    let value = |lane, from, to, node, value, merged| {
        RecordedEvent::counter(lane, Nanos(from), Nanos(to), node, RecordedValue { value, merged })
    };
    let events = vec![
        event(&mut profile, "launch 0 10+2 #1 s700 cuLaunchKernel"),
        event(&mut profile, "launch 1 12+2 #2 s700 cuLaunchKernel"),
        value(2, 0, 500, cpu, 125, 0),
        value(3, 15, 15, pool, 4096, 6),
        value(4, 16, 16, pool, 1, 0),
        RecordedEvent::gap(3, Nanos(20), Nanos(30), 5),
    ];
    let traces = assemble(&profile, &lanes, events);
    let shown: Vec<String> = traces
        .iter()
        .flat_map(|(pid, trace)| {
            trace.counters.iter().map(move |(_, step)| {
                let [process, name, series] =
                    [step.process, step.name, step.series].map(|name| trace.name(name));
                format!("{pid}: {process} {name} {} {} {series}", step.at.as_nanos(), step.value.get())
            })
        })
        .collect();
    let expect = [
        "7: machine system:cpu-busy-time [cpu 0] 0 0.25 share",
        "7: 11 live-bytes [pool] 16 1 bytes",
        "9: 9 live-bytes [pool] 15 4096 bytes",
    ];
    assert_eq!(shown, expect);
    let store = traces[1].1.ledger.stage(Stage::Store);
    assert_eq!(store.gaps.count(COUNTER_VALUES_MERGED.key), 6);
    assert_eq!(store.dropped.count(NotTraced::QueueFull.reason().key), 0, "the account counts them");
    assert!(traces[1].1.lost.is_empty(), "a step with a lost value of a counter is measured");
    // Counters alone are no trace.
    assert!(assemble(&profile, &lanes, [value(2, 0, 500, cpu, 125, 0)]).is_empty());
}
