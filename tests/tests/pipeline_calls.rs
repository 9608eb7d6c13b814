//! Calls of accelerators' libraries as a page of records → the tree, and what the profile says of the process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pipeline_support;

use deepctx_profile::activity::Join;
use deepctx_profile::context::Contexts;
use deepctx_profile::ledger::When;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Meta, Profile};
use deepctx_profile::text;
use deepctx_profile::view::{GroupBy, Selection};
use deepctx_userspace::pipeline::source::{CodeFacts, Input, RecoveredKernel};
use deepctx_userspace::pipeline::{Config, Pipeline};
use pipeline_support::{NamesInAddresses, Step, check_gaps, config, run, run_with, steps};

/// Lines as they are, without the margin that all have in common.
fn unindented(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let margin = lines.iter().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    lines.iter().map(|line| format!("{}\n", &line[margin..])).collect()
}

/// The tree, with lines, threads and the interpreter's own frames; streams of devices are folded into what ran in them.
fn tree_of(profile: &Profile) -> String {
    tree_by(profile, GroupBy::Thread)
}

fn tree_by(profile: &Profile, group_by: GroupBy) -> String {
    let all = Selection { lines: true, group_by, interpreter: true, ..Selection::of(Metric::CpuTime) };
    let Contexts { frames, tree, .. } = Contexts::of(profile, &all);
    text::tree(&Profile { frames, tree, ..profile.clone() })
}

/// Records → the tree below `all`.
fn check(records: &str, expect: &str) {
    let mut pipeline = run(records);
    let tree = tree_of(pipeline.profile());
    let below: String = tree.lines().skip(1).map(|line| format!("{}\n", &line[2..])).collect();
    assert_eq!(below, unindented(expect));
    pipeline.profile().ledger.check(When::Finished).unwrap();
}

const NAMED: &str = "
    1 call 1 cuModuleGetFunction 7/7 app out=0x10 module=0x50 text=_Z4gemmPf
    2 return 1 out=0x100 entered=1
";

#[test]
fn a_launch_stands_below_its_stack_as_call_and_kernel() {
    check(
        &format!(
            "{NAMED}
            10 call 2 cuLaunchKernel 7/7 app function=0x100 grid-x=4 block-x=64 : ! g main
            11 call 3 cuLaunchKernel 7/7 app function=0x100 grid-x=4 block-x=64 : ! g main
            12 call 4 cuLaunchKernelEx_ptsz 7/8 app function=0x100 : ! g main"
        ),
        "
        app-7
          app/7
            main
              g
                cuLaunchKernel
                  [gpu] gemm(float*)  kernels=2/2[1..1]
          app/8
            main
              g
                cuLaunchKernelEx_ptsz
                  [gpu] gemm(float*)  kernels=1
        ",
    );
}

#[test]
fn a_launch_of_an_unknown_handle_says_so_until_something_names_it() {
    let records = "
        10 call 1 cuLaunchKernel 7/7 app function=0x100 : ! main
        11 call 2 cuModuleGetFunction 7/7 app module=0x50 text=relu
        12 return 2 out=0x100 entered=11
        13 call 3 cuLaunchKernel 7/7 app function=0x100 : ! main
        14 call 4 cuModuleUnload 7/7 app module=0x50
        15 call 5 cuLaunchKernel 7/7 app function=0x100 : ! main
    ";
    check(
        records,
        "
        app-7
          app/7
            main
              cuLaunchKernel
                [gpu] [unknown: handle-not-named]  kernels=2/2[1..1]
                [gpu] relu  kernels=1
        ",
    );
    check_gaps("correlate", records, "correlate bound-unknown 3\ncorrelate name-unknown 2");
}

const COLLECTING: &str = "
    3 state 7 collecting 26
    3 name 7 1 _Z4gemmPf
    3 clock 7 1000 3 3
";

#[test]
fn device_time_is_told_apart_by_device_and_stream() {
    let records = format!(
        "{NAMED}{COLLECTING}
        10 call 2 cuLaunchKernel 7/7 app function=0x100 : ! f main
        11 correlate 2 70
        20 call 3 cuLaunchKernel 7/7 app function=0x100 : ! f main
        21 correlate 3 71
        100 kernel 7 id=71 start=1030 end=1050 name=1 stream=9
        101 kernel 7 id=70 start=1012 end=1015 name=1 stream=7
    "
    );
    let mut pipeline = run(&records);
    let tree = tree_by(pipeline.profile(), GroupBy::Stream);
    let told = |line: &&str| line.contains(", stream ") || line.contains("[gpu]");
    let lines: Vec<_> = tree.lines().map(str::trim).filter(told).collect();
    assert_eq!(
        lines,
        [
            "[device 0, stream 7]",
            "[gpu] gemm(float*)  gpu-time=3 launch-delay=5",
            "[device 0, stream 9]",
            "[gpu] gemm(float*)  gpu-time=20 launch-delay=13",
            // Counts are known when the host asks, and times when the device has answered.
            "[gpu] gemm(float*)  kernels=2/2[1..1]",
        ]
    );
}

#[test]
fn device_time_goes_to_the_launch_with_the_id() {
    let records = format!(
        "{NAMED}{COLLECTING}
        10 call 2 cuLaunchKernel 7/7 app function=0x100 : ! f main
        11 correlate 2 70
        20 call 3 cuLaunchKernel 7/7 app function=0x100 : ! g main
        21 correlate 3 71
        100 kernel 7 id=71 start=1030 end=1050 name=1
        101 kernel 7 id=70 start=1012 end=1015 name=1
    "
    );
    check(
        &records,
        "
        app-7
          [device 0] stream 7
          app/7
            main
              f
                cuLaunchKernel
                  [gpu] gemm(float*)  gpu-time=3 kernels=1 launch-delay=5
              g
                cuLaunchKernel
                  [gpu] gemm(float*)  gpu-time=20 kernels=1 launch-delay=13
        ",
    );
    check_gaps("correlate", &records, "");
    let mut pipeline = run(&records);
    let process = pipeline.profile().gpu.processes[0].clone();
    assert_eq!(
        (process.tier.label(), process.launches, process.kernels, process.joined),
        ("T2 collected", 2, 2, 2)
    );
    assert_eq!((process.difference(), process.note.as_str()), (0, "CUPTI 26"));
    assert_eq!(process.clock.map(|clock| (clock.offset_ns, clock.uncertainty_ns)), Some((-997, 0)));
}

#[test]
fn a_handle_learns_its_name_from_the_first_activity() {
    let records = format!(
        "{COLLECTING}
        10 call 2 cuLaunchKernel 7/7 app function=0x100 : ! f main
        11 correlate 2 70
        100 kernel 7 id=70 start=1012 end=1015 name=1
        110 call 3 cuLaunchKernel 7/7 app function=0x100 : ! g main
        111 call 4 cuLaunchKernel 7/7 app function=0x200 : ! g main
    "
    );
    check(
        &records,
        "
        app-7
          [device 0] stream 7
          app/7
            main
              f
                cuLaunchKernel
                  [gpu] gemm(float*)  gpu-time=3 kernels=1 launch-delay=5
              g
                cuLaunchKernel
                  [gpu] [unknown: handle-not-named]  kernels=1
                  [gpu] gemm(float*)  kernels=1
        ",
    );
    check_gaps("correlate", &records, "correlate launch-without-correlation 2\ncorrelate name-unknown 1");
}

#[test]
fn time_without_a_launch_and_launches_without_time_are_told() {
    let records = format!(
        "{NAMED}{COLLECTING}
        10 call 2 cuLaunchKernel 7/7 app function=0x100 : ! f main
        11 correlate 2 70
        12 correlate 9 75
        100 kernel 7 id=71 start=1030 end=1050 name=1
        101 copy 7 id=75 start=1030 end=1040 bytes=64 detail=1
        102 kernel 7 id=0 start=1 end=0 name=9
        103 strange 7 id=70
        104 overhead 7 start=5 end=9
        105 return 99
        106 state 7 lost 3
    "
    );
    check(
        &records,
        "
        app-7
          [device 0] stream 7
          [unknown: launch-not-seen]
            [gpu] [unknown: name-not-told]  kernels=1
            [gpu] gemm(float*)  gpu-time=20 kernels=1
            [gpu] memcpy HtoD  copy-time=10 copy-bytes=64
          app/7
            main
              f
                cuLaunchKernel
                  [gpu] gemm(float*)  kernels=1
        ",
    );
    check_gaps(
        "correlate",
        &records,
        "
        correlate correlation-without-call 1 lost
        correlate return-without-call 1 lost
        correlate activity-dropped 3
        correlate activity-without-launch 3
        correlate activity-unknown 1
        correlate activity-without-times 1
        correlate launch-without-activity 1
        ",
    );
}

#[test]
fn what_a_device_begins_when_launches_are_not_watched_any_more_is_left_out() {
    // The clock of the device is 997 ahead.
    let records = format!(
        "{NAMED}{COLLECTING}
        10 call 2 cuLaunchKernel 7/7 app function=0x100 : ! f main
        11 correlate 2 70
        calls-end 30
        100 kernel 7 id=70 start=1100 end=1110 name=1
        101 kernel 7 id=71 start=1026 end=1050 name=1
        102 kernel 7 id=72 start=1027 end=1050 name=1
        103 copy 7 id=73 start=1090 end=1095 bytes=64 detail=1
    "
    );
    check(
        &records,
        "
        app-7
          [device 0] stream 7
          [unknown: launch-not-seen]
            [gpu] gemm(float*)  gpu-time=24 kernels=1
          app/7
            main
              f
                cuLaunchKernel
                  [gpu] gemm(float*)  gpu-time=10 kernels=1 launch-delay=93
        ",
    );
    let left = "correlate activity-after-end 2\ncorrelate activity-without-launch 1";
    check_gaps("correlate", &records, left);
    // Where the clocks cannot be compared, none is.
    let unknown = records.replace("3 clock 7 1000 3 3", "");
    check_gaps("correlate", &unknown, "correlate activity-without-launch 3\ncorrelate clock-unknown 1");
}

#[test]
fn a_delay_needs_clocks_that_are_known_well_enough() {
    let records = format!(
        "{NAMED}
        3 state 7 collecting 26
        3 name 7 1 gemm
        4 clock 7 1000 0 100000
        10 call 2 cuLaunchKernel 7/7 app function=0x100 : ! f main
        11 correlate 2 70
        100 kernel 7 id=70 start=1030 end=1050 name=1
    "
    );
    check_gaps("correlate", &records, "correlate clock-unknown 1\ncorrelate name-differs 1");
}

#[test]
fn what_is_not_measured_is_bounded_by_the_next_wait() {
    let records = format!(
        "{NAMED}
        10 call 2 cuLaunchKernel 7/7 app function=0x100 stream=5 : ! f main
        20 call 3 cuLaunchKernel 7/7 app function=0x100 stream=6 : ! g main
        30 call 4 cuStreamSynchronize 7/7 app stream=5 : ! main
        90 return 4 entered=30
        95 call 5 cuCtxSynchronize 7/7 app : ! main
    "
    );
    check(
        &records,
        "
        app-7
          app/7
            main
              cuCtxSynchronize  sync-time=0
              cuStreamSynchronize  sync-time=60
              f
                cuLaunchKernel
                  [gpu] gemm(float*)  kernels=1 gpu-time-bound=80
              g
                cuLaunchKernel
                  [gpu] gemm(float*)  kernels=1
        ",
    );
    check_gaps("correlate", &records, "correlate bound-unknown 1\ncorrelate sync-not-returned 1");
}

#[test]
fn copies_fills_and_memory_count_bytes_where_they_were_asked_for() {
    let records = "
        1 call 1 cuMemAlloc_v2 7/7 app bytes=4096 : ! init main
        2 return 1 out=0x7000 entered=1
        3 call 2 cuMemHostAlloc 7/7 app bytes=256 : ! init main
        4 return 2 out=0x9000 entered=3
        5 call 3 cuMemAlloc_v2 7/7 app bytes=99 : ! init main
        6 return 3 result=2 entered=5
        10 call 4 cuMemcpyHtoDAsync_v2 7/7 app destination=0x7000 source=0x9010 bytes=16 : ! main
        11 call 5 cuMemcpyHtoDAsync_v2 7/7 app destination=0x7000 source=0x1234 bytes=16 : ! main
        12 call 6 cuMemsetD32Async 7/7 app destination=0x7000 count=4 : ! main
        13 call 7 cuMemcpyDtoH_v2 7/7 app destination=0x1234 source=0x7000 bytes=8 : ! main
        15 return 7 entered=13
        16 call 8 cuMemFree_v2 7/7 app address=0x7000 : ! exit main
        17 call 9 cuMemFree_v2 7/7 app address=0x5555 : ! exit main
        18 call 10 ncclAllReduce 7/7 app count=10 data-type=7 : ! main
    ";
    check(
        records,
        "
        app-7
          app/7
            main
              cuMemcpyDtoH_v2  sync-time=2
                [gpu] memcpy DtoH  copy-bytes=8
              cuMemcpyHtoDAsync_v2
                [gpu] memcpy HtoD  copy-bytes=16
                [gpu] memcpy HtoD pinned  copy-bytes=16
              cuMemsetD32Async
                [gpu] memset  copy-bytes=16
              exit
                cuMemFree_v2  free-bytes=4096
              init
                cuMemAlloc_v2  alloc-bytes=4096 returned-bytes=4096
                cuMemHostAlloc  alloc-bytes=256
              ncclAllReduce  collective-bytes=40
        ",
    );
    check_gaps("correlate", records, "correlate free-unknown 1");
}

const CAPTURED: &str = "
    3 call 3 cuStreamBeginCapture_v2 7/7 app stream=5
    4 call 4 cuLaunchKernel 7/7 app function=0x100 stream=5 : ! a warm main
    5 call 5 cuLaunchKernel 7/7 app function=0x100 stream=5 : ! b warm main
    6 call 6 cuStreamEndCapture 7/7 app stream=5
    7 return 6 out=0x70 entered=6
    8 call 7 cuGraphInstantiateWithFlags 7/7 app graph=0x70
    9 return 7 out=0x80 entered=8
";

#[test]
fn a_graph_runs_what_was_recorded_below_its_launch() {
    let records = format!(
        "{NAMED}{CAPTURED}
        10 call 8 cuGraphLaunch 7/7 app graph-exec=0x80 stream=5 : ! run main
        11 call 9 cuGraphLaunch 7/7 app graph-exec=0x80 stream=5 : ! run main
        12 call 10 cuStreamSynchronize 7/7 app stream=5
        20 return 10 entered=12
    "
    );
    check(
        &records,
        "
        app-7
          app/7
            [unknown: stack-not-taken]
              cuStreamSynchronize  sync-time=8
            main
              run
                cuGraphLaunch  gpu-time-bound=19/2[9..10]
                  [captured at]
                    warm
                      a
                        cuLaunchKernel
                          [gpu] gemm(float*)  kernels=2/2[1..1]
                      b
                        cuLaunchKernel
                          [gpu] gemm(float*)  kernels=2/2[1..1]
              warm
                a
                  cuLaunchKernel
                    [gpu] gemm(float*)
                b
                  cuLaunchKernel
                    [gpu] gemm(float*)
        ",
    );
    let mut pipeline = run(&records);
    let process = pipeline.profile().gpu.processes[0].clone();
    assert_eq!((process.launches, process.captured, process.graph_launches), (0, 2, 2));
}

#[test]
fn kernels_of_a_graph_find_the_node_that_they_were_recorded_as() {
    let records = format!(
        "{NAMED}{COLLECTING}{CAPTURED}
        6 correlate 4 60
        6 correlate 5 61
        10 call 8 cuGraphLaunch 7/7 app graph-exec=0x80 stream=5 : ! run main
        11 correlate 8 70
        12 call 9 cuGraphLaunch 7/7 app graph-exec=0x80 stream=5 : ! run main
        13 correlate 9 71
        14 call 10 cuGraphLaunch 7/7 app graph-exec=0x81 stream=5 : ! run main
        15 correlate 10 72
        100 kernel 7 id=70 node=91 start=1020 end=1021 name=1
        101 kernel 7 id=70 node=92 start=1030 end=1032 name=1
        102 kernel 7 id=71 node=92 start=1040 end=1042 name=1
        103 kernel 7 id=72 node=99 start=1050 end=1054 name=1
    "
    );
    let mut pipeline = run(&records);
    let tree = tree_of(pipeline.profile());
    let figures: Vec<_> = tree.lines().filter(|line| line.contains("gpu-time")).map(str::trim).collect();
    assert_eq!(
        figures,
        [
            "[gpu] gemm(float*)  gpu-time=1 kernels=1 launch-delay=13",
            "[gpu] gemm(float*)  gpu-time=4/2[2..2] kernels=2/2[1..1] launch-delay=54/2[23..31]",
            "[gpu] gemm(float*)  gpu-time=4 kernels=1 launch-delay=39",
        ]
    );
    check_gaps("correlate", &records, "correlate graph-incomplete 1\ncorrelate graph-not-seen 1");
}

#[test]
fn a_node_whose_number_was_told_has_its_own_context_whatever_the_order() {
    // Clones are numbered backwards, and the launchable handle was not seen being made.
    let records = format!(
        "{NAMED}{COLLECTING}
        3 call 3 cuStreamBeginCapture_v2 7/7 app stream=5
        4 call 4 cuLaunchKernel 7/7 app function=0x100 stream=5 : ! a warm main
        4 node 7/7 1001 0 0
        5 call 5 cuLaunchKernel 7/7 app function=0x100 stream=5 : ! b warm main
        5 node 7/7 1002 0 0
        8 node 7/7 92 1001 0
        8 node 7/7 91 1002 0
        10 call 8 cuGraphLaunch 7/7 app graph-exec=0x80 stream=6 : ! run main
        11 correlate 8 70
        100 kernel 7 id=70 node=91 start=1020 end=1021 name=1
        101 kernel 7 id=70 node=92 start=1030 end=1034 name=1
    "
    );
    check(
        &records,
        "
        app-7
          [device 0] stream 7
          app/7
            main
              run
                cuGraphLaunch
                  [captured at]
                    warm
                      a
                        cuLaunchKernel
                          [gpu] gemm(float*)  gpu-time=4 kernels=1 launch-delay=23
                      b
                        cuLaunchKernel
                          [gpu] gemm(float*)  gpu-time=1 kernels=1 launch-delay=13
              warm
                a
                  cuLaunchKernel
                    [gpu] gemm(float*)
                b
                  cuLaunchKernel
                    [gpu] gemm(float*)
        ",
    );
}

#[test]
fn calls_without_a_stack_are_counted_exactly_and_say_why_they_have_none() {
    let records = format!(
        "{NAMED}
        10 call 2 cuLaunchKernel 7/7 app function=0x100 : ! f main
        11 call 3 cuLaunchKernel 7/7 app function=0x100 flags=limited
        12 call 4 cuLaunchKernel 7/7 app function=0x100 flags=limited
    "
    );
    check(
        &records,
        "
        app-7
          app/7
            [unknown: stack-limited]
              cuLaunchKernel
                [gpu] gemm(float*)  kernels=2/2[1..1]
            main
              f
                cuLaunchKernel
                  [gpu] gemm(float*)  kernels=1
        ",
    );
    let mut pipeline = run(&records);
    let process = pipeline.profile().gpu.processes[0].clone();
    assert_eq!((process.launches, process.launches_without_stack), (3, 2));
}

#[test]
fn a_process_that_ends_takes_its_handles_with_it() {
    let records = format!(
        "{NAMED}{COLLECTING}
        10 call 2 cuLaunchKernel 7/7 app function=0x100 : ! f main
        11 correlate 2 70
        20 exit 7
        30 call 3 cuLaunchKernel 7/7 app function=0x100 : ! f main
        40 kernel 7 id=70 start=1040 end=1042 name=1
    "
    );
    let mut pipeline = run(&records);
    let tree = tree_of(pipeline.profile());
    assert!(tree.contains("[gpu] [unknown: handle-not-named]  kernels=1"), "{tree}");
    let processes = &pipeline.profile().gpu.processes;
    assert_eq!(
        processes.iter().map(|process| (process.pid, process.launches)).collect::<Vec<_>>(),
        [(7, 1), (7, 1)]
    );
}

const BORROWING: &str = "
    3 call 90 cuptiActivityEnable 7/7 app kind=10
";

#[test]
fn records_of_another_tool_are_joined_by_order_and_say_so() {
    let records = format!(
        "{NAMED}{BORROWING}
        10 call 2 cuLaunchKernel 7/7 app function=0x100 grid-x=4 block-x=64 : ! f main
        20 call 3 cuMemcpyHtoDAsync_v2 7/7 app bytes=64 : ! g main
        30000000 call 4 cuLaunchKernel 7/7 app function=0x100 grid-x=8 block-x=64 : ! g main
        30000010 call 5 cuLaunchKernel 7/7 app function=0x200 grid-x=9 block-x=64 : ! g main
        30000100 borrow 7 kernel id=73 start=30000300 end=30000307 grid=9 block=64 name=relu
        30000100 borrow 7 api id=72 start=30000098 end=30000101
        30000100 borrow 7 kernel id=72 start=30000200 end=30000205 grid=8 block=64 name=_Z4gemmPf
        30000100 borrow 7 api id=70 start=108 end=111
        30000100 borrow 7 kernel id=70 start=120 end=123 grid=4 block=64 name=_Z4gemmPf
        30000101 borrow 7 copy id=71 start=130 end=131 bytes=64
    "
    );
    let mut pipeline = run(&records);
    let tree = tree_of(pipeline.profile());
    let figures: Vec<_> = tree.lines().filter(|line| line.contains("[gpu]")).map(str::trim).collect();
    assert_eq!(
        figures,
        [
            "[gpu] gemm(float*)  gpu-time=3 kernels=1 launch-delay=10",
            "[gpu] [unknown: handle-not-named]  gpu-time=7 kernels=1 launch-delay=190",
            "[gpu] gemm(float*)  gpu-time=5 kernels=1 launch-delay=100",
            "[gpu] memcpy HtoD  launch-delay=10 copy-time=1 copy-bytes=64",
        ]
    );
    let process = pipeline.profile().gpu.processes[0].clone();
    assert_eq!((process.tier.label(), process.join), ("T1 borrowed", Join::Estimated));
    assert_eq!((process.launches_collected, process.kernels, process.joined), (3, 3, 3));
}

#[test]
fn a_launch_without_a_record_does_not_shift_the_others() {
    let at = |n: u32| n * 10_000_000;
    let launch = |n: u32| {
        let (time, grid) = (at(n), n);
        format!(
            "{time} call {n} cuLaunchKernel 7/7 app function=0x100 grid-x={grid} block-x=64 : ! f{n} main\n"
        )
    };
    let record = |n: u32| {
        let (id, begin, end) = (100 + n, at(n), at(n) + n);
        format!(
            "90000000 borrow 7 kernel id={id} start={begin} end={end} grid={n} block=64 name=_Z4gemmPf
            90000000 borrow 7 api id={id} start={begin} end={begin}\n"
        )
    };
    // The third of five has no record, and the last record has no launch.
    let records =
        [format!("{NAMED}{BORROWING}"), (2..7).map(launch).collect(), [2, 3, 5, 6, 8].map(record).concat()]
            .concat();
    let mut pipeline = run(&records);
    let tree = tree_of(pipeline.profile());
    let figures: Vec<_> = tree.lines().filter(|line| line.contains("[gpu]")).map(str::trim).collect();
    assert_eq!(
        figures,
        [
            "[gpu] gemm(float*)  gpu-time=8 kernels=1",
            "[gpu] gemm(float*)  gpu-time=2 kernels=1 launch-delay=0",
            "[gpu] gemm(float*)  gpu-time=3 kernels=1 launch-delay=0",
            "[gpu] gemm(float*)  kernels=1",
            "[gpu] gemm(float*)  gpu-time=5 kernels=1 launch-delay=0",
            "[gpu] gemm(float*)  gpu-time=6 kernels=1 launch-delay=0",
        ]
    );
    check_gaps(
        "correlate",
        &records,
        "
        correlate bound-unknown 5
        correlate activity-without-launch 1
        correlate launch-without-activity 1
        ",
    );
}

#[test]
fn a_recovered_name_says_so_and_gives_way_to_one_that_was_told() {
    let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
    // Two handles are found; a third would be, but a module is unloaded meanwhile.
    let recovered = [(0x100, 10), (0x300, 11), (0x400, 11)].map(|(handle, asked_ns)| RecoveredKernel {
        pid: 7,
        handle,
        asked_ns,
        read_ns: 20,
        name: "_Z4reluPf".to_owned(),
        code: CodeFacts { registers: Some(32), ..CodeFacts::default() },
    });
    pipeline.feed(Input::Recovered(recovered[..2].into()));
    pipeline.feed(Input::Recovered(vec![RecoveredKernel { read_ns: 40, ..recovered[2].clone() }]));
    let records = format!(
        "{NAMED}
        10 call 2 cuLaunchKernel 7/7 app function=0x100 : ! main
        11 call 3 cuLaunchKernel 7/7 app function=0x300 : ! main
        11 call 4 cuLaunchKernel 7/7 app function=0x400 : ! main
        21 call 5 cuLaunchKernel 7/7 app function=0x300 : ! main
        22 call 6 cuLaunchKernel 7/7 app function=0x400 : ! main
        30 call 7 cuModuleUnload 7/7 app module=0x900
        41 call 8 cuLaunchKernel 7/7 app function=0x400 : ! main
        42 call 9 cuLaunchKernel 7/7 app function=0x300 : ! main
    "
    );
    for step in steps(&records) {
        if let Step::Feed(input) = step {
            pipeline.feed(input);
        }
    }
    pipeline.finish();
    let wanted: Vec<_> = pipeline.unnamed_kernels().iter().map(|kernel| kernel.handle).collect();
    assert_eq!(wanted, [0x400, 0x300], "they are looked for again");
    let tree = tree_of(pipeline.profile());
    let kernels: Vec<_> = tree.lines().filter(|line| line.contains("[gpu]")).map(str::trim).collect();
    assert_eq!(
        kernels,
        [
            "[gpu] [unknown: handle-not-named]  kernels=5/5[1..1]",
            "[gpu] gemm(float*)  kernels=1",
            "[gpu] relu(float*) [recovered]  kernels=1"
        ]
    );
}

#[test]
fn a_process_whose_calls_are_used_before_its_beginning_is_one_process() {
    let calls: String =
        (10..30).map(|n| format!("{n} call {n} cuLaunchKernel 7/7 app function=0x100 : ! main\n")).collect();
    // More wait than may, so the oldest are used early.
    let few = Config { waiting_records: 4, ..config() };
    let mut pipeline = run_with(&format!("5 exec 7 app\n{calls}"), few);
    let processes = &pipeline.profile().gpu.processes;
    assert_eq!(processes.iter().map(|process| process.launches).collect::<Vec<_>>(), [20]);
}

#[test]
fn host_memory_is_called_pageable_only_by_who_saw_everything() {
    let records = |began: &str| {
        format!(
            "{began}
            10 call 1 cuCtxCreate_v2 7/7 app
            11 return 1 out=0x900 entered=10
            12 call 2 cuMemcpyHtoDAsync_v2 7/7 app destination=0x7000 source=0x1234 bytes=16 : ! main
        "
        )
    };
    for (began, label) in [("5 exec 7 app", "[gpu] memcpy HtoD pageable"), ("", "[gpu] memcpy HtoD")] {
        let mut pipeline = run(&records(began));
        let tree = tree_of(pipeline.profile());
        assert!(tree.contains(&format!("{label}  copy-bytes=16")), "{tree}");
    }
}
