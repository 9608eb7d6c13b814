//! Tabs of the tables of a model, and of memory over time.
//!
//! Owns: their columns. Because: which layer and which kernel costs what, and what limits it, is the next question of a
//! reader who has only the page. Does not: compute; figures are formatted as in the text.

use deepctx_profile::units::{Bytes, Nanos};
use deepctx_storage::export::html::{Column, Form, Tab};

use super::cells::{first, numbers};
use super::{percent, tab};
use crate::model::{Figures, LayerKind, MemoryCurve, MemoryCurves, ModelTables};
use crate::render::text::{FIGURES, extreme_in_words, figure_cells, scaled, without_stream};

/// Titles of the figures; what a model derives is marked.
const TITLES: [&str; FIGURES.len()] = [
    "Latency",
    "CPU time",
    "Kernels",
    "Allocated",
    "Flops (model)",
    "Bytes (model)",
    "Flops/B",
    "Flops/s",
    "Bound by",
];

/// Every table with rows. Where steps are known, figures are per training step, and the title says so.
pub(super) fn tabs(tables: &ModelTables) -> impl Iterator<Item = Tab> {
    let tabs = [
        totals(tables),
        basis(tables),
        layers(tables),
        layer_types(tables),
        stages(tables),
        kernels(tables),
        kernel_names(tables),
        frequency(tables),
        extremes(tables),
        memory_curves(&tables.memory_curves),
    ];
    tabs.into_iter().filter(|tab| !tab.rows.is_empty())
}

/// A row: its own cells, its figures, and the cells after them.
type Row<'t> = (Vec<String>, &'t Figures, Vec<String>);

/// A table with figures.
struct FigureTable<'t> {
    id: &'static str,
    title: &'static str,
    /// Columns before the figures.
    before: Vec<Column>,
    /// Columns after them.
    after: Vec<Column>,
    rows: Vec<Row<'t>>,
    left_out: usize,
}

impl FigureTable<'_> {
    /// As a tab, with those figures that at least one row has.
    fn tab(self, tables: &ModelTables) -> Tab {
        let steps = tables.divisor();
        let figures: Vec<_> = self.rows.iter().map(|(_, figures, _)| figure_cells(figures, steps)).collect();
        let is_known = |at: &usize| figures.iter().any(|row| row[*at].is_some());
        let shown: Vec<usize> = (0..FIGURES.len()).filter(is_known).collect();
        let titles = shown.iter().map(|at| Column::number(TITLES[*at]));
        let columns: Vec<Column> = self.before.into_iter().chain(titles).chain(self.after).collect();
        let rows = self.rows.into_iter().zip(&figures).map(|((before, _, after), figures)| {
            let figures = shown.iter().map(|at| figures[*at].clone().unwrap_or_default());
            before.into_iter().chain(figures).chain(after).collect::<Vec<String>>()
        });
        tab(self.id, &per_step(tables, self.title), &columns, self.left_out, rows.collect())
    }
}

fn per_step(tables: &ModelTables, title: &str) -> String {
    match tables.training_steps {
        Some(_) => format!("{title}, per step"),
        None => title.to_owned(),
    }
}

fn share(of: Option<f64>) -> String {
    of.map_or_else(String::new, percent)
}

/// Other programs have no use for these tables.
fn has_model(tables: &ModelTables) -> bool {
    tables.layers_are != LayerKind::None || !tables.kernel_names.is_empty()
}

/// One sheet: as a row, all figures are wider than a window.
fn totals(tables: &ModelTables) -> Tab {
    let of = &tables.totals;
    let heading = ("Of", per_step(tables, "The whole model"));
    let own = [
        ("Layers", of.layers.to_string()),
        ("Outside any layer", percent(of.outside_layers_percent)),
        ("In convolutions", percent(of.convolution_percent)),
        ("GPU busy", share(of.gpu_percent)),
        ("Occupancy (model)", share(of.modelled_occupancy_percent)),
        ("Peak memory", of.peak_memory_bytes.map_or_else(String::new, |bytes| Bytes(bytes).to_string())),
    ];
    let figures = figure_cells(&of.figures, tables.divisor()).map(Option::unwrap_or_default);
    let all = std::iter::once(heading).chain(own).chain(TITLES.into_iter().zip(figures));
    let (titles, texts): (Vec<&str>, Vec<String>) = all.unzip();
    Tab {
        id: "model".to_owned(),
        title: "Model".to_owned(),
        columns: titles.into_iter().map(Column::text).collect(),
        rows: if has_model(tables) { vec![texts] } else { Vec::new() },
        left_out: 0,
        form: Form::Sheets,
    }
}

/// How each figure of the other tabs was obtained.
fn basis(tables: &ModelTables) -> Tab {
    let columns =
        [Column::label("Figure"), Column::label("How"), Column::text("Because"), Column::code("Record with")];
    let rows = tables.basis.iter().filter(|_| has_model(tables)).map(|row| {
        vec![
            row.figure.to_owned(),
            row.basis.map_or_else(|| "missing".to_owned(), |basis| basis.to_string()),
            row.because.clone(),
            row.record_with.unwrap_or_default().to_owned(),
        ]
    });
    tab("model-basis", "Basis of the model", &columns, 0, rows.collect())
}

fn layers(tables: &ModelTables) -> Tab {
    let rows = tables.layers.rows.iter().map(|of| {
        let before = vec![of.index.to_string(), percent(of.latency_percent)];
        // The name has the type: `Net.fc (Linear)`.
        let lines: Vec<&str> = std::iter::once(of.layer.as_str()).chain(of.shape.as_deref()).collect();
        (before, &of.figures, vec![lines.join("\n")])
    });
    let table = FigureTable {
        id: "layer-order",
        title: "Layers in order",
        before: numbers(["Index", "Share"]),
        after: vec![Column::code("Layer and shape")],
        rows: rows.collect(),
        left_out: tables.layers.left_out,
    };
    table.tab(tables)
}

fn layer_types(tables: &ModelTables) -> Tab {
    let rows = tables.layer_types.rows.iter().map(|of| {
        let before = vec![of.layers.to_string(), percent(of.layers_percent), percent(of.latency_percent)];
        (before, &of.figures, vec![of.layer_type.clone()])
    });
    let table = FigureTable {
        id: "layer-types",
        title: "Layers by type",
        before: numbers(["Layers", "Of all", "Share"]),
        after: vec![Column::code("Type")],
        rows: rows.collect(),
        left_out: tables.layer_types.left_out,
    };
    table.tab(tables)
}

fn stages(tables: &ModelTables) -> Tab {
    let rows = tables.stages.iter().map(|of| {
        let before = vec![of.first.to_string(), of.last.to_string()];
        (before, &of.figures, vec![of.stage.to_owned(), of.dominates.join(", ")])
    });
    let table = FigureTable {
        id: "layer-thirds",
        title: "Thirds of the layers",
        before: numbers(["First", "Last"]),
        after: vec![Column::label("Third"), Column::text("What it has most of")],
        rows: rows.collect(),
        left_out: 0,
    };
    table.tab(tables)
}

fn kernels(tables: &ModelTables) -> Tab {
    let rows = tables.kernels.rows.iter().map(|of| {
        let index = of.layer_index.map_or_else(String::new, |index| index.to_string());
        let before = vec![index, percent(of.latency_percent), share(of.modelled_occupancy_percent)];
        (before, &of.figures, vec![of.kernel.clone(), of.layer.clone()])
    });
    let table = FigureTable {
        id: "layer-kernels",
        title: "Kernels by layer",
        before: numbers(["Layer", "Share", "Occupancy (model)"]),
        after: vec![Column::kernel("Kernel"), Column::code("Layer")],
        rows: rows.collect(),
        left_out: tables.kernels.left_out,
    };
    table.tab(tables)
}

fn kernel_names(tables: &ModelTables) -> Tab {
    let rows = tables.kernel_names.rows.iter().map(|of| {
        let before =
            vec![of.layers.to_string(), percent(of.latency_percent), share(of.modelled_occupancy_percent)];
        (before, &of.figures, vec![of.kernel.clone()])
    });
    let table = FigureTable {
        id: "kernel-names",
        title: "Kernels by name",
        before: numbers(["Layers", "Share", "Occupancy (model)"]),
        after: vec![Column::kernel("Kernel")],
        rows: rows.collect(),
        left_out: tables.kernel_names.left_out,
    };
    table.tab(tables)
}

fn frequency(tables: &ModelTables) -> Tab {
    let columns =
        [numbers(["Launches", "Share", "Mean", "Contexts"]), vec![Column::kernel("Kernel")]].concat();
    let rows = tables.kernel_frequency.rows.iter().map(|of| {
        vec![
            scaled(of.launches as f64 / tables.divisor()),
            percent(of.launches_percent),
            of.mean_ns.map_or_else(String::new, |ns| Nanos(ns as u64).to_string()),
            of.contexts.to_string(),
            of.kernel.clone(),
        ]
    });
    let title = per_step(tables, "Kernels by launches");
    tab("kernel-launches", &title, &columns, tables.kernel_frequency.left_out, rows.collect())
}

fn extremes(tables: &ModelTables) -> Tab {
    let columns = [
        Column::label("Most"),
        Column::number("Value"),
        Column::kernel("Kernel"),
        Column::code("Stack, innermost call first"),
    ];
    let rows = tables.extreme_kernels.iter().map(|of| {
        let stack: Vec<&str> = without_stream(of).into_iter().rev().collect();
        vec![of.most.to_owned(), extreme_in_words(of), of.kernel.clone(), stack.join(" ◂ ")]
    });
    tab("extreme-kernels", "Extreme kernels", &columns, 0, rows.collect())
}

/// Devices one below the other, with the same axes.
fn memory_curves(of: &MemoryCurves) -> Tab {
    let most = of.curves.iter().map(|curve| curve.most_bytes).max().unwrap_or(0);
    let windows = of.curves.iter().map(|curve| curve.live_bytes.len()).max().unwrap_or(0);
    let length = Nanos(of.window_ns.saturating_mul(windows as u64));
    let columns = [
        Column::label("Process"),
        Column::label("Device"),
        Column::number("Most"),
        Column::number("Last"),
        Column::curve(&format!("By time: 0 to {length}, height: 0 to {}", Bytes(most))),
    ];
    let rows = of.curves.iter().map(|curve| {
        let last = curve.live_bytes.last().copied().unwrap_or(0);
        let [most_here, last] = [curve.most_bytes, last].map(|bytes| Bytes(bytes).to_string());
        vec![curve.process.clone(), curve.device.clone(), most_here, last, heights(curve, windows, most)]
    });
    first("memory-curves", "Memory over time", &columns, rows)
}

/// Heights from 0 to 100 by window, relative to the device with most; only a window without any memory has 0.
fn heights(curve: &MemoryCurve, windows: usize, most: u64) -> String {
    let height = |bytes: u64| match bytes {
        0 => 0,
        _ => (u128::from(bytes) * 100 / u128::from(most.max(1))).clamp(1, 100),
    };
    let values = curve.live_bytes.iter().copied().chain(std::iter::repeat(0)).take(windows);
    values.map(|bytes| height(bytes).to_string()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use deepctx_profile::metric::Metric;
    use deepctx_profile::profile::Profile;
    use deepctx_profile::text;

    use super::*;
    use crate::model::Peaks;
    use crate::{Selection, Subset};

    fn tabs_of(profile: &Profile) -> Vec<Tab> {
        let subset = Subset::new(profile, &Selection::of(Metric::CpuTime));
        let peaks = Peaks::new(100e9, 10e9, "given");
        tabs(&ModelTables::compute(&subset, Nanos(0), peaks, None)).collect()
    }

    fn tab_of<'t>(tabs: &'t [Tab], id: &str) -> &'t Tab {
        tabs.iter().find(|tab| tab.id == id).unwrap_or_else(|| panic!("no tab {id}"))
    }

    fn add(profile: &mut Profile, path: &str, values: &[(Metric, u64)]) {
        let frames = path.split(" / ").map(|part| text::parse_frame(profile, part).unwrap());
        let stack: Vec<_> = frames.collect();
        values.iter().for_each(|(metric, value)| _ = profile.add(&stack, *metric, *value));
    }

    #[test]
    fn tables_of_a_model_have_their_figures() {
        let mut profile = text::parse("").unwrap();
        let step = (Metric::StepTime, 5_000);
        add(&mut profile, "r Optimizer.step#SGD.step", &[step, step]);
        let work = [(Metric::Calls, 2), (Metric::ModelFlops, 64_000), (Metric::ModelBytes, 3_200)];
        add(&mut profile, "l Net.fc (Linear) / o aten::addmm / o aten::addmm [8x8, 8x8] f32", &work);
        let kernel = [(Metric::GpuTime, 3_000), (Metric::Kernels, 2)];
        add(&mut profile, "l Net.fc (Linear) / o aten::addmm / a cuLaunchKernel / g gemm", &kernel);
        add(&mut profile, "l Net.act (ReLU) / a cuLaunchKernel / g relu", &[(Metric::GpuTime, 1_000)]);
        let tabs = tabs_of(&profile);
        let layers = tab_of(&tabs, "layer-order");
        assert_eq!(layers.title, "Layers in order, per step");
        assert!(layers.rows.iter().all(|row| row.len() == layers.columns.len()));
        let fc = ["1", "75.0%", "1.50 µs", "1", "32k", "1.56 KiB", "20.00", "21.3G", "compute"];
        assert_eq!(layers.rows[0][..fc.len()], fc);
        assert_eq!(layers.rows[0][fc.len()..], ["Net.fc (Linear)\naten::addmm [8x8, 8x8] f32"]);
        let model = tab_of(&tabs, "model");
        assert_eq!(model.rows[0][..3], ["The whole model, per step", "2", "0.0%"]);
        let busy = model.columns.iter().position(|column| *column == Column::text("GPU busy")).unwrap();
        assert_eq!(model.rows[0][busy], "40.0%");
        assert_eq!(tab_of(&tabs, "layer-types").rows[0][0..3], ["1", "50.0%", "75.0%"]);
        let kernel = &tab_of(&tabs, "layer-kernels").rows[0];
        assert_eq!(kernel[..2], ["1", "75.0%"]);
        assert_eq!(kernel[kernel.len() - 2..], ["gemm", "Net.fc (Linear)"]);
        assert_eq!(tab_of(&tabs, "extreme-kernels").rows[0][0], "launches");
        let flops = tab_of(&tabs, "model-basis").rows.iter().find(|row| row[0] == "flops and bytes").unwrap();
        assert_eq!(flops[1], "modelled");
    }

    #[test]
    fn memory_curves_share_their_axes() {
        let mut profile = text::parse("").unwrap();
        for (device, values) in [("n cpu", &[1, 20][..]), ("n cuda:0", &[400, 0, 300][..])] {
            let frames = ["P train-7", device].map(|part| text::parse_frame(&mut profile, part).unwrap());
            let node = profile.add(&frames, Metric::TensorBytes, 1);
            for (window, bytes) in (0u64..).zip(values) {
                let at = Nanos(window * profile.timeline.window().0);
                profile.timeline.add(node, Metric::LiveBytes, at, *bytes);
            }
        }
        let tabs = tabs_of(&profile);
        let tab = tab_of(&tabs, "memory-curves");
        let cuda = ["train-7", "cuda:0", "400 B", "300 B", "100 0 75"];
        assert_eq!(tab.rows, [cuda, ["train-7", "cpu", "20 B", "20 B", "1 5 0"]]);
        assert_eq!(tab.columns[4], Column::curve("By time: 0 to 300 ms, height: 0 to 400 B"));
        assert!(tabs.iter().all(|tab| tab.id != "model"), "it has neither layers nor kernels");
    }
}
