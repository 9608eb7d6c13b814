//! Graphs: captured, built node by node, launched → each kernel where it was captured.

use super::*;

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
fn graph_kernels_are_attributed_to_the_node_recorded_for_them() {
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
fn an_id_of_a_later_call_is_not_the_graphs() {
    // JAX makes the driver call a host function after each graph, and that call got an id, too.
    let records = format!(
        "{NAMED}{COLLECTING}{CAPTURED}
        6 correlate 4 60
        6 correlate 5 61
        10 call 8 cuGraphLaunch 7/7 app graph-exec=0x80 stream=5 : ! run main
        11 correlate 8 70
        12 correlate 8 71
        100 kernel 7 id=70 node=91 start=1020 end=1021 name=1
        101 kernel 7 id=70 node=92 start=1030 end=1032 name=1
    "
    );
    let mut pipeline = run(&records);
    assert!(tree_of(pipeline.profile()).contains("gpu-time"));
    check_gaps("correlate", &records, "correlate correlation-without-call 1 lost");
}

#[test]
fn nodes_with_reported_numbers_keep_their_context_in_any_order() {
    // Clones are numbered backwards, and the creation of the executable handle was not recorded.
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
