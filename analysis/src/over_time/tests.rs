use deepctx_profile::trace::{Job, Trace, text};
use proptest::prelude::*;

use super::*;

pub(super) fn job(traces: &[&str]) -> Job {
    let parse = |(place, input): (usize, &&str)| (format!("rank{place}.json"), text::parse(input).unwrap());
    Job::new(traces.iter().enumerate().map(parse).collect()).unwrap()
}

pub(super) fn of(input: &str) -> OverTime {
    OverTime::compute(&job(&[input]), Steps::default())
}

pub(super) const TWO_KERNELS: &str = "
    call main 0..2 cudaLaunchKernel #1
    call main 3..4 cudaLaunchKernel #2
    kernel 0/7 10..20 gemm #1
    kernel 0/7 25..30 gemm #2";

#[test]
fn idle_compute_and_the_rest_make_the_span() {
    let check = |input: &str, expect: [u64; 5]| {
        let row = &of(input).devices[0];
        let found = [row.span_ns, row.busy_ns, row.idle_ns, row.compute_ns, row.non_compute_ns];
        assert_eq!(found.map(|ns| ns / 1000), expect, "{input}");
    };
    check(TWO_KERNELS, [20, 15, 5, 15, 0]);
    check("kernel 0/7 0..10 a\n kernel 0/8 5..15 ncclKernel_AllReduce", [15, 15, 0, 10, 5]);
    check("kernel 0/7 0..10 a\n copy 0/7 10..12 Memcpy DtoH", [12, 12, 0, 10, 2]);
}

#[test]
fn a_synchronisation_is_no_work() {
    // HTA counts it as a kernel: span and busy would be 40 µs.
    let row = of("kernel 0/7 0..10 a #1\n sync context - 0..40 #2").devices.remove(0);
    assert_eq!((row.span_ns, row.busy_ns, row.kernels), (10_000, 10_000, 1));
}

#[test]
fn kernels_named_like_copies_compute() {
    // HTA has no class for these names, and no time for them.
    let row = of("kernel 0/7 0..10 BatchMemcpyKernel\n kernel 0/7 10..12 grid_Sync").devices.remove(0);
    assert_eq!(row.compute_ns, 12_000);
}

#[test]
fn overlap_is_a_share_of_communication() {
    let check = |input: &str, expect: (u64, Option<f64>, u64)| {
        let row = &of(input).devices[0];
        assert_eq!((row.overlap_ns, row.overlap_percent, row.exposed_communication_ns), expect, "{input}");
    };
    check("kernel 0/7 0..10 a\n kernel 0/8 5..25 ncclKernel_AllReduce", (5_000, Some(25.0), 15_000));
    check("kernel 0/7 0..10 a", (0, None, 0));
}

#[test]
fn gaps_of_a_stream_have_causes() {
    let check = |input: &str, expect: [u64; 4]| {
        let row = &of(input).idle[0];
        let found = [row.host_wait_ns, row.kernel_wait_ns, row.other_ns, row.unknown_ns];
        assert_eq!(found.map(|ns| ns / 1000), expect, "{input}");
    };
    check(TWO_KERNELS, [0, 5, 0, 0]);
    check(
        "call m 0..1 cudaLaunchKernel #1\n call m 22..23 cudaLaunchKernel #2\n kernel 0/7 5..20 a #1\n kernel 0/7 25..30 b #2",
        [5, 0, 0, 0],
    );
    check(
        "call m 0..1 cudaLaunchKernel #1\n call m 2..3 cudaLaunchKernel #2\n kernel 0/7 5..20 a #1\n kernel 0/7 60..70 b #2",
        [0, 0, 40, 0],
    );
    // For an unknown launch HTA uses the begin of the trace's first event: "kernel wait".
    check("op m 0..1 aten::mm\n kernel 0/7 5..20 a #1\n kernel 0/7 25..30 b #2", [0, 0, 0, 5]);
    // HTA's gap is -5 µs here, since it uses the end of the one kernel before.
    check("kernel 0/7 0..30 a\n kernel 0/7 5..20 b\n kernel 0/7 25..40 c", [0, 0, 0, 0]);
}

#[test]
fn launches_of_every_call_count() {
    let row = of("
        call m 0..60 cuLaunchKernelEx #1
        call m 61..62 hipGraphLaunch #2
        kernel 0/7 100..110 a #1
        kernel 0/7 200..210 b #2
        kernel 0/7 210..212 c #2
        kernel 0/7 220..221 lost #9")
    .launches
    .remove(0);
    assert_eq!((row.launches, row.shared_call, row.without_call, row.call_ns), (3, 2, 1, 61_000));
    assert_eq!((row.long_calls, row.short_operations, row.long_delays), (1, 1, 2));
    assert_eq!((row.delay_max_ns, row.delay_median_ns), (148_000, 138_000));
}

#[test]
fn clocks_of_threads_and_devices_that_disagree_are_counted() {
    let check = |begin: u64, expect: (u64, u64)| {
        let events = format!(
            "
            call m 5000..5002 cudaLaunchKernel #1
            call m 5010..5012 cudaLaunchKernel #2
            kernel 0/7 5020..5022 b #2
            kernel 0/7 {begin}..{} a #1",
            begin + 10
        );
        let row = of(&events).launches.remove(0);
        assert_eq!((row.begun_before_call, row.minute_delays, row.launches), (expect.0, expect.1, 2));
    };
    check(5003, (0, 0));
    check(4999, (1, 0));
    check(3_600_000_000, (0, 1));
}

#[test]
fn a_queue_is_never_below_nothing() {
    let check = |input: &str, expect: (u64, u64, u64)| {
        let row = &of(input).queues[0];
        assert_eq!((row.changes, row.max, row.without_launch), expect, "{input}");
    };
    check(TWO_KERNELS, (4, 2, 0));
    check("kernel 0/7 0..1 a #1\n kernel 0/7 2..3 b #2", (0, 0, 2));
    // Clocks disagree: the kernel begins before its call.
    check("call m 5..6 cudaLaunchKernel #1\n kernel 0/7 4..9 a #1", (2, 1, 0));
    check("call m 0..1 cudaGraphLaunch #1\n kernel 0/7 4..9 a #1\n kernel 0/7 9..12 b #1", (4, 2, 0));
}

#[test]
fn bandwidth_is_bytes_by_time() {
    let row = of("copy 0/7 0..10 Memcpy HtoD 4000B\n copy 0/8 5..15 Memcpy HtoD 6000B").copies.remove(0);
    assert_eq!((row.count, row.bytes, row.time_ns, row.union_ns), (2, 10_000, 20_000, 15_000));
    assert_eq!(row.gb_per_second, Some(0.5));
}

#[test]
fn parts_of_a_step_go_by_priority() {
    let steps = of("
        step m 0..50 ProfilerStep#1
        step m 50..90 ProfilerStep#2
        op m 0..10 enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
        op m 12..40 aten::mm
        call m 20..22 cudaLaunchKernel #1
        call m 60..62 cudaLaunchKernel #2
        kernel 0/7 30..60 gemm #1
        kernel 0/7 70..95 gemm #2")
    .steps;
    let parts_of = |place: usize| *steps[place].split.figures().unwrap();
    let row = parts_of(0);
    let parts =
        [row.kernel_ns, row.api_call_ns, row.data_loader_ns, row.operator_ns, row.other_ns, row.length_ns];
    assert_eq!(parts.map(|ns| ns / 1000), [20, 2, 10, 16, 2, 50]);
    assert_eq!((parts_of(1).length_ns, parts_of(1).kernel_ns), (45_000, 35_000));
}

#[test]
fn steps_choose_what_they_launched() {
    let input = "
        step m 0..10 ProfilerStep#1
        step m 10..20 ProfilerStep#2
        call m 1..2 cudaLaunchKernel #1
        call m 11..12 cudaLaunchKernel #2
        kernel 0/7 11..15 first #1
        kernel 0/7 15..22 second #2
        kernel 0/7 30..32 lost #9";
    let check = |from, until, expect: &[u64]| {
        let found = OverTime::compute(&job(&[input]), Steps { from, until });
        assert_eq!(found.devices.iter().map(|row| row.busy_ns / 1000).collect::<Vec<_>>(), expect);
    };
    check(None, None, &[13]);
    check(None, Some(2), &[4]);
    check(Some(2), None, &[7]);
    check(Some(7), None, &[]);
}

fn path(input: &str) -> Vec<(Bound, u64)> {
    let path = of(input).critical_paths.remove(0);
    path.parts.iter().map(|part| (part.bound, part.time_ns / 1000)).collect()
}

#[test]
fn a_path_goes_back_to_what_was_waited_for() {
    let check = |input: &str, expect: &[(Bound, u64)]| assert_eq!(path(input), expect, "{input}");
    // The second kernel was queued in time: it waited for the first one, which waited for its launch.
    check(TWO_KERNELS, &[(Bound::Compute, 15), (Bound::Launch, 10), (Bound::BetweenKernels, 5)]);
    // It waited longer than a normal start delay: the trace does not name the cause.
    check(
        "call main 0..2 cudaLaunchKernel #1\n call main 3..4 cudaLaunchKernel #2
         kernel 0/7 10..20 gemm #1\n kernel 0/7 80..90 gemm #2",
        &[(Bound::DeviceWait, 60), (Bound::Compute, 20), (Bound::Launch, 10)],
    );
    // The host waits for the device, and continues.
    check(
        "op m 0..100 aten::mm
         call m 10..12 cudaLaunchKernel #1
         call m 13..60 cudaStreamSynchronize #2
         kernel 0/7 20..50 gemm #1
         sync stream 0/7 14..58 #2",
        &[(Bound::Cpu, 50), (Bound::Compute, 30), (Bound::Launch, 10), (Bound::SyncReturn, 10)],
    );
    // Work that had ended before the call did not block it.
    check(
        "op m 0..100 aten::mm
         call m 10..12 cudaLaunchKernel #1
         call m 60..65 cudaStreamSynchronize #2
         kernel 0/7 20..50 gemm #1",
        &[(Bound::Cpu, 93), (Bound::ApiCall, 7)],
    );
}

#[test]
fn a_path_begins_at_the_thread_with_calls() {
    let main = "op m 0..100 main
         call m 10..12 cudaLaunchKernel #1
         call m 13..60 cudaStreamSynchronize #2";
    let work = "kernel 0/7 20..50 gemm #1\n sync stream 0/7 14..58 #2";
    let idle = "op pin 0..100 wait";
    let expect = [(Bound::Cpu, 50), (Bound::Compute, 30), (Bound::Launch, 10), (Bound::SyncReturn, 10)];
    for lines in [[main, idle], [idle, main]] {
        assert_eq!(path(&format!("{}\n{work}", lines.join("\n"))), expect, "{lines:?}");
    }
}

#[test]
fn a_path_follows_the_edges_of_a_graph() {
    let graph = "call m 0..2 cudaGraphLaunch #1
         kernel 0/7 10..20 first #1 node=1
         copy 0/7 20..50 Memcpy DtoD #1 node=2
         kernel 0/7 21..30 branch #1 node=3
         kernel 0/7 51..60 last #1 node=4";
    let check = |edges: &str, expect: &[(Bound, u64)]| {
        assert_eq!(path(&format!("{graph}\n{edges}")), expect, "{edges}");
    };
    // By the order of the stream the copy would be what the last kernel waited for.
    let by_stream =
        [(Bound::Memory, 30), (Bound::Compute, 19), (Bound::Launch, 10), (Bound::BetweenKernels, 1)];
    check("", &by_stream);
    // It waited for the other branch, and longer than a graph needs for that.
    let by_edges = [(Bound::Compute, 28), (Bound::BetweenKernels, 22), (Bound::Launch, 10)];
    check("edge 0 1\n edge 1 2\n edge 1 3\n edge 3 4", &by_edges);
    check("edge 0 1\n edge 1 2\n edge 1 3\n edge 2 4\n edge 3 4", &by_stream);
    // The last one is another first node: it waits only for its launch.
    check("edge 0 1\n edge 1 2\n edge 1 3\n edge 0 4", &[(Bound::Launch, 51), (Bound::Compute, 9)]);
}

#[test]
fn a_path_goes_on_with_who_woke_a_thread() {
    let check = |input: &str, expect: &[(Bound, u64)]| assert_eq!(path(input), expect, "{input}");
    // Another thread worked meanwhile, which was woken by a timer.
    check(
        "op m 0..10 start
         off-cpu m 10..70 futex woken=66 by=n
         op m 70..100 rest
         off-cpu n 0..40 sleep woken=37 by=interrupt",
        &[(Bound::Cpu, 56), (Bound::OffCpu, 37), (Bound::CpuQueue, 7)],
    );
    // It was always ready to run.
    check(
        "op m 0..10 start
 off-cpu m 10..30 preempted
 op m 30..40 rest",
        &[(Bound::Cpu, 20), (Bound::CpuQueue, 20)],
    );
    // A call that waits for a device waits for that device, whatever woke its thread.
    check(
        "call m 0..2 cudaLaunchKernel #1
         call m 3..60 cudaStreamSynchronize #2
         off-cpu m 4..58 poll woken=55 by=interrupt
         kernel 0/7 10..50 gemm #1
         sync stream 0/7 3..60 #2",
        &[(Bound::Compute, 40), (Bound::Launch, 10), (Bound::SyncReturn, 10)],
    );
}

#[test]
fn a_path_crosses_streams_by_events() {
    let input = "
        call m 0..1 cudaLaunchKernel #1
        call m 2..3 cudaEventRecord #2
        call m 4..5 cudaStreamWaitEvent #3
        call m 6..7 cudaLaunchKernel #4
        kernel 0/7 8..40 ncclKernel_AllReduce #1
        kernel 0/8 42..50 gemm #4
        sync wait 0/8 7..7 #3 record=2 on=0/7";
    let expect =
        [(Bound::Communication, 32), (Bound::Launch, 8), (Bound::Compute, 8), (Bound::BetweenKernels, 2)];
    assert_eq!(path(input), expect);
}

#[test]
fn the_latest_rank_is_whom_others_wait_for() {
    let rank = |number, begin| {
        format!(
            "rank {number} of 3\n step m 0..{begin} ProfilerStep#1\n kernel 0/9 {begin}..50 ncclKernel_AllReduce"
        )
    };
    let traces = [rank(0, 10), rank(1, 40), rank(2, 30)];
    let found = OverTime::compute(&job(&traces.each_ref().map(String::as_str)), Steps::default());
    let collective = &found.stragglers.collectives[0];
    assert_eq!((collective.latest_rank, collective.skew_ns, collective.waited_ns), (1, 30_000, 40_000));
    assert_eq!((collective.transfer_ns, collective.end_spread_ns), (10_000, 0));
    assert!(found.stragglers.communicators_inferred && found.missing_ranks.is_empty());
    let slowest = found.slowest[0].found.figures().unwrap();
    assert_eq!((slowest.slowest_rank, slowest.own_ns), (1, 40_000));
    let communicator = &found.communicators[0];
    let latest = (communicator.latest_rank, communicator.times_latest, communicator.waited_for_ns);
    assert_eq!((communicator.collectives, latest), (1, (1, 1, 40_000)));
}

#[test]
fn who_waits_for_others_is_not_slow() {
    // Both steps are 100 µs long: rank 1 computes, rank 0 waits for it in the collective.
    let traces = [
        "step m 0..100 ProfilerStep#1\n kernel 0/7 0..20 gemm\n kernel 0/9 20..100 ncclKernel_AllReduce",
        "step m 0..100 ProfilerStep#1\n kernel 0/7 0..90 gemm\n kernel 0/9 90..100 ncclKernel_AllReduce",
    ];
    let found = OverTime::compute(&job(&traces), Steps::default());
    let parts = found.steps[0].split.figures().unwrap();
    assert_eq!((parts.communication_ns, parts.waiting_ns), (80_000, 70_000));
    let slowest = found.slowest[0].found.figures().unwrap();
    assert_eq!((slowest.slowest_rank, slowest.own_ns, slowest.least_own_ns), (1, 100_000, 30_000));
    let uneven = |wanted| found.imbalance.iter().find(|row| row.phase == wanted).unwrap();
    let compute = uneven(Phase::Compute);
    assert_eq!((compute.most_rank, compute.most_ns, compute.least_ns), (1, 90_000, 20_000));
    assert_eq!(uneven(Phase::Transfer).imbalance_percent, Some(0.0));
    assert_eq!(uneven(Phase::DataLoader).imbalance_percent, None);
}

#[test]
fn a_slow_rank_is_slow_by_its_phases() {
    let rank = |compute: u64| {
        let last = compute + 10;
        format!("step m 0..{last} ProfilerStep#1\n kernel 0/7 0..{compute} gemm\n op m {compute}..{last} f")
    };
    let traces = [rank(20), rank(30), rank(70)];
    let found = OverTime::compute(&job(&traces.each_ref().map(String::as_str)), Steps::default());
    let slowest = found.slowest[0].found.figures().unwrap();
    let because = &slowest.because;
    let expect = Excess { phase: Phase::Compute, slowest_ns: 70_000, median_ns: 30_000 };
    assert_eq!((slowest.slowest_rank, because.as_slice()), (2, [expect].as_slice()));
    // No collective: clocks are as traced and unchecked.
    let clocks: Vec<_> =
        found.stragglers.ranks.iter().map(|row| (row.clock, row.clock_uncertainty_ns)).collect();
    let unchecked = (ClockBasis::Unchecked, None);
    assert_eq!(clocks, [(ClockBasis::Reference, Some(0)), unchecked, unchecked]);
}

#[test]
fn clocks_an_hour_apart_are_aligned_by_ends() {
    let late = |by: u64| {
        let kernel =
            |begin: u64, end: u64| format!("kernel 0/9 {}..{} ncclKernel_AllReduce\n", begin + by, end + by);
        [kernel(10, 50), kernel(60, 90), kernel(100, 120)].concat()
    };
    let other = late(3_600_000_000).replace("3600000010", "3600000030");
    let found = OverTime::compute(&job(&[&late(0), &other]), Steps::default()).stragglers;
    assert_eq!(found.ranks[1].clock_offset_ns, 3_600_000_000_000);
    let clock = (found.ranks[1].clock, found.ranks[1].ends_compared, found.ranks[1].clock_uncertainty_ns);
    assert_eq!(clock, (ClockBasis::CollectiveEnds, 3, Some(0)));
    assert_eq!((found.collectives[0].latest_rank, found.collectives[0].waited_ns), (1, 20_000));
}

#[test]
fn processes_of_one_capture_have_one_clock() {
    let kernels = |late: u64| format!("kernel 0/9 {}..{} ncclKernel_AllReduce", 10 + late, 50 + late);
    let mut ranks = [kernels(0), kernels(3_600_000)].map(|text| text::parse(&text).unwrap());
    let offsets = |ranks: &[Trace]| {
        let files = ranks.iter().map(|trace| ("a".to_owned(), trace.clone())).collect();
        let found = OverTime::compute(&Job::new(files).unwrap(), Steps::default()).stragglers;
        found.ranks.iter().map(|row| (row.clock, row.clock_offset_ns)).collect::<Vec<_>>()
    };
    let reference = (ClockBasis::Reference, 0);
    assert_eq!(offsets(&ranks), [reference, (ClockBasis::CollectiveEnds, 3_600_000_000)]);
    ranks.iter_mut().for_each(|trace| trace.clock.domain = Some(0));
    assert_eq!(offsets(&ranks), [reference, (ClockBasis::Common, 0)]);
    ranks[1].clock.domain = Some(1);
    assert_eq!(offsets(&ranks), [reference, (ClockBasis::CollectiveEnds, 3_600_000_000)]);
}

#[test]
fn ranks_that_disagree_are_not_matched() {
    let check = |other: &str, because: &str| {
        let found =
            OverTime::compute(&job(&["kernel 0/9 0..5 ncclKernel_AllReduce", other]), Steps::default());
        assert!(found.stragglers.collectives.is_empty());
        assert_eq!(found.stragglers.not_matched[0].because.to_string(), because);
    };
    check(
        "kernel 0/9 0..5 ncclKernel_AllReduce\n kernel 0/9 6..7 ncclKernel_AllReduce",
        "rank 0 has 1 collectives, rank 1 has 2",
    );
    check("kernel 0/9 0..5 ncclKernel_AllGather", "ranks 0 and 1 run different kernels as number 0");
}

/// Operators with calls, own operations, own and inclusive device time in µs; the last one is work outside any
/// operator.
fn operators(input: &str) -> Vec<(String, u64, u64, u64, u64)> {
    let found = of(input).operators.remove(0);
    let row = |row: &Operator| {
        let own = (row.launched.count, row.launched.device_ns / 1000);
        (row.name.clone(), row.calls.unwrap_or(0), own.0, own.1, row.device_inclusive_ns / 1000)
    };
    let mut rows: Vec<_> = found.rows.iter().map(row).collect();
    rows.push(("outside".to_owned(), 0, found.outside.count, found.outside.device_ns / 1000, 0));
    rows
}

#[test]
fn work_belongs_to_the_innermost_operator() {
    let check = |input: &str, expect: &[(&str, u64, u64, u64, u64)]| {
        let found = operators(input);
        let found: Vec<_> = found.iter().map(|row| (row.0.as_str(), row.1, row.2, row.3, row.4)).collect();
        assert_eq!(found, expect, "{input}");
    };
    check(
        "op m 0..50 aten::linear
         op m 5..40 aten::addmm
         call m 6..8 cudaLaunchKernel #1
         call m 45..46 cudaLaunchKernel #2
         kernel 0/7 10..30 gemm #1
         kernel 0/7 50..55 bias #2",
        &[("aten::addmm", 1, 1, 20, 20), ("aten::linear", 1, 1, 5, 25), ("outside", 0, 0, 0, 0)],
    );
    // The launch of the first one is unknown, and the second was launched outside any operator.
    check(
        "kernel 0/7 0..7 lost #9\n call m 1..2 cudaLaunchKernel #2\n kernel 0/7 8..10 b #2",
        &[("outside", 0, 2, 9, 0)],
    );
    // A call within one of the same name counts once.
    check(
        "op m 0..50 f\n op m 5..40 f\n call m 6..8 cudaLaunchKernel #1\n kernel 0/7 10..30 gemm #1",
        &[("f", 2, 1, 20, 20), ("outside", 0, 0, 0, 0)],
    );
    // Another thread's operator is not around the launch.
    check(
        "op other 0..50 f\n call m 6..8 cudaLaunchKernel #1\n kernel 0/7 10..30 gemm #1",
        &[("f", 1, 0, 0, 0), ("outside", 0, 1, 20, 0)],
    );
}

#[test]
fn stacks_say_which_operator_launched_work() {
    let input = "
        call m 0..1 cuLaunchKernel #1 in=aten::linear>aten::addmm at=block
        call m 2..3 cuLaunchKernel #2 in=aten::linear at=block
        call m 4..5 cuLaunchKernel #3 in=f>f at=head
        call m 6..7 cuLaunchKernel #4
        kernel 0/7 10..30 gemm #1
        kernel 0/7 30..35 bias #2
        kernel 0/7 35..36 a #3
        kernel 0/7 36..38 b #4";
    let check = |input: &str, expect: &[(&str, u64, u64, u64, u64)], basis: OperatorBasis| {
        let found = operators(input);
        let found: Vec<_> = found.iter().map(|row| (row.0.as_str(), row.1, row.2, row.3, row.4)).collect();
        assert_eq!(found, expect, "{input}");
        assert_eq!(of(input).operators[0].basis, basis);
    };
    check(
        input,
        &[
            ("aten::addmm", 0, 1, 20, 20),
            ("aten::linear", 0, 1, 5, 25),
            ("f", 0, 1, 1, 1),
            ("outside", 0, 1, 2, 0),
        ],
        OperatorBasis::Stacks,
    );
    let rows = of(input).operators.remove(0).rows;
    assert!(rows.iter().all(|row| (row.calls, row.host_ns, row.kernels_per_call) == (None, None, None)));
    let places: Vec<_> = rows.iter().map(|row| row.places[0].name.as_str()).collect();
    assert_eq!(places, ["block", "block", "head"]);
    // Recorded begins count calls, including calls that launched nothing.
    check(
        &format!("op m 0..0 f in=f\n op m 4..4 f in=f>f\n op m 9..9 aten::view in=aten::view{input}"),
        &[
            ("aten::addmm", 0, 1, 20, 20),
            ("aten::linear", 0, 1, 5, 25),
            ("f", 2, 1, 1, 1),
            ("aten::view", 1, 0, 0, 0),
            ("outside", 0, 1, 2, 0),
        ],
        OperatorBasis::StacksAndBegins,
    );
}

#[test]
fn launches_below_one_operator_are_one_sequence() {
    /// Calls and names of each sequence, the most device time first.
    fn check(lines: &[&str], expect: &[(u64, &str, &str)]) {
        let line = |(at, line): (usize, &&str)| match line.split_once(' ') {
            Some(("op", name)) => format!("op m {at}..{at} {name} in={name}\n"),
            Some((kernel, context)) => format!(
                "call m {at}..{}.5 cuLaunchKernel #{} {context}\n kernel 0/7 {}..{} {kernel} #{}\n",
                at,
                at + 1,
                at + 100,
                at + 101,
                at + 1
            ),
            None => format!("call m {at}..{at}.5 {line}\n"),
        };
        let input: String = lines.iter().enumerate().map(line).collect();
        let found = of(&input).sequences.remove(0);
        let row = |row: &Sequence| {
            let names: Vec<String> =
                row.kernels.iter().map(|part| format!("{}{}", part.name, part.times)).collect();
            (row.count, row.operator.clone(), names.join(" "))
        };
        let rows: Vec<_> = found.rows.iter().map(row).collect();
        let rows: Vec<_> = rows.iter().map(|(count, name, names)| (*count, &**name, &**names)).collect();
        assert_eq!(rows, expect, "{input}");
    }
    let norm = ["a in=norm>mul at=x", "a in=norm at=x", "b in=norm at=x"];
    let other = ["c in=relu at=x"];
    check(&[&norm[..], &other, &norm].concat(), &[(2, "norm", "a2 b1")]);
    // Nothing between two calls from one line: they are not distinguished.
    check(&[norm, norm].concat(), &[(1, "norm", "a2 b1 a2 b1")]);
    // A call outside of operators ends what is before it.
    check(&[&norm[..], &["cudaStreamSynchronize"], &norm].concat(), &[(2, "norm", "a2 b1")]);
    // Begins distinguish them, and keep a call together if another operator interrupts it.
    let begun = [&["op norm"], &norm[..]].concat();
    check(&[&begun[..], &begun].concat(), &[(2, "norm", "a2 b1")]);
    check(&["op norm", norm[0], "op relu", other[0], norm[1], norm[2]], &[(1, "norm", "a2 b1")]);
}

#[test]
fn a_place_is_the_range_around_an_operator() {
    let found = of("
        range m 0..60 forward
        op m 0..50 aten::linear
        call m 6..8 cudaLaunchKernel #1
        kernel 0/7 10..30 gemm #1")
    .operators
    .remove(0);
    let places = &found.rows[0].places;
    assert_eq!((places[0].name.as_str(), places[0].count, places[0].device_ns), ("forward", 1, 20_000));
}

#[test]
fn sequences_are_what_one_outermost_call_launches() {
    let call = |at: u64, id: u64, names: [&str; 3]| {
        let kernel = |(place, name): (usize, &&str)| {
            let (from, id) = (at + 20 + 5 * place as u64, id + place as u64);
            format!(
                "call m {}..{} cudaLaunchKernel #{id}\n kernel 0/7 {from}..{} {name} #{id}\n",
                at + place as u64 + 1,
                at + place as u64 + 2,
                from + 3
            )
        };
        let kernels: String = names.iter().enumerate().map(kernel).collect();
        format!("op m {at}..{} norm\n op m {at}..{} aten::mul\n{kernels}", at + 10, at + 9)
    };
    let input = [call(0, 1, ["a", "a", "b"]), call(100, 11, ["a", "a", "b"]), call(200, 21, ["b", "a", "a"])];
    let found = of(&input.concat()).sequences.remove(0);
    let rows: Vec<_> =
        found.rows.iter().map(|row| (row.operator.as_str(), row.count, row.device_ns)).collect();
    assert_eq!(rows, [("norm", 2, 18_000), ("norm", 1, 9_000)]);
    let parts: Vec<_> = found.rows[0].kernels.iter().map(|part| (part.name.as_str(), part.times)).collect();
    assert_eq!((parts, found.rows[0].host_ns), (vec![("a", 2), ("b", 1)], Some(20_000)));
    // Two operations are too few.
    let short =
        of("op m 0..9 f\n call m 1..2 cudaGraphLaunch #1\n kernel 0/7 3..4 a #1\n kernel 0/7 5..6 a #1");
    assert_eq!((short.sequences[0].rows.len(), short.sequences[0].short_calls), (0, 1));
}

#[test]
fn a_difference_has_what_is_added_removed_more_or_fewer() {
    let before = job(&["op m 0..9 f\n kernel 0/7 0..10 a\n kernel 0/7 10..20 a\n kernel 0/7 20..30 b"]);
    let after = job(&["op m 0..9 f\n kernel 0/7 0..50 a\n kernel 0/7 50..52 c\n copy 0/7 60..61 a"]);
    let whole = Steps::default();
    let found = EventDifference::compute(&before, whole, &after, whole);
    let rows: Vec<_> = found
        .rows
        .iter()
        .map(|row| (row.kind, row.name.as_str(), row.change, row.time_change_ns()))
        .collect();
    let expect = [
        ("kernel", "a", CountChange::Fewer, 30_000),
        ("kernel", "b", CountChange::Removed, -10_000),
        ("kernel", "c", CountChange::Added, 2_000),
        ("copy", "a", CountChange::Added, 1_000),
        ("operator", "f", CountChange::Same, 0),
    ];
    assert_eq!(rows, expect);
    assert_eq!((found.before.events, found.after.events), (4, 4));
}

#[test]
fn two_step_ranges_of_a_trace_can_be_compared() {
    let of = job(&["
        step m 0..10 ProfilerStep#1
        step m 10..20 ProfilerStep#2
        call m 1..2 cudaLaunchKernel #1
        call m 11..12 cudaLaunchKernel #2
        kernel 0/7 3..5 a #1
        kernel 0/7 13..19 a #2"]);
    let steps = |from, until| Steps { from, until };
    let found = EventDifference::compute(&of, steps(None, Some(2)), &of, steps(Some(2), None));
    let kernel = found.rows.iter().find(|row| row.kind == "kernel").unwrap();
    assert_eq!((kernel.change, kernel.time_change_ns()), (CountChange::Same, 4_000));
    assert_eq!((found.before.steps, found.after.steps), (1, 1));
}

/// Any trace of a few threads and streams.
pub(super) fn any_trace() -> impl Strategy<Value = String> {
    let event = (0u8..9, 0u8..3, 0u64..200, 0u64..60, 0u64..6).prop_map(|(kind, lane, begin, length, id)| {
        let end = begin + length;
        match kind {
            0 => format!("op t{lane} {begin}..{end} aten::mm"),
            1 => format!("call t{lane} {begin}..{end} cudaLaunchKernel #{id}"),
            2 => format!("call t{lane} {begin}..{end} cudaDeviceSynchronize #{id}"),
            3 => format!("call t{lane} {begin}..{end} cudaStreamWaitEvent #{id}"),
            4 => format!("copy 0/{lane} {begin}..{end} Memcpy #{id} 8B"),
            5 => format!("kernel 0/{lane} {begin}..{end} ncclKernel #{id}"),
            8 => format!("off-cpu t{lane} {begin}..{end} futex woken={} by=t{}", end - length / 2, id % 3),
            6 => format!("sync wait 0/{lane} {begin}..{end} #{id} record={} on=0/0", id / 2),
            _ => format!("kernel 0/{lane} {begin}..{end} gemm #{id}"),
        }
    });
    prop::collection::vec(event, 1..30).prop_map(|events| events.join("\n"))
}

proptest! {
    #[test]
    fn every_nanosecond_has_one_place(input in any_trace()) {
        let found = of(&input);
        for path in &found.critical_paths {
            prop_assert_eq!(path.parts.iter().map(|part| part.time_ns).sum::<u64>(), path.window_ns);
        }
        for row in &found.devices {
            prop_assert_eq!(row.idle_ns + row.compute_ns + row.non_compute_ns, row.span_ns);
            prop_assert!(row.overlap_ns + row.exposed_communication_ns <= row.communication_ns);
        }
        let trace: Trace = text::parse(&input).unwrap();
        let operators = &found.operators[0];
        let launched = || operators.rows.iter().map(|row| &row.launched).chain([&operators.outside]);
        prop_assert_eq!(launched().map(|row| row.count).sum::<u64>(), trace.device.len() as u64);
        let device: u64 = trace.device.iter().map(|(_, op)| op.duration.0).sum();
        prop_assert_eq!(launched().map(|row| row.device_ns).sum::<u64>(), device);
    }

    #[test]
    fn a_model_without_changes_is_the_measured_window(input in any_trace()) {
        let all = String::new;
        let unchanged = [Edit::Kernel(all(), 1.0), Edit::Operator(all(), 1.0), Edit::LaunchDelay(1.0)];
        let job = job(&[&input]);
        for edit in unchanged {
            for row in WhatIf::compute(&job, Steps::default(), &[edit]) {
                prop_assert!(row.modelled_ns.is_none_or(|ns| ns == row.measured_ns), "{:?}", row);
            }
        }
        // Work that takes no time makes nothing longer.
        for row in WhatIf::compute(&job, Steps::default(), &[Edit::Kernel(String::new(), 0.0)]) {
            prop_assert!(row.modelled_ns.is_none_or(|ns| ns <= row.measured_ns), "{:?}", row);
        }
    }

    #[test]
    fn a_difference_from_itself_is_none(input in any_trace()) {
        let job = job(&[&input]);
        let found = EventDifference::compute(&job, Steps::default(), &job, Steps::default());
        prop_assert!(found.rows.iter().all(|row| row.before == row.after && row.change == CountChange::Same));
        prop_assert_eq!(found.rows.iter().map(|row| row.after.count).sum::<u64>(), found.after.events);
    }

    #[test]
    fn gaps_and_work_of_a_stream_make_its_span(input in any_trace()) {
        let trace = text::parse(&input).unwrap();
        for row in of(&input).idle {
            let of_stream = trace.device.iter().map(|(_, op)| op);
            let of_stream: Vec<_> =
                of_stream.filter(|op| trace.streams()[op.stream.index()].stream == row.stream).collect();
            let busy = intervals::Intervals::of(of_stream.iter().map(|op| (op.begin, op.end()))).length();
            let first = of_stream.iter().map(|op| op.begin).min().unwrap();
            let last = of_stream.iter().map(|op| op.end()).max().unwrap();
            prop_assert_eq!(row.total_ns() + busy, (last - first).0);
        }
    }
}
