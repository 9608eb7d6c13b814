//! GPU windows: how busy GPUs were in each time window, as reported by their driver.
//!
//! Owns: [`gpus`], and the first window to examine: the first in which a GPU was busy, since a program imports and
//! loads before. Because: SageMaker Debugger's rules on utilization compare percentiles of the same figures. Does not:
//! apply thresholds.

use deepctx_profile::metric::Metric;

use super::{Facts, Outcome};
use crate::amount::percent;
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::tables::system::{Percentiles, SystemMetric, rows};

/// What rules about readings of GPUs require of the length of a capture.
pub(super) const MIN_SECONDS: Parameter =
    Parameter { name: "min_seconds", default: 10.0, source: "own; SageMaker Debugger waits for 1000 values" };

/// Share of the windows that SageMaker's limits on use are about.
pub(super) const NEARLY_ALL: f64 = 0.95;

/// Minimum share of the machine's readings that a GPU must have answered, percent: this excludes a driver that starts
/// late. A window without a reading is like one of an idle GPU, so they must be fewer than the 5 % by which rules tell
/// that a GPU is often idle.
const READINGS_MIN_PERCENT: f64 = 96.0;

/// Utilization of active GPUs, and of the CPUs, in percent, by time window.
pub(super) struct Utilization {
    pub(super) gpus: Vec<GpuUtilization>,
    pub(super) cpus: Percentiles,
    /// Number of the first window in the timeline.
    pub(super) first: usize,
    /// Windows of time.
    pub(super) windows: u64,
    /// Their share of the capture.
    pub(super) share: f64,
}

impl Utilization {
    /// Converts a share of these windows to a share of the capture, both in percent.
    pub(super) fn of_capture(&self, percent: f64) -> f64 {
        percent * self.share
    }

    /// Mean over the GPUs.
    pub(super) fn mean_busy(&self) -> f64 {
        self.gpus.iter().map(|gpu| gpu.mean_busy).sum::<f64>() / self.gpus.len().max(1) as f64
    }

    /// What each GPU stays below in nearly all windows.
    pub(super) fn busy_at_most(&self) -> f64 {
        self.gpus.iter().filter_map(|gpu| gpu.busy.at(NEARLY_ALL)).fold(0.0, f64::max)
    }

    /// How busy the busiest GPU was, window by window.
    pub(super) fn busiest(&self) -> impl Iterator<Item = f64> + '_ {
        (0..self.windows as usize).map(move |at| {
            let of_window = self.gpus.iter().filter_map(|gpu| gpu.by_time.get(at));
            of_window.copied().fold(0.0, f64::max)
        })
    }
}

/// One GPU.
pub(super) struct GpuUtilization {
    /// As the table of the machine names it.
    pub(super) name: String,
    pub(super) busy: Percentiles,
    /// The same in the order of time.
    pub(super) by_time: Vec<f64>,
    /// Mean over the windows.
    pub(super) mean_busy: f64,
    /// Used part of its memory; `None` if the driver does not report it.
    pub(super) memory: Option<Percentiles>,
}

/// Only for a program that launched something: the driver does not report whose work the GPUs ran.
pub(super) fn gpus(facts: &Facts<'_>, min_seconds: f64) -> Result<Utilization, Outcome> {
    if !facts.whole_has(Metric::Kernels) {
        return Err(Outcome::missing(reason::NO_KERNEL_LAUNCHES));
    }
    let no_gpus = || Outcome::missing(reason::NO_GPU_READINGS);
    // Checked first: the live view runs this every few seconds, and most machines have no GPU.
    if !facts.whole_has(Metric::GpuBusyTime) {
        return Err(no_gpus());
    }
    let all = rows(facts.whole(), facts.elapsed());
    // A figure without a timeline has zeros in all windows.
    let is_of = |row: &SystemMetric, metric: Metric| {
        row.figure == metric.name().trim_start_matches("system:")
            && row.by_time.iter().any(|value| *value > 0.0)
    };
    let of = |resource: &str, metric| all.iter().find(|row| row.resource == resource && is_of(row, metric));
    let is_gpu = |row: &&SystemMetric| row.resource.starts_with("gpu ") && is_of(row, Metric::GpuBusyTime);
    let busy: Vec<&SystemMetric> = all.iter().filter(is_gpu).collect();
    let (Some(cpus), false) = (of("all cpus", Metric::CpuBusyTime), busy.is_empty()) else {
        return Err(no_gpus());
    };
    if facts.elapsed().as_seconds() < min_seconds || !readings_came(facts) {
        return Err(Outcome::missing(reason::TOO_FEW_GPU_READINGS));
    }
    let first =
        busy.iter().filter_map(|row| row.by_time.iter().position(|busy| *busy > 0.0)).min().unwrap_or(0);
    let since = |row: &SystemMetric| row.by_time.get(first..).unwrap_or_default().to_vec();
    let gpus = busy.into_iter().map(|row| {
        let used = of(&row.resource, Metric::MemoryUsedBytes);
        let total = of(&row.resource, Metric::MemoryTotalBytes);
        let memory = used.zip(total).map(|(used, total)| {
            let taken = |(used, total): (&f64, &f64)| if *total > 0.0 { used * 100.0 / total } else { 0.0 };
            Percentiles::of(&since(used).iter().zip(&since(total)).map(taken).collect::<Vec<_>>())
        });
        let by_time = since(row);
        let mean = by_time.iter().sum::<f64>() / by_time.len().max(1) as f64;
        GpuUtilization {
            name: row.resource.clone(),
            busy: Percentiles::of(&by_time),
            by_time,
            mean_busy: mean.clamp(0.0, 100.0),
            memory,
        }
    });
    let (all, since) = (cpus.by_time.len(), since(cpus));
    Ok(Utilization {
        gpus: gpus.collect(),
        cpus: Percentiles::of(&since),
        first,
        windows: since.len() as u64,
        share: since.len() as f64 / all.max(1) as f64,
    })
}

/// Whether the driver answered at every reading of the machine.
fn readings_came(facts: &Facts<'_>) -> bool {
    let tree = &facts.whole().tree;
    let most = |metric| tree.cells(metric).map(|(_, cell)| cell.count).max().unwrap_or(0);
    percent(most(Metric::GpuBusyTime), most(Metric::CpuBusyTime)) >= READINGS_MIN_PERCENT
}
