//! Rules about data loaders: profiles with the defect, twins without it, and profiles that lack the input.

use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::text;
use deepctx_profile::units::Nanos;

use super::tests::{check, found, found_at, on_machine, profile};

#[test]
fn loaders_are_judged_by_the_threads_that_train() {
    let train = "P py-7 / T main/7 / y /a/t.py:main:9 / n gemm 200";
    let next = "y /a/t.py:main:8 / y /v/torch/utils/data/dataloader.py:_BaseDataLoaderIter.__next__";
    let wait = |thread: &str, n: u64| {
        format!("{train}\noff-cpu-time: P py-7 / T {thread} / {next} / n poll {n}x1000000")
    };
    let slow = "The program waits 33% of its time for batches of the data loader";
    check("slow-data-loader", &wait("main/7", 1000), slow);
    check("slow-data-loader", &wait("main/7", 10), "healthy");
    // A thread that pins memory waits all the time.
    check("slow-data-loader", &wait("pin/9", 1000), "record with --context python,native");
    check("slow-data-loader", &format!("{train}\nP py-7 / T main/7 / {next} 2"), "record with --off-cpu");
    let own = "y /v/torch/utils/data/_utils/fetch.py:fetch / n decode";
    let made = |n: u64| format!("{train}\nP py-7 / T main/7 / {next} / {own} {n}");
    let synchronous = "The program spends 50% of its time making batches itself, without workers";
    check("synchronous-data-loader", &made(200), synchronous);
    check("synchronous-data-loader", &made(4), "healthy");
    check("synchronous-data-loader", train, "record with --context python,native");
    let worker = "y /v/torch/utils/data/_utils/worker.py:_worker_loop";
    let with_workers = format!("{}\nP py-8 / T py/8 / {worker} / {own} 500", wait("main/7", 10));
    check("synchronous-data-loader", &with_workers, "healthy");
    // A trace has the names of ranges, and exact times.
    let trace = "wall-time: P process-7 / n enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ 1x30
        wall-time: P process-7 / o aten::mm 1x70";
    check(
        "synchronous-data-loader",
        trace,
        "The program spends 30% of its time making batches itself, without workers",
    );
}

#[test]
fn batches_that_take_seconds_to_come_are_found() {
    const RULE: &str = "stuck-data-loader";
    let next = "y /a/t.py:main:8 / y /v/torch/utils/data/dataloader.py:_BaseDataLoaderIter.__next__";
    // A wait of some seconds is recorded second by second, beside shorter ones.
    let waits = |long: u64, short: u64, ns: u64| {
        format!(
            "P py-7 / T main/7 / y /a/t.py:main:9 / n gemm 200
            off-cpu-time: P py-7 / T main/7 / {next} / n poll {long}x1000000000
            off-cpu-time: P py-7 / T main/7 / {next} / n poll {short}x{ns}"
        )
    };
    let found = "The program waits at least 5.00 s for batches that take seconds to come";
    check(RULE, &waits(5, 0, 0), found);
    // A wait of a quarter of a second is neither long nor short.
    check(RULE, &waits(5, 4, 250_000_000), found);
    // As long in all.
    check(RULE, &waits(0, 100, 50_000_000), "healthy");
    check(RULE, &waits(2, 0, 0), "healthy");
    check(RULE, "P py-7 / n f 300", "record with --off-cpu");
}

#[test]
fn the_first_batch_is_no_slow_loader() {
    let next = "y /a/t.py:main:8 / y /v/torch/utils/data/dataloader.py:_BaseDataLoaderIter.__next__";
    let started = format!(
        "P py-7 / T main/7 / y /a/t.py:main:9 / n gemm 200
        off-cpu-time: P py-7 / T main/7 / {next} / n poll 1x900000000"
    );
    check("slow-data-loader", &started, "healthy");
}

#[test]
fn waits_for_a_cpu_are_no_waits_for_batches() {
    let mut queued = profile("P py-7 / T main/7 / y /a/t.py:main:9 / n gemm 200");
    let reason = queued.text("waiting for a CPU");
    let wait = queued.frame(Frame::Wait { reason });
    let next = "y /v/torch/utils/data/dataloader.py:_BaseDataLoaderIter.__next__";
    let frames = ["P py-7", "T main/7", "y /a/t.py:main:8", next];
    let above = frames.map(|frame| text::parse_frame(&mut queued, frame).unwrap());
    let stack: Vec<_> = above.into_iter().chain([wait]).collect();
    (0..1000).for_each(|_| _ = queued.add(&stack, Metric::OffCpuTime, 1_000_000));
    assert_eq!(found("slow-data-loader", &queued), "healthy");
}

#[test]
fn too_many_loader_workers_are_found() {
    let worker = "y /v/torch/utils/data/_utils/worker.py:_worker_loop / n decode";
    let workers = |n: u32| {
        let lines: Vec<_> = (1..=n).map(|pid| format!("P py-{pid} / T py/{pid} / {worker} 30")).collect();
        lines.join("\n")
    };
    check("loader-workers", &on_machine(&workers(5)), "5 workers load data on 2 CPUs");
    check("loader-workers", &on_machine(&workers(4)), "healthy");
    let one_cpu = format!("system:cpu-busy-time: m machine / m cpu 0 20x500000000\n{}", workers(3));
    check("loader-workers", &one_cpu, "3 workers load data on 1 CPU");
    check("loader-workers", &workers(5), "record with --system-metrics 500ms");
}

/// As in a container with some of the machine's CPUs.
#[test]
fn workers_are_compared_with_the_cpus_they_may_use() {
    let worker = "y /v/torch/utils/data/_utils/worker.py:_worker_loop / n decode";
    let cpus: String =
        (0..16).map(|cpu| format!("system:cpu-busy-time: m machine / m cpu {cpu} 20x100000000\n")).collect();
    let lines: String = (1..=16).map(|pid| format!("P py-{pid} / T py/{pid} / {worker} 3\n")).collect();
    let mut many = profile(&(cpus.clone() + &lines));
    let mut found_with = |allowed: Option<u32>| {
        many.meta.allowed_cpus = allowed;
        found("loader-workers", &many)
    };
    assert_eq!(found_with(Some(6)), "16 workers load data on 6 CPUs");
    // A machine has no more than all, and a file may say anything.
    for allowed in [None, Some(8), Some(16), Some(128), Some(0)] {
        assert_eq!(found_with(allowed), "healthy", "{allowed:?}");
    }
    let next = "y /a/t.py:main:8 / y /v/torch/utils/data/dataloader.py:_BaseDataLoaderIter.__next__";
    let train = format!(
        "P py-7 / T main/7 / y /a/t.py:main:9 / n gemm 200
        off-cpu-time: P py-7 / T main/7 / {next} / n poll 1000x1000000
        P py-1 / T py/1 / {worker} 30\nP py-2 / T py/2 / {worker} 30"
    );
    let mut few = profile(&(cpus + &train));
    let mut found_with = |allowed: Option<u32>| {
        few.meta.allowed_cpus = allowed;
        found("few-loader-workers", &few)
    };
    assert_eq!(found_with(None), "The program waits 33% of its time for batches, of 2 workers on 16 CPUs");
    assert_eq!(found_with(Some(4)), "The program waits 33% of its time for batches, of 2 workers on 4 CPUs");
    assert_eq!(found_with(Some(3)), "The program waits 33% of its time for batches, of 2 workers on 3 CPUs");
    assert_eq!(found_with(Some(2)), "healthy");
    // It keeps the CPUs busy that it may use, whatever the others do.
    few.merge(&profile("P py-7 / T other/9 / n gemm 2600"));
    few.meta.allowed_cpus = Some(3);
    assert_eq!(found("few-loader-workers", &few), "healthy");
}

#[test]
fn few_workers_are_found_where_training_waits_and_cpus_idle() {
    const RULE: &str = "few-loader-workers";
    let next = "y /a/t.py:main:8 / y /v/torch/utils/data/dataloader.py:_BaseDataLoaderIter.__next__";
    let worker = "y /v/torch/utils/data/_utils/worker.py:_worker_loop / n decode";
    let of_workers = |workers: u32, waits: u64| {
        let train = format!(
            "P py-7 / T main/7 / y /a/t.py:main:9 / n gemm 200
            off-cpu-time: P py-7 / T main/7 / {next} / n poll {waits}x1000000"
        );
        let workers = (1..=workers).map(|pid| format!("\nP py-{pid} / T py/{pid} / {worker} 30"));
        train + &workers.collect::<String>()
    };
    let busy = |busy_ms: u64, lines: &str| {
        let cpus =
            (0..2).map(|cpu| format!("system:cpu-busy-time: m machine / m cpu {cpu} 1x{busy_ms}000000\n"));
        cpus.collect::<String>() + lines
    };
    let found = "The program waits 33% of its time for batches, of 1 worker on 2 CPUs";
    check(RULE, &busy(100, &of_workers(1, 1000)), found);
    // As many as CPUs, no wait, no idle CPU: more workers would not help.
    check(RULE, &busy(100, &of_workers(2, 1000)), "healthy");
    check(RULE, &busy(100, &of_workers(1, 10)), "healthy");
    check(RULE, &busy(9_900, &of_workers(1, 1000)), "healthy");
    check(RULE, &busy(100, &of_workers(0, 1000)), "healthy");
    check(RULE, &of_workers(1, 1000), "record with --system-metrics 500ms");
    check(RULE, &busy(100, "P py-7 / n f 300"), "record with --context python,native");
    let on_cpu = format!("P py-7 / T main/7 / y /a/t.py:main:9 / n gemm 200\nP py-7 / T main/7 / {next} 2");
    check(RULE, &busy(100, &on_cpu), "record with --off-cpu");
}

#[test]
fn threads_that_serve_the_loader_do_not_train() {
    const RULE: &str = "slow-data-loader";
    let next = "y /a/t.py:main:8 / y /v/torch/utils/data/dataloader.py:_BaseDataLoaderIter.__next__";
    let train = "P py-7 / T main/7 / y /a/t.py:main:9 / n gemm 200";
    let pins = "y /v/torch/utils/data/_utils/pin_memory.py:_pin_memory_loop";
    let pins = format!(
        "off-cpu-time: P py-7 / T pin/9 / {pins} / n poll 1000x9000000
        off-cpu-time: P py-7 / T pin/9 / n start_thread / n take_gil 1x50000"
    );
    check(RULE, &format!("{train}\nP py-7 / T main/7 / {next} 2\n{pins}"), "healthy");
    // A forked worker has the frames of its parent, also before and after its loop.
    let forked =
        "P py-8 / T py/8 / y /a/t.py:main:8 / y /v/torch/utils/data/dataloader.py:DataLoader.__iter__";
    let worker = format!(
        "off-cpu-time: {forked} / y /v/torch/utils/data/_utils/worker.py:_worker_loop / n poll 1000x20000000
        off-cpu-time: {forked} / n read 1x100000"
    );
    let waits = format!("{train}\noff-cpu-time: P py-7 / T main/7 / {next} / n poll 1000x1000000\n{worker}");
    check(RULE, &waits, "The program waits 33% of its time for batches of the data loader");
}

#[test]
fn workers_of_one_epoch_after_another_count_once() {
    let worker = "y /v/torch/utils/data/_utils/worker.py:_worker_loop / n decode";
    let lines: String = (1..=6).map(|pid| format!("P py-{pid} / T py/{pid} / {worker} 30\n")).collect();
    let in_epochs = |at_once: u64, path: Option<&str>| {
        let mut profile = profile(&on_machine(&lines));
        for pid in 1..=6u64 {
            let frames = [format!("P py-{pid}"), format!("T py/{pid}")];
            let frames = frames.map(|frame| text::parse_frame(&mut profile, &frame).unwrap());
            let thread = profile.add(&frames, Metric::Samples, 0);
            let from = (pid - 1) / at_once * 1_000_000_000;
            let to = Nanos(from + 1_000_000_000);
            profile.timeline.add_span(thread, Metric::CpuTime, Nanos(from), to, 300_000_000);
        }
        found_at("loader-workers", &profile, path)
    };
    assert_eq!(in_epochs(2, None), "healthy");
    assert_eq!(in_epochs(6, None), "6 workers load data on 2 CPUs");
    // The timeline is that of the whole.
    assert_eq!(in_epochs(2, Some("decode")), "healthy");
    assert_eq!(in_epochs(6, Some("decode")), "6 workers load data on 2 CPUs");
}

/// A range says that a program loads, not that it has a loader.
#[test]
fn who_decodes_in_a_range_waits_for_nobody() {
    let range = "P py-7 / T main/7 / y /a/t.py:main:8 / r load_batch";
    let train = "P py-7 / T main/7 / y /a/t.py:main:9 / n gemm 200";
    let made = format!("{range} / n decode 100\n{train}\noff-cpu-time: {range} / n read 10x1000000");
    check("slow-data-loader", &made, "healthy");
    let itself = "The program spends 33% of its time making batches itself, without workers";
    check("synchronous-data-loader", &made, itself);
    let waits = format!("{range} / n decode 2\n{train}\noff-cpu-time: {range} / n poll 1001x1000000");
    check("slow-data-loader", &waits, "The program waits 33% of its time for batches of the data loader");
}
