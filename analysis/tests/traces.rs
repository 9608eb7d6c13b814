//! Real traces, and what plain counting says of them.
//!
//! Sums of events are those of `jq`-like counting over the JSON, without any rule; HTA's figures are those of
//! HolisticTraceAnalysis 0.5.0. `traces/README.md` says where the traces come from.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Read;
use std::path::{Path, PathBuf};

use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::{ClockBasis, Steps};
use deepctx_storage::open_traces;
use serde_json::{Value, json};

fn tables(name: &str) -> OverTime {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name);
    OverTime::compute(&open_traces(&[path]).expect("a trace of the folder"), Steps::default())
}

/// Count and nanoseconds of a kind of events, of one rank.
fn sum(tables: &OverTime, rank: usize, kind: &str) -> (u64, u64) {
    let found = tables.traces[rank].sums.iter().find(|row| row.kind == kind);
    found.map_or((0, 0), |row| (row.count, row.time_ns))
}

#[test]
fn sums_of_traces_are_those_of_plain_counting() {
    let check = |file: &str, expect: &[(&str, u64, u64)]| {
        let tables = tables(file);
        for (kind, count, time_ns) in expect {
            assert_eq!(sum(&tables, 0, kind), (*count, *time_ns), "{file}: {kind}");
        }
    };
    check(
        "eventsync-a100.json.gz",
        &[
            ("kernel", 4, 49_000),
            ("copy", 1, 2_000),
            ("runtime-call", 12, 157_000),
            ("synchronisation", 4, 46_000),
            ("operator", 10, 4_723_000),
            ("step", 1, 3_154_000),
        ],
    );
    check(
        "alexnet-a100-sync.json.gz",
        &[
            ("kernel", 79, 10_692_000),
            ("copy", 16, 55_503_000),
            ("fill", 3, 8_000),
            ("runtime-call", 361, 42_297_605_000),
            ("synchronisation", 41, 1_478_000),
        ],
    );
    check("gpuonly-mi210.json.gz", &[("kernel", 562, 5_343_422), ("runtime-call", 631, 2_260_159)]);
}

#[test]
fn spans_and_unions_of_devices_are_those_of_plain_counting() {
    let check = |file: &str, span_ns: u64, busy_ns: u64| {
        let row = &tables(file).devices[0];
        assert_eq!((row.span_ns, row.busy_ns), (span_ns, busy_ns), "{file}");
    };
    check("eventsync-a100.json.gz", 263_000, 51_000);
    // HTA has a span of 12 996 011 µs, since it takes synchronisations for kernels.
    check("alexnet-a100-sync.json.gz", 12_920_244_000, 66_141_000);
    check("gpuonly-mi210.json.gz", 5_979_503, 5_343_422);
}

#[test]
fn every_rank_of_a_folder_is_counted() {
    let tables = tables("dlrm");
    let expect = [6_832, 12_582, 4_560, 11_014, 7_713, 7_292, 4_609, 2_805];
    let found: Vec<u64> = (0..8).map(|rank| sum(&tables, rank, "kernel").1 / 1000).collect();
    assert_eq!(found, expect);
    let spans: Vec<u64> = tables.devices.iter().map(|row| row.span_ns / 1000).collect();
    assert_eq!(spans, [13_009, 18_749, 11_350, 18_853, 16_589, 16_392, 11_410, 10_967]);
    // HTA's, which agrees: one step, and no synchronisations on device rows.
    let overlaps = tables.devices.iter().filter_map(|row| row.overlap_percent);
    let overlaps: Vec<String> = overlaps.map(|percent| format!("{percent:.2}")).collect();
    assert_eq!(overlaps, ["4.50", "2.47", "7.88", "3.31", "0.56", "0.64", "7.56", "9.51"]);
    let before: Vec<u64> = tables.launches.iter().map(|row| row.before_trace).collect();
    assert_eq!(before, [0, 64, 0, 64, 0, 0, 0, 0]);
}

#[test]
fn latest_ranks_are_those_that_arrive_last() {
    let stragglers = tables("dlrm").stragglers;
    let mut collectives = stragglers.collectives;
    assert_eq!((collectives.len(), stragglers.not_matched), (8, Vec::new()));
    assert!(stragglers.communicators_inferred);
    collectives.sort_by_key(|row| row.ordinal);
    // HTA's candidates are 2 and 7, by one of the eight.
    let latest: Vec<u32> = collectives.iter().map(|row| row.latest_rank).collect();
    assert_eq!(latest, [7, 7, 7, 7, 7, 5, 5, 4]);
    assert!(collectives.iter().all(|row| row.end_spread_ns <= 7_000));
    assert!(stragglers.ranks.iter().all(|row| row.clock_offset_ns == 0));
}

#[test]
fn named_events_give_exact_waits() {
    let tables = tables("alexnet-a100-sync.json.gz");
    let trace = &tables.traces[0];
    assert_eq!((trace.sync_events, trace.inferred_waits), (41, 0));
    assert!(trace.exact_waits > 0);
    let path = &tables.critical_paths[0];
    assert_eq!(path.parts.iter().map(|part| part.time_ns).sum::<u64>(), path.window_ns);
}

#[test]
fn operators_launch_what_plain_counting_finds() {
    let check = |file: &str, expect: &[(&str, u64, u64)]| {
        let tables = tables(file);
        let operators = &tables.operators[0];
        let rows = operators.rows.iter().filter(|row| row.launched.count > 0);
        let rows = rows.map(|row| (row.name.as_str(), row.launched.count, row.launched.device_ns));
        let found: Vec<_> = rows.take(expect.len()).collect();
        assert_eq!(found, expect, "{file}");
        let launched = operators.rows.iter().map(|row| row.launched.count).sum::<u64>();
        assert_eq!(launched + operators.outside.count, tables.traces[0].device_events as u64, "{file}");
    };
    check(
        "alexnet-a100-sync.json.gz",
        &[
            ("aten::copy_", 16, 55_503_000),
            ("aten::cudnn_convolution", 31, 5_375_000),
            ("aten::addmm", 14, 2_664_000),
            ("aten::add_", 10, 958_000),
        ],
    );
    check(
        "dlrm",
        &[("record_param_comms", 8, 5_798_000), ("aten::mm", 15, 104_000), ("aten::copy_", 32, 79_000)],
    );
    check("gpuonly-mi210.json.gz", &[]);
}

#[test]
fn a_step_has_a_slowest_rank_with_a_reason() {
    let tables = tables("dlrm");
    let slowest = &tables.slowest[0];
    assert_eq!((tables.slowest.len(), slowest.ranks), (1, 8));
    let slowest = slowest.found.figures().unwrap();
    for step in tables.steps.iter().map(|step| step.split.figures().unwrap()) {
        let parts = [
            step.kernel_ns,
            step.copy_ns,
            step.fill_ns,
            step.communication_ns,
            step.api_call_ns,
            step.data_loader_ns,
            step.operator_ns,
            step.other_ns,
        ];
        assert_eq!(parts.iter().sum::<u64>(), step.length_ns);
        assert!(step.waiting_ns <= step.communication_ns);
        assert!(step.length_ns - step.waiting_ns <= slowest.own_ns);
    }
    assert!(slowest.because.iter().all(|row| row.slowest_ns > row.median_ns));
    let path = slowest.path.as_ref().unwrap();
    let parts_ns = path.parts.iter().map(|part| part.time_ns).sum::<u64>();
    assert_eq!((path.rank, parts_ns), (slowest.slowest_rank, path.window_ns));
    assert_eq!(tables.slowest_paths_left_out, 0);
    // All ranks have one clock, and the ends of collectives say so within 7 µs.
    for rank in &tables.stragglers.ranks[1..] {
        assert_eq!((rank.clock, rank.clock_offset_ns), (ClockBasis::AsTraced, 0));
        assert!(rank.clock_uncertainty_ns.is_some_and(|by| by <= 7_000));
    }
}

/// The tables of a trace of the folder whose events were edited, and how many events that concerned.
fn edited(name: &str, edit: impl Fn(&mut Vec<Value>) -> usize) -> (OverTime, u64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name);
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    let concerned = edit(document["traceEvents"].as_array_mut().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edited.json");
    std::fs::write(&path, document.to_string()).unwrap();
    (OverTime::compute(&open_traces(&[path]).expect(name), Steps::default()), concerned as u64)
}

/// Changes each of these events, and counts them.
fn change(events: &mut [Value], which: impl Fn(usize, &Value) -> bool, edit: impl Fn(&mut Value)) -> usize {
    let chosen = events.iter_mut().enumerate().filter(|(place, event)| which(*place, event));
    chosen.map(|(_, event)| edit(event)).count()
}

/// What is counted of a reason.
fn gap(tables: &OverTime, reason: &str) -> u64 {
    tables.traces[0].gaps.iter().find(|gap| gap.reason == reason).map_or(0, |gap| gap.count)
}

fn is_work(event: &Value) -> bool {
    ["kernel", "gpu_memcpy", "gpu_memset"].iter().any(|category| event["cat"] == *category)
}

/// Every seventh event with a length.
fn some(place: usize, event: &Value) -> bool {
    place.is_multiple_of(7) && event["ph"] == "X" && event["cat"] != "Trace"
}

#[test]
fn odd_events_of_real_traces_are_counted() {
    for name in ["alexnet-a100-sync.json.gz", "gpuonly-mi210.json.gz", "eventsync-a100.json.gz"] {
        let whole = tables(name);
        let work = whole.launches[0].launches;
        assert_eq!((whole.launches[0].ambiguous, whole.launches[0].minute_delays), (0, 0), "{name}");
        for (reason, duration) in [("end-before-begin", json!(-3)), ("too-long", json!(1e18))] {
            let (tables, count) =
                edited(name, |events| change(events, some, |event| event["dur"] = duration.clone()));
            assert!(count > 0);
            assert_eq!(gap(&tables, reason), count, "{name}");
        }
        // One that is none; a name that is no text.
        let (tables, count) = edited(name, |events| {
            events.push(json!([1]));
            1 + change(events, some, |event| event["name"] = json!(["a"]))
        });
        assert_eq!(gap(&tables, "not-understood"), count, "{name}");
        // The clock of the device an hour ahead, and an hour behind.
        for (hours, expect) in [(1.0, (0, work)), (-1.0, (work, 0))] {
            let shift =
                |event: &mut Value| event["ts"] = json!(event["ts"].as_f64().unwrap() + hours * 3600e6);
            let (tables, _) = edited(name, |events| change(events, |_, event| is_work(event), shift));
            let launches = &tables.launches[0];
            assert_eq!((launches.begun_before_call, launches.minute_delays), expect, "{name}");
        }
    }
}

#[test]
fn ids_that_are_used_twice_are_counted() {
    let check = |name: &str, expect: u64| {
        let (tables, _) = edited(name, |events| {
            let has_id = |_, event: &Value| event["args"]["correlation"].is_u64();
            change(events, has_id, |event| {
                let id = &mut event["args"]["correlation"];
                *id = json!(id.as_u64().unwrap() / 2);
            })
        });
        assert_eq!(tables.launches[0].ambiguous, expect, "{name}");
        assert_eq!(tables.launches[0].launches, self::tables(name).launches[0].launches, "{name}");
    };
    check("alexnet-a100-sync.json.gz", 19);
    // Its ids follow each other, so that each call shares its own with another.
    check("gpuonly-mi210.json.gz", 562);
}

#[test]
fn events_in_another_order_have_the_same_tables() {
    for name in ["alexnet-a100-sync.json.gz", "gpuonly-mi210.json.gz", "eventsync-a100.json.gz"] {
        let whole = tables(name);
        let (turned, _) = edited(name, |events| {
            events.reverse();
            events.len()
        });
        assert_eq!(turned.devices, whole.devices, "{name}");
        assert_eq!((&turned.idle, &turned.queues), (&whole.idle, &whole.queues), "{name}");
        assert_eq!((&turned.launches, &turned.steps), (&whole.launches, &whole.steps), "{name}");
        assert_eq!(turned.critical_paths, whole.critical_paths, "{name}");
        assert_eq!(turned.exposed, whole.exposed, "{name}");
    }
}

#[test]
fn a_cut_file_and_a_missing_rank_are_said() {
    let path = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name);
    let folder = tempfile::tempdir().unwrap();
    for name in ["alexnet-a100-sync.json.gz", "gpuonly-mi210.json.gz", "dlrm/rank3.json.gz"] {
        let bytes = std::fs::read(path(name)).unwrap();
        let cut = folder.path().join("cut.json.gz");
        std::fs::write(&cut, &bytes[..bytes.len() * 2 / 3]).unwrap();
        let tables = OverTime::compute(&open_traces(&[cut]).expect(name), Steps::default());
        assert_eq!(gap(&tables, "cut-short"), 1, "{name}");
    }
    let ranks: Vec<PathBuf> =
        [0, 1, 2, 4, 5, 6, 7].iter().map(|rank| path(&format!("dlrm/rank{rank}.json.gz"))).collect();
    let tables = OverTime::compute(&open_traces(&ranks).unwrap(), Steps::default());
    assert_eq!((tables.traces.len(), &tables.missing_ranks[..]), (7, &[3][..]));
}
