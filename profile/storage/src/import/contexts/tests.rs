use expect_test::expect;
use proptest::prelude::*;

use crate::import::read;
use deepctx_profile::device::gpu::DeviceUse;
use deepctx_profile::ledger::Stage;
use deepctx_profile::metric::Metric;
use deepctx_profile::text;

/// A trace of one thread, from name, category, begin and length of its events, in microseconds.
fn document(events: &[(&str, &str, u64, u64)]) -> String {
    let event = |(name, category, ts, dur): &(&str, &str, u64, u64)| {
        format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":7,"tid":7,"ts":{}.5,"dur":{dur}}}"#,
            ts + 1
        )
    };
    let events: Vec<String> = events.iter().map(event).collect();
    format!(r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#, events.join(","))
}

#[test]
fn a_range_outlives_the_functions_that_begin_and_end_it() {
    let events = [
        ("a.py(1): main", "python_function", 0, 1000),
        ("p.py(2): step", "python_function", 100, 50),
        ("p.py(3): __enter__", "python_function", 110, 20),
        ("ProfilerStep#1", "user_annotation", 120, 500),
        ("aten::mm", "cpu_op", 200, 100),
        ("p.py(2): step", "python_function", 600, 40),
        ("p.py(4): __exit__", "python_function", 610, 20),
    ];
    let imported = read(document(&events).as_bytes(), "x").unwrap();
    expect![[r#"
        all
          process-7
            a.py:main  wall-time=460000
              [range] ProfilerStep  wall-time=350000 range-time=500000 step-time=500000
                aten::mm  wall-time=100000
                p.py:step  wall-time=30000/2[10000..20000]
                  p.py:__enter__  wall-time=10000
                  p.py:__exit__  wall-time=10000
              p.py:step  wall-time=20000/2[10000..10000]
                p.py:__enter__  wall-time=10000
                p.py:__exit__  wall-time=10000
    "#]]
    .assert_eq(&text::tree(&imported.profile));
}

#[test]
fn steps_of_a_trace_have_percentiles() {
    let steps: Vec<_> = (0..10).map(|n| ("ProfilerStep#1", "user_annotation", n * 100, 10 + n)).collect();
    let profile = read(document(&steps).as_bytes(), "x").unwrap().profile;
    let (place, cell) = profile.tree.cells(Metric::StepTime).next().unwrap();
    let median = profile.step_times.of(place).and_then(|times| times.percentile(50, &cell)).unwrap();
    assert!(median.least.0 <= 14_000 && 14_000 <= median.most.0, "{median:?}");
    assert!(median.most.0 - median.least.0 <= 14_000 / 16, "{median:?}");
}

/// Length of the union of events.
fn union(events: &[(&str, &str, u64, u64)]) -> u64 {
    let mut spans: Vec<(u64, u64)> = events.iter().map(|(_, _, ts, dur)| (*ts, ts + dur)).collect();
    spans.sort_unstable();
    let (mut sum, mut until) = (0, 0);
    for (begin, end) in spans {
        sum += end.saturating_sub(begin.max(until));
        until = until.max(end);
    }
    sum
}

proptest! {
    #[test]
    fn wall_time_within_one_function_is_that_of_its_thread(
        inner in prop::collection::vec((0usize..4, 2u64..900, 2u64..900), 0..40),
    ) {
        let kinds = [
            ("r", "user_annotation"),
            ("ProfilerStep#1", "user_annotation"),
            ("f.py(1): f", "python_function"),
            ("aten::mm", "cpu_op"),
        ];
        let mut events = vec![("m.py(1): main", "python_function", 0, 1000)];
        events.extend(inner.iter().map(|(kind, ts, dur)| {
            let (name, category) = kinds[*kind];
            (name, category, *ts, (*dur).min(1000 - ts))
        }));
        let imported = read(document(&events).as_bytes(), "x").unwrap();
        prop_assert_eq!(imported.profile.tree.total(Metric::WallTime).sum, union(&events) * 1000);
    }
}

/// With a search through all calls around each one, this would take a minute.
#[test]
fn calls_within_very_many_others_are_no_burden() {
    let call = |ts: u64, dur: u64| ("cudaLaunchKernel", "cuda_runtime", ts, dur);
    let around = (0..16_000).map(|n| call(n, 500_000 - 2 * n));
    let events: Vec<_> = around.chain((0..100_000).map(|n| call(20_000 + 2 * n, 1))).collect();
    let imported = read(document(&events).as_bytes(), "x").unwrap();
    let total = imported.profile.tree.total(Metric::LaunchTime);
    assert_eq!((total.count, total.sum), (1, 500_000_000));
}

#[test]
fn time_of_what_is_too_deep_stays_around_it() {
    let events: Vec<_> = (0..17_000).map(|n| ("f", "cpu_op", n, 100_000 - 2 * n)).collect();
    let profile = read(document(&events).as_bytes(), "x").unwrap().profile;
    assert_eq!(profile.tree.total(Metric::WallTime).sum, union(&events) * 1000);
    let too_deep = profile.ledger.stage(Stage::Decode).gaps.count("too-deep");
    assert_eq!(too_deep, 17_000 - 16 * 1024);
}

#[test]
fn addresses_of_objects_make_no_functions() {
    let name = |object: &str| format!("<built-in method f of a object at {object}>");
    let names = [name("0x7f709c2f2010"), name("0x7cbf780f01b0"), "a at 0x1 of b at 0xf; c at 0xg".into()];
    let events: Vec<_> =
        (0..).zip(&names).map(|(n, name)| (&**name, "python_function", n * 10, 10)).collect();
    let imported = read(document(&events).as_bytes(), "x").unwrap();
    expect![[r#"
        all
          process-7
            <built-in method f of a object>  wall-time=20000/2[10000..10000]
            a of b: c at 0xg  wall-time=10000
    "#]]
    .assert_eq(&text::tree(&imported.profile));
}

#[test]
fn devices_are_at_work_for_the_union_of_their_work() {
    let kernel = |device: u32, ts: u32, dur: u32| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"k","pid":{device},"tid":7,"ts":{ts},"dur":{dur},
                "args":{{"device":{device},"stream":7}}}}"#
        )
    };
    let host = r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":7,"tid":7,"ts":0,"dur":100}"#;
    let events = [host.to_owned(), kernel(0, 10, 20), kernel(0, 20, 20), kernel(0, 60, 5), kernel(1, 90, 40)];
    let imported = read(format!("[{}]", events.join(",")).as_bytes(), "x").unwrap();
    let us = |of: &DeviceUse| [of.busy, of.until_first, of.since_first].map(|time| time.0 / 1000);
    let uses: Vec<_> = imported.profile.gpu.uses.iter().map(us).collect();
    assert_eq!(uses, [[35, 10, 120], [40, 90, 40]]);
}
