//! Tests of the effect of lost events and of the device clock on the tables.

use deepctx_profile::trace::{Job, text};

use super::tests::{TWO_KERNELS, job, of};
use super::*;

const THREE_STEPS: &str = "
    step m 0..10 ProfilerStep#1
    step m 10..20 ProfilerStep#2
    step m 20..30 ProfilerStep#3
    call m 1..2 cudaLaunchKernel #1
    call m 11..12 cudaLaunchKernel #2
    call m 21..22 cudaLaunchKernel #3
    kernel 0/7 3..5 gemm #1
    kernel 0/7 13..15 gemm #2
    kernel 0/7 23..25 gemm #3";

#[test]
fn losses_refuse_single_steps() {
    let check = |lost: &str, expect: &[u64]| {
        let found = of(&format!("{THREE_STEPS}\n{lost}"));
        let refused = found.steps.iter().filter(|step| step.split.not_measured().is_some());
        assert_eq!(refused.map(|step| step.step).collect::<Vec<_>>(), expect, "{lost}");
        // The window's tables remain.
        assert_eq!(
            (found.devices[0].busy_ns, found.steps.len(), found.refused.len()),
            (6_000, 3, 0),
            "{lost}"
        );
    };
    check("", &[]);
    check("lost gpu0-s7 16..18 4", &[2]);
    check("lost gpu0-s7 18..18 1", &[2]);
    // An end belongs to the next step.
    check("lost t8 20..20 1", &[3]);
    check("lost t8 8..10 2", &[1, 2]);
    check("lost t8 2..3 2\n lost t9 29..50 1", &[1, 3]);
    check("lost t8 40..50 1", &[]);
}

#[test]
fn a_refused_step_says_what_was_lost() {
    let input = format!("{THREE_STEPS}\nlost gpu0-s7 16..18 4\nlost t8 12..13 2\nlost t8 13..19 1");
    let found = of(&input);
    let json = serde_json::to_value(&found.steps[1]).unwrap();
    let lost = |lane, events| serde_json::json!({"rank": 0, "lane": lane, "events": events});
    let expect = serde_json::json!({"reason": "events-lost", "lost": [lost("gpu0-s7", 4), lost("t8", 3)]});
    assert_eq!((&json["not_measured"], json.get("kernel_ns")), (&expect, None));
    assert_eq!(serde_json::to_value(&found.steps[0]).unwrap()["kernel_ns"], 2_000);
    let text = shown(&found);
    let row = "     0      2         –  not measured: events were lost meanwhile (4 of gpu0-s7, 3 of t8)";
    assert!(text.lines().any(|line| line == row), "{text}");
}

#[test]
fn the_head_says_how_well_the_device_clock_is_known() {
    let mut trace = text::parse(TWO_KERNELS).unwrap();
    let clock = ClockOffset {
        offset_ns: -5,
        uncertainty: deepctx_profile::units::Nanos(1_500),
        drift_ns: -20,
        readings: 7,
    };
    trace.device_clock = Some(clock);
    let found = OverTime::compute(&Job::new(vec![("t".to_owned(), trace)]).unwrap(), Steps::default());
    let expect = serde_json::json!({"offset_ns": -5, "uncertainty_ns": 1500, "drift_ns": -20, "readings": 7});
    assert_eq!(serde_json::to_value(&found.traces[0]).unwrap()["device_clock"], expect);
    assert!(shown(&found).contains("device clock: ± 1.50 µs of the threads', by 7 readings, moved by 20 ns"));
    let lanes = |tables: &OverTime| serde_json::to_value(&tables.traces[0].lane_clocks).unwrap();
    let expect = serde_json::json!([
        {"lanes": "threads", "accuracy": "exact"},
        {"lanes": "gpu0", "accuracy": "bounded", "within_ns": 1500},
    ]);
    assert_eq!(lanes(&found), expect);
    let none = of(TWO_KERNELS);
    let said = "device clock: unknown, because the trace does not say how the clocks of devices and threads were compared";
    assert!(shown(&none).contains(said), "{}", shown(&none));
    assert_eq!(serde_json::to_value(&none.traces[0]).unwrap().get("device_clock"), None);
    assert_eq!(lanes(&none)[1]["accuracy"], "unknown");
    assert!(!shown(&of("op m 0..9 f")).contains("device clock"), "there is no device");
}

#[test]
fn steps_within_the_error_of_clocks_are_counted() {
    // From the launch to its work 3 µs, from the end of the work to that of the wait 1 µs.
    let input = "
        call m 0..2 cudaLaunchKernel #1
        kernel 0/7 3..20 gemm #1
        call m 4..21 cudaStreamSynchronize #2
        sync stream 0/7 4..21 #2";
    let check = |within_us: Option<u64>, expect: Option<u64>| {
        let mut trace = text::parse(input).unwrap();
        let uncertainty = |us| deepctx_profile::units::Nanos(us * 1000);
        trace.device_clock =
            within_us.map(|us| ClockOffset { uncertainty: uncertainty(us), ..ClockOffset::default() });
        let found = OverTime::compute(&Job::new(vec![("t".to_owned(), trace)]).unwrap(), Steps::default());
        let path = &found.critical_paths[0];
        assert_eq!((path.between_clocks, path.within_clocks), (2, expect), "{within_us:?}");
        let verb = if expect == Some(1) { "is" } else { "are" };
        let said =
            format!("transitions between threads and devices {verb} not longer than the error of the clocks");
        assert_eq!(shown(&found).contains(&said), expect > Some(0));
    };
    check(None, None);
    check(Some(0), Some(0));
    check(Some(2), Some(1));
    check(Some(3), Some(2));
}

fn shown(tables: &OverTime) -> String {
    let mut text = Vec::new();
    crate::render::text::write_over_time(tables, 20, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_step_that_lost_events_has_no_table_alone() {
    let job = job(&[&format!("{THREE_STEPS}\nlost gpu0-s7 16..18 4")]);
    let check = |from, until, refused: &[u64], busy: &[u64]| {
        let of = Steps { from: Some(from), until: Some(until) };
        let found = OverTime::compute(&job, of).what_if(&job, of, &["kernel:gemm=0.5".parse().unwrap()]);
        assert_eq!(found.refused.iter().map(|step| step.step).collect::<Vec<_>>(), refused);
        assert_eq!(found.devices.iter().map(|row| row.busy_ns).collect::<Vec<_>>(), busy);
        assert_eq!((found.critical_paths.len(), found.what_if.len()), (busy.len(), busy.len()));
        assert_eq!(CriticalPath::compute(&job, of), found.critical_paths);
    };
    check(1, 2, &[], &[2_000]);
    check(2, 3, &[2], &[]);
    check(1, 3, &[], &[4_000]);
}

#[test]
fn ranks_are_compared_in_steps_that_all_measured() {
    let lost = format!("rank 1 of 2 {THREE_STEPS}\nlost gpu0-s7 16..18 4");
    let whole = format!("rank 0 of 2 {THREE_STEPS}");
    let found = OverTime::compute(&job(&[&whole, &lost]), Steps::default());
    let measured = found.slowest.iter().map(|step| step.found.figures().is_some());
    assert!(measured.eq([true, false, true]));
    let compute = found.imbalance.iter().find(|row| row.phase == Phase::Compute).unwrap();
    assert_eq!((compute.most_ns, compute.least_ns, compute.steps_not_measured), (4_000, 4_000, 1));
}

#[test]
fn a_rank_with_fewer_steps_is_compared_in_these() {
    let few = "rank 1 of 2\n step m 0..10 ProfilerStep#1\n kernel 0/7 3..5 gemm";
    let all = format!("rank 0 of 2 {THREE_STEPS}");
    let found = OverTime::compute(&job(&[&all, few]), Steps::default());
    let compute = found.imbalance.iter().find(|row| row.phase == Phase::Compute).unwrap();
    assert_eq!((compute.most_ns, compute.least_ns, compute.steps_not_measured), (2_000, 2_000, 2));
}

#[test]
fn a_lost_step_makes_no_long_interval() {
    let steps = |lost: &str| {
        format!("step m 0..8 s#1\nstep m 10..18 s#2\nstep m 30..38 s#4\nstep m 40..48 s#5\n{lost}")
    };
    let longest = |lost| of(&steps(lost)).pacing[0].begin_to_begin.max_ns;
    assert_eq!((longest(""), longest("lost t8 20..28 1")), (20_000, 10_000));
}
