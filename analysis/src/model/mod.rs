//! Tables of a model: layers, their types, kernels and rooflines, from a profile.
//!
//! Owns: [`ModelTables`], a file for each level of the model. Because: a table of functions does not show what each
//! layer of a network costs, or whether arithmetic or memory limits it. Does not: measure operations or bytes: both are
//! modelled from tensor sizes, and labeled so.
//!
//! Definitions are those of XSP (Li et al., IPDPS 2020), by its numbers: A2 to A4, A11, A12 and A14 are columns of
//! [`ModelTables::layers`], A5 to A7 of [`ModelTables::layer_types`], A8 and A9 of [`ModelTables::kernels`], A10 is
//! [`ModelTables::kernel_names`], A15 [`ModelTables::totals`], its stage analysis [`ModelTables::stages`]. A1 needs
//! several runs. A13 subtracts the time of kernels from that of their layer; sums do not show how much of both
//! overlapped, so both are listed instead.

mod contexts;
mod extremes;
mod figures;
mod kernels;
mod layers;
mod memory_curves;
mod peaks;

use deepctx_profile::frame::clean;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::trace::{HostKind, Job};
use deepctx_profile::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::amount::percent;
use crate::findings::Basis;
use crate::tables::phases::{step_cell, steps_in_sums, steps_in_sums_ns, training_steps};
use crate::{Subset, Table};

use contexts::ModelContexts;
use extremes::KernelCounts;
use figures::AvailableFigures;
use kernels::KernelsByLayer;
use layers::{LayerSums, stages, types};

pub use contexts::LayerKind;
pub use extremes::{ExtremeKernel, KernelFrequency};
pub use figures::Figures;
pub use kernels::{KernelName, LayerKernel};
pub use layers::{LayerType, ModelLayer, Stage};
pub use memory_curves::{MemoryCurve, MemoryCurves};
pub use peaks::{Bound, Peaks};

/// Version of the serialized form: raised when a field is removed or changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// Minimum share of the modelled operations that began with a stack, for figures by layer, in percent.
const WITH_STACK_PERCENT_MIN: f64 = 95.0;
/// Minimum share of the capture that training steps cover, for figures per step, in percent.
const STEPS_PERCENT_MIN: f64 = 75.0;

/// A table of a model, as a user asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelTable {
    /// The whole model (A15).
    Totals,
    /// Layers (A2 to A4, A11 to A14).
    Layers,
    /// Layers by type (A5 to A7).
    LayerTypes,
    /// Thirds of the layers.
    Stages,
    /// Kernels by layer (A8, A9).
    Kernels,
    /// Kernels by name (A10).
    KernelNames,
    /// Kernels by launches.
    KernelFrequency,
    /// Kernels with extreme values, each with its whole stack.
    ExtremeKernels,
    /// Tensor memory over time, by device.
    MemoryCurves,
}

impl ModelTable {
    /// Every table, in output order.
    pub const ALL: &'static [ModelTable] = &[
        ModelTable::Totals,
        ModelTable::Layers,
        ModelTable::LayerTypes,
        ModelTable::Stages,
        ModelTable::Kernels,
        ModelTable::KernelNames,
        ModelTable::KernelFrequency,
        ModelTable::ExtremeKernels,
        ModelTable::MemoryCurves,
    ];

    /// Field of the document that holds it.
    pub const fn field(self) -> &'static str {
        match self {
            ModelTable::Totals => "totals",
            ModelTable::Layers => "layers",
            ModelTable::LayerTypes => "layer_types",
            ModelTable::Stages => "stages",
            ModelTable::Kernels => "kernels",
            ModelTable::KernelNames => "kernel_names",
            ModelTable::KernelFrequency => "kernel_frequency",
            ModelTable::ExtremeKernels => "extreme_kernels",
            ModelTable::MemoryCurves => "memory_curves",
        }
    }

    /// Its command-line name.
    pub fn name(self) -> String {
        self.field().replace('_', "-")
    }

    /// Its title, in a few words.
    pub const fn subject(self) -> &'static str {
        match self {
            ModelTable::Totals => "The whole model",
            ModelTable::Layers => "Layers",
            ModelTable::LayerTypes => "Layers by type",
            ModelTable::Stages => "Thirds of the layers, by index",
            ModelTable::Kernels => "Kernels by layer",
            ModelTable::KernelNames => "Kernels by name",
            ModelTable::KernelFrequency => "Kernels by launches",
            ModelTable::ExtremeKernels => "Kernels with most of something, each with its whole stack",
            ModelTable::MemoryCurves => "Memory of tensors over time, by device",
        }
    }
}

/// Every table of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelTables {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was profiled; empty when it has no name.
    pub target: String,
    /// Timed training steps of the profile; `None` if they are unknown, or cover only a part of the capture. Figures
    /// are sums, over as many steps as [`StepTimes::in_sums`] says.
    pub training_steps: Option<u64>,
    /// Times of training steps, even if they cover only a part of the capture.
    pub step_times: Option<StepTimes>,
    /// What the layers are.
    pub layers_are: LayerKind,
    /// How each figure was obtained, or why it is missing.
    pub basis: Vec<FigureBasis>,
    /// The device's peaks; `None` if unknown.
    pub peaks: Option<Peaks>,
    /// The whole model.
    pub totals: ModelTotals,
    /// Layers in the order in which they were first seen.
    pub layers: Table<ModelLayer>,
    /// Layers by type, most latency first.
    pub layer_types: Table<LayerType>,
    /// The layers in three parts.
    pub stages: Vec<Stage>,
    /// Kernels by layer, most time first.
    pub kernels: Table<LayerKernel>,
    /// Kernels by name, most time first.
    pub kernel_names: Table<KernelName>,
    /// Kernels by name, most launches first.
    pub kernel_frequency: Table<KernelFrequency>,
    /// Kernels with extreme values.
    pub extreme_kernels: Vec<ExtremeKernel>,
    /// Memory of tensors over time.
    pub memory_curves: MemoryCurves,
}

/// How a figure was obtained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FigureBasis {
    /// Name of the figure.
    pub figure: &'static str,
    /// How; `None` when it is missing.
    pub basis: Option<Basis>,
    /// Its source, or why it is missing.
    pub because: String,
    /// The option that records it; `None` if it exists, or if no option helps.
    pub record_with: Option<&'static str>,
}

/// Times of training steps at the place that ended most of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    /// How many were timed, each from the end of one to the end of the next.
    pub count: u64,
    /// How many the sums of the capture are of, which also have work before and after those that were timed: the
    /// divisor for figures of one step.
    pub in_sums: f64,
    /// Mean.
    pub mean_ns: f64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Median; `None` unless single events were recorded.
    pub median_ns: Option<f64>,
}

/// The whole model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelTotals {
    /// Layers with a figure.
    pub layers: usize,
    /// Latency outside any layer, as a share of all.
    pub outside_layers_percent: f64,
    /// Latency below operators that convolve, as a share of all.
    pub convolution_percent: f64,
    /// Time of kernels as a share of the length of the training steps in the sums if these cover the capture, or else
    /// of the capture; above 100 if kernels run at once. `None` if unknown.
    pub gpu_percent: Option<f64>,
    /// Mean occupancy allowed by registers and shared memory, weighted by latency.
    pub modelled_occupancy_percent: Option<f64>,
    /// Peak bytes of tensors, over all devices of all processes; `None` if allocations were not recorded.
    pub peak_memory_bytes: Option<u64>,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

impl ModelTables {
    /// Computes every table. `elapsed` is the length of the capture, zero when unknown; `peaks` come from the user,
    /// else those of the profile's devices count. `job`: single events of the same capture, if any.
    pub fn compute(subset: &Subset<'_>, elapsed: Nanos, peaks: Option<Peaks>, job: Option<&Job>) -> Self {
        let (profile, most) = (subset.profile(), subset.selection().rows);
        let peaks = peaks.or_else(|| Peaks::of_profile(profile));
        let mut available = AvailableFigures::of(profile, peaks.clone());
        let steps = Steps::of(profile, elapsed);
        available.rates |= steps.are_all();
        let contexts = ModelContexts::of(profile);
        let by_layer = LayerSums::of(profile, &contexts, &available);
        let whole = by_layer.total();
        let with_stack_percent =
            percent(whole.flops.saturating_sub(by_layer.flops_without_stack), whole.flops);
        let kernels = KernelsByLayer::of(profile, &contexts);
        let totals = totals(profile, elapsed, &steps, &by_layer, &kernels, &available);
        let basis = basis(&available, &steps, &contexts, &kernels, with_stack_percent);
        // Figures by layer would cover only operators that happened to get a stack.
        available.work &= with_stack_percent >= WITH_STACK_PERCENT_MIN;
        let rows = by_layer.rows(&contexts, &available);
        let numbers = by_layer.numbers();
        let of_layer = |number: usize| {
            let index = *numbers.get(number)?;
            Some((index, contexts.layers.get(number)?.layer.clone()))
        };
        let counts = KernelCounts::of(profile);
        ModelTables {
            schema_version: SCHEMA_VERSION,
            target: clean(&profile.meta.target),
            training_steps: steps.count.filter(|_| steps.are_all()),
            step_times: step_times(profile, elapsed, job),
            layers_are: contexts.kind,
            basis,
            totals: ModelTotals { layers: rows.len(), ..totals },
            layer_types: Table::cut(types(&rows, whole.latency_ns(&available), &available), most),
            stages: stages(&rows, &available),
            kernels: Table::cut(kernels.rows(profile, &available, of_layer), most),
            kernel_names: Table::cut(kernels.names(profile, &available), most),
            kernel_frequency: Table::cut(counts.frequency(profile), most),
            extreme_kernels: counts.extremes(profile),
            memory_curves: MemoryCurves::of(profile),
            layers: Table::cut(rows.into_iter().map(|(row, _)| row).collect(), most),
            peaks,
        }
    }

    /// Divisor of the figures in a table: the steps of the sums, or 1 where steps cover only a part of the capture.
    pub(crate) fn divisor(&self) -> f64 {
        let of_steps = self.training_steps.and(self.step_times.as_ref());
        of_steps.map_or(1.0, |of| of.in_sums.max(1.0))
    }
}

fn step_times(profile: &Profile, elapsed: Nanos, job: Option<&Job>) -> Option<StepTimes> {
    let most = step_cell(profile)?;
    Some(StepTimes {
        count: most.count,
        in_sums: steps_in_sums(&most, elapsed),
        mean_ns: most.mean()?,
        min_ns: most.min,
        max_ns: most.max,
        median_ns: job.and_then(median_step_ns),
    })
}

fn median_step_ns(job: &Job) -> Option<f64> {
    let events = job.ranks().iter().flat_map(|rank| rank.trace.host.iter());
    let steps = events.filter(|(_, op)| op.kind == HostKind::Step && op.duration.0 > 0);
    let mut lengths: Vec<u64> = steps.map(|(_, op)| op.duration.0).collect();
    lengths.sort_unstable();
    let middle = lengths.len() / 2;
    let upper = *lengths.get(middle)?;
    let lower = if lengths.len().is_multiple_of(2) { *lengths.get(middle - 1)? } else { upper };
    Some((upper as f64 + lower as f64) / 2.0)
}

/// Training steps, and how much of the capture they cover.
struct Steps {
    count: Option<u64>,
    /// Steps that the sums are of.
    in_sums: f64,
    /// Share of the capture; everything while its length is not known.
    covered_percent: f64,
}

impl Steps {
    fn of(profile: &Profile, elapsed: Nanos) -> Self {
        let length_ns = profile.tree.cells(Metric::StepTime).map(|(_, cell)| cell.sum).max().unwrap_or(0);
        let covered_percent = if elapsed.0 == 0 { 100.0 } else { percent(length_ns, elapsed.0) };
        let in_sums = step_cell(profile).map_or(0.0, |cell| steps_in_sums(&cell, elapsed));
        Steps { count: training_steps(profile), in_sums, covered_percent }
    }

    /// Whether they cover the capture, so that all samples belong to them.
    fn are_all(&self) -> bool {
        self.count.is_some() && self.covered_percent >= STEPS_PERCENT_MIN
    }

    fn basis(&self) -> FigureBasis {
        let figure = "steps";
        match self.count {
            None => missing(figure, "ends of training steps were not recorded", Some("--probe ranges")),
            Some(_) if !self.are_all() => missing(
                figure,
                &format!(
                    "they cover {:.0} % of the capture: figures are sums over all of it",
                    self.covered_percent
                ),
                None,
            ),
            Some(count) => FigureBasis {
                figure,
                basis: Some(Basis::Measured),
                because: format!(
                    "{count} were timed, from the end of one to the end of the next; sums are of {}",
                    in_tenths(self.in_sums)
                ),
                record_with: None,
            },
        }
    }
}

/// A number of steps in the sums, in words.
pub(crate) fn in_tenths(steps: f64) -> String {
    ((steps * 10.0).round() / 10.0).to_string()
}

fn totals(
    profile: &Profile,
    elapsed: Nanos,
    steps: &Steps,
    by_layer: &LayerSums,
    kernels: &KernelsByLayer,
    available: &AvailableFigures,
) -> ModelTotals {
    let whole = by_layer.total();
    let whole_ns = whole.latency_ns(available);
    // Kernels are of the whole capture, so steps that cover a part of it are no divisor.
    let length_ns = if steps.are_all() { steps_in_sums_ns(profile, elapsed) } else { elapsed.0 };
    ModelTotals {
        layers: 0,
        outside_layers_percent: percent(by_layer.outside.latency_ns(available), whole_ns),
        convolution_percent: percent(by_layer.convolution_ns, whole_ns),
        gpu_percent: (available.gpu && length_ns > 0).then(|| percent(whole.gpu_ns, length_ns)),
        modelled_occupancy_percent: kernels.occupancy_percent(),
        peak_memory_bytes: peak_memory_bytes(profile),
        figures: whole.figures(available),
    }
}

fn peak_memory_bytes(profile: &Profile) -> Option<u64> {
    let peaks = profile.memory.iter().map(|pool| pool.peak_bytes);
    Some(peaks.fold(0, u64::saturating_add)).filter(|peak| *peak > 0)
}

/// Why there is no figure, and the option that records it.
fn missing(figure: &'static str, because: &str, record_with: Option<&'static str>) -> FigureBasis {
    FigureBasis { figure, basis: None, because: because.to_owned(), record_with }
}

fn basis(
    available: &AvailableFigures,
    steps: &Steps,
    contexts: &ModelContexts,
    kernels: &KernelsByLayer,
    with_stack_percent: f64,
) -> Vec<FigureBasis> {
    let there = |figure, basis, because: String| FigureBasis {
        figure,
        basis: Some(basis),
        because,
        record_with: None,
    };
    let layers = match contexts.kind {
        LayerKind::Modules => there("layers", Basis::Measured, "calls of modules, innermost ones".to_owned()),
        LayerKind::Operators => FigureBasis {
            record_with: Some("--probe modules"),
            ..there("layers", Basis::Measured, "outermost operators by the line that calls them".to_owned())
        },
        LayerKind::None => {
            missing("layers", "neither modules nor operators are in the profile", Some("--probe modules"))
        }
    };
    let latency = match (available.gpu, available.host) {
        (true, _) => there("latency", Basis::Measured, "time of kernels on devices".to_owned()),
        (false, Some(Metric::CpuTime)) => {
            there("latency", Basis::Measured, "samples of time on CPUs".to_owned())
        }
        (false, Some(metric)) => there("latency", Basis::Measured, metric.name().to_owned()),
        (false, None) => missing("latency", "the profile has no times", None),
    };
    let allocated = match available.allocated {
        true => there("allocated bytes", Basis::Measured, "allocations of tensors".to_owned()),
        false => missing("allocated bytes", "allocations were not recorded", Some("--probe memory")),
    };
    vec![
        layers,
        steps.basis(),
        latency,
        allocated,
        work_basis(available, with_stack_percent),
        match kernels.occupancy_percent() {
            Some(_) => {
                there("occupancy", Basis::Modelled, "registers and shared memory of a block".to_owned())
            }
            None => missing("occupancy", "registers of kernels are not known", Some("--gpu-activity")),
        },
        match &available.peaks {
            Some(peaks) => there("peaks", Basis::Measured, peaks.source.clone()),
            None => missing(
                "peaks",
                match available.gpu {
                    true => "the name of the device is not known, or not in the table of data sheets",
                    false => "there is no table of CPUs",
                },
                Some("report --peak-flops and --peak-bandwidth"),
            ),
        },
    ]
}

fn work_basis(available: &AvailableFigures, with_stack_percent: f64) -> FigureBasis {
    let figure = "flops and bytes";
    if !available.work {
        let why = "sizes of tensors were not recorded";
        return missing(
            figure,
            why,
            Some("--probe operators --operator-stacks all --shapes aten::mm,aten::addmm,…"),
        );
    }
    let modelled = FigureBasis {
        figure,
        basis: Some(Basis::Modelled),
        because: "sizes of tensors, of the operators whose tensors were recorded".to_owned(),
        record_with: None,
    };
    if with_stack_percent >= WITH_STACK_PERCENT_MIN {
        return modelled;
    }
    FigureBasis {
        because: format!(
            "{}; {with_stack_percent:.0} % of the operations have a stack, so that layers have none",
            modelled.because
        ),
        record_with: Some("--operator-stacks all"),
        ..modelled
    }
}

#[cfg(test)]
mod tests;
