//! Traces of programs on the simulated device, compared event by event with the device's own account.
//!
//! Owns: the tests from a call to the stored trace and the tables over it, by the program as a user runs it. Because:
//! begin, end, stream and cause of each event are promises about all stages together. Does not: test a single stage.
//! Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;
mod device_account;
mod documented;
#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
mod simulated;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cli_support::can_capture;
use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::{StepParts, Steps};
use deepctx_profile::intern::Id;
use deepctx_profile::ledger::Stage;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::trace::{
    Basis, CounterStep, DeviceKind, DeviceOp, GraphOrder, HostKind, HostOp, Launch, RANGE_END_MISSING,
    RankTrace, Status, SyncKind, Thread, Waiter,
};
use deepctx_profile::units::Nanos;
use device_account::{
    clock_error_ns, done, is_stream_sync, is_the_account, only_rank, waits_are_for_the_last_work,
};
use documented::Reader;
use simulated::{Capture, Line, Setting};

/// A program of two threads with graphs, copies and waits, with all events recorded.
fn traced(libraries: &'static str) -> Option<Capture> {
    traced_with(libraries, &["--trace", "10m"])
}

/// The same with these profiler options.
fn traced_with(libraries: &'static str, words: &'static [&'static str]) -> Option<Capture> {
    let setting = Setting { libraries, collector: true, words, ..Setting::default() };
    let words = "--threads 2 --rate 2000 --launches 500 --graphs --copies --attended";
    simulated::record(setting, &simulated::launcher()?, &words.split(' ').collect::<Vec<_>>())
}

/// All work has one launch, which started earlier, and every call has an end.
fn every_launch_is_exact(rank: &RankTrace) {
    assert!(rank.trace.ledger.rows().is_empty(), "{:?}", rank.trace.ledger.rows());
    for (id, op) in rank.trace.device.iter() {
        let Launch::Exact(call) = rank.links.launch(id) else {
            panic!("{:?}: {op:?}", rank.links.launch(id))
        };
        let call = rank.trace.host.get(call).unwrap();
        // The device's clock is known to within a few microseconds.
        assert!(call.begin <= op.begin + Nanos(100_000), "{call:?} {op:?}");
        assert!(call.duration.0 > 0, "{call:?}");
    }
}

#[test]
fn a_trace_is_the_account_of_the_device() {
    for libraries in ["cuda12", "cuda13"] {
        let Some(capture) = traced(libraries) else { return };
        let rank = only_rank(&capture);
        let account = is_the_account(&capture);
        every_launch_is_exact(rank);
        waits_are_for_the_last_work(&capture, &account);
        let launches = rank.trace.host.iter().filter(|(_, op)| rank.trace.name(op.name) == "cuLaunchKernel");
        let failed =
            rank.trace.host.iter().find(|(_, op)| op.kind.is_call() && op.status != Status::Returned(0));
        assert!(failed.is_none(), "{failed:?}");
        // Five hundred per thread; those captured into a graph are launches, too.
        assert!(launches.count() >= 1000);
    }
}

/// Number of host operations by name.
fn calls(rank: &RankTrace) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for (_, op) in rank.trace.host.iter() {
        *calls.entry(rank.trace.name(op.name).to_owned()).or_default() += 1;
    }
    calls
}

/// Number of lines of this kind in the device's log.
fn lines(capture: &Capture, what: &str) -> u64 {
    capture.account.iter().filter(|line| line.what == what).count() as u64
}

/// The values of a machine counter.
fn counter(rank: &RankTrace, name: &str) -> Vec<f64> {
    let trace = &rank.trace;
    let is_it = |step: &CounterStep| trace.name(step.process) == "machine" && trace.name(step.name) == name;
    trace.counters.iter().map(|(_, step)| step).filter(is_it).map(|step| step.value.get()).collect()
}

/// Machine readings equal those of the profile; some precede the first launch, with which the window begins.
fn the_machine_is_counted(profile: &Profile, rank: &RankTrace) {
    let name = |metric: Metric, node| {
        format!(
            "{metric} {}",
            profile.frames.get(profile.tree.node(node).frame).label(&profile.strings, false)
        )
    };
    let (mut levels, mut shares) = (0, 0);
    for (node, cell) in profile.tree.cells(Metric::MemoryUsedBytes) {
        let values = counter(rank, &name(Metric::MemoryUsedBytes, node));
        let range = cell.min as f64..=cell.max as f64;
        assert!(values.len() > 1 && values.iter().all(|value| range.contains(value)), "{values:?} {cell:?}");
        levels += 1;
    }
    for (node, cell) in profile.tree.cells(Metric::CpuBusyTime) {
        let values = counter(rank, &name(Metric::CpuBusyTime, node));
        assert!(!values.is_empty() && values.len() as u64 <= cell.count, "{values:?} {cell:?}");
        assert!(values.iter().all(|value| (0.0..=1.0).contains(value)), "{values:?}");
        shares += 1;
    }
    assert!(levels > 0 && shares > 0, "{levels} {shares}");
}

#[test]
fn a_trace_of_launches_has_their_work_alone() {
    let words = &["--trace", "10m", "--trace-level", "launches", "--system-metrics", "100ms"];
    let Some(capture) = traced_with("cuda13", words) else { return };
    let rank = only_rank(&capture);
    is_the_account(&capture);
    the_machine_is_counted(&capture.profile, rank);
    let exact = rank.trace.device.iter().all(|(id, _)| matches!(rank.links.launch(id), Launch::Exact(_)));
    assert!(exact && rank.trace.ledger.rows().is_empty(), "{:?}", rank.trace.ledger.rows());
    let calls = calls(rank);
    let names: Vec<&str> = calls.keys().map(String::as_str).collect();
    let expect = [
        "cuGraphLaunch",
        "cuLaunchKernel",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemsetD8Async",
    ];
    assert_eq!(names, expect);
    // Three launches of each thread are captured into its graph.
    assert_eq!((calls["cuLaunchKernel"], calls["cuGraphLaunch"]), (2 * (500 + 3), lines(&capture, "graph")));
    assert!(rank.trace.host.iter().all(|(_, op)| (op.duration.0, op.status) == (0, Status::Unknown)));
}

#[test]
fn a_trace_of_calls_has_each_with_its_end() {
    let Some(capture) = traced_with("cuda13", &["--trace", "10m", "--trace-level", "calls"]) else { return };
    let rank = only_rank(&capture);
    is_the_account(&capture);
    every_launch_is_exact(rank);
    let calls = calls(rank);
    let expect = [
        ("cuLaunchKernel", 2 * (500 + 3)),
        ("cuGraphLaunch", lines(&capture, "graph")),
        ("cuStreamSynchronize", lines(&capture, "sync")),
        ("cuMemcpyHtoDAsync_v2", 2 * 25),
        // Calls without work or waits, per thread; streams and memory are created before the first launch, with which
        // the window begins.
        ("cuStreamEndCapture", 2),
        ("cuGraphClone", 2),
        ("cuGraphInstantiateWithFlags", 2),
    ];
    for (name, count) in expect {
        assert_eq!(calls.get(name), Some(&count), "{name}: {calls:?}");
    }
    let ended = |op: &HostOp| op.duration.0 > 0 && op.status == Status::Returned(0);
    assert!(rank.trace.host.iter().all(|(_, op)| ended(&op)));
}

/// What the work of each graph launch waited for: of the preceding nodes, the one that ended last. Waits have this
/// basis; `unknown` is the number of nodes with unknown order.
fn graph_waits(rank: &RankTrace, basis: Basis, unknown: usize) -> Vec<(u64, u64)> {
    let (mut waits, mut without) = (Vec::new(), BTreeSet::new());
    for (id, op) in rank.trace.device.iter().filter(|(_, op)| op.graph_node != 0) {
        match rank.links.graph_order(id) {
            GraphOrder::Unknown => _ = without.insert(op.graph_node),
            GraphOrder::First => waits.push((0, op.graph_node)),
            GraphOrder::After(wait) => {
                let on = rank.trace.device.get(wait.on).unwrap();
                assert_eq!((on.correlation, wait.basis), (op.correlation, basis));
                // The device's clock is known to within a few microseconds.
                assert!(on.end() <= op.begin + Nanos(100_000), "{on:?} {op:?}");
                waits.push((on.graph_node, op.graph_node));
            }
        }
    }
    assert_eq!(without.len(), unknown, "{without:?}");
    waits
}

/// A program of two threads that launches graphs of this kind.
fn traced_graphs(kind: &str) -> Option<Capture> {
    let words = &["--trace", "10m"];
    let setting = Setting { libraries: "cuda13", collector: true, words, ..Setting::default() };
    let words = format!("--threads 2 --rate 2000 --launches 200 {kind} --attended");
    simulated::record(setting, &simulated::launcher()?, &words.split(' ').collect::<Vec<_>>())
}

/// Edges of graphs by node number, from predecessor to successor.
type Edges = BTreeSet<(u64, u64)>;

/// Edges from the device's log.
fn made_edges(capture: &Capture) -> Edges {
    let edges = capture.account.iter().filter(|line| line.what == "edge");
    edges.map(|line| (line.name.parse().unwrap(), line.node)).collect()
}

/// Recorded edges: the first nodes, and all others.
fn recorded_edges(rank: &RankTrace) -> (Edges, Edges) {
    let edges = rank.trace.graph_edges.iter().map(|(_, edge)| (edge.from, edge.to));
    edges.partition(|(from, _)| *from == 0)
}

#[test]
fn edges_of_graphs_are_those_of_the_device() {
    let Some(capture) = traced_graphs("--forked-graphs") else { return };
    let rank = only_rank(&capture);
    is_the_account(&capture);
    let made = made_edges(&capture);
    let nodes = made.iter().map(|(_, to)| *to).collect::<BTreeSet<u64>>();
    let (first, found) = recorded_edges(rank);
    assert_eq!(found, made);
    // Each thread has a graph of five nodes and five edges.
    assert_eq!((made.len(), nodes.len(), first.len()), (10, 8, 2));
    let waits = graph_waits(rank, Basis::ByOrder, 0);
    assert_eq!(waits.len() as u64, 5 * lines(&capture, "graph"));
    assert!(waits.iter().all(|wait| found.contains(wait) || first.contains(wait)), "{waits:?}");
}

#[test]
fn edges_of_built_graphs_are_those_of_the_device() {
    let Some(capture) = traced_graphs("--built-graphs") else { return };
    let rank = only_rank(&capture);
    is_the_account(&capture);
    let made = made_edges(&capture);
    let worked = capture.account.iter().filter(|line| matches!(line.what.as_str(), "kernel" | "fill"));
    let works: BTreeSet<u64> = worked.map(|line| line.node).collect();
    let before = |node: u64| made.iter().filter(move |(_, to)| *to == node).map(|(from, _)| *from);
    let mut expect = BTreeSet::new();
    for (from, to) in made.iter().filter(|(_, to)| works.contains(to)) {
        // One node per graph has no work: its successors follow its predecessors.
        let through: Vec<u64> = if works.contains(from) { vec![*from] } else { before(*from).collect() };
        // The array of one node exceeds the read limit.
        if before(*to).count() <= 12 {
            expect.extend(through.into_iter().map(|from| (from, *to)));
        }
    }
    let (first, found) = recorded_edges(rank);
    assert_eq!(found, expect);
    assert!(rank.trace.graph_edges.iter().all(|(_, edge)| edge.basis == Basis::Exact));
    // Per thread: three edges to the second row, three through the join, one of its own, and fourteen after it.
    assert_eq!((found.len(), first.len()), (2 * (3 + 3 + 1 + 14), 2));
    let waits = graph_waits(rank, Basis::Exact, 2);
    assert_eq!(waits.len() as u64, (4 + 1 + 1 + 14) * lines(&capture, "graph"));
    assert!(waits.iter().all(|wait| found.contains(wait) || first.contains(wait)), "{waits:?}");
}

/// Nanoseconds in which the device worked.
fn busy_ns(work: &[&Line]) -> u64 {
    let mut times: Vec<(u64, u64)> = work.iter().map(|line| (line.start, line.end)).collect();
    times.sort_unstable();
    let (mut busy, mut until) = (0, 0);
    for (start, end) in times {
        busy += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    busy
}

/// Sums over the device's work are those of its log.
fn sums_are_those_of_the_device(capture: &Capture, tables: &OverTime) {
    let work: Vec<&Line> = done(capture).into_values().flatten().collect();
    let kernels: Vec<&&Line> = work.iter().filter(|line| line.what == "kernel").collect();
    let [device] = &tables.devices[..] else { panic!("{:?}", tables.devices) };
    let counts = (kernels.len() as u64, (work.len() - kernels.len()) as u64);
    assert_eq!((device.kernels, device.copies), counts);
    assert_eq!(device.kernel_sum_ns, kernels.iter().map(|line| line.end - line.start).sum::<u64>());
    let rank = only_rank(capture);
    // Between two readings of its clock, times of the device keep their distances.
    let off_ns = rank.trace.device_clock.unwrap().readings * clock_error_ns(rank);
    assert!(device.busy_ns.abs_diff(busy_ns(&work)) <= off_ns, "{device:?} {}", busy_ns(&work));
    let [launches] = &tables.launches[..] else { panic!("{:?}", tables.launches) };
    let guessed = launches.by_order + launches.ambiguous + launches.before_trace + launches.without_call;
    // Three kernels share the launch of a graph.
    let expect = (work.len() as u64, 3 * lines(capture, "graph"), 0);
    assert_eq!((launches.launches, launches.shared_call, guessed), expect, "{launches:?}");
}

#[test]
fn tables_over_time_are_made_of_a_live_trace() {
    let Some(capture) = traced("cuda13") else { return };
    let tables = OverTime::compute(capture.job.as_ref().unwrap(), Steps::default());
    sums_are_those_of_the_device(&capture, &tables);
    let tables = serde_json::to_value(&tables).unwrap();
    for table in ["devices", "idle", "launches", "queues", "copies", "critical_paths"] {
        assert!(
            tables.get(table).is_some_and(|table| table != &serde_json::Value::Null),
            "{table}: {tables}"
        );
    }
}

/// What a thread of the program says.
#[derive(Default)]
struct ProgramThread {
    /// Name, begin and end of each call.
    calls: Vec<(String, u64, u64)>,
    /// A wait for an event and its record, by numbers of calls from 1.
    waits: Vec<[usize; 2]>,
    /// A launch or a wait of the host, and the launch that it waits for.
    edges: Vec<[usize; 2]>,
}

fn program_threads(log: &Path) -> BTreeMap<u32, ProgramThread> {
    let mut threads: BTreeMap<u32, ProgramThread> = BTreeMap::new();
    for line in std::fs::read_to_string(log).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let thread = threads.entry(words[1].parse().unwrap()).or_default();
        let pair = || [2, 3].map(|at| words[at].parse().unwrap());
        match words[0] {
            "wait" => thread.waits.push(pair()),
            "edge" => thread.edges.push(pair()),
            _ => {
                let [begin, end] = [3, 4].map(|at| words[at].parse().unwrap());
                thread.calls.push((words[2].to_owned(), begin, end));
            }
        }
    }
    threads
}

/// The calls of a thread in the trace, each within the times that the program measured around it.
fn calls_of_the_program(capture: &Capture, thread: Id<Thread>, said: &ProgramThread) -> Vec<Id<HostOp>> {
    let trace = &only_rank(capture).trace;
    let started_ns = capture.profile.meta.started_monotonic.as_nanos();
    let names: BTreeSet<&str> = said.calls.iter().map(|(name, ..)| &**name).collect();
    let op = |id: &Id<HostOp>| trace.host.get(*id).unwrap();
    let ops = only_rank(capture).links.threads()[thread.index()].iter().copied();
    let calls: Vec<Id<HostOp>> = ops.filter(|id| names.contains(trace.name(op(id).name))).collect();
    assert_eq!(calls.len(), said.calls.len());
    for (op, (name, begin_ns, end_ns)) in calls.iter().map(op).zip(&said.calls) {
        assert_eq!(trace.name(op.name), name);
        let [begin, end] = [op.begin, op.end()].map(|at| started_ns + at.as_nanos());
        assert!(*begin_ns <= begin && begin < end && end <= *end_ns, "{begin_ns}..{end_ns}: {op:?}");
    }
    calls
}

/// Waits for events by the numbers of their calls, with the record.
fn event_waits(rank: &RankTrace) -> BTreeSet<(u64, Option<u64>)> {
    let is_of_event = |kind| matches!(kind, SyncKind::Event | SyncKind::StreamWait);
    let waits = rank.trace.syncs.iter().map(|(_, sync)| sync).filter(|sync| is_of_event(sync.kind));
    waits.map(|sync| (sync.correlation, sync.record)).collect()
}

/// A call of the host that waits, or work that waits, and the work that it waits for.
type WaitEdge = (Option<Id<HostOp>>, Option<Id<DeviceOp>>, Id<DeviceOp>);

/// All of these but the waits for streams.
fn wait_edges(rank: &RankTrace) -> BTreeSet<WaitEdge> {
    let mut edges = BTreeSet::new();
    for wait in rank.links.waits() {
        let (call, work) = match wait.waiter {
            Waiter::Host(call) if is_stream_sync(rank, &rank.trace.host.get(call).unwrap()) => continue,
            Waiter::Host(call) => (Some(call), None),
            Waiter::Device(work) => (None, Some(work)),
        };
        assert_eq!(wait.basis, Basis::Exact, "{wait:?}");
        edges.insert((call, work, wait.on));
    }
    edges
}

#[test]
fn calls_and_edges_are_those_of_the_program() {
    let Some(program) = simulated::launcher() else { return };
    let log = tempfile::NamedTempFile::new().unwrap();
    let words = &["--trace", "10m"];
    let setting = Setting { libraries: "cuda13", collector: true, words, ..Setting::default() };
    let words = "--threads 2 --rate 2000 --launches 500 --events --attended --log";
    let words: Vec<&str> = words.split(' ').chain(log.path().to_str()).collect();
    let Some(capture) = simulated::record(setting, &program, &words) else { return };
    let (rank, account) = (only_rank(&capture), is_the_account(&capture));
    every_launch_is_exact(rank);
    waits_are_for_the_last_work(&capture, &account);
    let launched: BTreeMap<Id<HostOp>, Id<DeviceOp>> =
        rank.trace.device.iter().filter_map(|(id, _)| Some((rank.links.launch(id).call()?, id))).collect();
    let (mut waits, mut expect) = (BTreeSet::new(), BTreeSet::new());
    for (tid, said) in program_threads(log.path()) {
        let calls = calls_of_the_program(&capture, account.threads[&tid], &said);
        let number = |number: usize| rank.trace.host.get(calls[number - 1]).unwrap().correlation;
        waits.extend(said.waits.iter().map(|[wait, record]| (number(*wait), Some(number(*record)))));
        for [waiter, on] in said.edges {
            let (waiter, on) = (calls[waiter - 1], launched[&calls[on - 1]]);
            let work = launched.get(&waiter).copied();
            expect.insert((work.is_none().then_some(waiter), work, on));
        }
    }
    // In every tenth round of each thread, a stream and the host wait for an event.
    assert_eq!((waits.len(), expect.len()), (2 * 50 * 2, 2 * 50 * 2));
    assert_eq!(event_waits(rank), waits);
    assert_eq!(wait_edges(rank), expect);
    assert_eq!((rank.links.unlinked_waits(), account.threads.len()), (0, 2));
}

/// Step ends of a Python program with ranges; the last step has no end.
const STEPS: u64 = 20;

/// Host operations of a kind with their names, by start.
fn named(rank: &RankTrace, kind: HostKind) -> Vec<(String, HostOp)> {
    let of_kind = rank.trace.host.iter().map(|(_, op)| op).filter(|op| op.kind == kind);
    let mut named: Vec<_> = of_kind.map(|op| (rank.trace.name(op.name).to_owned(), op)).collect();
    named.sort_by_key(|(_, op)| op.begin);
    named
}

/// Steps end with the ranges that mark them, and start where the previous one ended.
fn steps_are_between_ranges(rank: &RankTrace) {
    let steps = named(rank, HostKind::Step);
    let names: Vec<&str> = steps.iter().map(|(name, _)| &**name).collect();
    let expect: Vec<String> = (1..STEPS).map(|number| format!("train_step#{number}")).collect();
    assert_eq!(names, expect);
    let ranges = named(rank, HostKind::Annotation);
    let of_name =
        |name: &str| ranges.iter().filter(|(of, _)| of == name).map(|(_, op)| *op).collect::<Vec<_>>();
    let (marks, forward) = (of_name("train_step"), of_name("forward"));
    assert_eq!((marks.len() as u64, forward.len() as u64), (STEPS, STEPS));
    for (marks, (_, step)) in marks.array_windows::<2>().zip(&steps) {
        assert_eq!((step.begin, step.end()), (marks[0].end(), marks[1].end()));
    }
    for (mark, forward) in marks.iter().zip(&forward) {
        assert!(mark.begin <= forward.begin && forward.end() <= mark.end(), "{mark:?} {forward:?}");
    }
    let open = rank.trace.ledger.stage(Stage::Store).gaps.count(RANGE_END_MISSING.key);
    assert_eq!(open, 1, "the step that begins with the last end is open");
}

/// A Python program that names its steps, with these profiler options.
fn with_steps(words: &'static [&'static str]) -> Option<Capture> {
    let library = simulated::nvtx()?;
    let setting = Setting { libraries: "cuda13", collector: true, words, ..Setting::default() };
    let steps = STEPS.to_string();
    let words = ["--threads", "1", "--steps", &steps, "--attended", "--ranges", &library];
    simulated::record(setting, &simulated::python("gpu_train.py"), &words)
}

#[test]
fn steps_and_ranges_of_a_python_program_are_recorded() {
    let words = &["--trace", "10m", "--probe", "ranges", "--step-marker", "train_step"];
    let Some(capture) = with_steps(words) else { return };
    steps_are_between_ranges(only_rank(&capture));
    let of = Steps { from: Some(5), until: Some(8) };
    let tables = OverTime::compute(capture.job.as_ref().unwrap(), of);
    let steps: Vec<u64> = tables.steps.iter().map(|step| step.step).collect();
    assert_eq!(steps, [5, 6, 7]);
    let has_both = |of: &StepParts| of.kernel_ns > 0 && of.api_call_ns > 0;
    assert!(tables.steps.iter().all(|step| step.split.figures().is_some_and(has_both)), "{:?}", tables.steps);
}

#[test]
fn processes_that_a_launcher_numbered_are_its_ranks() {
    let Some(program) = simulated::launcher() else { return };
    let setting =
        Setting { libraries: "cuda13", collector: true, words: &["--trace", "10m"], ..Setting::default() };
    // The first to start is not the first rank, and one of the three runs elsewhere.
    // Each writes a separate log.
    let script = "RANK=1 WORLD_SIZE=3 DEEPCTX_SIM_LOG=$DEEPCTX_SIM_LOG.1 \"$@\" & \
                  RANK=0 WORLD_SIZE=3 \"$@\"; wait";
    let shell = ["sh", "-c", script, "sh"].map(str::to_owned);
    let program: Vec<String> = shell.into_iter().chain(program).collect();
    let words = ["--rate", "2000", "--launches", "200", "--attended"];
    let Some(capture) = simulated::record(setting, &program, &words) else { return };
    let job = capture.job.as_ref().unwrap();
    let ranks: Vec<_> = job.ranks().iter().map(|of| (of.rank, of.rank_is_recorded)).collect();
    assert_eq!(ranks, [(0, true), (1, true)]);
    assert_eq!((job.world_size(), job.missing()), (Some(3), vec![2]));
    let pids: Vec<u32> =
        job.ranks().iter().filter_map(|of| of.file.rsplit(' ').next()?.parse().ok()).collect();
    assert!(pids[0] > pids[1], "rank 0 started last: {pids:?}");
    let began = job.ranks().iter().filter_map(|of| of.trace.clock.epoch_ns);
    let year_2020 = 1_577_836_800_000_000_000;
    assert!(began.filter(|epoch_ns| *epoch_ns > year_2020).count() == 2, "both know the calendar");
}

#[test]
fn a_signal_begins_the_window_of_the_trace() {
    let words = &["--trace", "signal=50ms"];
    let setting = Setting { libraries: "cuda13", collector: true, words, ..Setting::default() };
    // Before each of the two steps, the program is idle for longer than a window: the second request is refused.
    let words = ["--threads", "1", "--steps", "200", "--attended", "--request-trace", "10,120"];
    let Some(capture) = simulated::record(setting, &simulated::python("gpu_train.py"), &words) else {
        return;
    };
    let rank = only_rank(&capture);
    let begins = || rank.trace.host.iter().map(|(_, op)| op.begin.as_nanos());
    let span_ns = begins().max().unwrap() - begins().min().unwrap();
    assert!(begins().count() > 10 && span_ns < 50_000_000, "{} within {span_ns} ns", begins().count());
    // Untraced work is in the totals.
    let done = capture.account.iter().filter(|line| line.what == "kernel").count() as u64;
    let tree = &capture.profile.tree;
    let counted: u64 = tree.cells(Metric::Kernels).map(|(_, cell)| cell.sum).sum();
    assert_eq!(counted, done);
    let traced = rank.trace.device.iter().filter(|(_, op)| op.kind == DeviceKind::Kernel).count() as u64;
    assert!(10 < traced && traced < done / 2, "{traced} of {done}");
}

#[test]
fn a_window_of_steps_has_what_begins_in_them() {
    let words = &["--trace", "steps=5..8", "--probe", "ranges", "--step-marker", "train_step"];
    let Some(capture) = with_steps(words) else { return };
    let rank = only_rank(&capture);
    let steps = named(rank, HostKind::Step);
    let names: Vec<&str> = steps.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["train_step#5", "train_step#6", "train_step#7"]);
    let (begin, end) = (steps[0].1.begin, steps[2].1.end());
    assert!(rank.trace.host.iter().all(|(_, op)| begin <= op.begin && op.begin < end));
    let launches: Vec<_> = rank.trace.host.iter().filter(|(_, op)| op.kind.is_call()).collect();
    assert!(launches.len() > 100, "{}", launches.len());
}

#[test]
fn a_window_of_launches_has_as_many() {
    let Some(capture) = with_steps(&["--trace", "launches=20..50", "--probe", "ranges"]) else { return };
    let rank = only_rank(&capture);
    let calls = named(rank, HostKind::DriverCall);
    let launches = calls.iter().filter(|(name, _)| name.starts_with("cuLaunch") || name == "cuGraphLaunch");
    assert_eq!(launches.count(), 30);
    let traced = rank.trace.device.iter().filter(|(_, op)| op.kind == DeviceKind::Kernel).count();
    let done = capture.account.iter().filter(|line| line.what == "kernel").count();
    assert!(traced >= 30 && traced < done / 2, "{traced} of {done}");
}

#[test]
fn the_page_on_an_idle_device_is_true() {
    if !can_capture() || !simulated::is_built() {
        return;
    }
    let _alone = simulated::alone();
    let folder = tempfile::tempdir().unwrap();
    let setting = Setting { libraries: "cuda13", ..Setting::default() };
    let variables = setting.variables(&folder.path().join("device.tsv"));
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.into())).collect();
    let program = simulated::python("gpu_train.py").join(" ");
    let instead = [("python3 train.py", &*program)];
    let reader =
        Reader { folder: Some(folder.path()), instead: &instead, variables: &variables, ..Reader::default() };
    reader.follows("gpu-is-idle.md");
}
