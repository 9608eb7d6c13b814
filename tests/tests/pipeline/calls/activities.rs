//! Device activity, from collectors or borrowed, as a page of records → device time below launches.

use deepctx_profile::device::activity::JoinMethod;

use super::*;

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
    let reported = |line: &&str| line.contains(", stream ") || line.contains("[gpu]");
    let lines: Vec<_> = tree.lines().map(str::trim).filter(reported).collect();
    assert_eq!(
        lines,
        [
            "[device 0, stream 7]",
            "[gpu] gemm(float*)  gpu-time=3 launch-delay=5",
            "[device 0, stream 9]",
            "[gpu] gemm(float*)  gpu-time=20 launch-delay=13",
            // Counts are known at the host's call, times at the device's report.
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
    assert_eq!(process.clock.map(|clock| (clock.offset_ns, clock.uncertainty.0)), Some((-997, 0)));
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
fn time_without_a_launch_and_the_reverse_are_counted() {
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
            [gpu] [unknown: name-not-reported]  kernels=1
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
fn device_work_starting_after_launch_recording_ends_is_ignored() {
    // The device's clock is 997 ahead.
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
    // Without comparable clocks there is none.
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

const BORROWING: &str = "
    3 call 90 cuptiActivityEnable 7/7 app kind=10
";

#[test]
fn records_of_another_tool_are_joined_by_order_and_labelled() {
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
    assert_eq!((process.tier.label(), process.join), ("T1 borrowed", JoinMethod::Estimated));
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
