//! What could be won: the gain of each rule, how devices at rest weigh it, and that no two claim the same time.

use std::collections::BTreeSet;

use deepctx_profile::device::activity::{Activity, ActivityKind};
use deepctx_profile::device::gpu::DeviceUse;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::text;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

use super::device_tests::{sending, throttled, utilization, with_gpu, with_io_wait, with_thread};
use super::healthy_tests::{queued, waiting};
use super::tests::{could_win_what_it_touches, on_machine, profile};
use super::{RULES, rank_tests};
use crate::findings::{Finding, Findings, Settings};
use crate::{Selection, Subset};

/// What some rules find in a capture of 10 s.
fn found(rules: &[&str], profile: &Profile) -> Vec<Finding> {
    let mut settings = Settings::default();
    rules.iter().for_each(|rule| settings.only(rule).unwrap());
    Findings::of_profile(profile, Nanos(10_000_000_000), &settings).findings
}

/// What each finding could win, without the reason.
fn could_win(found: &[Finding]) -> String {
    let gains = found.iter().map(|of| {
        assert!(could_win_what_it_touches(of), "{of:?}");
        let gain = of.could_win();
        gain.split([':', '(']).next().unwrap().trim().to_owned()
    });
    gains.collect::<Vec<_>>().join("; ")
}

const TRAIN: &str = "P py-7 / T py/7 / y /a/train.py:step:30 / o aten::mm / n gemm 700";
const NEXT: &str = "P py-7 / T py/7 / y /a/train.py:main:8 / y /v/torch/utils/data/dataloader.py:_BaseDataLoaderIter.__next__";
const STEP: &str = "step-time: P py-7 / y /a/train.py:main:9 / r Optimizer.step#SGD";
const KERNEL: &str = "gpu-time: P py-7 / y /a/train.py:step:30 / a cuLaunchKernel / g";

/// A rule, a profile with its defect, and what could be won.
type Defect = (&'static str, String, &'static str);

const OF_CPU: &str = "at most 30.0% of cpu-time";
const OF_CAPTURE: &str = "at most 30.0% of length of the capture";
const OF_LOADING: &str = "at most 30.0% of time of the threads that use batches";
const WORKER: &str = "y /v/torch/utils/data/_utils/worker.py:_worker_loop / n decode 30";

/// A program in which a stack takes 30 % of the time.
fn share(stack: &str) -> String {
    format!("P py-7 / T py/7 / y /a/train.py:step:31 / {stack} 300\n{TRAIN}")
}

fn kernels(name: &str) -> String {
    format!("{KERNEL} {name} 3000x300000\n{KERNEL} gemm 1000x2100000")
}

fn program_defects() -> Vec<Defect> {
    let pressure = |of: &str| on_machine(&format!("system:{of}-pressure-time: m machine 20x150000000"));
    let limit = "system:limited-periods: m machine / m cgroup /job 20x5\n\
                 system:throttled-periods: m machine / m cgroup /job 20x2";
    vec![
        ("hotspot", share("n gemm"), "not known"),
        ("spinning-threads", share("n gomp_barrier_wait"), OF_CPU),
        (
            "gil-wait",
            "P py-7 / n g 200\noff-cpu-time: P py-7 / n take_gil 10x100000000".into(),
            "at most 33.3% of time in which threads run or could run",
        ),
        ("cpu-pressure", pressure("cpu"), OF_CAPTURE),
        ("cpu-limit", on_machine(limit), "at most 40.0% of periods of the limit"),
        // 2.5 s, and another CPU that ran for 10 s.
        (
            "cpu-steal",
            on_machine("system:cpu-steal-time: m machine / m cpu 1 20x125000000"),
            "at most 20.0% of time in which CPUs had something to run",
        ),
        ("io-pressure", pressure("io"), OF_CAPTURE),
        ("memory-pressure", pressure("memory"), OF_CAPTURE),
        ("garbage-collection", share("n gc_collect_main"), OF_CPU),
        ("import-time", share("y <frozen importlib._bootstrap>:_find_and_load / n f"), OF_CPU),
        ("page-faults", share("k exc_page_fault"), OF_CPU),
        ("logging-time", share("y /lib/python3.11/logging/__init__.py:Logger.info / n f"), OF_CPU),
        ("compilation-time", share("n xla::cpu::CpuCompiler::RunBackend"), OF_CPU),
        ("probe-cost", share("k asm_exc_int3"), OF_CPU),
    ]
}

fn training_defects() -> Vec<Defect> {
    let torch = |file: &str| share(&format!("y /v/torch/{file} / n f"));
    let waits = |waits: &str| format!("{TRAIN}\noff-cpu-time: {NEXT} / n poll {waits}");
    let workers: String = (1..=5).map(|pid| format!("P py-{pid} / T py/{pid} / {WORKER}\n")).collect();
    let few = on_machine(&format!("{}\nP py-8 / T py/8 / {WORKER}", waits("3001x1000000")));
    let fetch = format!("{NEXT} / y /v/torch/utils/data/_utils/fetch.py:fetch / n f 300\n{TRAIN}");
    let indexes = format!(
        "{STEP} 10x1000\ncalls: P py-7 / y /a/t.py:f:4 / o aten::select.int 500x1
         P py-7 / y /a/t.py:f:4 / o aten::select.int / n view 300\n{TRAIN}"
    );
    let line = "P py-7 / T py/7 / y /a/m.py:f:3 / o aten::index.Tensor";
    let backward = format!(
        "{line} / n gather 200\n{line} / o [backward] / o IndexBackward0 / n scatter 1000\nP py-7 / n other 500"
    );
    vec![
        ("conversions", share("o aten::contiguous / n f"), OF_CPU),
        ("slow-data-loader", waits("3001x1000000"), OF_LOADING),
        ("synchronous-data-loader", fetch, OF_LOADING),
        ("stuck-data-loader", waits("3x1000000000"), OF_LOADING),
        ("loader-workers", on_machine(&workers), "not known"),
        ("few-loader-workers", few, OF_LOADING),
        ("single-tensor-optimizer", torch("optim/adam.py:_single_tensor_adam"), OF_CPU),
        ("gradient-zeroing", share("y /v/torch/optim/adam.py:Adam.zero_grad / o aten::zero_"), OF_CPU),
        ("repeated-indexing", indexes, OF_CPU),
        ("checkpoint-time", torch("serialization.py:save"), OF_CPU),
        // The mean is 1.245 ms, the shortest 1 ms.
        ("uneven-steps", format!("{STEP} 199x1000000\n{STEP} 1x50000000"), "at most 19.7% of step-time"),
        // All above twice the forward pass: 600 of 1700.
        ("backward-cost", backward, "at most 35.3% of cpu-time"),
        ("data-parallel", torch("nn/parallel/data_parallel.py:scatter"), OF_CPU),
    ]
}

fn device_defects() -> Vec<Defect> {
    let of_kernels = "at most 30.0% of gpu-time, 9.0% of the capture";
    let stalls = "stall:long_scoreboard: P py-7 / g gather / n +0x10 1x300\n\
                  stall:selected: P py-7 / g gather / n +0x20 1x100";
    let launches = "P py-7 / y /a/t.py:f:4 / n dispatch 300\nP py-7 / n other 300
        kernels: P py-7 / y /a/t.py:f:4 / g add 100x1\ngpu-time: P py-7 / y /a/t.py:f:4 / g add 10x10000000";
    let copies = "copy-time: P py-7 / y /a/t.py:f:4 / a cudaMemcpy / g Memcpy 100x10000000";
    let pageable =
        "copy-time: P py-7 / y /a/t.py:f:4 / a cudaMemcpyAsync / g memcpy HtoD pageable 100x10000000";
    let sizes = "model-flops: P py-7 / o aten::mm / o aten::mm [32x64, 64x127] f16 100x1000\nkernels: P py-7 / n f 5x1";
    vec![
        // 81 of 2181 ms, in 10 s.
        (
            "small-kernels",
            format!("{KERNEL} add 9000x9000\n{KERNEL} gemm 1000x2100000"),
            "at most 3.7% of gpu-time, 0.8% of the capture",
        ),
        ("stall-reasons", stalls.into(), "at most 75.0% of samples of warps"),
        // 3 s less 0.1 s, of 6 s.
        ("cpu-latency", launches.into(), "at most 48.3% of cpu-time"),
        (
            "blocking-waits",
            "sync-time: P py-7 / T py/7 / y /a/t.py:f:4 / a cudaStreamSynchronize 200x20000000".into(),
            "at most 40.0% of time of the threads that wait",
        ),
        (
            "blocking-copies",
            format!("{copies}\n{KERNEL} gemm 100x10000000"),
            "at most 50.0% of time of kernels and copies, 10.0% of the capture",
        ),
        (
            "pageable-copies",
            format!("{pageable}\n{KERNEL} gemm 100x10000000"),
            "at most 50.0% of time of kernels and copies, 10.0% of the capture",
        ),
        (
            "managed-memory",
            "alloc-bytes: P py-7 / a cudaMallocManaged 1x33554432\nkernels: P py-7 / g add 5x1".into(),
            "not known",
        ),
        ("single-precision", kernels("ampere_sgemm_32x32"), of_kernels),
        ("odd-sizes", sizes.into(), "not known"),
        ("communication", kernels("ncclDevKernel_AllReduce"), of_kernels),
        (
            "collective-backend",
            format!("{}\nkernels: P py-7 / n f 5x1", share("n void gloo::sum<float>(void*)")),
            OF_CPU,
        ),
        // One GPU for 4 s in which it works, and another one, maybe at other times, which works for 2 s.
        (
            "gpu-throttling",
            throttled(&[[300, 200, 0], [100, 200, 0]]),
            "at most 60.0% of length of the capture",
        ),
    ]
}

/// Rules whose defect is more than sums of a profile.
fn other_defects() -> Vec<(&'static str, Profile, &'static str)> {
    let bursts = std::array::from_fn(|half| if half % 4 < 2 { 100 } else { 0 });
    let full = std::array::from_fn(|half| if half < 4 { 60 } else { 5 });
    vec![
        ("cpu-queue", queued(""), "at most 33.3% of time in which threads run or could run"),
        ("idle-device", on_devices(&[(7, 0, 0, 2_000)]), "at most 80.0% of length of the capture"),
        (
            "cpu-bottleneck",
            with_thread(utilization(bursts, 25, 20), [100; 20]),
            "at most 50.0% of length of the capture",
        ),
        (
            "io-bottleneck",
            with_io_wait(utilization(bursts, 25, 20), [60; 20]),
            "at most 50.0% of length of the capture",
        ),
        ("bursty-device", utilization(bursts, 25, 20), "at most 50.0% of length of the capture"),
        ("underused-device", utilization([60; 20], 90, 90), "at most 40.0% of length of the capture"),
        // The mean is 65 %.
        (
            "load-balancing",
            with_gpu(utilization([90; 20], 25, 20), 1, [40; 20], 25),
            "at most 25.0% of length of the capture",
        ),
        ("small-batch", utilization([40; 20], 25, 20), "at most 60.0% of length of the capture"),
        ("full-memory", utilization([90; 20], 96, 20), "not known"),
        ("network-limit", sending(full, Some(1000)), "at most 20.0% of length of the capture"),
    ]
}

/// Rules that a test of their own holds: their input is more than a profile, or they say nothing of time.
const ELSEWHERE: [&str; 5] = ["straggler", "uneven-ranks", "late-start", "growing-memory", "lost-events"];

#[test]
fn what_could_be_won_is_bounded_by_what_is_affected() {
    let plain = [program_defects(), training_defects(), device_defects()].into_iter().flatten();
    let plain = plain.map(|(rule, lines, expect)| (rule, profile(&lines), expect));
    let all: Vec<_> = plain.chain(other_defects()).collect();
    let mut wrong = String::new();
    for (rule, profile, expect) in &all {
        let gain = could_win(&found(&[rule], profile));
        if gain != *expect {
            wrong += &format!("{rule}: {gain}, not {expect}\n");
        }
    }
    assert_eq!(wrong, "");
    let held: BTreeSet<&str> = all.iter().map(|(rule, ..)| *rule).chain(ELSEWHERE).collect();
    assert_eq!(held, RULES.iter().map(|rule| rule.id).collect());
}

/// A profile with activities: process, device, from and to in milliseconds.
pub(super) fn on_devices(activities: &[(u32, u32, u64, u64)]) -> Profile {
    let mut profile = profile("gpu-time: P py-7 / g gemm 1x1000");
    for (pid, device, from, to) in activities {
        profile.gpu.activities.push(Activity {
            node: NodeId::from_number(2),
            kind: ActivityKind::Kernel,
            pid: *pid,
            device: *device,
            context: 1,
            stream: 7,
            correlation: 1,
            start: Nanos(from * 1_000_000),
            end: Nanos(to * 1_000_000),
            launched: None,
            bytes: 0,
        });
    }
    profile
}

#[test]
fn processes_that_share_a_device_keep_it_busy_together() {
    let idle = |activities: &[(u32, u32, u64, u64)]| {
        let found = found(&["idle-device"], &on_devices(activities));
        found.first().map_or("healthy", |of| &of.title).to_owned()
    };
    assert_eq!(idle(&[(7, 0, 0, 4_000), (8, 0, 4_000, 8_000)]), "healthy");
    let alone = "The device is idle 60% of the time since its first work";
    assert_eq!(idle(&[(7, 0, 0, 4_000)]), alone);
    // Nothing is known of the time since work that begins as the capture ends.
    assert_eq!(idle(&[(7, 0, 10_000, 10_100)]), "healthy");
    let two = "2 devices are idle 60% of the time since their first work";
    assert_eq!(idle(&[(7, 0, 0, 4_000), (8, 1, 0, 4_000)]), two);
    // Each from its own first work on: half of 10 s and all of 4 s.
    assert_eq!(idle(&[(7, 0, 0, 4_000), (8, 1, 6_000, 10_000)]), "healthy");
}

/// Each process may call the GPU that it sees its first.
#[test]
fn the_driver_tells_processes_with_own_devices_apart() {
    let gpus = |n: u32| -> String {
        (0..n)
            .map(|gpu| format!("system:gpu-busy-time: m machine / m gpu {gpu} GPU 20x200000000\n"))
            .collect()
    };
    let mut two = on_devices(&[(7, 0, 0, 4_000), (8, 0, 4_000, 8_000)]);
    two.merge(&profile(&gpus(2)));
    let title = |profile: &Profile| found(&["idle-device"], profile)[0].title.clone();
    // 8 of the 16 s since the first work of each are busy: 4 of 10 and 4 of 6.
    assert_eq!(found(&["idle-device"], &two), []);
    let mut idle = on_devices(&[(7, 0, 0, 4_000), (8, 0, 0, 4_000)]);
    idle.merge(&profile(&gpus(2)));
    assert_eq!(title(&idle), "2 devices are idle 60% of the time since their first work");
}

#[test]
fn a_wait_wins_only_what_the_device_rests() {
    let waits = |busy: &[(u32, u32, u64, u64)]| {
        let mut profile = on_devices(busy);
        let sync = "sync-time: P py-7 / T py/7 / y /a/t.py:f:4 / a cudaStreamSynchronize 400x20000000";
        profile.merge(&super::tests::profile(sync));
        let found = found(&["blocking-waits"], &profile);
        (found[0].gain.percent().map(f64::round), found[0].severity.name())
    };
    assert_eq!(waits(&[(7, 0, 0, 9_000)]), (Some(10.0), "medium"));
    assert_eq!(waits(&[(7, 0, 0, 1_000)]), (Some(80.0), "high"));
    // Of several devices it may wait for the one that rests most.
    assert_eq!(waits(&[(7, 0, 0, 9_900), (7, 1, 0, 5_000)]), (Some(50.0), "high"));
}

/// What XLA computes while the host waits must be computed anyway.
#[test]
fn a_wait_for_jax_wins_only_other_time() {
    let waits = |ms: u64| {
        let value = "y /v/site-packages/jax/_src/array.py:ArrayImpl._value:8 / n futex";
        let lines = format!(
            "P py-7 / T py/7 / y /a/t.py:train:3 / n dispatch 100
             off-cpu-time: P py-7 / T py/7 / y /a/t.py:train:4 / {value} 100x{ms}000000"
        );
        could_win(&found(&["blocking-waits"], &profile(&lines)))
    };
    // 4 of 5 s, and 0.5 of 1.5 s.
    assert_eq!(waits(40), "at most 20.0% of time of the threads that wait");
    assert_eq!(waits(5), "at most 33.3% of time of the threads that wait");
}

/// Of a long capture only the last activities are kept, but all their time.
#[test]
fn streams_by_time_bound_how_long_a_device_rests() {
    let gain = |streams: &[(u32, u64, u64)]| {
        let sync = "sync-time: P py-7 / T py/7 / y /a/t.py:f:4 / a cudaStreamSynchronize 400x20000000";
        let mut profile = profile(&format!("gpu-time: P py-7 / g gemm 1x1000\n{sync}"));
        for (device, from, to) in streams {
            let frames = ["P py-7".to_owned(), format!("a [device {device}] stream {from}")];
            let frames = frames.map(|frame| text::parse_frame(&mut profile, &frame).unwrap());
            let lane = profile.add(&frames, Metric::Samples, 0);
            let [from, to] = [from, to].map(|ms| Nanos(ms * 1_000_000));
            profile.timeline.add_span(lane, Metric::GpuTime, from, to, to.0 - from.0);
        }
        found(&["blocking-waits"], &profile)[0].gain.percent().map(f64::round)
    };
    assert_eq!(gain(&[]), Some(80.0));
    assert_eq!(gain(&[(0, 0, 9_000)]), Some(10.0));
    // Two streams at one time, and one after the other.
    assert_eq!(gain(&[(0, 0, 4_000), (0, 1_000, 4_000)]), Some(60.0));
    assert_eq!(gain(&[(0, 0, 4_000), (0, 4_000, 8_000)]), Some(20.0));
    assert_eq!(gain(&[(0, 0, 9_000), (1, 0, 5_000)]), Some(50.0));
    // It works from the second half on.
    assert_eq!(gain(&[(0, 5_000, 9_000)]), Some(10.0));
}

#[test]
fn copies_and_warps_of_devices_at_rest_weigh_little() {
    let copies = "copy-time: P py-7 / y /a/t.py:f:4 / a cudaMemcpy / g Memcpy 100x1000\n\
                  gpu-time: P py-7 / g gemm 100x1000";
    let stalls =
        "stall:long_scoreboard: P py-7 / g gather / n +0x10 1x300\ngpu-time: P py-7 / g gather 100x1000";
    for (rule, lines) in [("blocking-copies", copies), ("stall-reasons", stalls)] {
        let found = found(&[rule], &profile(lines));
        assert_eq!((found.len(), found[0].severity.name()), (1, "low"), "{rule}: 0.2 ms of 10 s");
    }
}

#[test]
fn time_of_devices_is_weighed_by_their_number() {
    let mut of_two = profile(&format!("{KERNEL} ampere_sgemm_32x32 100x100000000"));
    let gain = |profile: &Profile| found(&["single-precision"], profile)[0].gain_of_capture_percent;
    // As long as the capture, on one device.
    assert_eq!(gain(&of_two), None);
    let busy = DeviceUse { busy: Nanos(5_000_000_000), ..DeviceUse::default() };
    of_two.gpu.uses = vec![busy; 2];
    assert_eq!(gain(&of_two), Some(50.0));
    of_two.gpu.uses.clear();
    of_two.gpu.activities = on_devices(&[(7, 0, 0, 5_000), (8, 1, 0, 5_000)]).gpu.activities;
    assert_eq!(gain(&of_two), Some(50.0));
}

/// The rules that claim time, and those that refer to them.
#[track_caller]
fn check_shared(rules: [&str; 2], profile: &Profile) {
    let both = found(&rules, profile);
    let of =
        |rule: &str| both.iter().find(|of| of.rule == rule).unwrap_or_else(|| panic!("{rule}: {both:?}"));
    let [explains, claims] = rules.map(of);
    assert!(claims.gain.percent().is_some(), "{claims:?}");
    assert!(explains.could_win().contains(&format!("`{}`", claims.rule)), "{explains:?}");
    assert_eq!(explains.gain.percent(), None);
    // Alone it claims that time, and is as severe.
    let alone = &found(&rules[..1], profile)[0];
    assert!(alone.gain.percent().is_some() && alone.severity == explains.severity, "{alone:?}");
}

#[test]
fn time_is_claimed_by_one_rule() {
    let few = on_machine(&format!(
        "{TRAIN}\noff-cpu-time: {NEXT} / n poll 3001x1000000
         P py-8 / T py/8 / y /v/torch/utils/data/_utils/worker.py:_worker_loop / n decode 30"
    ));
    check_shared(["few-loader-workers", "slow-data-loader"], &profile(&few));
    let stuck = format!("{TRAIN}\noff-cpu-time: {NEXT} / n poll 5x1000000000");
    check_shared(["slow-data-loader", "stuck-data-loader"], &profile(&stuck));
    // Nor does it refer to a rule that refers to this one.
    let few_stuck = format!("{stuck}\nP py-8 / T py/8 / {WORKER}");
    let few_stuck = profile(&on_machine(&few_stuck));
    check_shared(["few-loader-workers", "stuck-data-loader"], &few_stuck);
    let three = found(&["few-loader-workers", "slow-data-loader", "stuck-data-loader"], &few_stuck);
    let claims: Vec<_> = three.iter().filter(|of| of.could_win().contains("`stuck-data-loader`")).collect();
    assert_eq!((three.len(), claims.len()), (3, 2), "{three:?}");
    // Other lines are other batches.
    let other = NEXT.replace("main:8", "main:18");
    let two = format!("{stuck}\noff-cpu-time: {other} / n poll 9000x1000000");
    let both = found(&["slow-data-loader", "stuck-data-loader"], &profile(&two));
    assert!(both.len() == 2 && both.iter().all(|of| of.gain.percent().is_some()), "{both:?}");
    check_shared(["small-batch", "idle-device"], &utilization([40; 20], 25, 20));
    let bursts = std::array::from_fn(|half| if half % 4 < 1 { 100 } else { 0 });
    check_shared(["bursty-device", "idle-device"], &utilization(bursts, 25, 20));
    let held = with_thread(utilization(bursts, 25, 20), [100; 20]);
    check_shared(["cpu-bottleneck", "idle-device"], &held);
    check_shared(["bursty-device", "cpu-bottleneck"], &held);
    let places = &found(&["cpu-bottleneck"], &held)[0].places;
    assert_eq!((places.len(), places[1].name.as_str()), (2, "train.py:step:31"));
    let pressed = on_machine("system:cpu-pressure-time: m machine 20x150000000");
    check_shared(["cpu-pressure", "cpu-queue"], &queued(&pressed));
}

#[test]
fn rest_of_gpus_is_claimed_by_one_rule() {
    let bursts = std::array::from_fn(|half| if half % 4 < 1 { 100 } else { 0 });
    let waits = with_io_wait(utilization(bursts, 25, 20), [60; 20]);
    check_shared(["io-bottleneck", "idle-device"], &waits);
    check_shared(["bursty-device", "io-bottleneck"], &waits);
    check_shared(["io-bottleneck", "cpu-bottleneck"], &with_thread(waits.clone(), [100; 20]));
    let mut pressed = profile("system:io-pressure-time: m machine 20x300000000");
    pressed.merge(&waits);
    check_shared(["io-bottleneck", "io-pressure"], &pressed);
    // Nor does a rule refer to one that refers to another.
    let three = found(&["bursty-device", "io-bottleneck", "io-pressure"], &pressed);
    let claims = |rule: &str| three.iter().find(|of| of.rule == rule).unwrap().gain.percent().is_some();
    assert_eq!(["bursty-device", "io-bottleneck", "io-pressure"].map(claims), [true, false, true]);
    check_shared(["underused-device", "idle-device"], &utilization([40; 20], 25, 20));
    check_shared(["underused-device", "small-batch"], &utilization([60; 20], 25, 20));
    let two = |cpu: u64| with_gpu(utilization([60; 20], 25, cpu), 1, [10; 20], 25);
    check_shared(["load-balancing", "idle-device"], &two(20));
    check_shared(["load-balancing", "small-batch"], &two(20));
    check_shared(["load-balancing", "underused-device"], &two(90));
}

#[test]
fn a_rank_late_by_its_work_counts_once() {
    let found = rank_tests::found_by(&["straggler", "uneven-ranks"], [20, 20, 80]);
    let gains: Vec<_> = found.iter().map(|of| (of.rule.as_str(), of.gain.percent().is_some())).collect();
    assert_eq!(gains, [("straggler", true), ("uneven-ranks", false)]);
}

/// The first places of findings.
fn places(rules: &[&str], lines: &str) -> Vec<String> {
    let found = found(rules, &profile(lines));
    found.iter().flat_map(|of| of.places.iter().map(|place| place.name.clone())).collect()
}

#[test]
fn findings_without_lines_name_what_there_is() {
    let operator = "P py-7 / T py/7 / o aten::index.Tensor";
    let lines = format!(
        "{operator} / n gather 200\n{operator} / o [backward] / o IndexBackward0 / n scatter 1000\nP py-7 / n other 500"
    );
    assert_eq!(places(&["backward-cost"], &lines), ["aten::index.Tensor"]);
    let step = "step-time: P py-7 / r step";
    let steps = profile(&format!("{step} 199x1000000\n{step} 1x50000000"));
    let title = "Of 200 steps at [range] step, the longest took 50.0 ms, the mean 1.25 ms";
    assert_eq!(found(&["uneven-steps"], &steps)[0].title, title);
}

#[test]
fn pressure_wins_no_more_than_the_program_waited() {
    let pressed = "system:cpu-pressure-time: m machine 20x150000000";
    let gain = |lines: &str| {
        let found = found(&["cpu-pressure"], &profile(&on_machine(&format!("{pressed}\n{lines}"))));
        found[0].gain.percent().map(f64::round)
    };
    assert_eq!(gain("P py-7 / n f 300"), Some(30.0));
    assert_eq!(gain("P py-7 / n f 300\noff-cpu-time: P py-7 / n read 10x1000000"), Some(0.0));
    // A second of waits for a CPU.
    let waits = found(&["cpu-pressure"], &queued(&on_machine(pressed)));
    assert_eq!(waits[0].gain.percent().map(f64::round), Some(10.0));
    let figure = "waits of the program's threads for a CPU, at most: 1.00 s (bounded)";
    assert_eq!(waits[0].evidence.last().map(ToString::to_string).as_deref(), Some(figure));
}

/// A part of the program has the pressure of the whole machine, so all waits bound it.
#[test]
fn pressure_of_a_part_is_bounded_by_all_waits() {
    let profile = queued(&on_machine("system:cpu-pressure-time: m machine 20x150000000"));
    let mut settings = Settings::default();
    settings.only("cpu-pressure").unwrap();
    let selection = Selection { path: Some("g".parse().unwrap()), ..Selection::of(Metric::CpuTime) };
    let subset = Subset::new(&profile, &selection);
    // The waits are not on this path.
    assert!(!subset.profile().tree.has(Metric::OffCpuTime));
    let found = Findings::compute(&subset, Nanos(10_000_000_000), &settings).findings;
    assert_eq!(found[0].gain.percent().map(f64::round), Some(10.0));
}

#[test]
fn heat_wins_no_more_than_the_gpu_worked() {
    let found = found(&["gpu-throttling"], &profile(&throttled(&[[200, 300, 500]])));
    assert_eq!((found[0].gain.percent().map(f64::round), found[0].share_percent.round()), (Some(40.0), 60.0));
    let limit =
        found[0].evidence.iter().find(|figure| figure.name == "GPU at its power limit, of the capture");
    assert_eq!(limit.map(|figure| figure.value), Some(100.0));
}

/// A reading counts for all of its interval: of few readings, one is a large share.
#[test]
fn throttling_is_not_judged_by_a_few_readings() {
    let hot = profile(&throttled(&[[300, 200, 0]]));
    let mut settings = Settings::default();
    settings.only("gpu-throttling").unwrap();
    let found = |seconds: u64| Findings::of_profile(&hot, Nanos(seconds * 1_000_000_000), &settings);
    assert_eq!([9, 10].map(|seconds| found(seconds).rules_with("not-checked").len()), [1, 0]);
    assert_eq!([9, 10].map(|seconds| found(seconds).findings.len()), [0, 1]);
}

#[test]
fn pressure_of_disks_says_how_long_the_program_waited() {
    let pressed = on_machine("system:io-pressure-time: m machine 20x150000000");
    let last = |profile: &Profile| {
        let found = found(&["io-pressure"], profile);
        found[0].evidence.last().map(ToString::to_string).unwrap_or_default()
    };
    let waits = "waits of the program's threads for disks";
    assert_eq!(last(&waiting("disk", &pressed)), format!("{waits}: 1.00 s (measured)"));
    assert_eq!(last(&waiting("futex", &pressed)), format!("{waits}: 0 ns (measured)"));
    assert!(last(&waiting("stack lost", &pressed)).starts_with(&format!("{waits}, at least: 0 ns")));
    assert!(!last(&profile(&pressed)).starts_with(waits));
}

/// A part's share of its own time is no share of that of all.
#[test]
fn a_part_of_device_time_weighs_what_it_took() {
    let kernel = |line: u32, name: &str, ms: u64| {
        format!("gpu-time: P py-7 / y /a/t.py:f{line}:{line} / a cuLaunchKernel / g {name} {ms}x1000000\n")
    };
    let profile = profile(&(kernel(1, "ampere_sgemm_32x32", 1000) + &kernel(2, "gemm", 4000)));
    let mut settings = Settings::default();
    settings.only("single-precision").unwrap();
    let gain = |path: Option<&str>| {
        let path = path.map(|path| path.parse().unwrap());
        let selection = Selection { path, ..Selection::of(Metric::GpuTime) };
        let subset = Subset::new(&profile, &selection);
        let found = Findings::compute(&subset, Nanos(10_000_000_000), &settings).findings;
        (found[0].gain.percent(), found[0].gain_of_capture_percent.map(f64::round))
    };
    assert_eq!(gain(None), (Some(20.0), Some(10.0)));
    assert_eq!(gain(Some("f1")), (Some(100.0), Some(10.0)));
}

/// While a program starts, its device's memory is not looked at.
#[test]
fn full_memory_is_a_share_of_the_capture() {
    let late = std::array::from_fn(|half| if half < 10 { 0 } else { 90 });
    let found = found(&["full-memory"], &utilization(late, 96, 20));
    assert_eq!(found[0].share_percent.round(), 50.0);
}

/// Without values by time, they may have lived one after the other.
#[test]
fn workers_at_one_time_are_a_bound() {
    let workers: String = (1..=5).map(|pid| format!("P py-{pid} / T py/{pid} / {WORKER}\n")).collect();
    let found = found(&["loader-workers"], &profile(&on_machine(&workers)));
    assert_eq!(found[0].evidence[0].to_string(), "workers at one time, at most: 5 (bounded)");
}

/// Files may hold any number: sums stop at the largest.
#[test]
fn huge_values_stop_no_rule() {
    let most = u64::MAX;
    let stack = "P py-7 / T a/7 / y /a/t.py:f:1";
    let lines = [
        format!("{stack} / n g 200"),
        format!("{stack} / n h 2x{most}"),
        format!("off-cpu-time: {stack} / n take_gil 2x{most}"),
        format!("off-cpu-time: {stack} / y /a/t.py:f:2 / n take_gil 2x{most}"),
        format!("stall:long_scoreboard: P py-7 / g gather / n +0x10 1x{most}"),
        format!("stall:long_scoreboard: P py-7 / g gather / n +0x20 1x{most}"),
        format!("stall:wait: P py-7 / g other / n +0x20 1x{most}"),
        format!("calls: {stack} / o aten::select.int 2x{most}"),
        format!("calls: {stack} / o aten::slice.Tensor 2x{most}"),
        format!("{stack} / o aten::select.int / n view 100"),
        format!("{STEP} 10x1000"),
        format!("gpu-time: {stack} / g gemm 2x{most}"),
        format!("gpu-time: {stack} / g add 2x{most}"),
    ];
    let found = Findings::of_profile(&profile(&lines.join("\n")), Nanos(most), &Settings::default());
    assert_eq!(found.checks.len(), RULES.len());
    assert!(found.findings.iter().any(|of| of.rule == "stall-reasons"), "{:?}", found.checks);
}
