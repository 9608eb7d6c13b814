//! Calls of accelerator libraries as a page of records → the tree, and the profile's row for the process.

mod activities;
mod graphs;
mod processes;

use crate::pipeline_support::{NamesInAddresses, ReplayStep, check_gaps, config, run, run_with, steps};
use deepctx_pipeline::input::{CodeFacts, Input, RecoveredKernel};
use deepctx_pipeline::{Config, Pipeline};
use deepctx_profile::context::Contexts;
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Meta, Profile};
use deepctx_profile::text;
use deepctx_profile::view::{GroupBy, Selection};

/// The lines without their common indentation.
fn unindented(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let margin = lines.iter().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    lines.iter().map(|line| format!("{}\n", &line[margin..])).collect()
}

/// The tree with lines, threads and interpreter frames; device streams are folded into their work.
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
    pipeline.profile().ledger.check(CheckTime::Finished).unwrap();
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
fn launch_of_an_unknown_handle_is_labelled_until_named() {
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
fn copies_fills_and_allocations_count_bytes_at_their_call() {
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

#[test]
fn calls_without_a_stack_are_counted_exactly_with_a_reason() {
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

#[test]
fn recovered_names_are_labelled_and_replaced_by_reported_ones() {
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
        if let ReplayStep::Feed(input) = step {
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
fn calls_processed_before_their_process_start_create_no_second_process() {
    let calls: String =
        (10..30).map(|n| format!("{n} call {n} cuLaunchKernel 7/7 app function=0x100 : ! main\n")).collect();
    // More records wait than allowed, so the oldest are used early.
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
