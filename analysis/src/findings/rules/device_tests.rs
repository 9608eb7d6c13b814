//! Rules on machine metrics of GPUs, their drivers and networks: a profile with the defect and a twin without.

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::text;
use deepctx_profile::units::Nanos;

use super::gain_tests::on_devices;
use super::tests::{check, check_share, found, on_machine, profile};
use crate::findings::{Findings, Settings};

/// A program whose GPU was not queried.
const LAUNCHES: &str = "kernels: P py-7 / n f 5x1";
/// A program without one.
const NO_DEVICE: &str = "P py-7 / n f 300";
/// What records readings of GPUs, and launches of kernels.
const READ_GPUS: &str = "record with --system-metrics 500ms, without --no-gpu";
const LAUNCH: &str = "record with a program that launches kernels, without --no-gpu";

/// A capture of 10 s with GPU utilization, used memory of 80, and CPU utilization in percent, per half second.
pub(super) fn utilization(gpu: [u64; 20], memory: u64, cpu: u64) -> Profile {
    let mut profile = profile(LAUNCHES);
    let mut part = |name: &str| {
        let frames = ["m machine", name].map(|text| text::parse_frame(&mut profile, text).unwrap());
        profile.add(&frames, Metric::Samples, 0)
    };
    let [device, cpus] = ["m gpu 0 GPU-a", "m cpu 0"].map(&mut part);
    for (half, busy) in (0u64..).zip(gpu) {
        let (from, to) = (Nanos(half * 500_000_000), Nanos((half + 1) * 500_000_000));
        let figures = [
            (device, Metric::GpuBusyTime, busy * 5_000_000),
            (device, Metric::MemoryUsedBytes, memory * 80 / 100),
            (device, Metric::MemoryTotalBytes, 80),
            (cpus, Metric::CpuBusyTime, cpu * 5_000_000),
        ];
        for (node, metric, value) in figures {
            profile.tree.add(node, metric, value);
            profile.timeline.add_span(node, metric, from, to, value);
        }
    }
    profile
}

/// The same with one more GPU, with as much of its memory in use.
pub(super) fn with_gpu(mut profile: Profile, number: u32, gpu: [u64; 20], memory: u64) -> Profile {
    let name = format!("m gpu {number} GPU-b");
    let frames = ["m machine", name.as_str()].map(|text| text::parse_frame(&mut profile, text).unwrap());
    let node = profile.add(&frames, Metric::Samples, 0);
    for (half, busy) in (0u64..).zip(gpu) {
        let (from, to) = (Nanos(half * 500_000_000), Nanos((half + 1) * 500_000_000));
        let figures = [
            (Metric::GpuBusyTime, busy * 5_000_000),
            (Metric::MemoryUsedBytes, memory * 80 / 100),
            (Metric::MemoryTotalBytes, 80),
        ];
        for (metric, value) in figures {
            profile.tree.add(node, metric, value);
            profile.timeline.add_span(node, metric, from, to, value);
        }
    }
    profile
}

/// The same with a CPU that waits for disks for these parts of the half seconds, in percent.
pub(super) fn with_io_wait(mut profile: Profile, waits: [u64; 20]) -> Profile {
    let frames = ["m machine", "m cpu 0"].map(|text| text::parse_frame(&mut profile, text).unwrap());
    let node = profile.add(&frames, Metric::Samples, 0);
    for (half, waits) in (0u64..).zip(waits) {
        let (from, to) = (Nanos(half * 500_000_000), Nanos((half + 1) * 500_000_000));
        profile.tree.add(node, Metric::CpuIoWaitTime, waits * 5_000_000);
        profile.timeline.add_span(node, Metric::CpuIoWaitTime, from, to, waits * 5_000_000);
    }
    profile
}

/// The same with a thread that is on a CPU for these parts of the half seconds, in percent.
pub(super) fn with_thread(profile: Profile, cpu: [u64; 20]) -> Profile {
    with_thread_of(profile, ["P py-7", "T py/7", "y /a/train.py:step:31"], cpu)
}

fn with_thread_of(mut profile: Profile, frames: [&str; 3], cpu: [u64; 20]) -> Profile {
    let frames = frames.map(|text| text::parse_frame(&mut profile, text).unwrap());
    let thread = profile.add(&frames[..2], Metric::Samples, 0);
    for (half, busy) in (0u64..).zip(cpu) {
        let (from, to) = (Nanos(half * 500_000_000), Nanos((half + 1) * 500_000_000));
        (0..busy).for_each(|_| _ = profile.add(&frames, Metric::CpuTime, 5_000_000));
        profile.timeline.add_span(thread, Metric::CpuTime, from, to, busy * 5_000_000);
    }
    profile
}

#[test]
fn devices_that_rest_while_a_thread_works_are_found() {
    const RULE: &str = "cpu-bottleneck";
    let rests = std::array::from_fn(|half| if half % 4 < 1 { 100 } else { 0 });
    let held = "For 75% of the time, GPUs hardly work while a thread of the program keeps a CPU busy";
    assert_eq!(found(RULE, &with_thread(utilization(rests, 25, 20), [100; 20])), held);
    // A CPU of the machine may be busy with other programs.
    assert_eq!(found(RULE, &with_thread(utilization(rests, 25, 100), [80; 20])), "healthy");
    assert_eq!(found(RULE, &with_thread(utilization([55; 20], 25, 20), [100; 20])), "healthy");
    // It works while the GPU does.
    let by_turns = std::array::from_fn(|half| if half % 4 < 1 { 100 } else { 50 });
    assert_eq!(found(RULE, &with_thread(utilization(rests, 25, 20), by_turns)), "healthy");
    // Before its first kernel a program starts.
    let starts = std::array::from_fn(|half| if half < 15 { 0 } else { 100 });
    assert_eq!(found(RULE, &with_thread(utilization(starts, 25, 20), [100; 20])), "healthy");
    // Another process of the machine, which launches nothing.
    let beside = with_thread(utilization(rests, 25, 20), [50; 20]);
    let beside = with_thread_of(beside, ["P cc-9", "T cc/9", "n parse"], [100; 20]);
    assert_eq!(found(RULE, &beside), "healthy");
    let spins = ["P py-7", "T omp/8", "n gomp_team_barrier_wait_end"];
    assert_eq!(found(RULE, &with_thread_of(utilization(rests, 25, 20), spins, [100; 20])), "healthy");
    // Each sample stands for longer than a window.
    let mut rare = with_thread(utilization(rests, 25, 20), [100; 20]);
    let process = text::parse_frame(&mut rare, "P py-7").unwrap();
    _ = rare.add(&[process], Metric::CpuTime, 1_000_000_000_000);
    assert_eq!(found(RULE, &rare), "record with --duration, or a higher --freq");
    // Time of processes is the sum of their threads'.
    let runs = "record with a program that runs meanwhile, or a longer --duration";
    assert_eq!(found(RULE, &utilization(rests, 25, 100)), runs);
    check(RULE, LAUNCHES, READ_GPUS);
}

#[test]
fn devices_that_rest_while_disks_are_waited_for_are_found() {
    const RULE: &str = "io-bottleneck";
    let rests = std::array::from_fn(|half| if half % 4 < 1 { 100 } else { 0 });
    let held = "For 75% of the time, GPUs hardly work while a CPU waits for disks";
    assert_eq!(found(RULE, &with_io_wait(utilization(rests, 25, 20), [60; 20])), held);
    assert_eq!(found(RULE, &with_io_wait(utilization(rests, 25, 20), [40; 20])), "healthy");
    assert_eq!(found(RULE, &with_io_wait(utilization(rests, 25, 20), [0; 20])), "healthy");
    assert_eq!(found(RULE, &with_io_wait(utilization([55; 20], 25, 20), [60; 20])), "healthy");
    // It is waited for while the GPU works: data are read ahead.
    let by_turns = std::array::from_fn(|half| if half % 4 < 1 { 100 } else { 20 });
    assert_eq!(found(RULE, &with_io_wait(utilization(rests, 25, 20), by_turns)), "healthy");
    // Before its first kernel a program reads its model.
    let starts = std::array::from_fn(|half| if half < 15 { 0 } else { 100 });
    assert_eq!(found(RULE, &with_io_wait(utilization(starts, 25, 20), [60; 20])), "healthy");
    // Another GPU works.
    let works = with_gpu(with_io_wait(utilization(rests, 25, 20), [60; 20]), 1, [90; 20], 25);
    assert_eq!(found(RULE, &works), "healthy");
    assert_eq!(found(RULE, &utilization(rests, 25, 20)), "record with --system-metrics 500ms");
    check(RULE, LAUNCHES, READ_GPUS);
    check(RULE, NO_DEVICE, LAUNCH);
}

#[test]
fn gpus_that_are_used_little_throughout_are_found() {
    const RULE: &str = "underused-device";
    let little = "For 95% of the time, 1 GPU is busy 60% or less";
    // Busy enough for other rules, whose limit is a mean of 50 %.
    assert_eq!(found(RULE, &utilization([60; 20], 90, 90)), little);
    assert_eq!(found(RULE, &utilization([75; 20], 90, 90)), "healthy");
    // More than one window in twenty.
    let sometimes = std::array::from_fn(|half| if half % 8 < 1 { 95 } else { 40 });
    assert_eq!(found(RULE, &utilization(sometimes, 25, 20)), "healthy");
    // The other one has a display only.
    let display = with_gpu(utilization([95; 20], 25, 20), 1, [2; 20], 25);
    assert_eq!(found(RULE, &display), "healthy");
    let two = with_gpu(utilization([60; 20], 25, 20), 1, [50; 20], 25);
    assert_eq!(found(RULE, &two), "For 95% of the time, 2 GPUs are busy 60% or less");
    check(RULE, LAUNCHES, READ_GPUS);
    check(RULE, NO_DEVICE, LAUNCH);
}

#[test]
fn work_spread_unevenly_over_gpus_is_found() {
    const RULE: &str = "load-balancing";
    let two = |one: [u64; 20], other: [u64; 20]| with_gpu(utilization(one, 25, 20), 1, other, 25);
    let uneven = "Work is spread unevenly over 2 GPUs: gpu 0 GPU-a is busy 90% of the time, gpu 1 GPU-b 40%";
    assert_eq!(found(RULE, &two([90; 20], [40; 20])), uneven);
    assert_eq!(found(RULE, &two([90; 20], [90; 20])), "healthy");
    // No bin in common, and nearly the same work.
    assert_eq!(found(RULE, &two([95; 20], [93; 20])), "healthy");
    // As much work, at other times.
    let first = std::array::from_fn(|half| if half % 2 < 1 { 90 } else { 30 });
    let last = std::array::from_fn(|half| if half % 2 < 1 { 30 } else { 90 });
    assert_eq!(found(RULE, &two(first, last)), "healthy");
    assert_eq!(found(RULE, &utilization([90; 20], 25, 20)), "record with nothing");
    check(RULE, NO_DEVICE, LAUNCH);
    // Two of three are alike.
    let three = with_gpu(two([90; 20], [90; 20]), 2, [30; 20], 25);
    let uneven = "Work is spread unevenly over 3 GPUs: gpu 0 GPU-a is busy 90% of the time, gpu 2 GPU-b 30%";
    assert_eq!(found(RULE, &three), uneven);
}

/// A driver does not say whose work a GPU runs.
#[test]
fn another_job_on_a_gpu_is_no_imbalance() {
    let gpus = with_gpu(utilization([90; 20], 25, 20), 1, [40; 20], 25);
    let used = |activities: &[(u32, u32, u64, u64)]| {
        let mut profile = on_devices(activities);
        profile.merge(&gpus);
        let mut settings = Settings::default();
        settings.only("load-balancing").unwrap();
        let found = Findings::of_profile(&profile, Nanos(10_000_000_000), &settings);
        found.checks[0].reason_key.clone().unwrap_or_else(|| found.checks[0].outcome.clone())
    };
    assert_eq!(used(&[(7, 0, 0, 9_000)]), "gpus-of-others");
    assert_eq!(used(&[(7, 0, 0, 9_000), (7, 1, 0, 4_000)]), "findings");
    assert_eq!(used(&[(7, 0, 0, 9_000), (8, 0, 0, 4_000)]), "findings");
}

#[test]
fn batches_that_leave_the_machine_idle_are_found() {
    let small = "For 95% of the time, the GPU is busy 40% or less, with 25% of its memory, and CPUs 20%: larger \
                 batches fit";
    assert_eq!(found("small-batch", &utilization([40; 20], 25, 20)), small);
    // One GPU in use is enough.
    assert_eq!(found("small-batch", &utilization([90; 20], 25, 20)), "healthy");
    assert_eq!(found("small-batch", &utilization([40; 20], 90, 20)), "healthy");
    assert_eq!(found("small-batch", &utilization([40; 20], 25, 90)), "healthy");
    // As at the beginning of a program: more than one window in twenty differs.
    let starts = std::array::from_fn(|half| if half < 18 { 10 } else { 95 });
    assert_eq!(found("small-batch", &utilization(starts, 25, 20)), "healthy");
    check("small-batch", LAUNCHES, READ_GPUS);
    check("small-batch", NO_DEVICE, LAUNCH);
}

#[test]
fn memory_of_gpus_that_is_nearly_full_is_found() {
    let full = |memory| found("full-memory", &utilization([90; 20], memory, 20));
    assert_eq!(full(96), "The memory of a GPU is 95% full at its peak");
    assert_eq!(full(85), "healthy");
    check("full-memory", LAUNCHES, READ_GPUS);
}

/// A program that allocates managed memory at one line, so many times so many MiB, and launches kernels.
fn managed(times: u64, mib: u64) -> String {
    format!(
        "alloc-bytes: P py-7 / y /a/train.py:load:9 / a cuMemAllocManaged {times}x{}
         kernels: P py-7 / y /a/train.py:step:31 / a cuLaunchKernel / g gemm 5x1\n",
        mib << 20
    )
}

/// What `managed-memory` says of 32 MiB.
fn managed_32(part: &str, why: &str) -> String {
    format!("32.0 MiB of managed memory is allocated, {part} of it prefetched: {why}")
}

const MAY_WAIT: &str = "kernels may wait for its pages";

#[test]
fn managed_memory_that_is_not_prefetched_is_found() {
    const RULE: &str = "managed-memory";
    let prefetching = |mib: u64| {
        let call = "copy-bytes: P py-7 / y /a/train.py:step:30 / a cudaMemPrefetchAsync / g prefetch";
        format!("{}{call} 1x{}", managed(1, 32), mib << 20)
    };
    check(RULE, &managed(1, 32), &managed_32("none", MAY_WAIT));
    check(RULE, &prefetching(1), &managed_32("3.1%", MAY_WAIT));
    check(RULE, &prefetching(32), "healthy");
    // How much these prefetch is not read.
    check(RULE, &(managed(1, 32) + "calls: P py-7 / a cuMemPrefetchBatchAsync 1x1"), "healthy");
    // A copy moves no pages.
    check(RULE, &prefetching(32).replace("g prefetch", "g memcpy HtoD"), &managed_32("none", MAY_WAIT));
    // Another process prefetches, or launches.
    let other = |of: &str, lines: &str| lines.replace(&format!("{of}: P py-7"), &format!("{of}: P py-8"));
    check(RULE, &other("copy-bytes", &prefetching(32)), &managed_32("none", MAY_WAIT));
    check(RULE, &other("kernels", &managed(1, 32)), "healthy");
    // Small ones, however many.
    check(RULE, &managed(32, 1), "healthy");
    check(RULE, &managed(1, 32).replace("cuMemAllocManaged", "cuMemAlloc_v2"), "healthy");
    check(RULE, LAUNCHES, "record with a command that it starts, without --no-gpu");
    check(RULE, NO_DEVICE, LAUNCH);
}

#[test]
fn more_managed_memory_than_fits_into_gpus_is_found() {
    const RULE: &str = "managed-memory";
    let gpus = |count: u32| -> String {
        let memory = "system:memory-total-bytes: m machine / m gpu";
        let gpu = |number: u32| format!("{memory} {number} GPU 20x{}\n", 24 << 20);
        (0..count).map(gpu).collect()
    };
    let moves = managed_32("none", "more is live than fits into all GPUs, so its pages move in and out");
    check(RULE, &(managed(2, 16) + &gpus(1)), &moves);
    check(RULE, &(managed(2, 16) + &gpus(2)), &managed_32("none", MAY_WAIT));
    // The first is freed before the second is allocated, for all that is known.
    let freed = "returned-bytes: P py-7 / y /a/train.py:load:9 / a cuMemAllocManaged 1x16777216\n";
    check(RULE, &(managed(2, 16) + freed + &gpus(1)), &managed_32("none", MAY_WAIT));
    // One that is too large alone, freed at the end.
    let freed = freed.replace("16777216", "33554432");
    check(RULE, &(managed(1, 32) + &freed + &gpus(1)), &moves);
}

#[test]
fn lines_that_allocate_most_managed_memory_come_first() {
    let pool = "alloc-bytes: P py-7 / y /a/train.py:pool:5 / a cuMemAllocManaged 2x67108864\n";
    let other = "alloc-bytes: P py-7 / y /a/train.py:plain:7 / a cuMemAlloc_v2 1x67108864\n";
    let mut settings = Settings::default();
    settings.only("managed-memory").unwrap();
    let profile = profile(&(managed(1, 32) + pool + other));
    let found = Findings::of_profile(&profile, Nanos(10_000_000_000), &settings).findings;
    let places: Vec<&str> = found[0].places.iter().map(|place| place.name.as_str()).collect();
    assert_eq!(places, ["train.py:pool:5", "train.py:load:9"]);
    assert_eq!((found[0].violations, found[0].datapoints), (3, 4));
}

/// A program that launches work, on a machine whose GPUs are read twice a second for 10 s: how many milliseconds of
/// each half second each of them is busy, slowed down by heat, and slowed down by its power limit.
pub(super) fn throttled(gpus: &[[u64; 3]]) -> String {
    const METRICS: [&str; 3] = ["gpu-busy-time", "gpu-thermal-limited-time", "gpu-power-limited-time"];
    let mut lines = on_machine(LAUNCHES);
    for (number, milliseconds) in gpus.iter().enumerate() {
        for (metric, ms) in METRICS.iter().zip(milliseconds) {
            lines += &format!("\nsystem:{metric}: m machine / m gpu {number} GPU 20x{}", ms * 1_000_000);
        }
    }
    lines
}

#[test]
fn gpus_that_heat_slows_down_are_found() {
    const RULE: &str = "gpu-throttling";
    let hot =
        |share: &str, gpu: u32| format!("For {share} of the capture, gpu {gpu} GPU was slowed down by heat");
    check(RULE, &throttled(&[[300, 200, 0]]), &hot("40%", 0));
    check(RULE, &throttled(&[[300, 0, 0]]), "healthy");
    // Now and then, and at its power limit, as under full load.
    check(RULE, &throttled(&[[500, 20, 500]]), "healthy");
    check(RULE, &throttled(&[[500, 100, 400]]), &hot("20%", 0));
    check(RULE, &throttled(&[[300, 200, 0], [300, 300, 0]]), &hot("60%", 1));
    // Nobody used it.
    check(RULE, &throttled(&[[0, 500, 0]]), "healthy");
    // A divided GPU, of which the driver does not say how busy it is.
    let divided = throttled(&[[0, 200, 0]]).replace("gpu-busy-time", "gpu-memory-busy-time");
    check(RULE, &divided, &hot("40%", 0));
    // The machine has none, was not read, or the program launches nothing.
    check(RULE, &throttled(&[]), READ_GPUS);
    check(RULE, LAUNCHES, "record with --system-metrics 500ms");
    check(RULE, NO_DEVICE, LAUNCH);
}

/// A program whose device copies and computes for as long, with the label of its copies and what calls them.
fn copies(label: &str, call: &str, copies: u64) -> String {
    format!(
        "copy-time: P py-7 / y /a/train.py:step:31 / {call} / g {label} {copies}x1000
         gpu-time: P py-7 / y /a/train.py:step:32 / g gemm {copies}x1000"
    )
}

#[test]
fn copies_from_memory_that_is_not_pinned_are_found() {
    const RULE: &str = "pageable-copies";
    const CALL: &str = "a cudaMemcpyAsync";
    let slow = "50% of the device's time is copies from or to memory that is not pinned";
    for label in ["memcpy HtoD pageable", "memcpy DtoH pageable", "Memcpy HtoD (Pageable -> Device)"] {
        check(RULE, &copies(label, CALL, 200), slow);
    }
    for label in ["memcpy HtoD pinned", "Memcpy HtoD (Pinned -> Device)", "memcpy DtoD"] {
        check(RULE, &copies(label, CALL, 200), "healthy");
    }
    // As many as a program copies at its start.
    check(RULE, &copies("memcpy HtoD pageable", CALL, 50), "healthy");
    let moved = format!("y /v/torch/nn/modules/module.py:Module._apply / {CALL}");
    check(RULE, &copies("memcpy HtoD pageable", &moved, 200), "healthy");
    // Another rule finds it.
    check(RULE, &copies("memcpy HtoD pageable", "a cudaMemcpy", 200), "healthy");
    // Its memory was allocated before the capture.
    check(RULE, &copies("memcpy HtoD", CALL, 200), "record with a command that it starts");
    check(RULE, &copies("memcpy HtoD", CALL, 50), "healthy");
    check(RULE, "P py-7 / n f 300", "record with --gpu-activity");
}

#[test]
fn copies_of_few_bytes_need_no_pinned_memory() {
    const RULE: &str = "pageable-copies";
    const PAGEABLE: &str = "memcpy HtoD pageable";
    let at = |line: u32, label: &str, bytes: u64| {
        let stack = format!("P py-7 / y /a/train.py:step:{line} / a cudaMemcpyAsync / g {label}");
        format!("copy-time: {stack} 200x1000\ncopy-bytes: {stack} 200x{bytes}\n")
    };
    let kernels = "gpu-time: P py-7 / y /a/train.py:step:32 / g gemm 200x1000";
    let slow =
        |share: &str| format!("{share} of the device's time is copies from or to memory that is not pinned");
    check(RULE, &(at(31, PAGEABLE, 64 << 10) + kernels), &slow("50%"));
    check(RULE, &(at(31, PAGEABLE, 4) + kernels), "healthy");
    // A trace that does not say how many.
    check(RULE, &(at(31, PAGEABLE, 0) + kernels), &slow("50%"));
    // So it makes no difference whether their memory is pinned.
    check(RULE, &(at(31, "memcpy DtoH", 64 << 10) + kernels), "record with a command that it starts");
    check(RULE, &(at(31, "memcpy DtoH", 4) + kernels), "healthy");
    // A batch, and a value that is read at another line.
    let both = at(31, PAGEABLE, 1 << 20) + &at(33, "memcpy DtoH pageable", 4) + kernels;
    check(RULE, &both, &slow("33%"));
}

#[test]
fn copies_within_a_device_do_not_block() {
    const RULE: &str = "blocking-copies";
    let blocks = "50% of the device's time is copies that block the program";
    for call in ["a cudaMemcpy", "a cuMemcpyHtoD_v2_ptds", "a hipMemcpyWithStream"] {
        check(RULE, &copies("memcpy HtoD pinned", call, 200), blocks);
    }
    check(RULE, &copies("memcpy DtoD", "a cudaMemcpy", 200), "healthy");
    check(RULE, &copies("Memcpy DtoD (Device -> Device)", "a cuMemcpyDtoD_v2", 200), "healthy");
}

#[test]
fn copies_of_a_model_in_each_step_are_found() {
    let expect = "30% of cpu-time is one process that spreads a model and its batches over devices";
    for function in ["DataParallel.replicate", "scatter", "DataParallel.gather"] {
        let file = "y /a/train.py:step:31 / y /v/torch/nn/parallel/data_parallel.py";
        check_share("data-parallel", &format!("{file}:{function} / o aten::copy_"), expect);
    }
    let ours = "P py-7 / y /v/torch/nn/parallel/distributed.py:DistributedDataParallel.scatter 300";
    check("data-parallel", ours, "healthy");
}

#[test]
fn collectives_on_cpus_beside_devices_are_found() {
    let run = |function: &str, kernels: u64| {
        let launched = if kernels > 0 { "kernels: P py-7 / a cuLaunchKernel / g gemm 5x1" } else { "" };
        format!(
            "P py-7 / T pt_gloo_runloop/8 / n {function} / n memcpy 300
             P py-7 / T py/7 / y /a/train.py:step:30 / n gemm 700
             {launched}"
        )
    };
    let expect = "30% of cpu-time is collectives on CPUs, by Gloo or MPI, in a program that has devices";
    check("collective-backend", &run("void gloo::sum<float>(void*, void const*)", 5), expect);
    check("collective-backend", &run("c10d::ProcessGroupGloo::runLoop(int)", 5), expect);
    check("collective-backend", &run("c10d::ProcessGroupNCCL::Watchdog::run()", 5), "healthy");
    // On a machine without devices it is the right backend.
    check("collective-backend", &run("c10d::ProcessGroupGloo::runLoop(int)", 0), LAUNCH);
}

#[test]
fn devices_that_work_in_bursts_are_found() {
    let bursts = std::array::from_fn(|half| if half % 4 < 2 { 100 } else { 0 });
    let found_in = |gpu| found("bursty-device", &utilization(gpu, 25, 20));
    assert_eq!(found_in(bursts), "1 GPU works in bursts, and hardly at all for 50% of the time");
    assert_eq!(found_in([55; 20]), "healthy");
    // While a program starts, it has no work for a GPU.
    assert_eq!(found_in(std::array::from_fn(|half| if half < 9 { 0 } else { 100 })), "healthy");
    assert_eq!(found_in([100; 20]), "healthy");
    // Never busy: idle, not bursty.
    assert_eq!(found_in(std::array::from_fn(|half| if half == 3 { 40 } else { 0 })), "healthy");
    check("bursty-device", NO_DEVICE, LAUNCH);
}

/// A capture of 10 s with the megabytes sent by an interface in each half second, over a link of the given megabits.
pub(super) fn sending(megabytes: [u64; 20], link_megabits: Option<u64>) -> Profile {
    let mut profile = profile(NO_DEVICE);
    let frames = ["m machine", "m network eth0"].map(|text| text::parse_frame(&mut profile, text).unwrap());
    let node = profile.add(&frames, Metric::Samples, 0);
    for (half, megabytes) in (0u64..).zip(megabytes) {
        let (from, to) = (Nanos(half * 500_000_000), Nanos((half + 1) * 500_000_000));
        let figures = [
            (Metric::NetworkReceivedBytes, Some(1_000_000)),
            (Metric::NetworkSentBytes, Some(megabytes * 1_000_000)),
            (Metric::NetworkLinkMegabits, link_megabits),
        ];
        for (metric, value) in figures {
            let Some(value) = value else { continue };
            profile.tree.add(node, metric, value);
            profile.timeline.add_span(node, metric, from, to, value);
        }
    }
    profile
}

#[test]
fn a_link_that_is_full_for_long_is_found() {
    const RULE: &str = "network-limit";
    // 1000 Mb/s are 62.5 MB in half a second.
    let at = |busy: usize| std::array::from_fn(|half| if half < busy { 60 } else { 5 });
    let full = "For 20% of the capture, network eth0 sends more than 80% of what its link carries";
    assert_eq!(found(RULE, &sending(at(4), Some(1000))), full);
    assert_eq!(found(RULE, &sending(at(1), Some(1000))), "healthy");
    assert_eq!(found(RULE, &sending(at(20), Some(10_000))), "healthy");
    // As on virtual machines.
    let speeds = "record with --system-metrics 500ms, on a machine whose interfaces do";
    assert_eq!(found(RULE, &sending(at(20), None)), speeds);
    check(RULE, NO_DEVICE, "record with --system-metrics 500ms");
}
