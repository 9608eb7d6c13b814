//! Reports: every table of a profile at once.
//!
//! Owns: [`Report`] and [`Analysis`] (its findings alone), their documents for programs, and the header above the
//! tables. Because: one page must show where the time went and how reliable that is. Does not: render; see
//! [`crate::render`].

use std::collections::BTreeMap;

use deepctx_profile::frame::clean;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{KeptWindow, Profile};
use deepctx_profile::units::Nanos;
use serde::Serialize;

use crate::amount::{Amount, total, value};
use crate::findings::{Findings, Settings};
use crate::tables::compilation::Compilations;
use crate::tables::compiled::CompiledCode;
use crate::tables::devices::Devices;
use crate::tables::instructions::Instructions;
use crate::tables::kernels::Kernels;
use crate::tables::layers::Layers;
use crate::tables::losses::is_finished;
use crate::tables::memory::PeakMemory;
use crate::tables::phases::Phases;
use crate::tables::ranges::Ranges;
use crate::tables::system::SystemMetrics;
use crate::{Contexts, Functions, Losses, Subset};

/// Version of the serialized form: raised when a field is removed or changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// Every table of a profile. Its serialized form is described in `docs/formats.md`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The header above the tables.
    #[serde(flatten)]
    pub overview: Overview,
    /// The conclusions of the rules, with default parameters.
    #[serde(flatten)]
    pub findings: Findings,
    /// Cost of each function.
    pub functions: Functions,
    /// The hottest stacks.
    pub contexts: Contexts,
    /// Cost of each part of training.
    pub phases: Phases,
    /// Times of training steps.
    pub training_steps: Ranges,
    /// Times of named ranges.
    pub ranges: Ranges,
    /// Cost of each layer of a model.
    pub layers: Layers,
    /// Time in compiled code by its origin.
    pub compiled_code: CompiledCode,
    /// Compile time by the line that triggered it.
    pub compilations: Compilations,
    /// Source of device times.
    pub devices: Devices,
    /// Resources of a block of each kernel.
    pub kernels: Kernels,
    /// What sampled warps waited for.
    pub instructions: Instructions,
    /// Who held memory at its peak.
    pub memory: PeakMemory,
    /// Machine metrics.
    pub system: SystemMetrics,
    /// Account of every record.
    #[serde(flatten)]
    pub losses: Losses,
    /// By table: rows beyond the requested number.
    pub rows_left_out: BTreeMap<&'static str, usize>,
}

/// The document of `analyze --format json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was profiled; empty when it has no name.
    pub target: String,
    /// Length of the capture; 0 when unknown.
    pub elapsed_ns: u64,
    /// What the rules conclude.
    #[serde(flatten)]
    pub findings: Findings,
}

impl Analysis {
    /// Runs the rules. `elapsed` is the length of the capture, zero when unknown.
    pub fn compute(subset: &Subset<'_>, elapsed: Nanos, settings: &Settings) -> Self {
        Analysis {
            schema_version: SCHEMA_VERSION,
            target: clean(&subset.profile().meta.target),
            elapsed_ns: elapsed.0,
            findings: Findings::compute(subset, elapsed, settings),
        }
    }
}

/// Subject of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    /// What was profiled; empty when it has no name.
    pub target: String,
    /// Name of the host; empty when unknown.
    pub host: String,
    /// Length of the capture; 0 when unknown.
    pub elapsed_ns: u64,
    /// Whether the capture ended well.
    pub finished: bool,
    /// Sampling frequency per CPU; 0 when nothing was sampled.
    pub frequency_hz: u32,
    /// Name of the metric of the selection.
    pub metric: &'static str,
    /// Its sum over everything shown.
    #[serde(flatten, serialize_with = "total")]
    pub total: Amount,
    /// Number of its values.
    pub values: u64,
    /// Calling contexts of the profile.
    pub calling_contexts: u64,
    /// Share of time with attached probes, in words; `None` if it was all.
    pub probe_note: Option<String>,
    /// For a profile of a flight recorder: its part of the capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptWindow>,
    /// Every metric that the profile has values of.
    pub metrics: Vec<MetricTotal>,
}

/// A metric that the profile has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricTotal {
    /// Its name.
    pub metric: &'static str,
    /// Its sum over the whole profile.
    #[serde(flatten, serialize_with = "value")]
    pub value: Amount,
}

impl MetricTotal {
    /// Those of a profile.
    pub fn all(profile: &Profile) -> Vec<Self> {
        let total = |metric: Metric| MetricTotal {
            metric: metric.name(),
            value: Amount::new(profile.tree.total(metric).sum, metric.unit()),
        };
        profile.tree.metrics_with_sum().map(total).collect()
    }
}

impl Report {
    /// Computes every table. `elapsed` is the length of the capture, zero when unknown.
    pub fn compute(subset: &Subset<'_>, elapsed: Nanos) -> Self {
        let mut report = Report {
            schema_version: SCHEMA_VERSION,
            overview: Overview::compute(subset, elapsed),
            findings: Findings::compute(subset, elapsed, &Settings::default()),
            functions: Functions::compute(subset),
            contexts: Contexts::compute(subset),
            phases: Phases::compute(subset),
            training_steps: Ranges::training_steps(subset),
            ranges: Ranges::compute(subset),
            layers: Layers::compute(subset),
            compiled_code: CompiledCode::compute(subset),
            compilations: Compilations::compute(subset),
            devices: Devices::compute(subset),
            kernels: Kernels::compute(subset),
            instructions: Instructions::compute(subset),
            memory: PeakMemory::compute(subset),
            system: SystemMetrics::compute(subset, elapsed),
            losses: Losses::compute(subset.profile()),
            rows_left_out: BTreeMap::new(),
        };
        report.rows_left_out = report.left_out();
        report
    }

    /// By table: rows left out. The report is destructured, so that the compiler finds a forgotten new table.
    fn left_out(&self) -> BTreeMap<&'static str, usize> {
        let Report {
            functions,
            contexts,
            training_steps,
            ranges,
            layers,
            compiled_code,
            compilations,
            devices,
            kernels,
            instructions,
            memory,
            system,
            // These are never cut.
            schema_version: _,
            overview: _,
            findings: _,
            phases: _,
            losses: _,
            rows_left_out: _,
        } = self;
        let of_kernels = instructions.rows.iter().map(|kernel| kernel.instructions.left_out).sum();
        let holders = memory.rows.iter().map(|pool| pool.holders.left_out).sum();
        BTreeMap::from([
            ("compilations", compilations.left_out),
            ("compiled_code", compiled_code.rows.left_out),
            ("contexts", contexts.left_out),
            ("devices", devices.left_out),
            ("functions", functions.left_out),
            ("instructions", instructions.left_out),
            ("instructions.instructions", of_kernels),
            ("kernels", kernels.left_out),
            ("layers", layers.left_out),
            ("memory", memory.left_out),
            ("memory.holders", holders),
            ("ranges", ranges.left_out),
            ("system", system.left_out),
            ("training_steps", training_steps.left_out),
        ])
    }
}

impl Overview {
    fn compute(subset: &Subset<'_>, elapsed: Nanos) -> Self {
        let (profile, metric) = (subset.profile(), subset.metric());
        Overview {
            target: clean(&profile.meta.target),
            host: clean(&profile.meta.host),
            elapsed_ns: elapsed.0,
            finished: is_finished(profile),
            frequency_hz: profile.meta.frequency_hz,
            metric: metric.name(),
            total: Amount::new(subset.total(), metric.unit()),
            values: profile.tree.total(metric).count,
            calling_contexts: profile.tree.len() as u64 - 1,
            probe_note: profile.ledger.duty_cycled().map(clean),
            kept: profile.meta.kept.clone().map(|kept| KeptWindow { because: clean(&kept.because), ..kept }),
            metrics: MetricTotal::all(profile),
        }
    }
}
