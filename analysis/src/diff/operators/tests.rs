//! Operators of two profiles, side by side.

use deepctx_profile::device::memory::Pool;
use deepctx_profile::text;

use super::*;

/// `METRIC: STACK VALUE` lines.
fn profile(lines: &str) -> Profile {
    let mut profile = text::parse("").unwrap();
    for line in lines.lines().map(str::trim) {
        let (metric, rest) = line.split_once(": ").unwrap();
        let (path, value) = rest.rsplit_once(' ').unwrap();
        let stack: Vec<_> =
            path.split(" / ").map(|part| text::parse_frame(&mut profile, part).unwrap()).collect();
        profile.add(&stack, metric.parse().unwrap(), value.parse().unwrap());
    }
    profile
}

/// Rows as `OPERATOR[ backward] MATCH: BEFORE | AFTER`, a side as calls, kernels, device time, bytes.
fn rows(before: &str, after: &str) -> Vec<String> {
    let compared = compare_operators(&profile(before), &profile(after), 10);
    let figure = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
    let side = |side: &Option<OperatorSide>| match side {
        Some(OperatorSide { names, figures: of, .. }) => {
            let figures = [of.calls, of.kernels, of.gpu_ns, of.allocated_bytes].map(figure);
            format!("{} {}", names.join("+"), figures.join(" "))
        }
        None => "none".to_owned(),
    };
    let row = |row: &OperatorRow| {
        let pass = if row.backward { " backward" } else { "" };
        let (before, after) = (side(&row.before), side(&row.after));
        format!("{}{pass} {:?}: {before} | {after}", row.operator, row.matched)
    };
    compared.operators.rows.iter().map(row).collect()
}

#[track_caller]
fn check(before: &str, after: &str, expect: &[&str]) {
    assert_eq!(rows(before, after), expect);
}

#[test]
fn operators_of_one_name_stand_beside_each_other() {
    check(
        "calls: y t.py:f:4 / o aten::linear / o aten::addmm / o aten::addmm [8,8] f32 10
         kernels: y t.py:f:4 / o aten::linear / o aten::addmm / g ampere_sgemm 10
         gpu-time: y t.py:f:4 / o aten::linear / o aten::addmm / g ampere_sgemm 300
         gpu-time: y t.py:f:4 / o aten::linear / o aten::addmm / o [backward] / g ampere_sgemm 500
         calls: y t.py:f:4 / o aten::linear / o aten::addmm / o [backward] 9
         calls: y t.py:f:4 / o aten::add_.Tensor 3
         calls: y t.py:f:4 / o aten::add_.Tensor / n mine 70
         tensor-bytes: y t.py:f:4 / o aten::add.Tensor / n [memory] cuda:0 64
         gpu-time: o other / g k 200",
        "calls: y u.py:g:4 / o aten::addmm 20
         kernels: y u.py:g:4 / o aten::addmm / g Cijk_Ailk 40
         gpu-time: y u.py:g:4 / o aten::addmm / g Cijk_Ailk 400
         gpu-time: y u.py:g:4 / n f / g memset 100",
        &[
            "aten::addmm Name: aten::addmm 10 10 300 0 | aten::addmm 20 40 400 –",
            "aten::addmm backward OneSided: aten::addmm 9 0 500 0 | none",
            "other OneSided: other 0 0 200 0 | none",
            "add OneSided: aten::add.Tensor+aten::add_.Tensor 3 0 0 64 | none",
        ],
    );
}

#[test]
fn operators_of_two_frameworks_match_by_what_they_compute() {
    let torch = "gpu-time: o aten::mm / g a 300\ngpu-time: o aten::bmm / g b 200
        gpu-time: o autograd::engine::evaluate_function: MmBackward0 / o MmBackward0 / o aten::mm / g a 400
        gpu-time: o aten::cudnn_convolution / g c 50\ngpu-time: o aten::relu / g r 10";
    let jax = "gpu-time: o jit(f)/dot_general / g gemm 600
        gpu-time: o jit(f)/transpose(jvp(f))/dot_general / g gemm 700
        gpu-time: o jit(f)/conv_general_dilated / g c 50\ngpu-time: o jit(f)/exp / g e 10";
    check(
        torch,
        &format!("{jax}\ngpu-time: o xla::gpu::CublasLtMatmulThunk / g gemm 100"),
        &[
            "matrix product Family: aten::bmm+aten::mm – – 500 – | dot_general+xla::gpu::CublasLtMatmulThunk – – 700 –",
            "matrix product backward Family: aten::mm – – 400 – | dot_general – – 700 –",
            "convolution Family: aten::cudnn_convolution – – 50 – | conv_general_dilated – – 50 –",
            "aten::relu OneSided: aten::relu – – 10 – | none",
            "exp OneSided: none | exp – – 10 –",
        ],
    );
    // Operators on both sides are not merged with related ones.
    check(
        "gpu-time: o aten::mm / g a 300\ngpu-time: o aten::bmm / g b 200",
        "gpu-time: o aten::mm / g a 300",
        &[
            "aten::mm Name: aten::mm – – 300 – | aten::mm – – 300 –",
            "aten::bmm OneSided: aten::bmm – – 200 – | none",
        ],
    );
}

#[test]
fn a_fusion_counts_for_the_operator_that_names_it() {
    check(
        "gpu-time: o [xla jit_f] / o jit(f)/jvp(g)/mul [fused: jit(f)/exp] / g fusion 5",
        "gpu-time: o aten::mul.Tensor / g k 7",
        &["mul [fused: jit(f)/exp] Name: mul [fused: jit(f)/exp] – – 5 – | aten::mul.Tensor – – 7 –"],
    );
}

#[test]
fn operators_within_autograd_nodes_are_of_the_backward_pass() {
    // A capture, with the engine's call as a native function, and a trace of PyTorch.
    check(
        "gpu-time: o aten::mm / g a 30
         gpu-time: n torch::autograd::Engine::evaluate_function / o MmBackward0 / o aten::mm / g a 40",
        "gpu-time: o aten::mm / g b 30
         gpu-time: o autograd::engine::evaluate_function: MmBackward0 / o MmBackward0 / o aten::mm / g b 50",
        &[
            "aten::mm backward Name: aten::mm – – 40 – | aten::mm – – 50 –",
            "aten::mm Name: aten::mm – – 30 – | aten::mm – – 30 –",
        ],
    );
}

#[test]
fn figures_that_one_profile_lacks_are_none() {
    let before = profile("wall-time: o aten::mm 5\nwall-time: o aten::mm 7\nwall-time: n f 4");
    let after = profile(
        "cpu-time: o aten::mm / n gemm 30\nkernels: o aten::mm / g k 4\ngpu-time: o aten::mm / g k 8",
    );
    let compared = compare_operators(&before, &after, 10);
    assert_eq!(compared.metric, "host-time");
    let row = &compared.operators.rows[0];
    let [before, after] = [&row.before, &row.after].map(|side| side.as_ref().unwrap());
    assert_eq!((before.share_percent, after.share_percent), (75.0, 100.0));
    let figures = before.figures;
    assert_eq!((figures.calls, figures.host_ns, figures.ns_per_kernel), (Some(2), Some(12), None));
    let figures = after.figures;
    assert_eq!((figures.calls, figures.kernels_per_call, figures.ns_per_kernel), (None, None, Some(2.0)));
    assert_eq!(compared.outside[0].host_ns, Some(4));
}

#[test]
fn memory_stands_beside_each_other_by_device() {
    let pool = |pid, device: &str, peak_bytes| Pool {
        pid,
        device: device.to_owned(),
        peak_bytes,
        allocations: 2,
        allocated_bytes: 2 * peak_bytes,
        ..Pool::default()
    };
    let [mut before, mut after] = [profile("calls: n f 1"), profile("calls: n f 1")];
    before.memory = vec![pool(7, "cuda:0", 100), pool(8, "cuda:0", 300)];
    after.memory = vec![pool(9, "cpu", 50), pool(9, "cuda:0", 80)];
    let found = compare_operators(&before, &after, 10).memory;
    let side = |processes, peak_bytes, allocations, allocated_bytes| {
        Some(MemorySide { processes, peak_bytes, allocations, allocated_bytes })
    };
    let expect = [
        DeviceMemory { device: "cpu".into(), before: None, after: side(1, 50, 2, 100) },
        DeviceMemory { device: "cuda:0".into(), before: side(2, 300, 4, 800), after: side(1, 80, 2, 160) },
    ];
    assert_eq!(found, expect);
}

#[test]
fn a_plain_name_has_no_namespace_or_overload() {
    for (name, expect) in [
        ("aten::add_.Tensor", "add"),
        ("aten::_softmax", "_softmax"),
        ("aten::__and__", "__and__"),
        ("fbgemm::permute_2D", "fbgemm::permute_2D"),
        ("jit(f)/jit(main)/dot_general", "dot_general"),
        ("", ""),
    ] {
        assert_eq!(plain(name), expect, "{name}");
    }
}
