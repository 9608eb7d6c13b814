//! Exports of our own trace, read back by us, by HolisticTraceAnalysis and by PyTorch's validator.
//!
//! Owns: a stored recording with calls, kernels, copies, an operator, training steps and a collective, with known
//! figures. Because: an export is credible if another tool finds the same events. Does not: record. Needs no
//! privileges; `cargo xtask test exports` fetches the readers and passes their paths.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::path::{Path, PathBuf};

use cli_support::expect_code;
use cli_support::readers::{read, torch_accepts, torch_python, validators};
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::trace::{
    Basis, Cause, End, Lane, RankTrace, RecordedAccount, RecordedBatch, RecordedEvent, RecordedExchange,
    RecordedKind, RecordedValue,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Nanos, Time};
use deepctx_storage::store::{self, TraceWriter};

/// Launches of the recording: every fifth is a copy, the last one a collective.
const LAUNCHES: u64 = 11;

/// Contexts of the profile that events refer to.
struct Contexts {
    operator: NodeId,
    launch: NodeId,
    copy: NodeId,
    alloc: NodeId,
    collective: NodeId,
    kernel: NodeId,
    copied: NodeId,
    reduced: NodeId,
    cpu: NodeId,
    memory: NodeId,
}

impl Contexts {
    fn new(profile: &mut Profile) -> Self {
        let comm = profile.text("python3");
        let (process, thread) = (Frame::Process { comm, pid: 7 }, Frame::Thread { name: comm, tid: 8 });
        let name = profile.text("aten::mm");
        let above = [process, thread, Frame::Operator { name }];
        let above: Vec<_> = above.into_iter().map(|frame| profile.frame(frame)).collect();
        let (machine, cpu, memory) =
            (profile.text("machine"), profile.text("cpu 0"), profile.text("[memory] cuda:0"));
        let machine = [machine, cpu].map(|name| profile.frame(Frame::Resource { name }));
        let cpu = profile.tree.path(NodeId::ROOT, machine);
        let memory = profile.frame(Frame::Operator { name: memory });
        let memory = profile.tree.path(NodeId::ROOT, [above[0], memory]);
        let operator = profile.tree.path(NodeId::ROOT, above);
        let mut below = |frame: fn(deepctx_profile::StrId) -> Frame, name: &str| {
            let name = profile.text(name);
            let frame = profile.frame(frame(name));
            profile.tree.child(operator, frame)
        };
        let call = |name| Frame::GpuApi { name };
        let work = |name| Frame::GpuKernel { name };
        Contexts {
            operator,
            launch: below(call, "cudaLaunchKernel"),
            copy: below(call, "cudaMemcpyAsync"),
            alloc: below(call, "cudaMalloc"),
            collective: below(call, "ncclAllReduce"),
            kernel: below(work, "gemm<float>"),
            copied: below(work, "memcpy HtoD"),
            reduced: below(work, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
            cpu,
            memory,
        }
    }
}

/// Each launch takes 2 µs, and its work starts 5 µs after it and takes 12 µs; 8 µs lie between the end of one and the
/// next.
fn events(of: &Contexts) -> Vec<RecordedEvent> {
    let at = |lane, kind, start, length, node| RecordedEvent {
        kind,
        node,
        end: End::After(Nanos(length)),
        ..RecordedEvent::gap(lane, Nanos(start), Nanos(start), 0)
    };
    let call = |kind, start, length, node, id| {
        RecordedEvent { id, stream: 700, ..at(0, kind, start, length, node) }.returned(0, Nanos(length))
    };
    let operator = at(0, RecordedKind::Operator, 90_000, 0, of.operator);
    let mut events = vec![
        RecordedEvent { end: End::NotWatched, ..operator },
        call(RecordedKind::Call, 91_000, 3_000, of.alloc, 100),
    ];
    for n in 0..LAUNCHES {
        let (start, id) = (100_000 + n * 20_000, n + 1);
        let (kind, node, what, work, bytes) = match n {
            0 | 5 => (RecordedKind::Transfer, of.copy, RecordedKind::Copy, of.copied, 4096),
            10 => (RecordedKind::Launch, of.launch, RecordedKind::Kernel, of.reduced, 0),
            _ => (RecordedKind::Launch, of.launch, RecordedKind::Kernel, of.kernel, 0),
        };
        if n == 10 {
            let exchange =
                RecordedExchange { communicator: 0xabc, ordinal: 41, ranks: 4, rank: 1, bytes: 256 };
            let collective = call(RecordedKind::Collective, start - 1_000, 4_000, of.collective, 101);
            events.push(collective.exchanging(exchange));
        }
        events.push(call(kind, start, 2_000, node, id));
        let cause = Some(Cause { id, basis: Basis::Exact });
        events.push(RecordedEvent { cause, bytes, ..at(1, what, start + 7_000, 12_000, work) });
    }
    events
}

/// A CPU that is busy for half and then for a quarter of the time, and tensors that are allocated and freed.
fn counters(of: &Contexts) -> Vec<RecordedEvent> {
    let at = |lane, from, to, node, value| {
        RecordedEvent::counter(lane, Nanos(from), Nanos(to), node, RecordedValue { value, merged: 0 })
    };
    vec![
        at(2, 80_000, 180_000, of.cpu, 50_000),
        at(2, 180_000, 280_000, of.cpu, 25_000),
        at(3, 120_000, 120_000, of.memory, 4096),
        at(3, 220_000, 220_000, of.memory, 512),
    ]
}

/// The stored recording.
fn recording(folder: &Path) -> PathBuf {
    let mut profile = Profile::new(Meta::default(), Limits::default());
    let contexts = Contexts::new(&mut profile);
    let path = folder.join("run.dctx");
    let mut writer = store::Writer::create(&path, &profile.meta).unwrap();
    let mut trace = TraceWriter::create(writer.folder(), Some(Nanos(1_000_000))).unwrap();
    let lanes = vec![
        Lane::Thread { pid: 7, tid: 8 },
        Lane::Stream { pid: 7, device: 0, context: 1, stream: 13 },
        Lane::Counter { pid: 0, metric: Metric::CpuBusyTime, node: contexts.cpu },
        Lane::Counter { pid: 7, metric: Metric::LiveBytes, node: contexts.memory },
    ];
    let events = [events(&contexts), counters(&contexts)].concat();
    // The totals over time include one of the counters, and a metric that no counter has.
    for (node, metric) in [(contexts.cpu, Metric::CpuBusyTime), (contexts.launch, Metric::CpuTime)] {
        profile.timeline.add_span(node, metric, Nanos(80_000), Nanos(180_000), 50_000);
    }
    let account = RecordedAccount::new(events.len() as u64, events.len() as u64);
    trace.append(&mut RecordedBatch { lanes, first_lane: 0, events }).unwrap();
    trace.finish(&account).unwrap();
    writer.finish(&profile, Time::from_nanos(1_000_000)).unwrap();
    path
}

fn exported(folder: &Path, format: &str) -> PathBuf {
    let to = folder.join(format!("{format}.trace"));
    let words =
        ["export", folder.join("run.dctx").to_str().unwrap(), "--format", format, "-o"].map(str::to_owned);
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.push(to.to_str().unwrap());
    expect_code(0, &words);
    to
}

/// Every event of a trace, as text.
fn listed(path: &Path) -> Vec<String> {
    let job = deepctx_storage::open_traces(&[path.to_owned()]).unwrap();
    let [RankTrace { trace, .. }] = job.ranks() else { panic!("one process was traced") };
    let host = trace.host.iter().map(|(_, op)| {
        let times = (op.begin.as_nanos(), op.duration.0);
        format!("{:?} {} {times:?} #{} {:?}", op.kind, trace.name(op.name), op.correlation, op.status)
    });
    let device = trace.device.iter().map(|(_, op)| {
        let times = (op.begin.as_nanos(), op.duration.0);
        format!("{:?} {} {times:?} #{} {:?}", op.kind, trace.name(op.name), op.correlation, op.bytes)
    });
    let notes = trace.collectives.iter().map(|(_, note)| {
        let names = [note.operation, note.communicator, note.element].map(|name| trace.name(name));
        format!("{names:?} {:?}", (note.group_size, note.elements_in, note.ordinal))
    });
    let counters = trace.counters.iter().map(|(_, step)| {
        let [process, name, series] = [step.process, step.name, step.series].map(|name| trace.name(name));
        format!("counter {process} {name} {} {} {series}", step.at.as_nanos(), step.value.get())
    });
    let mut all: Vec<String> = host.chain(device).chain(notes).chain(counters).collect();
    all.sort();
    all
}

#[test]
fn own_events_come_back_from_both_trace_formats() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = listed(&recording(folder.path()));
    // An operator, an allocation, a collective with its note, launches with their work, and counter values.
    assert_eq!(recorded.len() as u64, 4 + 2 * LAUNCHES + 4);
    for expect in [
        "counter machine system:cpu-busy-time [cpu 0] 80000 0.5 share",
        "counter machine system:cpu-busy-time [cpu 0] 180000 0.25 share",
        "counter 7 live-bytes [memory] cuda:0 120000 4096 bytes",
        "counter 7 live-bytes [memory] cuda:0 220000 512 bytes",
    ] {
        assert!(recorded.contains(&expect.to_owned()), "{expect}: {recorded:?}");
    }
    assert!(
        recorded.contains(&"[\"allreduce\", \"0000000000000abc\", \"byte\"] (4, 256, Some(41))".to_owned())
    );
    for format in ["chrome", "perfetto"] {
        assert_eq!(listed(&exported(folder.path(), format)), recorded, "{format}");
    }
}

#[test]
fn a_counter_is_drawn_once() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path());
    let text = std::fs::read_to_string(exported(folder.path(), "chrome")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = document["traceEvents"].as_array().unwrap().iter();
    let counters = events.filter(|event| event["ph"] == "C");
    let rows: std::collections::BTreeSet<_> =
        counters.map(|event| format!("{} {} {}", event["pid"], event["name"], event["cat"])).collect();
    let expect = [
        "\"machine\" \"system:cpu-busy-time [cpu 0]\" null",
        "7 \"cpu-time cudaLaunchKernel\" \"deepctx sums\"",
        "7 \"cpu-time\" \"deepctx sums\"",
        "7 \"live-bytes [memory] cuda:0\" null",
    ];
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), expect);
}

#[test]
fn holistic_trace_analysis_understands_our_own_trace() {
    let Some(validators) = validators() else { return };
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path());
    let trace = folder.path().join("trace.json");
    std::fs::rename(exported(folder.path(), "chrome"), &trace).unwrap();
    let found = read(&validators, "hta", &trace);
    let expect = [
        ("computation", 8 * 12),
        ("communication", 12),
        ("memory", 2 * 12),
        ("launched kernels", LAUNCHES),
        ("launch delay", LAUNCHES * 5),
        ("idle", 10 * 8),
    ];
    assert_eq!(found, expect.map(|(name, value)| (name.to_owned(), value)).into());
}

#[test]
fn pytorch_accepts_our_own_trace() {
    let Some(torch) = torch_python() else { return };
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path());
    torch_accepts(&torch, &exported(folder.path(), "chrome"));
}
