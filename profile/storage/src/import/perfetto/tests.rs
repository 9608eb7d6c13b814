use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use prost::Message as _;

use deepctx_profile::intern::Id;
use deepctx_profile::ledger::Stage;
use deepctx_profile::trace::{Launch, Links, Trace};

use crate::import::{Kind, traces};
use crate::proto::perfetto::{
    COUNTER, Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, INCREMENTAL_STATE_CLEARED,
    InternedData, LegacyEvent, NEEDS_INCREMENTAL_STATE, Name, ProcessDescriptor, SLICE_BEGIN, SLICE_END,
    SLICE_INSTANT, ThreadDescriptor, Trace as Packets, TracePacket, TracePacketDefaults, TrackDescriptor,
    TrackEvent, TrackEventDefaults,
};

fn file(packets: Vec<TracePacket>) -> Vec<u8> {
    Packets { packet: packets }.encode_to_vec()
}

fn read(bytes: &[u8]) -> Trace {
    let (mut traces, kind) = traces(bytes).unwrap();
    assert_eq!((traces.len(), kind), (1, Kind::Perfetto));
    traces.remove(0).1
}

/// Operations of threads, then work of devices, then gaps.
fn shown(trace: &Trace) -> Vec<String> {
    let host = trace.host.iter().map(|(_, op)| {
        let thread = trace.threads()[op.thread.index()];
        let (process, thread) = (trace.name(thread.process), trace.name(thread.thread));
        let (kind, name) = (op.kind.name(), trace.name(op.name));
        format!("{kind} {process}/{thread} {}+{} {name}", op.begin.as_nanos(), op.duration.0)
    });
    let device = trace.device.iter().map(|(_, op)| {
        let of = trace.streams()[op.stream.index()];
        let (stream, begin, name) = (of.stream.unwrap_or(0), op.begin.as_nanos(), trace.name(op.name));
        format!("{:?} {}/{stream} {begin}+{} {name} #{}", op.kind, of.device, op.duration.0, op.correlation)
    });
    let gaps = trace.ledger.stage(Stage::Decode).gaps.iter();
    host.chain(device).chain(gaps.map(|(reason, n)| format!("{n} {}", reason.key))).collect()
}

fn thread_track(uuid: u64, tid: i64) -> TracePacket {
    let thread = Some(ThreadDescriptor { pid: 7, tid, thread_name: "main".to_owned() });
    let track = TrackDescriptor { uuid, thread, ..TrackDescriptor::default() };
    TracePacket { track_descriptor: Some(track), trusted_packet_sequence_id: 1, ..TracePacket::default() }
}

fn event(sequence: u32, timestamp: u64, event: TrackEvent) -> TracePacket {
    TracePacket {
        timestamp: Some(timestamp),
        trusted_packet_sequence_id: sequence,
        track_event: Some(event),
        ..TracePacket::default()
    }
}

fn begin(sequence: u32, timestamp: u64, track: u64, name: &str) -> TracePacket {
    let name = Some(name.to_owned());
    let of = TrackEvent { kind: SLICE_BEGIN, track_uuid: Some(track), name, ..TrackEvent::default() };
    event(sequence, timestamp, of)
}

fn end(sequence: u32, timestamp: u64, track: u64) -> TracePacket {
    event(
        sequence,
        timestamp,
        TrackEvent { kind: SLICE_END, track_uuid: Some(track), ..TrackEvent::default() },
    )
}

#[test]
fn ends_belong_to_the_innermost_begin() {
    // Two writers, whose packets are in the order in which they were written.
    let packets = vec![
        thread_track(1, 9),
        end(1, 90, 1),
        begin(1, 10, 1, "outer"),
        begin(2, 20, 1, "inner"),
        end(2, 30, 1),
        begin(2, 95, 1, "open"),
        end(1, 5, 1),
    ];
    let expect = ["other 7/9 10+80 outer", "other 7/9 20+10 inner", "1 end-without-begin", "1 no-end"];
    assert_eq!(shown(&read(&file(packets))), expect);
}

#[test]
fn a_slice_of_centuries_is_left_out_and_counted() {
    let packets = vec![
        thread_track(1, 9),
        begin(1, 10, 1, "a"),
        end(1, 20, 1),
        begin(1, 30, 1, "b"),
        end(1, u64::MAX, 1),
    ];
    assert_eq!(shown(&read(&file(packets))), ["other 7/9 10+10 a", "1 too-long"]);
}

#[test]
fn names_count_until_their_writer_forgets_them() {
    let named = |timestamp, name: &str| {
        let of = TrackEvent {
            kind: SLICE_INSTANT,
            track_uuid: Some(1),
            name_iid: Some(5),
            ..TrackEvent::default()
        };
        let event_names = vec![Name { iid: 5, name: name.to_owned() }];
        let interned_data =
            (!name.is_empty()).then(|| InternedData { event_names, ..InternedData::default() });
        let sequence_flags = Some(NEEDS_INCREMENTAL_STATE);
        TracePacket { interned_data, sequence_flags, ..event(1, timestamp, of) }
    };
    let cleared = || TracePacket {
        trusted_packet_sequence_id: 1,
        sequence_flags: Some(INCREMENTAL_STATE_CLEARED),
        ..TracePacket::default()
    };
    let lost = TracePacket { previous_packet_dropped: true, ..named(40, "") };
    let packets = vec![
        thread_track(1, 9),
        cleared(),
        named(10, "first"),
        named(20, ""),
        cleared(),
        named(30, "second"),
        lost,
        named(50, ""),
    ];
    let expect = ["other 7/9 10+0 first", "other 7/9 20+0 first", "other 7/9 30+0 second", "2 lost-state"];
    assert_eq!(shown(&read(&file(packets))), expect);
}

#[test]
fn clocks_of_a_writer_are_read() {
    let clock = |clock_id, timestamp, unit| Clock {
        clock_id,
        timestamp,
        is_incremental: unit > 0,
        unit_multiplier_ns: unit,
    };
    let snapshot = TracePacket {
        trusted_packet_sequence_id: 1,
        sequence_flags: Some(INCREMENTAL_STATE_CLEARED),
        clock_snapshot: Some(ClockSnapshot {
            clocks: vec![clock(6, 5_000, 0), clock(64, 2, 1_000), clock(3, 4_000, 0), clock(1, 90_000, 0)],
        }),
        trace_packet_defaults: Some(TracePacketDefaults {
            timestamp_clock_id: Some(64),
            track_event_defaults: Some(TrackEventDefaults { track_uuid: Some(1) }),
        }),
        ..TracePacket::default()
    };
    let default_track = |of: TracePacket| {
        let track_event = of.track_event.map(|event| TrackEvent { track_uuid: None, ..event });
        TracePacket { track_event, ..of }
    };
    let on = |clock, of: TracePacket| TracePacket { timestamp_clock_id: Some(clock), ..of };
    let packets = vec![
        thread_track(1, 9),
        snapshot,
        default_track(begin(1, 1, 0, "a")),
        default_track(end(1, 3, 0)),
        on(3, begin(1, 9_000, 1, "b")),
        on(3, end(1, 9_500, 1)),
        on(77, begin(1, 1, 1, "c")),
    ];
    let trace = read(&file(packets));
    // The clock was at 2 µs when the file's was at 5: one more is 6, three more 9.
    let expect = ["other 7/9 6000+3000 a", "other 7/9 10000+500 b", "1 unknown-clock"];
    assert_eq!(shown(&trace), expect);
    assert_eq!(trace.clock.epoch_ns, Some(85_000));
}

#[test]
fn clocks_of_impossible_units_are_out_of_range() {
    let clock = |clock_id, timestamp, unit_multiplier_ns| Clock {
        clock_id,
        timestamp,
        is_incremental: false,
        unit_multiplier_ns,
    };
    let clocks = vec![clock(6, 5_000, 0), clock(3, u64::MAX, u64::MAX), clock(64, u64::MAX, u64::MAX)];
    let snapshot = TracePacket {
        trusted_packet_sequence_id: 1,
        sequence_flags: Some(INCREMENTAL_STATE_CLEARED),
        clock_snapshot: Some(ClockSnapshot { clocks }),
        ..TracePacket::default()
    };
    let on = |clock, of: TracePacket| TracePacket { timestamp_clock_id: Some(clock), ..of };
    let packets = vec![
        thread_track(1, 9),
        snapshot,
        begin(1, 10, 1, "a"),
        end(1, 20, 1),
        on(3, begin(1, 30, 1, "b")),
        on(64, begin(1, 0, 1, "c")),
    ];
    assert_eq!(shown(&read(&file(packets))), ["other 7/9 10+10 a", "2 out-of-range"]);
}

#[test]
fn categories_and_arguments_are_those_of_chrome() {
    let argument = |name: &str, value| DebugAnnotation {
        name: Some(name.to_owned()),
        uint_value: Some(value),
        ..DebugAnnotation::default()
    };
    let of = |category: &str, timestamp, track, name: &str, arguments: &[(&str, u64)]| {
        let mut packet = begin(1, timestamp, track, name);
        let event = packet.track_event.as_mut().unwrap();
        event.categories = vec![category.to_owned()];
        event.debug_annotations = arguments.iter().map(|(name, value)| argument(name, *value)).collect();
        event.flow_ids = vec![1];
        packet
    };
    let stream = TracePacket {
        track_descriptor: Some(TrackDescriptor {
            uuid: 2,
            name: Some("stream".to_owned()),
            ..TrackDescriptor::default()
        }),
        ..TracePacket::default()
    };
    let packets = vec![
        thread_track(1, 9),
        stream,
        of("cuda_runtime", 10, 1, "cudaLaunchKernel", &[("correlation", 3)]),
        end(1, 20, 1),
        of("kernel", 30, 2, "gemm", &[("device", 1), ("stream", 7), ("correlation", 3)]),
        end(1, 50, 2),
        begin(1, 60, 2, "of nobody knows whom"),
        end(1, 70, 2),
    ];
    let expect = [
        "runtime-call 7/9 10+10 cudaLaunchKernel",
        "unknown-category /stream 60+10 of nobody knows whom",
        "Kernel 1/7 30+20 gemm #3",
        "1 unknown-category",
    ];
    assert_eq!(shown(&read(&file(packets))), expect);
}

#[test]
fn counters_multiply_and_add_up() {
    let counter = CounterDescriptor { unit_multiplier: 1024, is_incremental: true, unit_name: None };
    let process = Some(ProcessDescriptor { pid: 7, process_name: "python".to_owned() });
    let track = |track| TracePacket { track_descriptor: Some(track), ..TracePacket::default() };
    let step = |timestamp, value| {
        let counter_value = Some(value);
        let of = TrackEvent { kind: COUNTER, track_uuid: Some(2), counter_value, ..TrackEvent::default() };
        event(1, timestamp, of)
    };
    let packets = vec![
        track(TrackDescriptor { uuid: 1, process, ..TrackDescriptor::default() }),
        track(TrackDescriptor {
            uuid: 2,
            parent_uuid: Some(1),
            static_name: Some("memory".to_owned()),
            counter: Some(counter),
            ..TrackDescriptor::default()
        }),
        step(10, 3),
        step(20, -1),
    ];
    let trace = read(&file(packets));
    let steps = trace.counters.iter();
    let steps =
        steps.map(|(_, of)| (trace.name(of.process), trace.name(of.name), of.at.as_nanos(), of.value.get()));
    let expect = [("7", "memory", 10, 3072.0), ("7", "memory", 20, 2048.0)];
    assert_eq!(steps.collect::<Vec<_>>(), expect);
}

#[test]
fn packets_of_other_kinds_are_counted_by_name() {
    let mut bytes = file(vec![thread_track(1, 9), begin(1, 10, 1, "a"), end(1, 20, 1)]);
    // ftrace_events, a process tree, and field 500, each in a separate packet.
    for packet in [&[0x0a, 0][..], &[0x0a, 0], &[0x12, 0], &[0xa2, 0x1f, 0]] {
        bytes.extend([0x0a, packet.len() as u8]);
        bytes.extend(packet);
    }
    let trace = read(&bytes);
    assert_eq!(shown(&trace), ["other 7/9 10+10 a", "4 unknown-packet"]);
    let (reason, _) = trace.ledger.stage(Stage::Decode).gaps.iter().next().unwrap();
    let expect =
        "packets are of kinds that are not read: `ftrace_events` (2), `process_tree` (1), field 500 (1)";
    assert_eq!(reason.sentence, expect);
}

#[test]
fn compressed_packets_and_older_events_are_read() {
    let older = |timestamp, phase: u8, duration_us| {
        let legacy_event = Some(LegacyEvent { phase: phase.into(), duration_us });
        let name = Some((phase as char).to_string());
        event(1, timestamp, TrackEvent { track_uuid: Some(1), name, legacy_event, ..TrackEvent::default() })
    };
    let inner = file(vec![older(10, b'B', 0), older(30, b'E', 0), older(40, b'X', 2), older(50, b'X', -1)]);
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&inner).unwrap();
    let compressed = encoder.finish().unwrap();
    let mut bytes = file(vec![thread_track(1, 9)]);
    let packet = [&[0x92, 0x03, compressed.len() as u8][..], &compressed].concat();
    bytes.extend([0x0a, packet.len() as u8]);
    bytes.extend(packet);
    assert_eq!(shown(&read(&bytes)), ["other 7/9 10+20 B", "other 7/9 40+2000 X", "1 end-before-begin"]);
}

#[test]
fn work_and_calls_of_rocprofv3_are_told_by_their_categories() {
    let track = |uuid: u64, name: &str| {
        let track = TrackDescriptor { uuid, name: Some(name.to_owned()), ..TrackDescriptor::default() };
        TracePacket { track_descriptor: Some(track), trusted_packet_sequence_id: 1, ..TracePacket::default() }
    };
    let slice = |track: u64, at: u64, category: &str, name: &str, arguments: &[(&str, u64)], agent: &str| {
        let number = |(name, value): &(&str, u64)| DebugAnnotation {
            name: Some((*name).to_owned()),
            uint_value: Some(*value),
            ..DebugAnnotation::default()
        };
        let agent = DebugAnnotation {
            name: Some("agent".to_owned()),
            string_value: Some(agent.to_owned()),
            ..DebugAnnotation::default()
        };
        let of = TrackEvent {
            kind: SLICE_BEGIN,
            track_uuid: Some(track),
            name: Some(name.to_owned()),
            categories: vec![category.to_owned()],
            debug_annotations: arguments.iter().map(number).chain([agent]).collect(),
            ..TrackEvent::default()
        };
        [event(1, at, of), end(1, at + 5, track)]
    };
    let events = [
        slice(1, 10, "hip_api", "hipLaunchKernel", &[("corr_id", 4)], ""),
        slice(2, 20, "hip_api", "hipMemcpyAsync", &[("corr_id", 5)], ""),
        slice(2, 30, "marker_api", "train", &[], ""),
        slice(3, 40, "kernel_dispatch", "gemm", &[("corr_id", 4)], ""),
        slice(4, 50, "kernel_dispatch", "norm", &[("corr_id", 4)], "GPU-1"),
        slice(4, 60, "memory_copy", "MEMORY_COPY_HOST_TO_DEVICE", &[("corr_id", 5)], "Agent-6"),
    ];
    let tracks = [
        thread_track(1, 9),
        track(2, "THREAD 1 (77)"),
        track(3, "COMPUTE AGENT [4] QUEUE [1] (GPU)"),
        track(4, "STREAM [\" 2 \"] "),
    ];
    let trace = read(&file(tracks.into_iter().chain(events.into_iter().flatten()).collect()));
    assert_eq!(
        shown(&trace),
        [
            "runtime-call 7/9 10+5 hipLaunchKernel",
            "runtime-call /THREAD 1 (77) 20+5 hipMemcpyAsync",
            "annotation /THREAD 1 (77) 30+5 train",
            "Kernel 4/1 40+5 gemm #4",
            "Kernel 1/2 50+5 norm #4",
            "Copy 6/2 60+5 MEMORY_COPY_HOST_TO_DEVICE #5",
        ]
    );
}

/// The tracks of a process: its own, of a thread (the next number) and of a stream (the one after that).
fn process_tracks(uuid: u64, pid: i32) -> Vec<TracePacket> {
    let process = Some(ProcessDescriptor { pid, process_name: "python".to_owned() });
    let below = |number: u64, name: &str| TrackDescriptor {
        uuid: uuid + number,
        name: Some(name.to_owned()),
        parent_uuid: Some(uuid),
        ..TrackDescriptor::default()
    };
    let tracks = vec![
        TrackDescriptor { uuid, process, ..TrackDescriptor::default() },
        below(1, "THREAD 1 (77)"),
        below(2, "STREAM [3]"),
    ];
    let packet = |track| TracePacket {
        track_descriptor: Some(track),
        trusted_packet_sequence_id: 1,
        ..TracePacket::default()
    };
    tracks.into_iter().map(packet).collect()
}

/// A begin of rocprofv3, with the length and the id that its arguments state.
fn rocprof_begin(timestamp: u64, track: u64, category: &str, length: u64, id: u64) -> TracePacket {
    let number = |name: &str, value: u64| DebugAnnotation {
        name: Some(name.to_owned()),
        uint_value: Some(value),
        ..DebugAnnotation::default()
    };
    let name = if category == "hip_api" { "hipLaunchKernel" } else { "gemm" };
    let mut packet = begin(1, timestamp, track, name);
    if let Some(event) = &mut packet.track_event {
        event.categories = vec![category.to_owned()];
        event.debug_annotations = vec![number("delta_ns", length), number("corr_id", id)];
    }
    packet
}

fn rocprof_slice(timestamp: u64, track: u64, category: &str, id: u64) -> [TracePacket; 2] {
    [rocprof_begin(timestamp, track, category, 5, id), end(1, timestamp + 5, track)]
}

/// The traces of a file of rocprofv3, each with the id of its process, its events, and how its work was launched.
fn launches(packets: Vec<TracePacket>) -> Vec<(Option<u32>, Vec<String>, Vec<Launch>)> {
    let (traces, _) = traces(&file(packets)).unwrap();
    let of_trace = |(pid, trace): (Option<u32>, Trace)| {
        let links = Links::of(&trace);
        let launches: Vec<Launch> = trace.device.iter().map(|(id, _)| links.launch(id)).collect();
        (pid, shown(&trace), launches)
    };
    traces.into_iter().map(of_trace).collect()
}

#[test]
fn processes_of_rocprofv3_are_joined_with_their_own_calls() {
    // Of two machines, so that they have the same number. Their ids are the same anyway.
    let tracks = [process_tracks(10, 7), process_tracks(20, 7)].concat();
    let slices = [
        rocprof_slice(10, 11, "hip_api", 4),
        rocprof_slice(12, 21, "hip_api", 4),
        rocprof_slice(30, 22, "kernel_dispatch", 4),
        rocprof_slice(40, 12, "kernel_dispatch", 4),
        rocprof_slice(50, 22, "kernel_dispatch", 5),
    ];
    let packets: Vec<_> = tracks.into_iter().chain(slices.into_iter().flatten()).collect();
    let found = launches(packets.clone());
    let call = |at: u64| format!("runtime-call 7/THREAD 1 (77) {at}+5 hipLaunchKernel");
    let kernel = |at: u64, id: u64| format!("Kernel 0/3 {at}+5 gemm #{id}");
    let exact = Launch::Exact(Id::from_number(0));
    let expect = [
        (Some(7), vec![call(10), kernel(40, 4)], vec![exact]),
        (Some(7), vec![call(12), kernel(30, 4), kernel(50, 5)], vec![exact, Launch::Missing]),
    ];
    assert_eq!(found, expect);
    let (traces, _) = traces(&file(packets)).unwrap();
    assert!(traces.iter().all(|(_, trace)| trace.clock.domain == Some(0)));
}

#[test]
fn ids_of_no_process_among_several_join_nothing() {
    let name = Some("STREAM [9]".to_owned());
    let nobody = TrackDescriptor { uuid: 99, name, ..TrackDescriptor::default() };
    let nobody = TracePacket { track_descriptor: Some(nobody), ..TracePacket::default() };
    let packets = |tracks: Vec<TracePacket>, other: u64| -> Vec<TracePacket> {
        let slices = [
            rocprof_slice(10, 11, "hip_api", 4),
            rocprof_slice(20, other, "hip_api", 4),
            rocprof_slice(30, 99, "kernel_dispatch", 4),
        ];
        tracks.into_iter().chain([nobody.clone()]).chain(slices.into_iter().flatten()).collect()
    };
    let several = launches(packets([process_tracks(10, 7), process_tracks(20, 8)].concat(), 21));
    let call = "runtime-call 7/THREAD 1 (77) 10+5 hipLaunchKernel";
    let first = [call, "Kernel 0/9 30+5 gemm #0", "1 no-process"].map(str::to_owned);
    assert_eq!(several[0], (Some(7), first.to_vec(), vec![Launch::NoCorrelation]));
    assert_eq!(several.len(), 2);
    // rocprofv3 writes a file for each process: where there is one, everything is its own.
    let one = launches(packets(process_tracks(10, 7), 11));
    assert_eq!((one.len(), one[0].0), (1, None));
    assert!(matches!(one[0].2[..], [Launch::Ambiguous(_)]), "{one:?}");
}

#[test]
fn threads_are_of_the_process_with_their_number() {
    let tracks = [process_tracks(10, 7), process_tracks(20, 8), vec![thread_track(1, 9)]].concat();
    let slices = [
        rocprof_slice(10, 1, "hip_api", 4),
        rocprof_slice(20, 12, "kernel_dispatch", 4),
        rocprof_slice(30, 21, "hip_api", 4),
    ];
    let found = launches(tracks.into_iter().chain(slices.into_iter().flatten()).collect());
    let pids: Vec<_> = found.iter().map(|(pid, ..)| *pid).collect();
    assert_eq!(pids, [Some(7), Some(8)]);
    assert_eq!(found[0].2, [Launch::Exact(Id::from_number(0))]);
}

#[test]
fn overlapping_work_of_rocprofv3_keeps_its_lengths() {
    let packets = [
        process_tracks(10, 7),
        vec![
            rocprof_begin(10, 12, "kernel_dispatch", 10, 1),
            rocprof_begin(15, 12, "kernel_dispatch", 10, 2),
            end(1, 20, 12),
            end(1, 25, 12),
        ],
    ];
    let expect = ["Kernel 0/3 10+10 gemm #1", "Kernel 0/3 15+10 gemm #2"];
    assert_eq!(shown(&read(&file(packets.concat()))), expect);
}

#[test]
fn events_of_too_many_processes_are_counted() {
    let processes = (1..=1026).flat_map(|n: i32| process_tracks(u64::try_from(n).unwrap() * 10, n));
    let slices = (1..=1026).flat_map(|n| rocprof_slice(n, n * 10 + 1, "hip_api", 1));
    let found = launches(processes.chain(slices).collect());
    assert_eq!(found.len(), 1024);
    assert_eq!(found[0].1.last().map(String::as_str), Some("2 too-many-processes"));
}

#[test]
fn a_file_that_is_cut_is_read_up_to_there() {
    let bytes = file(vec![thread_track(1, 9), begin(1, 10, 1, "a"), end(1, 20, 1), begin(1, 30, 1, "b")]);
    assert_eq!(shown(&read(&bytes[..bytes.len() - 1])), ["other 7/9 10+10 a", "1 cut-short"]);
}
