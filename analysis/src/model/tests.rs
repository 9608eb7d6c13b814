//! Tables of synthetic and of recorded models.

use deepctx_profile::device::activity::Launch;
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::text;

use super::*;
use crate::Selection;

fn tables(profile: &Profile, peaks: Option<Peaks>) -> ModelTables {
    let selection = Selection { rows: 100, ..Selection::of(Metric::CpuTime) };
    ModelTables::compute(&Subset::new(profile, &selection), Nanos(0), peaks, None)
}

/// Two layers on a device and one on the CPU, two training steps, with operands of both products.
fn profile() -> Profile {
    let mut profile = Profile::new(Default::default(), Default::default());
    let mut layer = |path: &str, class: &str| {
        let (path, class) = (profile.text(path), profile.text(class));
        profile.frame(Frame::Layer { path, class })
    };
    let [net, fc1, relu, fc2] =
        [("Net", "Net"), ("Net.fc1", "Linear"), ("Net.act", "ReLU"), ("Net.fc2", "Linear")]
            .map(|(path, class)| layer(path, class));
    let mut add = |layers: &[FrameId], path: &str, values: &[(Metric, u64)]| {
        let frames = path.split(" / ").filter(|part| !part.is_empty());
        let below = frames.map(|part| text::parse_frame(&mut profile, part).unwrap()).collect::<Vec<_>>();
        let stack: Vec<FrameId> = layers.iter().copied().chain(below).collect();
        values.iter().for_each(|(metric, value)| _ = profile.add(&stack, *metric, *value));
    };
    use Metric::{Calls, CpuTime, GpuTime, Kernels, ModelBytes, ModelFlops, StepTime, TensorBytes};
    add(&[], "r Optimizer.step#SGD.step", &[(StepTime, 5_000), (StepTime, 5_000)]);
    add(&[net], "", &[(CpuTime, 100)]);
    for (layer, gpu_ns, size) in [(fc1, 3_000, 64), (fc2, 1_000, 8)] {
        let operands = format!("o aten::addmm / o aten::addmm [32x64, 64x{size}] f32");
        let work = [(Calls, 2), (ModelFlops, 2_000 * size), (ModelBytes, 100 * size)];
        add(&[net, layer], &operands, &work);
        add(&[net, layer], "o aten::addmm / a cuLaunchKernel / g gemm", &[(GpuTime, gpu_ns), (Kernels, 2)]);
        add(&[net, layer], "o aten::addmm / o aten::empty", &[(TensorBytes, 4 * size), (CpuTime, 50)]);
    }
    add(&[net, relu], "o aten::relu / a cuLaunchKernel / g relu", &[(GpuTime, 500), (Kernels, 2)]);
    add(&[], "n optimizer / a cuLaunchKernel / g gemm", &[(GpuTime, 500), (Kernels, 1)]);
    profile
}

#[test]
fn layers_have_their_figures_in_the_order_first_seen() {
    let of = tables(&profile(), Peaks::new(100e9, 10e9, "given"));
    assert_eq!((of.layers_are, of.training_steps), (LayerKind::Modules, Some(2)));
    let rows: Vec<_> = of
        .layers
        .rows
        .iter()
        .map(|row| (row.index, row.layer.as_str(), row.figures.gpu_ns, row.figures.allocated_bytes))
        .collect();
    let expect = [
        (1, "Net", Some(0), Some(0)),
        (2, "Net.fc1 (Linear)", Some(3_000), Some(256)),
        (3, "Net.fc2 (Linear)", Some(1_000), Some(32)),
        (4, "Net.act (ReLU)", Some(500), Some(0)),
    ];
    assert_eq!(rows, expect);
    let fc1 = &of.layers.rows[1];
    assert_eq!(fc1.shape.as_deref(), Some("aten::addmm [32x64, 64x64] f32"));
    assert_eq!(
        (fc1.figures.modelled_flops, fc1.figures.modelled_flops_per_byte),
        (Some(128_000), Some(20.0))
    );
    assert_eq!((fc1.latency_percent, fc1.figures.bound), (60.0, Some(Bound::Compute)));
    assert_eq!(of.layers.rows[3].figures.modelled_flops, None);
}

#[test]
fn layers_and_the_rest_add_up_to_the_profile() {
    let profile = profile();
    let of = tables(&profile, None);
    let sum = |figure: fn(&Figures) -> Option<u64>| {
        of.layers.rows.iter().filter_map(|row| figure(&row.figures)).sum::<u64>()
    };
    let total = |metric| profile.tree.total(metric).sum;
    assert_eq!(of.totals.figures.gpu_ns, Some(total(Metric::GpuTime)));
    assert_eq!(sum(|of| of.gpu_ns) + 500, total(Metric::GpuTime));
    assert_eq!(sum(|of| of.host_ns), total(Metric::CpuTime));
    assert_eq!(sum(|of| of.modelled_flops), total(Metric::ModelFlops));
    assert_eq!((of.totals.outside_layers_percent, of.totals.gpu_percent), (10.0, Some(50.0)));
}

#[test]
fn kernels_are_a_share_of_steps_that_cover_them() {
    let mut profile = profile();
    let check = |profile: &Profile, elapsed_ns, expect| {
        let subset = Subset::new(profile, &Selection::of(Metric::CpuTime));
        let totals = ModelTables::compute(&subset, Nanos(elapsed_ns), None, None).totals;
        assert_eq!(totals.gpu_percent, Some(expect));
    };
    // Both optimizers end all steps.
    let other = text::parse_frame(&mut profile, "r Optimizer.step#Adam.step").unwrap();
    (0..2).for_each(|_| _ = profile.add(&[other], Metric::StepTime, 5_000));
    check(&profile, 10_000, 50.0);
    // The kernels of the capture are not all within its steps.
    check(&profile, 20_000, 25.0);
    // Each process has its own steps.
    let mut two = text::parse("").unwrap();
    let mut add = |path: &str, metric: Metric, value: u64| {
        let frames = path.split(" / ").map(|part| text::parse_frame(&mut two, part).unwrap());
        let stack: Vec<FrameId> = frames.collect();
        two.add(&stack, metric, value);
    };
    for process in ["P a-1", "P b-2"] {
        add(&format!("{process} / r Optimizer.step#SGD.step"), Metric::StepTime, 1_000);
        add(&format!("{process} / a cuLaunchKernel / g gemm"), Metric::GpuTime, 600);
    }
    check(&two, 1_000, 60.0);
}

#[test]
fn layers_of_a_type_are_added_up() {
    let of = tables(&profile(), None);
    let rows: Vec<_> = of
        .layer_types
        .rows
        .iter()
        .map(|row| (row.layer_type.as_str(), row.layers, row.latency_percent, row.figures.allocated_bytes))
        .collect();
    let expect = [("Linear", 2, 80.0, Some(288)), ("ReLU", 1, 10.0, Some(0)), ("Net", 1, 0.0, Some(0))];
    assert_eq!(rows, expect);
}

#[test]
fn kernels_have_the_work_of_the_operator_around_them() {
    let of = tables(&profile(), None);
    let rows: Vec<_> = of
        .kernels
        .rows
        .iter()
        .map(|row| (row.kernel.as_str(), row.layer_index, row.figures.kernels, row.figures.modelled_flops))
        .collect();
    let expect = [
        ("gemm", Some(2), Some(2), Some(128_000)),
        ("gemm", Some(3), Some(2), Some(16_000)),
        ("relu", Some(4), Some(2), None),
        ("gemm", None, Some(1), None),
    ];
    assert_eq!(rows, expect);
    let names: Vec<_> = of
        .kernel_names
        .rows
        .iter()
        .map(|row| (row.kernel.as_str(), row.layers, row.figures.gpu_ns))
        .collect();
    assert_eq!(names, [("gemm", 2, Some(4_500)), ("relu", 1, Some(500))]);
    // The work of one launch of the optimizer is not known, but its time is.
    let rates = of.kernels.rows.iter().map(|row| row.figures.modelled_flops_per_second.is_some());
    assert_eq!(rates.collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!(of.kernel_names.rows[0].figures.modelled_flops, Some(144_000));
    assert_eq!(of.kernel_names.rows[0].figures.modelled_flops_per_second, None);
}

#[test]
fn equal_kernels_are_in_the_order_of_their_layers() {
    let mut profile = Profile::new(Default::default(), Default::default());
    for number in 0..12 {
        let (path, class) = (profile.text(&format!("Net.{number}")), profile.text("Linear"));
        let layer = profile.frame(Frame::Layer { path, class });
        let kernel = text::parse_frame(&mut profile, "g gemm").unwrap();
        profile.add(&[layer, kernel], Metric::Kernels, 1);
    }
    let of = tables(&profile, None);
    let indices: Vec<_> = of.kernels.rows.iter().map(|row| row.layer_index).collect();
    assert_eq!(indices, (1..=12).map(Some).collect::<Vec<_>>());
}

/// A launch whose occupancy its registers limit.
fn launch(registers: u32) -> Launch {
    Launch {
        grid: [4, 1, 1],
        block: [256, 1, 1],
        dynamic_shared: 1024,
        static_shared: Some(0),
        registers: Some(registers),
        arch: Some(80),
        device_arch: None,
    }
}

#[test]
fn occupancy_is_weighted_by_latency() {
    let mut profile = Profile::new(Default::default(), Default::default());
    for (path, gpu_ns, registers) in
        [("o aten::mm / g gemm", 3_000, 128), ("o aten::bmm / g gemm", 1_000, 64)]
    {
        let stack: Vec<_> =
            path.split(" / ").map(|part| text::parse_frame(&mut profile, part).unwrap()).collect();
        let node = profile.add(&stack, Metric::GpuTime, gpu_ns);
        profile.gpu.shape(node, &launch(registers));
    }
    let of = tables(&profile, None);
    // 16 and 32 of 64 warps.
    let rows: Vec<_> = of.kernels.rows.iter().map(|row| row.modelled_occupancy_percent).collect();
    assert_eq!(rows, [Some(25.0), Some(50.0)]);
    assert_eq!(of.kernel_names.rows[0].modelled_occupancy_percent, Some(31.25));
    assert_eq!(of.totals.modelled_occupancy_percent, Some(31.25));
}

#[test]
fn occupancy_is_weighted_by_times_below_streams() {
    let mut profile = text::parse("").unwrap();
    for (operator, gpu_ns, registers) in [("aten::mm", 3_000, 128), ("aten::bmm", 1_000, 64)] {
        let mut add = |path: &str, metric: Metric, value: u64| {
            let path = format!("o {operator} / a cuLaunchKernel / {path}");
            let frames = path.split(" / ").map(|part| text::parse_frame(&mut profile, part).unwrap());
            let stack: Vec<FrameId> = frames.collect();
            profile.add(&stack, metric, value)
        };
        let node = add("g gemm", Metric::Kernels, 1);
        add("s 0/7 / g gemm", Metric::GpuTime, gpu_ns);
        profile.gpu.shape(node, &launch(registers));
    }
    assert_eq!(tables(&profile, None).totals.modelled_occupancy_percent, Some(31.25));
}

#[test]
fn an_operator_with_two_kernels_says_nothing_of_either() {
    let mut profile = profile();
    let path = "o aten::mm / o aten::mm [8x8, 8x8] f32";
    let mut add = |path: &str, metric, value| {
        let frames: Vec<_> =
            path.split(" / ").map(|part| text::parse_frame(&mut profile, part).unwrap()).collect();
        profile.add(&frames, metric, value);
    };
    add(path, Metric::ModelFlops, 1024);
    add("o aten::mm / g split", Metric::GpuTime, 10);
    add("o aten::mm / g reduce", Metric::GpuTime, 5);
    let of = tables(&profile, None);
    let split = of.kernel_names.rows.iter().find(|row| row.kernel == "split").unwrap();
    assert_eq!(split.figures.modelled_flops, None);
}

#[test]
fn kernels_of_the_backward_pass_have_no_forward_work() {
    let mut profile = text::parse("").unwrap();
    let mut add = |path: &str, values: &[(Metric, u64)]| {
        let frames: Vec<_> =
            path.split(" / ").map(|part| text::parse_frame(&mut profile, part).unwrap()).collect();
        values.iter().for_each(|(metric, value)| _ = profile.add(&frames, *metric, *value));
    };
    let work = [(Metric::Calls, 2), (Metric::ModelFlops, 2_000), (Metric::ModelBytes, 100)];
    add("o aten::addmm / o aten::addmm [8x8, 8x8] f32", &work);
    add("o aten::addmm / g gemm_tn", &[(Metric::Kernels, 2), (Metric::GpuTime, 20)]);
    let below = "o aten::addmm / o [backward] / o AddmmBackward0 / o aten::mm";
    add(&format!("{below} / g gemm_nn"), &[(Metric::Kernels, 2), (Metric::GpuTime, 10)]);
    let of = tables(&profile, None);
    let rows = of.kernel_names.rows.iter().map(|row| (row.kernel.as_str(), row.figures.modelled_flops));
    assert_eq!(rows.collect::<Vec<_>>(), [("gemm_tn", Some(2_000)), ("gemm_nn", None)]);
}

#[test]
fn a_transposed_convolution_leaves_its_layer_without_intensity() {
    let mut profile = profile();
    let mut add = |path: &str, metric, value| {
        let frames: Vec<_> =
            path.split(" / ").map(|part| text::parse_frame(&mut profile, part).unwrap()).collect();
        profile.add(&frames, metric, value);
    };
    add("l Net.up (Up) / o aten::relu / o aten::relu [8] f32", Metric::ModelFlops, 8);
    add("l Net.up (Up) / o aten::relu / o aten::relu [8] f32", Metric::ModelBytes, 64);
    add(
        "l Net.up (Up) / o aten::convolution / o aten::convolution [1x8x4x4, 8x8x2x2] f32",
        Metric::ModelFlops,
        8192,
    );
    let of = tables(&profile, Peaks::new(100e9, 10e9, "given"));
    let up = &of.layers.rows.iter().find(|row| row.layer == "Net.up (Up)").unwrap().figures;
    assert_eq!((up.modelled_flops, up.modelled_bytes), (Some(8200), Some(64)));
    assert_eq!((up.modelled_flops_per_byte, up.bound), (None, None));
    let fc1 = &of.layers.rows.iter().find(|row| row.layer == "Net.fc1 (Linear)").unwrap().figures;
    assert_eq!(fc1.modelled_flops_per_byte, Some(20.0));
}

#[test]
fn thirds_of_the_layers_say_what_they_have_most_of() {
    let of = tables(&profile(), None);
    let row = |of: &Stage| (of.stage, of.first, of.last, of.dominates.join(", "));
    let stages: Vec<_> = of.stages.iter().map(row).collect();
    let most = |text: &str| text.to_owned();
    let expect = [
        ("beginning", 1, 1, most("")),
        ("middle", 2, 2, most("latency, allocated bytes, flops, bytes")),
        ("end", 3, 4, most("")),
    ];
    assert_eq!(stages, expect);
}

#[test]
fn work_without_a_stack_belongs_to_no_layer() {
    let mut profile = profile();
    let frames: Vec<_> = "o [operators] / o aten::addmm / o aten::addmm [32x64, 64x8] f32"
        .split(" / ")
        .map(|part| text::parse_frame(&mut profile, part).unwrap())
        .collect();
    profile.add(&frames, Metric::ModelFlops, 1_000_000);
    let of = tables(&profile, None);
    let work = of.basis.iter().find(|row| row.figure == "flops and bytes").unwrap();
    assert_eq!(work.record_with, Some("--operator-stacks all"));
    assert!(work.because.contains("13 % of the operations have a stack"), "{}", work.because);
    assert!(of.layers.rows.iter().all(|row| row.figures.modelled_flops.is_none()));
    assert_eq!(of.totals.figures.modelled_flops, Some(1_144_000));
}

#[test]
fn figures_that_a_profile_lacks_have_a_reason() {
    let profile = text::parse("P a-1 / n f 5").unwrap();
    let of = tables(&profile, None);
    let missing: Vec<_> = of
        .basis
        .iter()
        .filter(|row| row.basis.is_none())
        .map(|row| (row.figure, row.record_with.is_some()))
        .collect();
    let expect = ["layers", "steps", "allocated bytes", "flops and bytes", "occupancy", "peaks"]
        .map(|figure| (figure, true));
    assert_eq!(missing, expect);
    assert_eq!((of.layers_are, of.layers.rows.len(), of.stages.len()), (LayerKind::None, 0, 0));
    assert_eq!(of.totals.outside_layers_percent, 100.0);
}

#[test]
fn steps_of_a_part_of_the_capture_are_no_divisor() {
    let check = |elapsed_ns, expect| {
        let profile = profile();
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        assert_eq!(ModelTables::compute(&subset, Nanos(elapsed_ns), None, None).training_steps, expect);
    };
    check(10_000, Some(2));
    check(13_000, Some(2));
    check(14_000, None);
}

#[test]
fn sums_are_divided_by_the_steps_they_are_of() {
    let profile = profile();
    let of = |elapsed_ns| {
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        ModelTables::compute(&subset, Nanos(elapsed_ns), None, None)
    };
    let figures = |of: &ModelTables| (of.step_times.as_ref().unwrap().in_sums, of.totals.gpu_percent);
    assert_eq!(figures(&of(10_000)), (2.0, Some(50.0)));
    // It began half a step before the first end.
    let found = of(12_500);
    assert_eq!((found.training_steps, figures(&found)), (Some(2), (2.5, Some(40.0))));
    let mut text = Vec::new();
    let names = crate::render::text::Names::Short;
    crate::render::text::write_model(&found, &[ModelTable::Totals], names, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("an unnamed target: per training step, sums divided by 2.5\n"), "{text}");
    assert!(text.contains("; sums are of 2.5\n"), "{text}");
    // Seven kernels of 5 µs.
    assert!(text.contains("2.00 µs") && text.contains("2.80"), "{text}");
    // It began with imports: its first step is there, too.
    assert_eq!(figures(&of(40_000)), (3.0, Some(12.5)));
}

#[test]
fn the_kernel_with_most_of_something_has_its_whole_stack() {
    let of = tables(&profile(), None);
    let rows = of
        .kernel_frequency
        .rows
        .iter()
        .map(|row| (row.kernel.as_str(), row.launches, row.mean_ns, row.contexts));
    let expect = [("gemm", 5, Some(1_500.0), 3), ("relu", 2, Some(500.0), 1)];
    assert_eq!(rows.collect::<Vec<_>>(), expect);
    let extremes: Vec<_> =
        of.extreme_kernels.iter().map(|row| (row.most, row.kernel.as_str(), row.value)).collect();
    assert_eq!(
        extremes,
        [("launches", "gemm", 5), ("time", "gemm", 4_500), ("single launch", "gemm", 3_000)]
    );
    let stack = ["Net", "Net.fc1 (Linear)", "aten::addmm", "cuLaunchKernel", "[gpu] gemm"];
    assert_eq!(of.extreme_kernels[1].stack, stack);
}

#[test]
fn the_last_launch_need_not_have_most_of_anything() {
    let mut profile = text::parse("").unwrap();
    let stack = ["P py-7", "a cuLaunchKernel", "g gemm"];
    let stack = stack.map(|part| text::parse_frame(&mut profile, part).unwrap());
    let node = profile.add(&stack, Metric::Kernels, 2);
    for (dynamic_shared, registers) in [(4096, 128), (1024, 32)] {
        let launch = Launch {
            grid: [4, 1, 1],
            block: [256, 1, 1],
            dynamic_shared,
            static_shared: Some(512),
            registers: Some(registers),
            arch: Some(80),
            device_arch: None,
        };
        profile.gpu.shape(node, &launch);
    }
    let found = tables(&profile, None).extreme_kernels;
    let rows: Vec<_> = found.iter().map(|row| (row.most, row.value)).collect();
    let expect = [("launches", 2), ("registers of a thread", 128), ("shared memory of a block", 4608)];
    assert_eq!(rows, expect);
}

#[test]
fn a_kernel_with_times_below_its_stream_counts_once() {
    let mut profile = text::parse("").unwrap();
    let mut add = |path: &str, metric: Metric, value: u64| {
        let frames = path.split(" / ").map(|part| text::parse_frame(&mut profile, part).unwrap());
        let stack: Vec<_> = frames.collect();
        profile.add(&stack, metric, value);
    };
    add("P py-7 / a cuLaunchKernel / g gemm", Metric::Kernels, 3);
    (0..3).for_each(|_| add("P py-7 / a cuLaunchKernel / s 0/7 / g gemm", Metric::GpuTime, 100));
    let of = tables(&profile, None);
    let frequency = &of.kernel_frequency.rows[0];
    assert_eq!((frequency.launches, frequency.mean_ns, frequency.contexts), (3, Some(100.0), 1));
    assert_eq!(
        (of.kernel_names.rows[0].figures.kernels, of.kernels.rows[0].figures.kernels),
        (Some(3), Some(3))
    );
}

#[test]
fn huge_numbers_of_launches_saturate() {
    let mut profile = text::parse("").unwrap();
    for place in ["n a", "n b"] {
        let stack = [place, "g gemm"].map(|part| text::parse_frame(&mut profile, part).unwrap());
        profile.add(&stack, Metric::Kernels, u64::MAX);
    }
    let of = tables(&profile, None);
    assert_eq!(of.kernel_frequency.rows[0].launches, u64::MAX);
}

#[test]
fn memory_curves_are_of_devices() {
    let mut profile = Profile::new(Default::default(), Default::default());
    let add = |profile: &mut Profile, device: &str, bytes: [u64; 2]| {
        let frames = ["P train-7", device].map(|frame| text::parse_frame(profile, frame).unwrap());
        let node = profile.add(&frames, Metric::TensorBytes, 1);
        for (window, bytes) in (0u64..).zip(bytes) {
            let at = Nanos(window * profile.timeline.window().0);
            profile.timeline.add(node, Metric::LiveBytes, at, bytes);
        }
    };
    add(&mut profile, "n cpu", [10, 20]);
    add(&mut profile, "n cuda:0", [400, 300]);
    let of = tables(&profile, None).memory_curves;
    let rows: Vec<_> =
        of.curves.iter().map(|row| (row.device.as_str(), row.most_bytes, &row.live_bytes[..])).collect();
    assert_eq!(rows, [("cuda:0", 400, &[400, 300][..]), ("cpu", 20, &[10, 20])]);
    assert_eq!(of.curves[0].process, "train-7");
}
