//! GPU windows: how busy GPUs were in each window of time, as their driver says.
//!
//! Owns: [`gpus`]. Because: SageMaker Debugger's rules on utilization compare percentiles of the same figures. Does
//! not: judge them.

use deepctx_profile::metric::Metric;

use super::{Facts, Outcome};
use crate::amount::percent;
use crate::tables::system::{Percentiles, SystemMetric, rows};

/// Least share of the machine's readings that a GPU must have given, percent: a driver that begins late is left out.
const READINGS_MIN_PERCENT: f64 = 90.0;

/// Utilization of the GPUs that ran anything, and of the CPUs beside them, in percent, by window of time.
pub(super) struct Utilization {
    pub(super) gpus: Vec<GpuUtilization>,
    pub(super) cpus: Percentiles,
    /// Windows of time.
    pub(super) windows: u64,
}

/// One GPU.
pub(super) struct GpuUtilization {
    pub(super) busy: Percentiles,
    /// Mean over the capture.
    pub(super) mean_busy: f64,
    /// Windows in which it was busy for less than this.
    windows: Vec<f64>,
    /// Taken of its memory; `None` where the driver does not say.
    pub(super) memory: Option<Percentiles>,
}

impl GpuUtilization {
    /// Windows in which it was busy for at most this share.
    pub(super) fn windows_up_to(&self, busy_percent: f64) -> u64 {
        self.windows.iter().filter(|busy| **busy <= busy_percent).count() as u64
    }
}

/// Of a program that launched something. For whom the GPUs worked, the driver does not say.
pub(super) fn gpus(facts: &Facts<'_>, min_seconds: f64) -> Result<Utilization, Outcome> {
    if !facts.whole_has(Metric::Kernels) {
        return Err(Outcome::missing("the profile has no launches of kernels", ""));
    }
    let all = rows(facts.whole(), facts.elapsed());
    let of = |resource: &str, metric: Metric| {
        let figure = metric.name().trim_start_matches("system:");
        let found = all.iter().find(|row| row.resource == resource && row.figure == figure);
        // A figure that is not kept by time has zeroes in all windows.
        found.filter(|row| row.by_time.iter().any(|value| *value > 0.0))
    };
    let cpus = of("all cpus", Metric::CpuBusyTime);
    let names = all.iter().map(|row| &*row.resource).filter(|resource| resource.starts_with("gpu "));
    let busy = names.filter_map(|name| of(name, Metric::GpuBusyTime));
    let busy: Vec<&SystemMetric> = dedup(busy);
    let (Some(cpus), false) = (cpus, busy.is_empty()) else {
        return Err(Outcome::missing("what the GPUs of the machine did is not in the profile", ""));
    };
    if facts.elapsed().as_seconds() < min_seconds || !readings_came(facts) {
        return Err(Outcome::missing("the capture is too short, or readings of GPUs are missing", ""));
    }
    let gpus = busy.into_iter().map(|row| {
        let used = of(&row.resource, Metric::MemoryUsedBytes);
        let total = of(&row.resource, Metric::MemoryTotalBytes);
        let memory = used.zip(total).map(|(used, total)| {
            let taken = |(used, total): (&f64, &f64)| if *total > 0.0 { used * 100.0 / total } else { 0.0 };
            Percentiles::of(&used.by_time.iter().zip(&total.by_time).map(taken).collect::<Vec<_>>())
        });
        GpuUtilization {
            busy: Percentiles::of(&row.by_time),
            mean_busy: row.mean.clamp(0.0, 100.0),
            windows: row.by_time.clone(),
            memory,
        }
    });
    let windows = cpus.by_time.len() as u64;
    Ok(Utilization { gpus: gpus.collect(), cpus: Percentiles::of(&cpus.by_time), windows })
}

/// Each GPU once, in their order.
fn dedup<'r>(rows: impl Iterator<Item = &'r SystemMetric>) -> Vec<&'r SystemMetric> {
    let mut rows: Vec<_> = rows.collect();
    rows.dedup_by_key(|row| &row.resource);
    rows
}

/// Whether the driver answered whenever the machine was looked at.
fn readings_came(facts: &Facts<'_>) -> bool {
    let tree = &facts.whole().tree;
    let most = |metric| tree.cells(metric).map(|(_, cell)| cell.count).max().unwrap_or(0);
    percent(most(Metric::GpuBusyTime), most(Metric::CpuBusyTime)) >= READINGS_MIN_PERCENT
}
