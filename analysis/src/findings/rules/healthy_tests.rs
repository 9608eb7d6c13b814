//! Healthy programs that look like a defect, each beside the defect that it looks like.

use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::text;

use super::tests::{check, found, on_machine, profile};

#[test]
fn what_progress_bars_and_sweeps_run_is_no_logging() {
    let work = "P py-7 / T py/7 / y /a/t.py:main:9 / n gemm 700";
    let bar = "P py-7 / T py/7 / y /a/t.py:main:8 / y /v/tqdm/std.py:tqdm.__iter__";
    let next = "y /v/torch/utils/data/dataloader.py:_SingleProcessDataLoaderIter._next_data / n decode 300";
    check("logging-time", &format!("{bar} / {next}\n{work}"), "healthy");
    let found = "30% of cpu-time is logging";
    check("logging-time", &format!("{bar} / y /v/tqdm/std.py:tqdm.update / n write 300\n{work}"), found);
    let sweep = "P py-7 / T py/7 / y /v/wandb/agents/pyagent.py:Agent._run_job / y /a/t.py:train:5";
    check("logging-time", &format!("{sweep} / n gemm 1000"), "healthy");
    let log = format!("{sweep} / y /v/wandb/sdk/wandb_run.py:Run.log / n send 300\n{sweep} / n gemm 700");
    check("logging-time", &log, found);
    let scalar = "y /v/torch/utils/tensorboard/writer.py:SummaryWriter.add_scalar / n write 300";
    check("logging-time", &format!("P py-7 / T py/7 / y /a/t.py:main:8 / {scalar}\n{work}"), found);
    let runs = "record with a program that runs meanwhile, or a longer --duration";
    check("logging-time", "kernels: P py-7 / n f 5x1", runs);
}

#[test]
fn layouts_and_copies_in_names_of_kernels_are_no_conversions() {
    let kernels = |name: &str| {
        format!(
            "gpu-time: P py-7 / y /a/t.py:f:4 / g {name} 100x80000
             gpu-time: P py-7 / y /a/t.py:f:4 / g ampere_sgemm_128x64_nn 100x920000"
        )
    };
    let norm =
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct, float const*)";
    check("conversions", &kernels(norm), "healthy");
    let cat = "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<float, unsigned, 2>(float*)";
    check("conversions", &kernels(cat), "healthy");
    let converts =
        "void cudnn::ops::nchwToNhwcKernel<float, float, float>(cudnn::ops::nchw2nhwc_params_t<float>)";
    let found = "8.0% of gpu-time converts or copies tensors to another layout or type";
    check("conversions", &kernels(converts), found);
}

#[test]
fn a_fused_kernel_that_also_converts_is_no_conversion() {
    let compiled = |origin: &str| {
        format!(
            "gpu-time: P py-7 / y /a/t.py:f:4 / {origin} 100x80000
             gpu-time: P py-7 / y /a/t.py:f:4 / g ampere_sgemm_128x64_nn 100x920000"
        )
    };
    for origin in [
        "o [inductor triton_poi_fused__to_copy_add_0] / o aten::_to_copy, aten::add / g triton_poi_fused",
        "o [xla jit_copy_params] / o jit(copy_params)/mul / g wrapped_multiply",
        "o [xla jit_f] / o jit(f)/convert_element_type [fused: add] / g loop_add_fusion",
    ] {
        check("conversions", &compiled(origin), "healthy");
    }
    // A kernel that does nothing else.
    let only = "o [inductor triton_poi_fused__to_copy_0] / o aten::_to_copy / g triton_poi_fused__to_copy_0";
    let found = "8.0% of gpu-time converts or copies tensors to another layout or type";
    check("conversions", &compiled(only), found);
}

/// The default wait of CUDA spins on the CPU.
#[test]
fn waits_for_a_device_are_no_launches_and_no_conversions() {
    let run = |stack: &str| {
        format!(
            "P py-7 / y /a/t.py:f:4 / {stack} 300
             P py-7 / n other 300
             kernels: P py-7 / y /a/t.py:f:4 / g add 100x1
             gpu-time: P py-7 / y /a/t.py:f:4 / g add 10x10000000"
        )
    };
    check("cpu-latency", &run("a cudaStreamSynchronize"), "healthy");
    check("cpu-latency", &run("o aten::item / a cudaMemcpy"), "healthy");
    let slow = "50% of cpu-time is at lines that keep the CPU 30.0 times as long as the device";
    check("cpu-latency", &run("a cudaLaunchKernel"), slow);
    let moved = |call: &str| {
        format!(
            "P py-7 / y /a/t.py:f:4 / o aten::_to_copy / o aten::copy_ / n {call} 300\nP py-7 / n gemm 700"
        )
    };
    check("conversions", &moved("cudaStreamSynchronize"), "healthy");
    check(
        "conversions",
        &moved("at::native::loop"),
        "30% of cpu-time converts or copies tensors to another layout or type",
    );
}

#[test]
fn models_are_read_and_checkpoints_are_waited_for() {
    let serve = |file: &str| {
        format!(
            "P serve-7 / T serve/7 / y /a/serve.py:main:3 / y {file} / n memcpy 300
             P serve-7 / T serve/7 / y /a/serve.py:main:9 / n gemm 700"
        )
    };
    const RULE: &str = "checkpoint-time";
    for reads in [
        "/v/safetensors/torch.py:load_file",
        "/v/torch/serialization.py:load",
        "/v/torch/serialization.py:_load.<locals>.persistent_load",
        "/v/torch/distributed/checkpoint/state_dict_loader.py:load_state_dict",
    ] {
        check(RULE, &serve(reads), "healthy");
    }
    for writes in ["/v/safetensors/torch.py:save_file", "/v/torch/serialization.py:save"] {
        check(RULE, &serve(writes), "30% of cpu-time is writing checkpoints");
    }
    let step = "y /v/torch/optim/adam.py:Adam.step / n add";
    let waits = |thread: &str, ns: u64| {
        format!(
            "P py-7 / T py/7 / y /a/t.py:main:9 / {step} 980
             P py-7 / T py/7 / y /a/t.py:main:8 / y /v/torch/serialization.py:save / n write 20
             off-cpu-time: P py-7 / T {thread} / y /a/t.py:main:8 / y /v/torch/serialization.py:save / n fsync 100x{ns}"
        )
    };
    // 10.2 of 20 s.
    let half = "51% of the time of the threads that write is writing checkpoints";
    check(RULE, &waits("py/7", 100_000_000), half);
    check(RULE, &waits("py/7", 1_000_000), "healthy");
    // A thread that only writes holds nothing up.
    check(RULE, &waits("writer/9", 100_000_000), "healthy");
}

#[test]
fn programs_that_filter_packets_are_no_probes() {
    let run =
        |stack: &str| format!("P srv-7 / T srv/7 / n send / {stack} 300\nP srv-7 / T srv/7 / n main 700");
    let program = "k bpf_prog_6deef7357e7b4530_sd_fw_egress";
    check("probe-cost", &run(&format!("k __cgroup_bpf_run_filter_skb / {program}")), "healthy");
    check("probe-cost", &run(&format!("k tcf_classify / k cls_bpf_classify / {program}")), "healthy");
    let found = "30% of cpu-time is probes of a profiler, which also slow down what surrounds them";
    for entry in ["bpf_trace_run4", "trace_call_bpf", "bpf_trampoline_6442536467", "__x64_sys_uretprobe"] {
        check("probe-cost", &run(&format!("k {entry} / {program}")), found);
    }
}

#[test]
fn sizes_are_odd_only_where_a_device_multiplies_matrices() {
    let run = |rows: u64| {
        format!(
            "model-flops: P py-7 / y /a/gen.py:f:4 / o aten::mm / o aten::mm [{rows}x4096, 4096x4096] bf16 100x1000"
        )
    };
    let on_device = |rows| format!("{}\nkernels: P py-7 / n f 5x1", run(rows));
    check("odd-sizes", &run(127), "record with a program that launches kernels, without --no-gpu");
    // One row is a product with a vector: memory bounds it.
    check("odd-sizes", &on_device(1), "healthy");
    check(
        "odd-sizes",
        &on_device(127),
        "100% of the modelled operations are half-precision products with sizes that are no multiple of 8",
    );
}

/// Threads that wait for a CPU for 1 s, beside a program that runs for 2 s.
pub(super) fn queued(lines: &str) -> Profile {
    waiting("waiting for a CPU", lines)
}

/// The same with another reason of the wait.
pub(super) fn waiting(reason: &str, lines: &str) -> Profile {
    let mut waiting = profile(&format!("P py-7 / T a/7 / y /a/t.py:f:1 / n g 200\n{lines}"));
    let reason = waiting.text(reason);
    let leaf = waiting.frame(Frame::Wait { reason });
    let process = text::parse_frame(&mut waiting, "P py-7").unwrap();
    (0..10).for_each(|_| _ = waiting.add(&[process, leaf], Metric::OffCpuTime, 100_000_000));
    waiting
}

#[test]
fn a_cpu_limit_explains_waits_only_where_it_stops_often() {
    let limit = |throttled: u64| {
        on_machine(&format!(
            "system:limited-periods: m machine / m cgroup /job 20x5
             system:throttled-periods: m machine / m cgroup /job {throttled}x1
             system:cpu-pressure-time: m machine 20x150000000"
        ))
    };
    let pressed = "For 30% of the capture, some program of the machine waited for a CPU";
    check("cpu-pressure", &limit(1), pressed);
    check("cpu-limit", &limit(1), "healthy");
    check("cpu-pressure", &limit(40), "record with nothing");
    let waits = "Threads that could run wait 33% of their time for a CPU";
    assert_eq!(found("cpu-queue", &queued(&limit(1))), waits);
    assert_eq!(found("cpu-queue", &queued(&limit(40))), "record with nothing");
}

#[test]
fn few_samples_are_no_conclusion_beside_other_data() {
    const MORE: &str = "record with --duration, or a higher --freq";
    check("hotspot", "gpu-time: P py-7 / g gemm 60x1000", "[gpu] gemm takes 100% of gpu-time by itself");
    let kernels: String = (0..6).map(|n| format!("gpu-time: P py-7 / g k{n} 10x10\n")).collect();
    check("hotspot", &format!("P py-7 / n f 9\n{kernels}"), "healthy");
    check("hotspot", &format!("P py-7 / n f 900\n{kernels}"), "f takes 100% of cpu-time by itself");
    let indexed = |samples: u64| {
        format!(
            "step-time: P py-7 / y /a/t.py:main:9 / r Optimizer.step#SGD 10x1000000000
             calls: P py-7 / y /a/t.py:f:4 / o aten::select.int 500x1
             P py-7 / y /a/t.py:f:4 / o aten::select.int / n view {samples}"
        )
    };
    check("repeated-indexing", &indexed(10), MORE);
    check("repeated-indexing", &indexed(1000), "aten::select.int runs 50 times a step at t.py:f:4");
}

/// A program that waits nearly all its time is seldom sampled.
#[test]
fn measured_waits_need_no_samples() {
    let next = "y /a/t.py:main:8 / y /v/torch/utils/data/dataloader.py:_BaseDataLoaderIter.__next__";
    let waits = |n: u64| {
        format!(
            "P py-7 / T main/7 / y /a/t.py:main:9 / n gemm 50
             off-cpu-time: P py-7 / T main/7 / {next} / n poll {n}x10000000"
        )
    };
    let slow = "The program waits 95% of its time for batches of the data loader";
    check("slow-data-loader", &waits(901), slow);
    check("slow-data-loader", &waits(10), "record with --duration, or a higher --freq");
    let gil = |ms: u64| {
        format!(
            "P py-7 / T a/7 / y /a/t.py:f:1 / n g 20
             off-cpu-time: P py-7 / T b/8 / y /a/t.py:f:2 / n take_gil 10x{ms}000000"
        )
    };
    let held = "Threads that could run wait 83% of their time for Python's global lock (GIL)";
    check("gil-wait", &gil(100), held);
    check("gil-wait", &gil(1), "record with --duration, or a higher --freq");
}

#[test]
fn a_tensor_that_is_moved_is_not_converted() {
    let moved = "wall-time: P py-7 / o aten::to / o aten::copy_ / a cudaMemcpyAsync 10x500
        wall-time: P py-7 / o aten::mm 10x500";
    check("conversions", moved, "healthy");
}

#[test]
fn loading_a_program_is_no_probe() {
    let loading = "P tool-7 / T a/7 / k bpf_prog_load / k states_equal 300\nP tool-7 / T a/7 / n main 700";
    check("probe-cost", loading, "healthy");
    let running = "bpf_trace_run4 / k bpf_prog_6deef7357e7b4530_sample";
    let running = loading.replace("bpf_prog_load / k states_equal", running);
    check(
        "probe-cost",
        &running,
        "30% of cpu-time is probes of a profiler, which also slow down what surrounds them",
    );
}

#[test]
fn parts_of_other_work_are_no_conversions() {
    let rest = "P py-7 / n gemm 700";
    for stack in ["o aten::addmm / o aten::copy_", "y /v/torch/optim/adam.py:Adam.step / o aten::_to_copy"] {
        check("conversions", &format!("P py-7 / y /a/t.py:f:1 / {stack} 300\n{rest}"), "healthy");
    }
}

#[test]
fn files_that_are_mapped_fault_once() {
    let faults =
        |stack: &str| format!("P py-7 / T py/7 / {stack} / k exc_page_fault 300\nP py-7 / n gemm 700");
    let found = "30% of cpu-time is page faults";
    check("page-faults", &faults("y /a/t.py:f:1 / n memset"), found);
    check("page-faults", &faults("y /v/safetensors/torch.py:load_file / n memcpy"), "healthy");
    check("page-faults", &faults("y <frozen importlib._bootstrap>:_find_and_load / n dlopen"), "healthy");
}

#[test]
fn half_precision_without_tensor_cores_is_no_fp32() {
    let kernel =
        |name: &str| format!("gpu-time: P py-7 / g {name} 100x1000000\ngpu-time: P py-7 / g add 100x1000000");
    check("single-precision", &kernel("volta_fp16_sgemm_fp16_64x64_nn"), "healthy");
    let single = "50% of the time of kernels is fp32 products that leave tensor cores unused";
    check("single-precision", &kernel("volta_sgemm_64x64_nn"), single);
}

const JAX: &str = "y /v/site-packages/jax/_src";

/// A loop of JAX that computes on its CPUs for 1 s, and is off the CPU below these frames.
fn loop_of_jax(below: &str, waits: &str) -> String {
    format!(
        "P py-7 / T py/7 / y /a/t.py:train:3 / n dispatch 100
         off-cpu-time: P py-7 / T py/7 / y /a/t.py:train:4 / {below} {waits}"
    )
}

#[test]
fn values_that_jax_computes_still_are_waited_for() {
    const RULE: &str = "blocking-waits";
    let value = format!("{JAX}/array.py:ArrayImpl.__float__:9 / {JAX}/array.py:ArrayImpl._value:8 / n futex");
    let found = "The program waits 80% of its time for results of JAX, in 200 waits at t.py:train:4";
    check(RULE, &loop_of_jax(&value, "200x20000000"), found);
    let ready = format!("{JAX}/api.py:block_until_ready:7 / n futex");
    check(RULE, &loop_of_jax(&ready, "200x20000000"), found);
    check(RULE, &loop_of_jax("n jax::PyArray::BlockUntilReady() const / n futex", "200x20000000"), found);
    check(RULE, &loop_of_jax(&value, "200x500000"), "healthy");
    // It only waits for its turn to dispatch, or for something else.
    check(RULE, &format!("{}\n{}", loop_of_jax("n futex", "200x20000000"), end_of_jax(&value)), "healthy");
    // Its calls of a device's library are those of other threads.
    let device = "sync-time: P py-7 / T xla/9 / a cuStreamSynchronize 5x1000";
    check(RULE, &format!("{}\n{device}", loop_of_jax(&value, "200x20000000")), found);
    check(RULE, &format!("P py-7 / T py/7 / y /a/t.py:train:4 / {value} 300"), "record with --off-cpu");
}

/// The wait at the end of a loop.
fn end_of_jax(value: &str) -> String {
    format!("off-cpu-time: P py-7 / T py/7 / y /a/t.py:train:9 / {value} 1x400000000")
}

#[test]
fn one_long_wait_for_jax_is_no_waste() {
    let value = format!("{JAX}/array.py:ArrayImpl._value:8 / n futex");
    // Recorded second by second.
    let end = format!("{}\n{}", loop_of_jax(&value, "15x1000000000"), loop_of_jax(&value, "1x300000000"));
    check("blocking-waits", &end, "healthy");
    let long = format!("{}\n{}", loop_of_jax(&value, "40x1000000000"), loop_of_jax(&value, "40x500000000"));
    let found = "The program waits 97% of its time for results of JAX, in 20 waits at t.py:train:4";
    check("blocking-waits", &long, found);
}

#[test]
fn waits_of_checkpoints_and_locks_are_none_for_jax() {
    for below in [
        format!("{JAX}/array.py:ArrayImpl.__reduce__:5 / {JAX}/array.py:ArrayImpl._value:8 / n futex"),
        format!("{JAX}/array.py:ArrayImpl._value:8 / n PyEval_RestoreThread / n futex"),
    ] {
        check("blocking-waits", &loop_of_jax(&below, "200x20000000"), "healthy");
    }
}
