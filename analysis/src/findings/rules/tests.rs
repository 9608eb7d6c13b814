//! Every rule by a profile with the defect, a twin without it, and one that lacks the input.

use std::collections::BTreeSet;

use deepctx_profile::device::activity::{Activity, ActivityKind};
use deepctx_profile::device::gpu::DeviceUse;
use deepctx_profile::frame::{Frame, OWN_WORK};
use deepctx_profile::ledger::{Reason, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::text;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

use super::RULES;
use crate::findings::{Finding, Findings, LocationKind, Settings};
use crate::{Selection, Subset};

/// A profile from one line per stack. `STACK N` is N samples of 10 ms; `METRIC: STACK NxV` is N values of V.
pub(super) fn profile(lines: &str) -> Profile {
    let mut profile = text::parse("").unwrap();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (metric, line) = match line.split_once(": ").map(|(metric, rest)| (metric.parse(), rest)) {
            Some((Ok(metric), rest)) => (metric, rest),
            _ => (Metric::CpuTime, line),
        };
        let (path, value) = line.rsplit_once(' ').unwrap();
        let (n, value) = value.split_once('x').unwrap_or((value, "10000000"));
        let stack: Vec<_> =
            path.split(" / ").map(|part| text::parse_frame(&mut profile, part).unwrap()).collect();
        for _ in 0..n.parse().unwrap() {
            profile.add(&stack, metric, value.parse().unwrap());
        }
    }
    profile
}

/// A capture of 10 s, read twice a second, on a machine with two CPUs, one of them busy, with further lines.
pub(super) fn on_machine(lines: &str) -> String {
    let busy = "system:cpu-busy-time: m machine / m cpu 0 20x500000000\nsystem:cpu-busy-time: m machine / m cpu 1 20x0";
    format!("{busy}\n{lines}")
}

pub(super) fn found(rule: &str, profile: &Profile) -> String {
    found_at(rule, profile, None)
}

/// What a rule says of the part of a profile that matches a query.
pub(super) fn found_at(rule: &str, profile: &Profile, path: Option<&str>) -> String {
    let mut settings = Settings::default();
    settings.only(rule).unwrap();
    let path = path.map(|path| path.parse().unwrap());
    let selection = Selection { path, ..Selection::of(Metric::CpuTime) };
    let subset = Subset::new(profile, &selection);
    let found = Findings::compute(&subset, Nanos(10_000_000_000), &settings);
    let check = &found.checks[0];
    assert_eq!(check.outcome == "findings", !found.findings.is_empty());
    match (&found.findings[..], &check.reason) {
        ([], None) => "healthy".to_owned(),
        ([], Some(_)) => format!("record with {}", check.record_with.as_deref().unwrap_or("nothing")),
        (findings, _) => {
            for finding in findings {
                assert!(
                    finding.violations > 0 && finding.violations <= finding.datapoints.max(1),
                    "{finding:?}"
                );
                assert!((0.0..=100.0).contains(&finding.share_percent), "{finding:?}");
                assert!(could_win_what_it_touches(finding), "{finding:?}");
                assert!(!finding.evidence.is_empty(), "{finding:?}");
            }
            findings.iter().map(|finding| finding.title.clone()).collect::<Vec<_>>().join("\n")
        }
    }
}

/// No more can be won than is affected.
pub(super) fn could_win_what_it_touches(finding: &Finding) -> bool {
    finding.gain.percent().is_none_or(|gain| (0.0..=finding.share_percent + 1e-9).contains(&gain))
}

#[track_caller]
pub(super) fn check(rule: &str, lines: &str, expect: &str) {
    assert_eq!(found(rule, &profile(lines)), expect, "{rule}");
}

/// A rule about a share of the program's time: the stack with the defect.
#[track_caller]
pub(super) fn check_share(rule: &str, stack: &str, expect: &str) {
    let work = "P py-7 / T py/7 / y /a/train.py:step:30 / o aten::mm / n gemm";
    check(rule, &format!("P py-7 / T py/7 / {stack} 300\n{work} 700"), expect);
    check(rule, &format!("{work} 1000"), "healthy");
    // One sample of a hundred may be noise.
    check(rule, &format!("P py-7 / T py/7 / {stack} 1\n{work} 99"), "healthy");
    check(
        rule,
        &format!("P py-7 / T py/7 / {stack} 3\n{work} 7"),
        "record with --duration, or a higher --freq",
    );
    check(rule, "", "record with a program that runs meanwhile, or a longer --duration");
}

#[test]
fn shares_of_time_are_found_by_names() {
    const STEP: &str = "y /a/train.py:step:31";
    for (rule, stack, expect) in [
        (
            "spinning-threads",
            "n gomp_team_barrier_wait_end",
            "30% of cpu-time is threads spinning at barriers, not computing",
        ),
        (
            "garbage-collection",
            "n gc_collect_main / n subtract_refs",
            "30% of cpu-time is Python's garbage collector",
        ),
        (
            "import-time",
            "y <frozen importlib._bootstrap>:_find_and_load / n read",
            "30% of cpu-time is importing Python modules",
        ),
        (
            "page-faults",
            "o aten::empty / k exc_page_fault / k clear_page_erms",
            "30% of cpu-time is page faults",
        ),
        (
            "conversions",
            "o aten::contiguous / o aten::copy_ / n loop",
            "30% of cpu-time converts or copies tensors to another layout or type",
        ),
        (
            "single-tensor-optimizer",
            "y /v/torch/optim/adam.py:_single_tensor_adam / o aten::add_",
            "30% of cpu-time is an optimizer that updates one tensor after the other",
        ),
        (
            "gradient-zeroing",
            "y /v/torch/optim/optimizer.py:Optimizer.zero_grad / o aten::zero_",
            "30% of cpu-time fills gradients with zeroes",
        ),
        (
            "logging-time",
            "y /lib/python3.11/logging/__init__.py:Logger.info / n write",
            "30% of cpu-time is logging",
        ),
        (
            "checkpoint-time",
            "y /v/torch/serialization.py:save / n write",
            "30% of cpu-time is writing checkpoints",
        ),
        ("compilation-time", "n xla::cpu::CpuCompiler::RunBackend", "30% of cpu-time is compiling code"),
        (
            "probe-cost",
            "o aten::mm / k asm_exc_int3 / k uprobe_notify_resume",
            "30% of cpu-time is probes of a profiler, which also slow down what surrounds them",
        ),
    ] {
        check_share(rule, &format!("{STEP} / {stack}"), expect);
    }
}

#[test]
fn workers_of_a_runtime_without_names_spin() {
    let worker = "P py-7 / T py/8 / n clone3 / u libgomp.so.1+0x10 / u libgomp.so.1+0x20";
    let expect = "30% of cpu-time is threads spinning at barriers, not computing";
    check("spinning-threads", &format!("P py-7 / T py/7 / n main 700\n{worker} 300"), expect);
    let works = format!("{worker} / n main._omp_fn.0@/srv/app");
    check("spinning-threads", &format!("P py-7 / T py/7 / n main 700\n{works} 300"), "healthy");
}

#[test]
fn a_hotspot_is_a_function_that_works() {
    let many: String = (0..10).map(|n| format!("P py-7 / T py/7 / n f{n} 100\n")).collect();
    check("hotspot", &many, "healthy");
    check("hotspot", &format!("{many} P py-7 / T py/7 / n gemm 600"), "gemm takes 38% of cpu-time by itself");
    check("hotspot", &format!("{many} P py-7 / T py/7 / n gomp_barrier_wait 600"), "healthy");
    let idle = "P py-7 / T py/7 / n clone3 / u libgomp.so.1+0x10 / u libgomp.so.1+0x20";
    check("hotspot", &format!("{many} {idle} 600"), "healthy");
    // Frames without a name are those of many functions.
    check("hotspot", &format!("{many} P py-7 / T py/7 / ? no-row 600"), "healthy");
    check("hotspot", &format!("{many} P deepctx-8 / T main/8 / n {OWN_WORK} 600"), "healthy");
    let kernels = "gpu-time: P py-7 / g gemm 60x1000\ngpu-time: P py-7 / g add 400x100";
    check(
        "hotspot",
        &format!("{many} {kernels}"),
        "[gpu] gemm takes 60% of gpu-time by itself\n[gpu] add takes 40% of gpu-time by itself",
    );
    check("hotspot", "P py-7 / n f 5", "record with --duration, or a higher --freq");
}

#[test]
fn waits_are_found_in_time_off_the_cpu() {
    let run = "P py-7 / T a/7 / y /a/t.py:f:1 / n g 200";
    let off = |leaf: &str, ms: u64| {
        format!("{run}\noff-cpu-time: P py-7 / T b/8 / y /a/t.py:f:2 / {leaf} 10x{}", ms * 100_000)
    };
    let gil = "Threads that could run wait 33% of their time for Python's global lock (GIL)";
    check("gil-wait", &off("n take_gil", 1000), gil);
    check("gil-wait", &off("n take_gil", 100), "healthy");
    check("gil-wait", &off("n pthread_cond_wait", 10_000), "healthy");
    check("gil-wait", run, "record with --off-cpu");
    let mut queued = profile(run);
    let reason = queued.text("waiting for a CPU");
    let leaf = queued.frame(deepctx_profile::Frame::Wait { reason });
    let process = text::parse_frame(&mut queued, "P py-7").unwrap();
    queued.add(&[process, leaf], Metric::OffCpuTime, 100_000_000);
    assert_eq!(found("cpu-queue", &queued), "healthy");
    queued.add(&[process, leaf], Metric::OffCpuTime, 900_000_000);
    assert_eq!(found("cpu-queue", &queued), "Threads that could run wait 33% of their time for a CPU");
    // As long in all, in waits of 0.1 ms: of threads that others wake again and again.
    for _ in 0..10_000 {
        queued.add(&[process, leaf], Metric::OffCpuTime, 100_000);
    }
    assert_eq!(found("cpu-queue", &queued), "healthy");
    check("cpu-queue", run, "record with --off-cpu");
}

#[test]
fn layers_stand_beside_lines_where_they_were_recorded() {
    let mut profile = profile("");
    let mut add = |layer: Option<(&str, &str)>, samples: u64| {
        let layer = layer.map(|(path, class)| {
            let (path, class) = (profile.text(path), profile.text(class));
            profile.frame(Frame::Layer { path, class })
        });
        let mut frame = |text: &str| text::parse_frame(&mut profile, text).unwrap();
        let above = [frame("P py-7"), frame("T py/7"), frame("y /a/train.py:step:31")];
        let below = [frame("o aten::contiguous"), frame("n loop")];
        let stack: Vec<_> = above.into_iter().chain(layer).chain(below).collect();
        (0..samples).for_each(|_| _ = profile.add(&stack, Metric::CpuTime, 10_000_000));
    };
    add(Some(("Net.stem", "Conv2d")), 200);
    add(Some(("Net.head", "Linear")), 100);
    add(None, 300);
    let found = Findings::of_profile(&profile, Nanos(0), &Settings::default());
    let finding = found.findings.iter().find(|of| of.rule == "conversions").unwrap();
    let places: Vec<_> =
        finding.places.iter().map(|of| (of.kind, of.name.as_str(), of.share_percent as u32)).collect();
    let expect = [
        (LocationKind::Line, "train.py:step:31", 100),
        (LocationKind::Layer, "Net.stem (Conv2d)", 33),
        (LocationKind::Layer, "Net.head (Linear)", 16),
    ];
    assert_eq!(places, expect);
}

#[test]
fn a_part_is_judged_beside_the_whole_machine() {
    let mut settings = Settings::default();
    settings.only("cpu-pressure").unwrap();
    let whole = profile(&on_machine("P py-7 / n f 300\nsystem:cpu-pressure-time: m machine 20x1000000"));
    let selection = Selection { path: Some("f".parse().unwrap()), ..Selection::of(Metric::CpuTime) };
    let found = Findings::compute(&Subset::new(&whole, &selection), Nanos(10_000_000_000), &settings);
    assert_eq!(found.checked(), 1, "{:?}", found.checks);
}

#[test]
fn a_backward_pass_is_compared_with_its_forward_pass() {
    let line = "P py-7 / T py/7 / y /a/m.py:look_up:3 / o aten::index.Tensor";
    let both = |backward: u64| {
        format!(
            "{line} / n gather 200\n{line} / o [backward] / o IndexBackward0 / n scatter {backward}\nP py-7 / n other 500"
        )
    };
    let slow = "The backward pass of aten::index.Tensor takes 5.0 times its forward pass, 59% of cpu-time";
    check("backward-cost", &both(1000), slow);
    check("backward-cost", &both(400), "healthy");
    // 420 of 200 may be noise.
    check("backward-cost", &both(420), "healthy");
    // Many short samples are no more time than few long ones.
    let short = format!(
        "{line} / n gather 100x90000000\n{line} / o [backward] / o IndexBackward0 / n scatter 900x10000000"
    );
    check("backward-cost", &short, "healthy");
    check("backward-cost", &format!("{line} 1000"), "record with --probe backward");
}

#[test]
fn kernels_are_judged_by_their_time() {
    let kernel = |name: &str, n: u64, ns: u64| {
        format!("gpu-time: P py-7 / y /a/t.py:f:4 / a cuLaunchKernel / g {name} {n}x{ns}\n")
    };
    let large = kernel("gemm", 100, 1_000_000);
    let small = "5000 launches of 2.0 µs on average take 9.1% of the time of kernels";
    check("small-kernels", &(kernel("add", 5000, 2000) + &large), small);
    check("small-kernels", &(kernel("add", 50, 2000) + &large), "healthy");
    check("small-kernels", &(kernel("add", 500, 200_000) + &large), "healthy");
    check("small-kernels", "P py-7 / n f 200", "record with --gpu-activity");
    let single = kernel("ampere_sgemm_32x32", 100, 1_000_000);
    check(
        "single-precision",
        &(single + &large),
        "50% of the time of kernels is fp32 products that leave tensor cores unused",
    );
    check("single-precision", &large, "healthy");
    check("single-precision", "P py-7 / n f 200", "record with --gpu-activity");
    let reduce = kernel("ncclDevKernel_AllReduce", 100, 1_000_000);
    check("communication", &(reduce + &large), "50% of the time of kernels is communication");
    check("communication", &large, "healthy");
    check("communication", "P py-7 / n f 200", "record with --gpu-activity");
}

#[test]
fn a_line_that_launches_little_work_is_found() {
    let launching = |launches: u64, ns: u64| {
        format!(
            "P py-7 / y /a/t.py:f:4 / n dispatch 300\nP py-7 / n other 300\n\
             kernels: P py-7 / y /a/t.py:f:4 / g add {launches}x1\n\
             gpu-time: P py-7 / y /a/t.py:f:4 / g add 10x{ns}"
        )
    };
    let run = |ns| launching(100, ns);
    let slow = "50% of cpu-time is at lines that keep the CPU 30.0 times as long as the device";
    check("cpu-latency", &run(10_000_000), slow);
    check("cpu-latency", &run(100_000_000), "healthy");
    // Once, as the program starts.
    check("cpu-latency", &launching(10, 10_000_000), "healthy");
    check("cpu-latency", "P py-7 / n f 300", "record with --gpu-activity");
}

#[test]
fn waits_and_copies_that_block_are_found() {
    let wait = |n: u64| {
        format!(
            "sync-time: P py-7 / T py/7 / y /a/t.py:f:4 / o aten::item / a cudaStreamSynchronize {n}x20000000"
        )
    };
    let slow = "The program waits 40% of its time for its device, in 200 calls at t.py:f:4";
    check("blocking-waits", &wait(200), slow);
    check("blocking-waits", &wait(20), "healthy");
    // A trace without threads, of two that waited at once: no more than all of the time is a wait.
    let whole = "The program waits 100% of its time for its device, in 600 calls at t.py:f:4";
    check("blocking-waits", &wait(600), whole);
    // Waiting once, at the end, wastes nothing.
    check("blocking-waits", "sync-time: P py-7 / T py/7 / a cudaDeviceSynchronize 1x5000000000", "healthy");
    let device = "record with a program that uses a device, without --no-gpu";
    check("blocking-waits", "P py-7 / n f 300", device);
    let copy = |call: &str| {
        format!(
            "copy-time: P py-7 / y /a/t.py:f:4 / a {call} / g Memcpy 100x1000\ngpu-time: P py-7 / g gemm 100x1000"
        )
    };
    check(
        "blocking-copies",
        &copy("cudaMemcpy"),
        "50% of the device's time is copies that block the program",
    );
    check("blocking-copies", &copy("cudaMemcpyAsync"), "healthy");
    check("blocking-copies", "P py-7 / n f 300", "record with --gpu-activity");
}

#[test]
fn warps_that_wait_for_one_thing_are_found() {
    let samples = |waiting: u64| {
        format!(
            "stall:long_scoreboard: P py-7 / g gather / n +0x10 1x{waiting}\nstall:selected: P py-7 / g gather / n +0x20 1x100"
        )
    };
    check("stall-reasons", &samples(300), "75% of the samples of [gpu] gather wait: long_scoreboard");
    check("stall-reasons", &samples(50), "healthy");
    check("stall-reasons", "P py-7 / n f 300", "record with --pc-sampling");
}

#[test]
fn sizes_that_tensor_cores_cannot_use_are_found() {
    let run = |size: u64| {
        format!(
            "model-flops: P py-7 / y /a/t.py:f:4 / o aten::mm / o aten::mm [32x64, 64x{size}] f16 100x1000
             kernels: P py-7 / n f 5x1"
        )
    };
    let odd =
        "100% of the modelled operations are half-precision products with sizes that are no multiple of 8";
    check("odd-sizes", &run(127), odd);
    check("odd-sizes", &run(128), "healthy");
    check("odd-sizes", "P py-7 / n f 300", "record with --shapes aten::mm,aten::addmm,aten::bmm");
}

#[test]
fn loops_over_elements_are_found() {
    let run = |calls: u64| {
        format!(
            "step-time: P py-7 / y /a/t.py:main:9 / r Optimizer.step#SGD 10x1000000000
             calls: P py-7 / y /a/t.py:f:4 / o aten::select.int {calls}x1
             P py-7 / y /a/t.py:f:4 / o aten::select.int / n view 100
             P py-7 / n f 300"
        )
    };
    check("repeated-indexing", &run(500), "aten::select.int runs 50 times a step at t.py:f:4");
    check("repeated-indexing", &run(50), "healthy");
    check("repeated-indexing", "P py-7 / n f 300", "record with --probe operators,ranges");
    // Its calls before the first end and after the last are those of one more step.
    let short = run(500).replace("10x1000000000", "10x900000000");
    check("repeated-indexing", &short, "aten::select.int runs 45 times a step at t.py:f:4");
    // A trace: each value of a range is a step of a rank.
    let trace = |ranks: u64| {
        format!(
            "wall-time: P py-7 / r ProfilerStep#10 {ranks}x1000
             wall-time: P py-7 / r ProfilerStep#10 / r forward / o aten::select 40x100"
        )
    };
    check("repeated-indexing", &trace(4), "aten::select runs 10 times a step at [range] forward");
    check("repeated-indexing", &trace(5), "healthy");
    // Two ranks: each of them has ten steps.
    let ranks = format!("{}\n{}", run(60), run(60).replace("py-7", "py-8"));
    check("repeated-indexing", &ranks, "healthy");
}

/// DLRM concatenates the lookups of all its tables.
#[test]
fn parts_of_other_operators_are_no_loops_over_elements() {
    let run = |above: &str| {
        format!(
            "step-time: P py-7 / y /a/t.py:main:9 / r Optimizer.step#SGD 10x1000000000
             calls: P py-7 / y /a/t.py:f:4 / {above}o aten::narrow 260x1
             calls: P py-7 / y /a/t.py:f:4 / {above}o aten::narrow / o aten::slice.Tensor 260x1
             P py-7 / y /a/t.py:f:4 / {above}o aten::narrow / o aten::slice.Tensor / n view 100
             P py-7 / n f 300"
        )
    };
    for parts in [
        "o aten::cat / ",
        "o aten::concat / o aten::cat / ",
        "o aten::cat / o [backward] / ",
        "o autograd::engine::evaluate_function: CatBackward0 / o CatBackward0 / ",
        "y /a/t.py:g:5 / o aten::cat / y /v/torch/_tensor.py:wrap:7 / ",
    ] {
        check("repeated-indexing", &run(parts), "healthy");
    }
    // Many short ones, each at a place of its own.
    let place = |n: u32| {
        format!(
            "calls: P py-7 / y /a/t.py:f:{n} / o aten::select.int 110x1
             P py-7 / y /a/t.py:f:{n} / o aten::select.int / n view 3"
        )
    };
    let places: String = (0..30).map(|n| place(n) + "\n").collect();
    let rest = "step-time: P py-7 / y /a/t.py:main:9 / r Optimizer.step#SGD 10x1000000000\nP py-7 / n f 300";
    check("repeated-indexing", &format!("{places}{rest}"), "healthy");
    let found = "aten::narrow runs 26 times a step at t.py:f:4";
    for (loops, line) in [
        ("", 4),
        ("r ## forward ## / ", 4),
        ("o Optimizer.step#Adagrad.step / ", 4),
        ("o mine::embed / y /a/t.py:f:6 / ", 6),
    ] {
        check("repeated-indexing", &run(loops), &found.replace("f:4", &format!("f:{line}")));
    }
}

#[test]
fn steps_are_judged_by_their_deviation() {
    let run = |longest: u64| {
        let at = "step-time: P py-7 / y /a/t.py:main:9 / r Optimizer.step#SGD";
        format!("{at} 199x1000000\n{at} 1x{longest}")
    };
    check(
        "uneven-steps",
        &run(50_000_000),
        "Of 200 steps at t.py:main:9, the longest took 50.0 ms, the mean 1.25 ms",
    );
    check("uneven-steps", &run(1_500_000), "healthy");
    check("uneven-steps", "step-time: P py-7 / r step 20x1000000", "record with a longer --duration");
    check("uneven-steps", "P py-7 / n f 300", "record with --probe ranges");
}

#[test]
fn devices_without_work_are_found() {
    let starting = |from_ms: u64, busy_ms: u64| {
        let mut profile = profile("gpu-time: P py-7 / g gemm 1x1000");
        profile.gpu.activities.push(Activity {
            node: NodeId::from_number(2),
            kind: ActivityKind::Kernel,
            pid: 7,
            device: 0,
            context: 1,
            stream: 7,
            correlation: 1,
            start: Nanos(from_ms * 1_000_000),
            end: Nanos((from_ms + busy_ms) * 1_000_000),
            launched: None,
            bytes: 0,
        });
        profile
    };
    let run = |busy_ms| starting(0, busy_ms);
    assert_eq!(found("idle-device", &run(2000)), "The device is idle 80% of the time since its first work");
    assert_eq!(found("idle-device", &run(7000)), "healthy");
    // Half of the capture was the program's start.
    let late = "The device is idle 60% of the time since its first work";
    assert_eq!(found("idle-device", &starting(5000, 2000)), late);
    assert_eq!(found("idle-device", &starting(5000, 3000)), "healthy");
    // The length of the capture is known, and nothing of the time since that work.
    for from_ms in [10_000, 10_100] {
        assert_eq!(found("idle-device", &starting(from_ms, 100)), "record with a longer --duration");
    }
    check("idle-device", "P py-7 / n f 300", "record with --gpu-activity");
}

#[test]
fn devices_of_other_tools_traces_are_judged_by_their_events() {
    let of_trace = |until_first: u64, busy: [u64; 2]| {
        let mut profile = profile("gpu-time: P py-7 / g gemm 1x1000");
        let of = |busy| {
            let [until_first, busy] = [until_first, busy].map(|ms| Nanos(ms * 1_000_000));
            DeviceUse { busy, until_first, since_first: Nanos(10_000_000_000 - until_first.0) }
        };
        profile.gpu.uses = busy.map(of).into();
        profile
    };
    let idle = "2 devices are idle 70% of the time since their first work";
    assert_eq!(found("idle-device", &of_trace(0, [1000, 5000])), idle);
    assert_eq!(found("idle-device", &of_trace(0, [5000, 5000])), "healthy");
    assert_eq!(found("idle-device", &of_trace(5000, [2500, 2500])), "healthy");
    assert_eq!(found("late-start", &of_trace(5000, [2500, 2500])), "healthy");
}

#[test]
fn without_activities_the_driver_says_how_busy_devices_were() {
    let gpus = |busy: u64| {
        on_machine(&format!(
            "system:gpu-busy-time: m machine / m gpu 0 GPU-a 20x{busy}\n\
             system:gpu-busy-time: m machine / m gpu 1 GPU-b 20x0"
        ))
    };
    let launching = |busy| format!("{}\nkernels: P py-7 / n f 5x1", gpus(busy));
    check("idle-device", &launching(100_000_000), "The device is idle 80% of the capture");
    check("idle-device", &launching(400_000_000), "healthy");
    // The GPU works for others, or not at all.
    check("idle-device", &gpus(100_000_000), "record with --gpu-activity");
    check("idle-device", &launching(0), "record with --gpu-activity");
    // The library took half of the capture to begin.
    let late = launching(400_000_000).replace("20x400000000", "10x400000000");
    check("idle-device", &late, "healthy");
}

#[test]
fn a_device_at_rest_has_little_to_win() {
    // 10 ms of kernels, all of them small, beside garbage collection for 3 of 4 s.
    let device = "gpu-time: P py-7 / a cuLaunchKernel / g add 5000x2000";
    let profile = profile(&format!("P py-7 / n gc_collect_main 300\nP py-7 / n f 100\n{device}"));
    let mut settings = Settings::default();
    settings.only("small-kernels").unwrap();
    settings.only("garbage-collection").unwrap();
    let check = |elapsed_ms: u64, expect: [(&str, &str, Option<f64>); 2]| {
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        let found = Findings::compute(&subset, Nanos(elapsed_ms * 1_000_000), &settings).findings;
        let said = found.iter().map(|of| (&*of.metric, of.severity.name(), of.gain_of_capture_percent));
        assert_eq!(said.collect::<Vec<_>>(), expect, "in {elapsed_ms} ms");
    };
    let host = ("cpu-time", "high", None);
    check(10_000, [host, ("gpu-time", "low", Some(0.1))]);
    check(40, [host, ("gpu-time", "high", Some(25.0))]);
    check(10, [("gpu-time", "high", None), host]);
    // The length of the capture is not known.
    check(0, [("gpu-time", "high", None), host]);
}

/// A profile with a value of a metric in each second.
fn by_time(metric: Metric, values: impl IntoIterator<Item = u64>) -> Profile {
    let mut profile = profile("P py-7 / o [memory] cuda:0 1");
    for (second, value) in (0..).zip(values) {
        let at = Nanos(second * 1_000_000_000);
        profile.timeline.add_span(NodeId::from_number(2), metric, at, Nanos(at.0 + 1_000_000_000), value);
    }
    profile
}

#[test]
fn memory_that_grows_is_found() {
    let grows = "Live tensors grow from 38.5 MiB to 88.1 MiB (50% of the highest) in [memory] cuda:0";
    assert_eq!(
        found("growing-memory", &by_time(Metric::LiveBytes, (0..100).map(|n| (n + 1) << 20).skip(1))),
        grows
    );
    assert_eq!(
        found("growing-memory", &by_time(Metric::LiveBytes, (0..100).map(|n| (50 + n % 9) << 20))),
        "healthy"
    );
    // A small program that has just started.
    assert_eq!(
        found("growing-memory", &by_time(Metric::LiveBytes, (0..100).map(|n| (n + 1) << 10))),
        "healthy"
    );
    check("growing-memory", "P py-7 / n f 300", "record with --probe memory");
    // A part of the program has the memory of the whole.
    let mut whole = by_time(Metric::LiveBytes, (0..100).map(|n| (n + 1) << 20).skip(1));
    whole.merge(&profile("P py-7 / n f 300"));
    assert_eq!(found_at("growing-memory", &whole, Some("f")), grows);
}

#[test]
fn a_late_first_kernel_is_found() {
    let late = by_time(Metric::GpuTime, (0..1500).map(|second| u64::from(second > 1300)));
    assert!(
        found("late-start", &late).starts_with("The first kernel ran 1299 s"),
        "{}",
        found("late-start", &late)
    );
    assert_eq!(found("late-start", &by_time(Metric::GpuTime, [1, 1])), "healthy");
    check("late-start", "P py-7 / n f 300", "record with --gpu-activity");
    let mut whole = by_time(Metric::GpuTime, [1, 1]);
    whole.merge(&profile("P py-7 / n f 300"));
    assert_eq!(found_at("late-start", &whole, Some("f")), "healthy");
}

/// A training on CPUs has no kernel.
#[test]
fn a_late_first_step_is_found() {
    const RULE: &str = "late-start";
    let ranges = |late: u64| by_time(Metric::RangeTime, (0..1500).map(|second| u64::from(second > late)));
    let with = |mut ranges: Profile, process: &str| {
        let step = format!("step-time: P {process} / y /a/t.py:main:9 / r Optimizer.step#SGD 10x1000000");
        ranges.merge(&profile(&step));
        found(RULE, &ranges)
    };
    assert!(with(ranges(1300), "py-7").starts_with("The first training step ran 1299 s"));
    assert_eq!(with(ranges(1), "py-7"), "healthy");
    // Ranges of another process, and a program without steps.
    assert_eq!(with(ranges(1300), "py-8"), "record with --gpu-activity");
    assert_eq!(found(RULE, &ranges(1300)), "record with --gpu-activity");
    // Kernels say it better.
    let mut both = by_time(Metric::GpuTime, [1, 1]);
    both.merge(&ranges(1300));
    assert_eq!(with(both, "py-7"), "healthy");
}

#[test]
fn losses_are_found() {
    let mut profile = profile("P py-7 / n f 300");
    assert_eq!(found("lost-events", &profile), "record with nothing");
    profile.ledger.stage_mut(Stage::Kernel).pass(1000);
    assert_eq!(found("lost-events", &profile), "healthy");
    profile.ledger.stage_mut(Stage::Kernel).received += 50;
    profile.ledger.dropped(Stage::Kernel, Reason::new("ring-full", "the ring was full"), 50);
    let lost = "4.8% of all records were lost, most of them in stage kernel: do not trust small differences";
    assert_eq!(found("lost-events", &profile), lost);
}

#[test]
fn ids_and_parameters_are_unique_and_readable() {
    let ids: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(ids.len(), RULES.len());
    for rule in RULES {
        assert!(rule.id.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", rule.id);
        let names: BTreeSet<&str> = rule.parameters.iter().map(|of| of.name).collect();
        assert_eq!(names.len(), rule.parameters.len(), "{}", rule.id);
        for of in rule.parameters {
            assert!(rule.definition.contains(of.name), "{}: {} is not in its definition", rule.id, of.name);
        }
    }
}

/// `docs/findings.md`, with the table of the rules between its markers.
#[test]
fn the_documentation_lists_every_rule() {
    const BEGIN: &str = "<!-- rules: begin -->\n";
    const END: &str = "<!-- rules: end -->";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/findings.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let mut table = String::from(
        "| rule | looks for | fires when | parameters | needs | source |\n|---|---|---|---|---|---|\n",
    );
    for rule in RULES {
        let parameter =
            |of: &crate::findings::Parameter| format!("`{}` = {} ({})", of.name, of.default, of.source);
        let parameters: Vec<String> = rule.parameters.iter().map(parameter).collect();
        let cells = [rule.what, rule.definition, &parameters.join("; "), rule.needs, rule.source];
        // A vertical bar would end the cell.
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        table += &format!("| `{}` | {} |\n", rule.id, cells.join(" | "));
    }
    expect_test::expect_file![path].assert_eq(&format!("{before}{BEGIN}{table}{END}{after}"));
}

proptest::proptest! {
    #[test]
    fn no_profile_makes_a_rule_panic(
        cpu in deepctx_profile::testing::stacks(),
        device in deepctx_profile::testing::stacks(),
        steps in deepctx_profile::testing::stacks(),
        elapsed in 0u64..5000,
    ) {
        let mut profile = text::parse("").unwrap();
        for (metric, stacks) in [(Metric::CpuTime, &cpu), (Metric::GpuTime, &device), (Metric::StepTime, &steps)] {
            deepctx_profile::testing::grow(&mut profile, stacks, metric);
            deepctx_profile::testing::grow(&mut profile, stacks, Metric::Calls);
        }
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        let found = Findings::compute(&subset, Nanos(elapsed), &Settings::default());
        proptest::prop_assert_eq!(found.checks.len(), RULES.len());
        let gains: Vec<f64> = found.findings.iter().map(|of| of.weight_percent().unwrap_or(-1.0)).collect();
        proptest::prop_assert!(gains.is_sorted_by(|a, b| a >= b), "{gains:?}");
        proptest::prop_assert!(gains.iter().all(|gain| gain.is_finite() && *gain <= 100.0), "{gains:?}");
        proptest::prop_assert!(found.findings.iter().all(could_win_what_it_touches), "{:?}", found.findings);
    }
}
