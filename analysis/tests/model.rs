//! Tables of recorded models. `profiles/README.md` and `traces/README.md` say where the recordings come from.

use std::path::Path;

use deepctx_analysis::model::{Bound, Figures, LayerKind, ModelTables, Peaks};
use deepctx_analysis::{Selection, Subset};
use deepctx_profile::Metric;
use deepctx_storage::open;

/// Tables of a file, and totals of its profile by metric.
fn tables(file: &str, peaks: Option<Peaks>) -> (ModelTables, impl Fn(Metric) -> u64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let opened = open(&path).expect("a recording of the folder");
    let selection = Selection { rows: usize::MAX, ..Selection::of(Metric::CpuTime) };
    let tables = ModelTables::compute(&Subset::new(&opened.profile, &selection), opened.elapsed, peaks, None);
    (tables, move |metric| opened.profile.tree.total(metric).sum)
}

#[test]
fn layers_of_a_recorded_transformer_have_their_work() {
    let (of, total) = tables("profiles/torch-layers.dctx", Peaks::new(100e9, 20e9, "given"));
    assert_eq!(of.layers_are, LayerKind::Modules);
    let layer = |name: &str| of.layers.rows.iter().find(|row| row.layer == name).expect(name);
    let linear = layer("Net.encoder.layers.0.linear1 (Linear)");
    assert_eq!(linear.shape.as_deref(), Some("aten::addmm [128, 256x64, 64x128 (transposed)] f32"));
    // Two operations for each product of two elements; bias, both matrices and the result, once each.
    let (flops, bytes) = (2 * 256 * 64 * 128, 4 * (128 + 256 * 64 + 64 * 128 + 256 * 128));
    let found = &linear.figures;
    assert_eq!(found.modelled_flops.map(|all| all % flops), Some(0));
    assert_eq!(found.modelled_flops_per_byte, Some(flops as f64 / f64::from(bytes)));
    assert_eq!(found.bound, Some(Bound::Compute));
    assert_eq!(layer("Net.encoder.layers.0.norm1 (LayerNorm)").figures.bound, Some(Bound::Memory));
    assert!(layer("Net.encoder.layers.0.dropout (Dropout)").figures.modelled_flops.is_none());
    // Each type has all its layers, and nothing else has any.
    let linears = of.layer_types.rows.iter().find(|row| row.layer_type == "Linear").expect("linear layers");
    assert_eq!(linears.layers, of.layers.rows.iter().filter(|row| row.layer_type == "Linear").count());
    let sum = |figure: fn(&Figures) -> Option<u64>| {
        of.layer_types.rows.iter().filter_map(|row| figure(&row.figures)).sum::<u64>()
    };
    // What the backward pass does is not below the layers, since `--probe backward` was not given.
    let forward = sum(|of| of.modelled_flops);
    assert!(forward > 0 && forward < total(Metric::ModelFlops) / 2, "{forward}");
    assert!(sum(|of| of.host_ns) <= total(Metric::CpuTime));
    assert_eq!(of.totals.figures.allocated_bytes, Some(total(Metric::TensorBytes)));
}

#[test]
fn kernels_of_a_recorded_inference_stand_below_their_layers() {
    let (of, total) = tables("traces/alexnet-a100-sync.json.gz", None);
    assert_eq!((of.layers_are, of.totals.figures.kernels), (LayerKind::Operators, Some(79)));
    let gpu_ns = |figures: &Figures| figures.gpu_ns.unwrap_or(0);
    let by_layer: u64 = of.layers.rows.iter().map(|row| gpu_ns(&row.figures)).sum();
    let by_kernel: u64 = of.kernels.rows.iter().map(|row| gpu_ns(&row.figures)).sum();
    let by_name: u64 = of.kernel_names.rows.iter().map(|row| gpu_ns(&row.figures)).sum();
    assert_eq!([by_layer, by_kernel, by_name], [total(Metric::GpuTime); 3]);
    let conv = of.layer_types.rows.first().expect("layers");
    assert_eq!(
        (conv.layer_type.as_str(), conv.latency_percent),
        ("aten::conv2d", of.totals.convolution_percent)
    );
    // Both passes of AlexNet, each with three products, by the same kernel.
    let first = of.kernel_names.rows.first().expect("kernels");
    assert_eq!(
        (first.kernel.as_str(), first.layers, first.figures.kernels),
        ("ampere_sgemm_32x32_sliced1x4_tn", 2, Some(6))
    );
    assert!(of.basis.iter().any(|row| row.figure == "flops and bytes" && row.basis.is_none()));
}
