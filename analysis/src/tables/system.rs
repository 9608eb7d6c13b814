//! System: what the machine did while its programs were sampled, by part.
//!
//! Owns: [`SystemMetrics`]: mean, percentiles and maximum of each figure. Because: a program waits for disks, for CPUs
//! that others use, and for the next period of its CPU limit, and its own stacks do not show it. Does not: judge; the
//! rules do.
//!
//! A percentile is over the time windows of the timeline, which widen during a capture, and are never shorter than the
//! interval between machine readings allows. A window without any count is a zero.

use std::collections::BTreeMap;

use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::profile::Profile;
use deepctx_profile::profile::timeline::WINDOWS_MAX;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Bytes, Nanos};
use serde::Serialize;

use crate::{Subset, Table};

/// Parts of the machine by figure, the machine's own first.
pub type SystemMetrics = Table<SystemMetric>;

/// One figure of one part of the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SystemMetric {
    /// The part: `machine`, `all cpus`, `gpu 0 GPU-1234abcd`, `cpu 3`, `disk sda`, `network eth0`, `cgroup /job`.
    pub resource: String,
    /// The counted quantity: the name of its metric without `system:`.
    pub figure: &'static str,
    /// Unit of the following.
    pub unit: SystemUnit,
    /// Mean over the capture.
    pub mean: f64,
    /// Median over time windows.
    pub p50: f64,
    /// 95th percentile over time windows.
    pub p95: f64,
    /// 99th percentile over time windows.
    pub p99: f64,
    /// The highest window.
    pub max: f64,
    /// All windows, in the order of time.
    #[serde(skip)]
    pub by_time: Vec<f64>,
}

/// Unit of a figure of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemUnit {
    /// Time per hundred units of time.
    Percent,
    /// Bytes at one moment.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Events per second.
    PerSecond,
    /// The unit in the figure's name, at one moment.
    AtATime,
}

impl SystemUnit {
    /// A value with its unit, for display.
    pub fn written(self, value: f64) -> String {
        match self {
            SystemUnit::Percent => format!("{value:.1}%"),
            SystemUnit::Bytes => Bytes(value as u64).to_string(),
            SystemUnit::BytesPerSecond => format!("{}/s", Bytes(value as u64)),
            SystemUnit::PerSecond => format!("{value:.1}/s"),
            SystemUnit::AtATime => format!("{value:.0}"),
        }
    }
}

/// Values of one figure: of the whole capture, and by window.
#[derive(Debug, Default)]
struct Series {
    sum: u64,
    count: u64,
    windows: Vec<u64>,
    /// Number of parts that it sums.
    parts: u64,
}

impl SystemMetrics {
    /// All figures of the machine. `elapsed` is the length of the capture, zero when unknown.
    pub fn compute(subset: &Subset<'_>, elapsed: Nanos) -> Self {
        Table::cut(rows(subset.profile(), elapsed), subset.selection().rows)
    }
}

/// Every row of the table.
pub(crate) fn rows(profile: &Profile, elapsed: Nanos) -> Vec<SystemMetric> {
    let window = profile.timeline.window();
    // No timeline has more, whatever length a file states.
    let windows = (elapsed.0 / window.0.max(1)).min(WINDOWS_MAX as u64) as usize;
    let rows = series(profile).into_iter().map(|((_, resource, metric), mut series)| {
        // The last window is partial. Without a length, the number of windows is that with values.
        series.windows.resize(if elapsed.0 > 0 { windows } else { series.windows.len() }, 0);
        let length = if elapsed.0 > 0 { elapsed.0 } else { window.0 * series.windows.len() as u64 };
        series.row(resource, metric, window, Nanos(length))
    });
    rows.collect()
}

impl Series {
    fn add(&mut self, other: &Series, metric: Metric) {
        self.sum = self.sum.saturating_add(other.sum);
        self.count = self.count.saturating_add(other.count);
        self.parts += other.parts;
        self.windows.resize(self.windows.len().max(other.windows.len()), 0);
        for (here, there) in self.windows.iter_mut().zip(&other.windows) {
            *here = metric.join(*here, *there);
        }
    }

    fn row(self, resource: String, metric: Metric, window: Nanos, length: Nanos) -> SystemMetric {
        let unit = match metric.unit() {
            Unit::Bytes if metric.is_level() => SystemUnit::Bytes,
            Unit::Bytes => SystemUnit::BytesPerSecond,
            Unit::Nanoseconds => SystemUnit::Percent,
            Unit::Count if metric.is_level() => SystemUnit::AtATime,
            Unit::Count => SystemUnit::PerSecond,
        };
        let parts = self.parts.max(1) as f64;
        let rate = |value: u64, over: Nanos| match unit {
            SystemUnit::Bytes | SystemUnit::AtATime => value as f64,
            SystemUnit::Percent => value as f64 * 100.0 / over.0.max(1) as f64 / parts,
            SystemUnit::BytesPerSecond | SystemUnit::PerSecond => value as f64 / over.as_seconds().max(1e-9),
        };
        let mean = match unit {
            SystemUnit::Bytes | SystemUnit::AtATime => self.sum as f64 / self.count.max(1) as f64,
            _ => rate(self.sum, length),
        };
        let by_time: Vec<f64> = self.windows.iter().map(|value| rate(*value, window)).collect();
        let percentiles = Percentiles::of(&by_time);
        let percentile = |share: f64| percentiles.at(share).unwrap_or(mean);
        SystemMetric {
            resource,
            figure: metric.name().trim_start_matches("system:"),
            unit,
            mean,
            p50: percentile(0.5),
            p95: percentile(0.95),
            p99: percentile(0.99),
            max: percentile(1.0),
            by_time,
        }
    }
}

/// Sorted values.
pub(crate) struct Percentiles(Vec<f64>);

impl Percentiles {
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self(sorted)
    }

    /// The value that this share of the values, at least one, does not exceed. `None` without values.
    pub(crate) fn at(&self, share: f64) -> Option<f64> {
        let place = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(place.saturating_sub(1)).or(self.0.last()).copied()
    }

    /// Number of values up to this one.
    pub(crate) fn count_up_to(&self, value: f64) -> u64 {
        self.0.partition_point(|it| *it <= value) as u64
    }
}

/// Values by part of the machine and metric, in the order of the table: the machine, all CPUs, GPUs, then the others by
/// kind and number.
fn series(profile: &Profile) -> BTreeMap<((u8, u32), String, Metric), Series> {
    let mut found: BTreeMap<((u8, u32), String, Metric), Series> = BTreeMap::new();
    let machine = |metric: &&Metric| metric.is_of_machine();
    for &metric in Metric::ALL.iter().filter(machine) {
        for (node, cell) in profile.tree.cells(metric) {
            let Some(resource) = resource(profile, node) else { continue };
            let lane =
                profile.timeline.lanes().iter().find(|lane| lane.node == node && lane.metric == metric);
            let windows = lane.map(|lane| lane.values.clone()).unwrap_or_default();
            let one = Series { sum: cell.sum, count: cell.count, windows, parts: 1 };
            if resource.starts_with("cpu ") {
                found.entry(((1, 0), "all cpus".to_owned(), metric)).or_default().add(&one, metric);
            }
            found.insert((order(&resource), resource, metric), one);
        }
    }
    found
}

/// The part of the machine that a context is.
pub(crate) fn resource(profile: &Profile, node: NodeId) -> Option<String> {
    match profile.frames.get(profile.tree.node(node).frame) {
        Frame::Resource { name } => Some(clean(profile.strings.get(name))),
        _ => None,
    }
}

fn order(resource: &str) -> (u8, u32) {
    match resource.split_once(' ') {
        None => (0, 0),
        Some(("gpu", number)) => {
            (1, 1 + number.split(' ').next().map_or(0, |word| word.parse().unwrap_or(1 << 16)))
        }
        Some(("cgroup", _)) => (2, 0),
        Some(("cpu", number)) => (3, number.parse().unwrap_or(u32::MAX)),
        Some(_) => (4, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selection;

    /// A machine with two CPUs, read twice a second, with the given busy times.
    fn machine(busy: [&[u64]; 2]) -> Profile {
        let mut profile = deepctx_profile::text::parse("").unwrap();
        let mut frame = |text: &str| deepctx_profile::text::parse_frame(&mut profile, text).unwrap();
        let frames = [frame("m machine"), frame("m cpu 0"), frame("m cpu 1")];
        for (cpu, busy) in busy.into_iter().enumerate() {
            for (half, value) in (0u64..).zip(busy) {
                let node = profile.add(&[frames[0], frames[cpu + 1]], Metric::CpuBusyTime, *value);
                let from = Nanos(half * 500_000_000);
                profile.timeline.add_span(
                    node,
                    Metric::CpuBusyTime,
                    from,
                    Nanos(from.0 + 500_000_000),
                    *value,
                );
            }
        }
        let node = profile.add(&frames[..1], Metric::MemoryUsedBytes, 100);
        profile.tree.add(node, Metric::MemoryUsedBytes, 300);
        profile.timeline.add_span(node, Metric::MemoryUsedBytes, Nanos(0), Nanos(500_000_000), 100);
        profile.timeline.add_span(
            node,
            Metric::MemoryUsedBytes,
            Nanos(500_000_000),
            Nanos(1_000_000_000),
            300,
        );
        profile.timeline.add_span(node, Metric::DiskReadBytes, Nanos(0), Nanos(1_000_000_000), 5000);
        profile.tree.add(node, Metric::DiskReadBytes, 5000);
        profile
    }

    #[test]
    fn figures_are_shares_of_time_rates_and_levels() {
        let profile = machine([&[500_000_000, 250_000_000], &[0, 0]]);
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        let found = SystemMetrics::compute(&subset, Nanos(1_000_000_000));
        let rows: Vec<String> = found
            .rows
            .iter()
            .map(|row| {
                let [mean, p50, p95, max] =
                    [row.mean, row.p50, row.p95, row.max].map(|it| row.unit.written(it));
                format!("{} {}: {mean} {p50} {p95} {max}", row.resource, row.figure)
            })
            .collect();
        assert_eq!(
            rows,
            [
                "machine memory-used-bytes: 200 B 100 B 300 B 300 B",
                "machine disk-read-bytes: 4.88 KiB/s 4.88 KiB/s 4.88 KiB/s 4.88 KiB/s",
                "all cpus cpu-busy-time: 37.5% 25.0% 50.0% 50.0%",
                "cpu 0 cpu-busy-time: 75.0% 50.0% 100.0% 100.0%",
                "cpu 1 cpu-busy-time: 0.0% 0.0% 0.0% 0.0%",
            ]
        );
    }

    #[test]
    fn readings_of_a_gpu_are_levels_with_their_mean() {
        let mut profile = deepctx_profile::text::parse("").unwrap();
        let mut frame = |text: &str| deepctx_profile::text::parse_frame(&mut profile, text).unwrap();
        let frames = [frame("m machine"), frame("m gpu 11 GPU-b"), frame("m gpu 2 GPU-a"), frame("m cpu 0")];
        for (at, metric, values) in [
            (1, Metric::GpuPowerMilliwatts, [300, 500]),
            (2, Metric::GpuTemperatureCelsius, [40, 60]),
            (2, Metric::GpuBusyTime, [250_000_000, 500_000_000]),
            (3, Metric::CpuBusyTime, [0, 1]),
        ] {
            for (half, value) in (0u64..).zip(values) {
                let node = profile.add(&[frames[0], frames[at]], metric, value);
                let (from, to) = (Nanos(half * 500_000_000), Nanos((half + 1) * 500_000_000));
                profile.timeline.add_span(node, metric, from, to, value);
            }
        }
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        let found = SystemMetrics::compute(&subset, Nanos(1_000_000_000));
        let row =
            |row: &SystemMetric| format!("{} {} {}", row.resource, row.figure, row.unit.written(row.mean));
        assert_eq!(
            found.rows.iter().map(row).collect::<Vec<_>>(),
            [
                "all cpus cpu-busy-time 0.0%",
                "gpu 2 GPU-a gpu-busy-time 75.0%",
                "gpu 2 GPU-a gpu-temperature-celsius 50",
                "gpu 11 GPU-b gpu-power-milliwatts 400",
                "cpu 0 cpu-busy-time 0.0%",
            ]
        );
    }

    #[test]
    fn idle_windows_count_as_zero() {
        let profile = machine([&[500_000_000], &[]]);
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        let found = SystemMetrics::compute(&subset, Nanos(10_000_000_000));
        let cpu = found.rows.iter().find(|row| row.resource == "cpu 0").unwrap();
        assert_eq!((cpu.mean, cpu.p50, cpu.p95, cpu.max), (5.0, 0.0, 0.0, 100.0));
        let none = deepctx_profile::text::parse("P a-1 / n f 1").unwrap();
        let subset = Subset::new(&none, &Selection::of(Metric::CpuTime));
        assert!(SystemMetrics::compute(&subset, Nanos(1)).is_empty());
    }

    #[test]
    fn a_false_length_makes_no_more_windows_than_a_timeline() {
        let rows = rows(&machine([&[500_000_000], &[]]), Nanos(u64::MAX));
        let windows: Vec<usize> = rows.iter().map(|row| row.by_time.len()).collect();
        assert_eq!(windows, vec![WINDOWS_MAX; rows.len()]);
        assert!(!rows.is_empty());
    }
}
