use proptest::prelude::*;

use deepctx_profile::device::activity::ClockOffset;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::trace::{
    Basis, ClockInfo, CollectiveNote, CommunicatorGroup, CounterStep, CounterValue, DeviceKind, DeviceOp,
    DeviceRange, HostCategory, HostKind, HostOp, Job, Links, MemoryEvent, RankInfo, Status, Sync, SyncKind,
    Trace, TraceTime, WakeUpEvent, Waker, listing,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Bytes, Nanos};

use super::*;
use crate::import;

const FORMATS: [Format; 2] = [Format::Chrome, Format::Perfetto];

fn profile() -> Profile {
    Profile::new(Meta::default(), Limits { nodes: 16, frames: 16, string_bytes: 1 << 10 })
}

fn export(job: &Job, format: Format) -> Vec<u8> {
    let profile = profile();
    let selection = deepctx_profile::view::Selection::of(deepctx_profile::metric::Metric::WallTime);
    let source = Source { profile: &profile, selection, elapsed: Nanos(0), folds: true };
    let mut out = Vec::new();
    format.write_events(&source, &Events::of(job, |_| 0), &mut out).unwrap();
    out
}

fn job(traces: Vec<Trace>) -> Job {
    Job::new(traces.into_iter().map(|trace| (String::new(), trace)).collect()).unwrap()
}

/// Every trace of a job, written and read back.
fn again(job: &Job, format: Format) -> Vec<Trace> {
    let (traces, _) = import::traces(&export(job, format)).unwrap();
    traces.into_iter().map(|(_, trace)| trace).collect()
}

fn check(job: &Job, format: Format) {
    let found = again(job, format);
    assert_eq!(found.len(), job.ranks().len(), "{format}");
    for (found, expect) in found.iter().zip(job.ranks()) {
        let (found_rows, expect_rows) = (listing(found), listing(&expect.trace));
        let differ = found_rows.iter().zip(&expect_rows).find(|(found, expect)| found != expect);
        assert_eq!(differ, None, "{format}, rank {}", expect.rank);
        assert_eq!(found_rows.len(), expect_rows.len(), "{format}");
        assert_eq!(found.ledger, expect.trace.ledger, "{format}");
        assert_eq!(lost(found), lost(&expect.trace), "{format}");
        assert_eq!(found.device_clock, expect.trace.device_clock, "{format}");
    }
}

/// A note that a kernel is a collective: its operation, its communicator, and the type of its elements.
fn collective(trace: &mut Trace, op: Id<DeviceOp>, words: [&str; 3]) -> CollectiveNote {
    let [operation, communicator, element] = words.map(|word| trace.text(word));
    let (group_size, elements_in) = (4, 8);
    CollectiveNote {
        op,
        operation,
        communicator,
        group_size,
        elements_in,
        element,
        ordinal: None,
        peer: None,
    }
}

fn lost(trace: &Trace) -> Vec<(&str, TraceTime, TraceTime, u64)> {
    let rows = trace.lost.iter().map(|(_, lost)| (trace.name(lost.lane), lost.from, lost.to, lost.events));
    rows.collect()
}

#[test]
fn losses_and_clocks_of_recordings_come_back() {
    let lines = "kernel 0/7 10..20 a\nlost gpu0-s7 30..40 42\nlost t8 5..5 1";
    let mut trace = deepctx_profile::trace::text::parse(lines).unwrap();
    trace.device_clock =
        Some(ClockOffset { offset_ns: -5, uncertainty: Nanos(1_500), drift_ns: 20, readings: 7 });
    assert_eq!(lost(&trace).len(), 2);
    FORMATS.into_iter().for_each(|format| check(&job(vec![trace.clone()]), format));
}

#[test]
fn ranks_of_communicators_come_back() {
    let rank = |ranks: &str| {
        let mut trace = deepctx_profile::trace::text::parse("kernel 0/7 10..20 ncclKernel").unwrap();
        let op = trace.device.iter().next().unwrap().0;
        let note = collective(&mut trace, op, ["allreduce", "3 mesh_tp", "Float"]);
        let (communicator, ranks) = (note.communicator, trace.text(ranks));
        trace.collectives.push(note);
        trace.communicator_groups.push(CommunicatorGroup { communicator, ranks });
        trace
    };
    // Siblings, and a list that is too long for an event.
    let job = job(vec![rank("0-3"), rank("4-7"), rank("8-99")]);
    FORMATS.into_iter().for_each(|format| check(&job, format));
    let document: serde_json::Value = serde_json::from_slice(&export(&job, Format::Chrome)).unwrap();
    let events = document["traceEvents"].as_array().unwrap().iter();
    let of_group = events.filter(|event| event["cat"] == "kernel");
    let named: Vec<_> = of_group
        .map(|event| ["Process Group Name", "Process Group Ranks"].map(|name| event["args"][name].as_str()))
        .collect();
    let expect = [
        [Some("3 mesh_tp (ranks 0-3)"), Some("[0, 1, 2, 3]")],
        [Some("3 mesh_tp (ranks 4-7)"), Some("[4, 5, 6, 7]")],
        [Some("3 mesh_tp (ranks 8-99)"), None],
    ];
    assert_eq!(named, expect);
}

#[test]
fn counters_and_sums_over_time_are_of_their_process() {
    use prost::Message as _;

    let of = |process| format!("op main 0..100 f\ncounter {process} 10 bytes=5 live");
    let trace = |process| deepctx_profile::trace::text::parse(&of(process)).unwrap();
    let job = job(vec![trace("7"), trace("9")]);
    let mut profile = deepctx_profile::text::parse("P a-9 / T a/9 / n f 30").unwrap();
    let (metric, to) = (deepctx_profile::metric::Metric::CpuTime, Nanos(200_000_000));
    profile.timeline.add_span(NodeId::from_number(2), metric, Nanos(0), to, to.0);
    let selection = deepctx_profile::view::Selection::of(metric);
    let source = Source { profile: &profile, selection, elapsed: Nanos(0), folds: true };
    let [chrome, perfetto] = FORMATS.map(|format| {
        let mut out = Vec::new();
        format.write_events(&source, &Events::of(&job, |_| 0), &mut out).unwrap();
        // The sums are no events.
        let (traces, _) = import::traces(&out).unwrap();
        assert_eq!(traces.iter().map(|(_, trace)| trace.counters.iter().count()).sum::<usize>(), 2);
        assert!(traces.iter().all(|(_, trace)| trace.ledger == job.ranks()[0].trace.ledger), "{format}");
        out
    });
    let chrome: serde_json::Value = serde_json::from_slice(&chrome).unwrap();
    let pids = |name: &str| -> Vec<u64> {
        let events = chrome["traceEvents"].as_array().unwrap().iter();
        let steps = events.filter(|event| event["ph"] == "C" && event["name"] == name);
        steps.map(|event| event["pid"].as_u64().unwrap()).collect()
    };
    let [_, second] = pids("live")[..] else { panic!("each rank has one") };
    assert_eq!(pids("cpu-time"), [second, second]);

    let trace = crate::proto::perfetto::Trace::decode(&*perfetto).unwrap();
    let tracks: Vec<_> = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref()).collect();
    let above = |uuid| tracks.iter().find(|track| Some(track.uuid) == uuid).and_then(|of| of.name.as_deref());
    let counters = tracks.iter().filter(|track| track.counter.is_some());
    let mut found: Vec<_> =
        counters.map(|track| (track.name.as_deref().unwrap(), above(track.parent_uuid))).collect();
    found.sort();
    let [first, second] = [Some("rank 0 process 7"), Some("rank 1 process 9")];
    assert_eq!(found, [("cpu-time", second), ("live bytes", first), ("live bytes", second)]);
}

#[test]
fn numbers_of_rows_and_ranks_fit_their_readers() {
    let lines = "kernel 0/7 10..20 a\nkernel 0/4294967303 10..20 b";
    let mut trace = deepctx_profile::trace::text::parse(lines).unwrap();
    trace.rank = RankInfo { rank: Some(u32::MAX), world_size: None };
    let job = job(vec![trace]);
    let document: serde_json::Value = serde_json::from_slice(&export(&job, Format::Chrome)).unwrap();
    assert_eq!(document["distributedInfo"]["world_size"], u32::MAX);
    let events = document["traceEvents"].as_array().unwrap().iter();
    let rows = events.filter(|event| event["cat"] == "kernel").map(|event| event["tid"].as_u64().unwrap());
    let rows: Vec<u64> = rows.collect();
    assert!(rows[0] == 7 && rows[1] != 7 && rows[1] <= u64::from(u32::MAX), "{rows:?}");
    FORMATS.into_iter().for_each(|format| check(&job, format));
}

#[test]
fn of_two_equally_long_events_the_outer_one_stays_outside() {
    let lines =
        "op m 0..90 root\n op m 10..20 aten::item\n op m 10..20 aten::_local\n op m 30..40 z\n op m 30..40 a";
    let trace = deepctx_profile::trace::text::parse(lines).unwrap();
    let nested = |trace: &Trace| -> Vec<String> {
        let names = Links::of(trace).threads().concat().into_iter();
        names.filter_map(|id| Some(trace.name(trace.host.get(id)?.name).to_owned())).collect()
    };
    assert_eq!(nested(&trace), ["root", "aten::item", "aten::_local", "z", "a"]);
    let job = job(vec![trace]);
    for format in FORMATS {
        assert_eq!(nested(&again(&job, format)[0]), nested(&job.ranks()[0].trace), "{format}");
    }
}

#[test]
fn real_traces_come_back_equal() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../analysis/tests/traces");
    for name in ["alexnet-a100-sync.json.gz", "dlrm", "eventsync-a100.json.gz", "gpuonly-mi210.json.gz"] {
        let job = crate::open_traces(&[std::path::Path::new(folder).join(name)]).unwrap();
        FORMATS.into_iter().for_each(|format| check(&job, format));
    }
}

#[test]
fn what_has_no_place_is_counted() {
    let mut trace = Trace::new();
    let (thread, name) = (trace.thread("1", "1"), trace.text("cudaLaunchKernel"));
    let op = HostOp {
        thread,
        kind: HostKind::RuntimeCall,
        begin: TraceTime::from_nanos(1),
        duration: Nanos(2),
        name,
        correlation: 3,
        status: Status::Unknown,
        context: NodeId::from_number(7),
    };
    trace.host.push(op);
    let job = job(vec![trace]);
    let events = Events::of(&job, |_| 0);
    let counted: Vec<_> = events.left_out().map(|(count, key, _)| (count, key)).collect();
    assert_eq!(counted, [(1, "context-not-exported")]);
    for format in FORMATS {
        let found = again(&job, format);
        assert_eq!(found[0].ledger.stage(Stage::Store).gaps.count("context-not-exported"), 1, "{format}");
    }
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c7]{0,2}",
        Just("stream 7".to_owned()),
        Just("ProfilerStep#3".to_owned()),
        Just("\"é;\n\\ \u{1}".to_owned()),
        Just("x".repeat(70)),
        Just("-5".to_owned()),
        Just("007".to_owned()),
    ]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..50, any::<u32>().prop_map(u64::from), Just(1_695_835_542_514_261_123)]
}

/// A row of any table: its kind uses some of the numbers and texts.
type AnyRow = (u8, u8, (u64, u64), (String, String, String), (u64, u64), (Option<u64>, i64));

fn any_row() -> impl Strategy<Value = AnyRow> {
    (
        0u8..6,
        any::<u8>(),
        (time(), prop_oneof![0u64..9, any::<u32>().prop_map(u64::from)]),
        (word(), word(), word()),
        (any::<u64>(), 0u64..3),
        (prop::option::of(0u64..4), any::<i64>()),
    )
}

fn add_host(
    trace: &mut Trace,
    (_, choice, (begin, length), words, (number, few), (option, signed)): &AnyRow,
) {
    let (process, thread, name) = words;
    let kind = HostKind::from_name(ALL_KINDS[usize::from(*choice) % ALL_KINDS.len()]).unwrap();
    let op = HostOp {
        thread: trace.thread(process, thread),
        kind,
        begin: TraceTime::from_nanos(*begin),
        duration: Nanos(*length),
        name: trace.text(name),
        correlation: *few,
        status: option.map_or(Status::Unknown, |_| Status::Returned(*signed as i32)),
        context: NodeId::ROOT,
    };
    let id = trace.host.push(op).unwrap();
    if kind == HostKind::UnknownCategory {
        let category = trace.text(&format!("own {process}"));
        trace.categories.push(HostCategory { op: id, category });
    }
    if kind == HostKind::OffCpu {
        let waker = trace.thread(thread, process);
        let by = match few {
            0 => Waker::Interrupt,
            1 => Waker::OtherProcess { pid: *number as u32, tid: 3 },
            _ => Waker::Thread(waker),
        };
        let at = TraceTime::from_nanos(begin.saturating_add(*number % 100));
        trace.wake_ups.push(WakeUpEvent { ends: id, at, by });
    }
}

const ALL_KINDS: [&str; 11] = [
    "operator",
    "runtime-call",
    "driver-call",
    "python",
    "layer",
    "annotation",
    "step",
    "process",
    "off-cpu",
    "other",
    "unknown-category",
];

fn add_device(trace: &mut Trace, (_, choice, (begin, length), words, (number, few), (option, _)): &AnyRow) {
    let stream = trace.stream(*few as u32, *option);
    let op = DeviceOp {
        stream,
        kind: [DeviceKind::Kernel, DeviceKind::Copy, DeviceKind::Fill][usize::from(choice % 3)],
        begin: TraceTime::from_nanos(*begin),
        duration: Nanos(*length),
        name: trace.text(&words.0),
        correlation: *few,
        launched_by: [Basis::Exact, Basis::ByOrder, Basis::Inferred][usize::from(choice / 3 % 3)],
        bytes: Bytes(*number),
        graph_node: number / 3,
    };
    let op = trace.device.push(op).unwrap();
    if choice % 5 == 0
        && !words.1.is_empty()
        && words.1.chars().count() <= 64
        && words.2.chars().count() <= 64
    {
        let message = [None, Some("send"), Some("recv")][usize::from(choice / 5 % 3)];
        let note = collective(trace, op, [message.unwrap_or(&words.1), &words.2, "Float"]);
        let communicator = note.communicator;
        let is_known = trace.communicator_groups.iter().any(|(_, group)| group.communicator == communicator);
        if choice % 2 == 0 && !is_known {
            // More of them than an event lists, or some.
            let ranks = trace.text(["0-3", "0-24/8,30", "4-99"][*few as usize % 3]);
            trace.communicator_groups.push(CommunicatorGroup { communicator, ranks });
        }
        trace.collectives.push(CollectiveNote {
            group_size: *few as u32,
            elements_in: *number,
            ordinal: *option,
            peer: message.map(|_| *few as u32),
            ..note
        });
    }
}

fn add_row(trace: &mut Trace, row: &AnyRow) {
    let (table, choice, (begin, length), words, (number, few), (option, signed)) = row;
    let (at, duration) = (TraceTime::from_nanos(*begin), Nanos(*length));
    match table {
        0 | 1 => add_host(trace, row),
        2 => add_device(trace, row),
        3 => {
            let kinds = [SyncKind::Stream, SyncKind::Event, SyncKind::Context, SyncKind::StreamWait];
            let stream = option.map(|stream| trace.stream(*few as u32, Some(stream)));
            let recorded_on = (choice % 2 == 0).then(|| trace.stream(u32::from(choice % 3), Some(5)));
            let (kind, record) = (kinds[usize::from(choice % 4)], option.map(|_| *number));
            let correlation = *number;
            trace.syncs.push(Sync { kind, stream, begin: at, duration, correlation, record, recorded_on });
        }
        4 => {
            let (thread, device) = (trace.thread(&words.0, &words.1), option.map(|device| device as u32));
            let (allocated, reserved) = (option.map(Bytes), (choice % 2 == 0).then_some(Bytes(*number)));
            let address = *number;
            trace.memory.push(MemoryEvent {
                thread,
                at,
                device,
                address,
                bytes: *signed,
                allocated,
                reserved,
            });
        }
        _ if choice % 2 == 0 => {
            let (stream, name) = (trace.stream(*few as u32, *option), trace.text(&words.0));
            trace.device_ranges.push(DeviceRange { stream, begin: at, duration, name });
        }
        _ => {
            let [process, name, series] = [&words.0, &words.1, &words.2].map(|word| trace.text(word));
            let value = CounterValue::new(*signed as f64 / 7.0);
            trace.counters.push(CounterStep { process, name, series, at, value });
        }
    }
}

fn any_trace() -> impl Strategy<Value = Trace> {
    let clock =
        (prop::option::of(0u64..1 << 61), prop::option::of(0u64..9), 1u64..1001, prop::option::of(0u32..3));
    (prop::collection::vec(any_row(), 1..40), clock, prop::option::of(8u32..9)).prop_map(
        |(rows, clock, world_size)| {
            let mut trace = Trace::new();
            rows.iter().for_each(|row| add_row(&mut trace, row));
            let (epoch_ns, uncertainty, resolution, domain) = clock;
            let (uncertainty, resolution) = (uncertainty.map(Nanos), Nanos(resolution));
            trace.clock = ClockInfo { epoch_ns, uncertainty, resolution, domain };
            trace.rank = RankInfo { rank: None, world_size };
            trace
        },
    )
}

proptest! {
    #[test]
    fn any_trace_comes_back_equal(traces in prop::collection::vec(any_trace(), 1..4)) {
        let job = job(traces);
        FORMATS.into_iter().for_each(|format| check(&job, format));
    }
}
