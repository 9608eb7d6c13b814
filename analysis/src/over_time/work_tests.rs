//! Tests of tables on device work: classes, gaps, bandwidth, exposed work, annotations and pacing.

use proptest::prelude::*;

use super::tests::{any_trace, of};
use super::*;

#[test]
fn each_moment_goes_to_the_classes_that_run_then() {
    let row = of("
        kernel 0/7 0..10 a
        kernel 0/7 20..24 a
        kernel 0/8 5..25 ncclKernel_AllReduce
        copy 0/9 8..12 Memcpy HtoD
        copy 0/9 40..41 Memcpy HtoD")
    .kernel_classes
    .remove(0);
    let together: Vec<_> =
        row.together.iter().map(|part| (part.classes.join(" "), part.time_ns / 1000)).collect();
    let expect = [
        ("communication", 9),
        ("compute", 5),
        ("compute communication", 7),
        ("communication memory", 2),
        ("compute communication memory", 2),
        ("memory", 1),
    ];
    let mut expect: Vec<_> = expect.iter().map(|(classes, us)| ((*classes).to_owned(), *us)).collect();
    expect.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    let times = |rows: &[(String, u64)]| rows.iter().map(|(_, us)| *us).collect::<Vec<_>>();
    assert_eq!(times(&together), times(&expect));
    assert!(expect.iter().all(|part| together.contains(part)), "{together:?}");
    let compute = &row.classes[0];
    assert_eq!((compute.class, compute.lengths.count, compute.lengths.sum_ns), ("compute", 2, 14_000));
    let a = &compute.kernels[0].lengths;
    assert_eq!((a.min_ns, a.max_ns, a.mean_ns), (4_000, 10_000, 7_000.0));
}

#[test]
fn a_gap_says_what_was_before_behind_and_meanwhile() {
    fn check(
        input: &str,
        times: (u64, u64),
        work: (&str, &str),
        until: Option<u64>,
        host: Option<(&str, u64)>,
    ) {
        let row = of(input).gaps.remove(0);
        let gap = &row.longest[0];
        let found = gap.host.as_deref().map(|name| (name, gap.host_ns / 1000));
        assert_eq!((gap.begin_ns / 1000, gap.length_ns / 1000), times, "{input}");
        assert_eq!((&*gap.before, &*gap.behind), work, "{input}");
        assert_eq!((gap.until_launch_ns.map(|ns| ns / 1000), found), (until, host), "{input}");
    }
    let work = "
        call m 0..2 cudaLaunchKernel #1
        kernel 0/7 10..20 a #1
        kernel 0/8 12..18 b
        call m 70..72 cudaLaunchKernel #2
        kernel 0/7 80..90 c #2
        kernel 0/7 95..96 d";
    check(work, (20, 60), ("a", "c"), Some(50), Some(("cudaLaunchKernel", 2)));
    // The loader covers 30 of the 50 µs before the launch, its reads 10 of these.
    let loader =
        format!("{work}\n op m 15..60 load\n op m 40..50 read\n op other 0..99 train\n step m 0..99 step#1");
    check(&loader, (20, 60), ("a", "c"), Some(50), Some(("load", 30)));
    check("kernel 0/7 0..1 a\n kernel 0/7 5..6 b", (1, 4), ("a", "b"), None, None);
    assert_eq!((of(work).gaps[0].count, of(work).gaps[0].total_ns), (2, 65_000));
}

#[test]
fn bytes_over_time_add_up() {
    let row =
        of("kernel 0/7 0..1000 a\n copy 0/7 100..200 Memcpy HtoD 1001B\n copy 0/8 195..205 Memcpy HtoD 40B")
            .bandwidth
            .remove(0);
    assert_eq!((row.part_ns, row.begin_ns, row.bytes.iter().sum::<u64>()), (10_000, 0, 1041));
    assert_eq!(
        (row.bytes[9], row.bytes[10], row.bytes[19], row.bytes[20], row.bytes.len()),
        (0, 100, 121, 20, 21)
    );
    let peak = 1001.0 / 100_000.0 + 40.0 / 10_000.0;
    assert!((row.peak_gb_per_second - peak).abs() < 1e-9, "{}", row.peak_gb_per_second);
    // One after the other is no faster.
    let row = of("copy 0/7 0..10 Memcpy 100B\n copy 0/7 10..20 Memcpy 100B").bandwidth.remove(0);
    assert!((row.peak_gb_per_second - 0.01).abs() < 1e-9, "{}", row.peak_gb_per_second);
}

#[test]
fn exposed_work_blocks_when_something_waits() {
    let check = |input: &str, expect: (u64, u64, u64, u64)| {
        let found = of(input);
        let row = found.exposed.iter().find(|row| row.name == "Memcpy DtoH").unwrap();
        let found = [row.time_ns, row.exposed_ns, row.blocking_ns, row.exposed_and_blocking_ns];
        assert_eq!(found.map(|ns| ns / 1000), [expect.0, expect.1, expect.2, expect.3], "{input}");
    };
    let copy = "call m 0..2 cudaMemcpyAsync #1\n copy 0/7 10..30 Memcpy DtoH #1";
    check(copy, (20, 20, 0, 0));
    check(&format!("{copy}\n kernel 0/8 5..22 gemm"), (20, 8, 0, 0));
    check(&format!("{copy}\n copy 0/8 25..40 Memcpy HtoD"), (20, 15, 0, 0));
    // The host waits for its last 15 µs.
    let waits = "call m 15..31 cudaStreamSynchronize #2\n sync stream 0/7 15..31 #2";
    check(&format!("{copy}\n{waits}"), (20, 20, 15, 15));
    check(&format!("{copy}\n{waits}\n kernel 0/8 5..22 gemm"), (20, 8, 15, 8));
}

#[test]
fn annotations_have_what_was_launched_within_them() {
    let found = of("
        range m 0..100 step
        range m 10..50 forward
        range m 12..40 forward
        call m 15..16 cudaLaunchKernel #1
        call m 60..61 cudaLaunchKernel #2
        kernel 0/7 20..40 gemm #1
        kernel 0/7 70..75 bias #2")
    .annotations
    .remove(0);
    let row = |row: &Annotation| {
        let host = row.host.unwrap();
        (row.name.clone(), host.count, host.sum_ns / 1000, row.launched, row.device_ns / 1000)
    };
    let rows: Vec<_> = found.rows.iter().map(row).collect();
    assert_eq!(rows, [("step".to_owned(), 1, 100, 2, 25), ("forward".to_owned(), 2, 68, 1, 20)]);
    assert!(found.rows.iter().all(|row| row.projected.is_none()));
}

/// Each range begins in the one before and outlives it, so that all are within the first. With a walk to the outermost
/// one for each launch, this would take minutes.
#[test]
fn ranges_that_overlap_in_turn_cost_little() {
    const RANGES: u64 = 8_000;
    let range = |n: u64| {
        let [at, end] = [10 * n, 10 * n + 15];
        format!(
            "range m {at}..{end} r{n}\ncall m {}..{} cudaLaunchKernel #{}\nkernel 0/7 {}..{} k #{}\n",
            at + 1,
            at + 2,
            n + 1,
            at + 3,
            at + 4,
            n + 1
        )
    };
    let found = of(&(0..RANGES).map(range).collect::<String>()).annotations.remove(0);
    let first = &found.rows[0];
    assert_eq!((&*first.name, first.launched, first.device_ns), ("r0", RANGES, RANGES * 1_000));
}

#[test]
fn sums_of_huge_lengths_stay_at_the_largest_number() {
    // 700 times the longest that an import accepts, each.
    let lines = (0..700).map(|n| {
        let all = "0..31622400000000";
        format!(
            "op m{n} {all} aten::mm\ncall m{n} {all} cudaLaunchKernel #{}\nkernel 0/{n} {all} gemm #{}\n\
             kernel 0/{n} {all} gemm #{}\nkernel 0/{n} {all} gemm #{}\ncopy 0/{n} {all} Memcpy DtoH 8B\n",
            n + 1,
            n + 1,
            n + 1,
            n + 1
        )
    });
    let found = of(&lines.collect::<String>());
    assert_eq!(found.devices[0].kernel_sum_ns, u64::MAX);
    assert_eq!((found.copies[0].time_ns, found.launches[0].call_ns), (u64::MAX, u64::MAX));
    let operator = &found.operators[0].rows[0];
    assert_eq!((operator.host_ns, operator.launched.device_ns), (Some(u64::MAX), u64::MAX));
    assert_eq!((operator.device_inclusive_ns, found.sequences[0].rows[0].device_ns), (u64::MAX, u64::MAX));
}

#[test]
fn pacing_is_from_begin_to_begin() {
    let found = of("
        step m 0..10 ProfilerStep#1
        step m 20..30 ProfilerStep#2
        step m 50..60 ProfilerStep#3
        range m 0..5 forward
        range m 20..25 forward
        kernel 0/7 1..4 gemm
        kernel 0/7 21..24 gemm
        kernel 0/7 23..26 gemm")
    .pacing;
    let row = |row: &Pace| {
        let times =
            [row.begin_to_begin.min_ns, row.begin_to_begin.max_ns, row.between.max_ns, row.slowest_at_ns];
        (row.kind, row.name.clone(), row.lengths.count, times.map(|ns| ns / 1000))
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    let expect = [
        (PacedKind::Step, "ProfilerStep".to_owned(), 3, [20, 30, 20, 20]),
        (PacedKind::Kernel, "gemm".to_owned(), 3, [2, 20, 17, 1]),
    ];
    assert_eq!(rows, expect, "two forwards have one distance");
}

proptest! {
    #[test]
    fn tables_of_work_have_the_time_of_devices(input in any_trace()) {
        let found = of(&input);
        for (device, classes) in found.devices.iter().zip(&found.kernel_classes) {
            prop_assert_eq!((device.rank, device.device), (classes.rank, classes.device));
            prop_assert_eq!(classes.together.iter().map(|part| part.time_ns).sum::<u64>(), device.busy_ns);
            let counts = classes.classes.iter().map(|class| class.lengths.count).sum::<u64>();
            prop_assert_eq!(counts, device.kernels + device.copies);
        }
        for (device, gaps) in found.devices.iter().zip(&found.gaps) {
            prop_assert_eq!(gaps.total_ns, device.idle_ns);
            prop_assert!(gaps.longest.iter().all(|gap| gap.host_ns <= gap.length_ns));
        }
        for row in &found.bandwidth {
            let copies = found.copies.iter().find(|copies| copies.name == row.name).unwrap();
            prop_assert_eq!(row.bytes.iter().sum::<u64>(), copies.bytes);
        }
        for row in &found.exposed {
            prop_assert!(row.exposed_and_blocking_ns <= row.exposed_ns.min(row.blocking_ns));
            prop_assert!(row.exposed_ns.max(row.blocking_ns) <= row.time_ns);
        }
    }
}
