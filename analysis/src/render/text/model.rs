//! Text of the tables of a model.
//!
//! Owns: [`write()`], and their columns. Because: each of these tables has the same figures. Does not: compute.

use std::io::{self, Write};

use deepctx_profile::units::{Bytes, Nanos};

use super::figures::{more, none, scaled};
use super::{NAME_WIDTH, Names, extremes, share, short_kernels, without_middle};
use crate::model::{
    FigureBasis, Figures, KernelName, LayerKernel, LayerType, ModelLayer, ModelTable, ModelTables, Stage,
    in_tenths,
};

/// Writes the requested tables, after the basis of their figures. Figures are per training step if steps are known.
///
/// # Errors
/// Those of `out`.
pub fn write(
    tables: &ModelTables,
    which: &[ModelTable],
    names: Names,
    out: &mut dyn Write,
) -> io::Result<()> {
    let target = if tables.target.is_empty() { "an unnamed target" } else { &tables.target };
    let per_step = match tables.training_steps {
        Some(_) => format!(": per training step, sums divided by {}", in_tenths(tables.divisor())),
        None => ": sums over the whole profile".to_owned(),
    };
    writeln!(out, "{target}{per_step}")?;
    tables.basis.iter().try_for_each(|row| basis(row, out))?;
    let steps = tables.divisor();
    for table in ModelTable::ALL.iter().filter(|table| which.contains(table)) {
        match table {
            ModelTable::Totals => totals(tables, steps, out)?,
            ModelTable::Layers => layers(tables, steps, out)?,
            ModelTable::LayerTypes => layer_types(tables, steps, out)?,
            ModelTable::Stages => stages(tables, steps, out)?,
            ModelTable::Kernels => kernels(tables, steps, names, out)?,
            ModelTable::KernelNames => kernel_names(tables, steps, names, out)?,
            ModelTable::KernelFrequency => extremes::frequency(tables, steps, names, out)?,
            ModelTable::ExtremeKernels => extremes::kernels(tables, names, out)?,
            ModelTable::MemoryCurves => extremes::memory(tables, out)?,
        }
    }
    out.flush()
}

fn basis(row: &FigureBasis, out: &mut dyn Write) -> io::Result<()> {
    let how = row.basis.map_or_else(|| "missing".to_owned(), |basis| basis.to_string());
    let more = row.record_with.map_or_else(String::new, |with| format!(" ({with})"));
    writeln!(out, "  {:16} {how:9} {}{more}", row.figure, row.because)
}

/// A row: its own columns, its figures and its name.
type Row<'t> = (Vec<String>, &'t Figures, String);

fn totals(tables: &ModelTables, steps: f64, out: &mut dyn Write) -> io::Result<()> {
    let of = &tables.totals;
    writeln!(out, "\nTotals")?;
    let own = vec![
        of.layers.to_string(),
        share(of.outside_layers_percent),
        share(of.convolution_percent),
        of.gpu_percent.map_or_else(none, share),
        of.modelled_occupancy_percent.map_or_else(none, share),
    ];
    let titles = ["layers", "outside", "in conv.", "GPU busy", "occup."];
    rows(&titles, "", &[(own, &of.figures, String::new())], steps, out)
}

fn layers(tables: &ModelTables, steps: f64, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nLayers, in the order in which they were first seen, without the layers in them")?;
    if tables.layers.is_empty() {
        return writeln!(out, "  the profile has no layers");
    }
    let row = |of: &ModelLayer| vec![of.index.to_string(), share(of.latency_percent)];
    let all = tables.layers.rows.iter().map(|of| (row(of), &of.figures, name(of)));
    rows(&["index", "share"], "layer, type, shape", &all.collect::<Vec<_>>(), steps, out)?;
    more(tables.layers.left_out, "layer", out)
}

fn name(row: &ModelLayer) -> String {
    let mut name = without_middle(&row.layer, NAME_WIDTH);
    // `Net.fc (Linear)` and `train.py:step:3 ▸ aten::relu` already contain their type.
    if !row.layer.ends_with(&row.layer_type) && !row.layer.ends_with(&format!("({})", row.layer_type)) {
        name.push_str(&format!("  {}", row.layer_type));
    }
    if let Some(shape) = &row.shape {
        name.push_str(&format!("  {}", without_middle(shape, NAME_WIDTH)));
    }
    name
}

fn layer_types(tables: &ModelTables, steps: f64, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nLayers by type")?;
    if tables.layer_types.is_empty() {
        return writeln!(out, "  the profile has no layers");
    }
    let row =
        |of: &LayerType| vec![of.layers.to_string(), share(of.layers_percent), share(of.latency_percent)];
    let all = tables.layer_types.rows.iter().map(|of| (row(of), &of.figures, of.layer_type.clone()));
    rows(&["layers", "of all", "share"], "type", &all.collect::<Vec<_>>(), steps, out)?;
    more(tables.layer_types.left_out, "type", out)
}

fn stages(tables: &ModelTables, steps: f64, out: &mut dyn Write) -> io::Result<()> {
    if tables.stages.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nThirds of the layers, by index")?;
    let name = |of: &Stage| match of.dominates.is_empty() {
        true => of.stage.to_owned(),
        false => format!("{}: {}", of.stage, of.dominates.join(", ")),
    };
    let row = |of: &Stage| vec![of.first.to_string(), of.last.to_string()];
    let all = tables.stages.iter().map(|of| (row(of), &of.figures, name(of)));
    rows(&["first", "last"], "stage, and what it has most of", &all.collect::<Vec<_>>(), steps, out)
}

fn kernels(tables: &ModelTables, steps: f64, names: Names, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nKernels by layer")?;
    if tables.kernels.is_empty() {
        return writeln!(out, "  the profile has no kernels");
    }
    let row = |of: &LayerKernel| {
        vec![
            of.layer_index.map_or_else(none, |index| index.to_string()),
            share(of.latency_percent),
            of.modelled_occupancy_percent.map_or_else(none, share),
        ]
    };
    let all = tables.kernels.rows.iter();
    let names = short_kernels(all.clone().map(|of| &of.kernel), names.width(NAME_WIDTH));
    let all = all.zip(names).map(|(of, name)| (row(of), &of.figures, name));
    rows(&["layer", "share", "occup."], "kernel", &all.collect::<Vec<_>>(), steps, out)?;
    more(tables.kernels.left_out, "kernel", out)
}

fn kernel_names(tables: &ModelTables, steps: f64, names: Names, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nKernels by name")?;
    if tables.kernel_names.is_empty() {
        return writeln!(out, "  the profile has no kernels");
    }
    let row = |of: &KernelName| {
        vec![
            of.layers.to_string(),
            share(of.latency_percent),
            of.modelled_occupancy_percent.map_or_else(none, share),
        ]
    };
    let all = tables.kernel_names.rows.iter();
    let names = short_kernels(all.clone().map(|of| &of.kernel), names.width(NAME_WIDTH));
    let all = all.zip(names).map(|(of, name)| (row(of), &of.figures, name));
    rows(&["layers", "share", "occup."], "kernel", &all.collect::<Vec<_>>(), steps, out)?;
    more(tables.kernel_names.left_out, "kernel", out)
}

/// Writes rows, with the figures that at least one of them has.
fn rows(titles: &[&str], name: &str, rows: &[Row<'_>], steps: f64, out: &mut dyn Write) -> io::Result<()> {
    let written: Vec<_> = rows.iter().map(|(_, figures, _)| figure_cells(figures, steps)).collect();
    let shown: Vec<usize> =
        (0..FIGURES.len()).filter(|at| written.iter().any(|row| row[*at].is_some())).collect();
    titles.iter().try_for_each(|title| write!(out, "  {title:>8}"))?;
    shown.iter().try_for_each(|at| write!(out, "  {:>9}", FIGURES[*at]))?;
    writeln!(out, "{}", format!("  {name}").trim_end())?;
    for ((own, _, name), figures) in rows.iter().zip(&written) {
        own.iter().try_for_each(|value| write!(out, "  {value:>8}"))?;
        for at in &shown {
            write!(out, "  {:>9}", figures[*at].clone().unwrap_or_else(none))?;
        }
        writeln!(out, "{}", format!("  {name}").trim_end())?;
    }
    Ok(())
}

/// Titles of the figures.
pub(in crate::render) const FIGURES: [&str; 9] =
    ["latency", "CPU", "kernels", "allocated", "flops", "bytes", "flops/B", "flops/s", "bound"];

/// The figures of one step, by their titles; `None` is unknown. `steps`: [`ModelTables::divisor`].
pub(in crate::render) fn figure_cells(figures: &Figures, steps: f64) -> [Option<String>; FIGURES.len()] {
    let time = |ns: u64| Nanos((ns as f64 / steps) as u64).to_string();
    let bytes = |bytes: u64| Bytes((bytes as f64 / steps) as u64).to_string();
    let count = |count: u64| scaled(count as f64 / steps);
    [
        figures.latency_ns.map(time),
        // Without device times, that is the latency.
        figures.host_ns.filter(|_| figures.gpu_ns.is_some()).map(time),
        figures.kernels.map(count),
        figures.allocated_bytes.map(bytes),
        figures.modelled_flops.map(count),
        figures.modelled_bytes.map(bytes),
        figures.modelled_flops_per_byte.map(|of| format!("{of:.2}")),
        figures.modelled_flops_per_second.map(scaled),
        figures.bound.map(|bound| bound.name().to_owned()),
    ]
}
