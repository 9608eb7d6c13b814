//! Real traces, and what plain counting says of them.
//!
//! Sums of events are those of `jq`-like counting over the JSON, without any rule; HTA's figures are those of
//! HolisticTraceAnalysis 0.5.0. `traces/README.md` says where the traces come from.

use std::path::{Path, PathBuf};

use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::{ClockBasis, Steps};
use deepctx_storage::open_traces;

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
    for step in &tables.steps {
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
    // All ranks have one clock, and the ends of collectives say so within 7 µs.
    for rank in &tables.stragglers.ranks[1..] {
        assert_eq!((rank.clock, rank.clock_offset_ns), (ClockBasis::AsTraced, 0));
        assert!(rank.clock_uncertainty_ns.is_some_and(|by| by <= 7_000));
    }
}
