//! Devices: how long each was at work.
//!
//! Owns: [`Facts::device_uses`] and the number of devices. Because: how idle devices are, what a wait for one could win
//! and what a kernel weighs follow from the same figures. Does not: read drivers' readings of utilization.

use deepctx_profile::device::activity::ActivityKind;
use deepctx_profile::device::gpu::DeviceUse;
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;
use rustc_hash::FxHashMap;

use super::Facts;
use crate::amount::percent;

/// Metric of a finding about kernels and copies.
pub(crate) const KERNELS_AND_COPIES: &str = "time of kernels and copies";
/// Metric of a finding about warps, which are sampled while kernels run.
pub(crate) const WARP_SAMPLES: &str = "samples of warps";

/// Metrics of a device's time.
const DEVICE: [Metric; 2] = [Metric::GpuTime, Metric::CopyTime];

/// Beginnings and ends, ns.
type Spans = Vec<(u64, u64)>;

impl Facts<'_> {
    /// How long each device was at work: of another tool's trace, else by single activities. Empty if not all of these
    /// were kept, or if the length of the capture is unknown.
    pub(crate) fn device_uses(&self) -> Vec<DeviceUse> {
        let gpu = &self.whole.gpu;
        if !gpu.uses.is_empty() {
            return gpu.uses.clone();
        }
        if gpu.activities.left_out() > 0 || self.elapsed.0 == 0 {
            return Vec::new();
        }
        self.device_spans().into_iter().map(|spans| used(spans, self.elapsed)).collect()
    }

    /// Upper bound of the share of the capture in which the device that rested most had nothing to do since its first
    /// work, percent. `None` if nothing was measured.
    pub(crate) fn most_idle_percent(&self) -> Option<f64> {
        let mut uses = self.device_uses();
        if uses.is_empty() {
            uses = self.device_uses_by_time();
        }
        let idle = |of: &DeviceUse| {
            let whole = of.since_first.0.saturating_add(of.until_first.0);
            percent(of.since_first.0.saturating_sub(of.busy.0), whole)
        };
        uses.iter().map(idle).max_by(f64::total_cmp)
    }

    /// Lower bound of how long each device of each process was at work: in each window of time as long as its busiest
    /// stream, which runs one thing after the other.
    fn device_uses_by_time(&self) -> Vec<DeviceUse> {
        let timeline = &self.whole.timeline;
        let window = timeline.window().0;
        // By process and device, by stream: both of its metrics.
        let mut streams: FxHashMap<(NodeId, u32), FxHashMap<NodeId, Vec<u64>>> = FxHashMap::default();
        for lane in timeline.lanes().iter().filter(|lane| DEVICE.contains(&lane.metric)) {
            let Some(device) = self.device_of_lane(lane.node) else { continue };
            let process = self.whole.tree.node(lane.node).parent;
            let stream = streams.entry((process, device)).or_default().entry(lane.node).or_default();
            stream.resize(stream.len().max(lane.values.len()), 0);
            stream.iter_mut().zip(&lane.values).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
        }
        let used = |streams: FxHashMap<NodeId, Vec<u64>>| {
            let windows = streams.values().map(Vec::len).max().unwrap_or(0);
            let busiest =
                |at: usize| streams.values().filter_map(|of| of.get(at)).max().copied().unwrap_or(0);
            let busy: Vec<u64> = (0..windows).map(|at| busiest(at).min(window)).collect();
            let first = busy.iter().position(|ns| *ns > 0).unwrap_or(0) as u64;
            let until_first = window.saturating_mul(first).min(self.elapsed.0);
            let since_first = self.elapsed.0 - until_first;
            let busy = busy.into_iter().fold(0, u64::saturating_add).min(since_first);
            DeviceUse { busy: Nanos(busy), until_first: Nanos(until_first), since_first: Nanos(since_first) }
        };
        streams.into_values().map(used).collect()
    }

    /// The device of a stream's lane: `[device 0] stream 7`.
    fn device_of_lane(&self, lane: NodeId) -> Option<u32> {
        let Frame::GpuApi { name } = self.whole.frames.get(self.whole.tree.node(lane).frame) else {
            return None;
        };
        let (device, _) = self.whole.strings.get(name).strip_prefix("[device ")?.split_once(']')?;
        device.parse().ok()
    }

    /// Spans of activities, by device.
    fn device_spans(&self) -> Vec<Spans> {
        let mut by_process: FxHashMap<(u32, u32), Spans> = FxHashMap::default();
        for activity in self.whole.gpu.activities.iter() {
            if activity.kind != ActivityKind::Sync {
                let span = (activity.start.0, activity.end.0);
                by_process.entry((activity.pid, activity.device)).or_default().push(span);
            }
        }
        // Processes that share a device give it the same number. So do processes that each see another one only, but
        // then as many devices were busy, as their driver says.
        let busy = self.whole.tree.cells(Metric::GpuBusyTime).filter(|(_, cell)| cell.sum > 0).count();
        if busy == by_process.len() {
            return by_process.into_values().collect();
        }
        let mut by_device: FxHashMap<u32, Spans> = FxHashMap::default();
        for ((_, device), spans) in by_process {
            by_device.entry(device).or_default().extend(spans);
        }
        by_device.into_values().collect()
    }

    /// Devices that did something; at least one.
    fn devices(&self) -> u64 {
        *self.devices.get_or_init(|| {
            let of_trace = self.whole.gpu.uses.len();
            let devices = if of_trace > 0 { of_trace } else { self.device_spans().len() };
            devices.max(1) as u64
        })
    }

    /// The part of the capture of all devices, below one, in which they spent time of this metric. `None` if it is no
    /// device time, if it is not below one, or if the length of the capture is unknown.
    pub(crate) fn part_of_capture(&self, metric: &str) -> Option<f64> {
        let is_of = |of: &Metric| match metric {
            KERNELS_AND_COPIES => true,
            WARP_SAMPLES => *of == Metric::GpuTime,
            metric => of.name() == metric,
        };
        // Findings of a part are shares of its time.
        let times = DEVICE.into_iter().filter(is_of).map(|of| self.profile.tree.total(of).sum);
        let time = times.fold(0, u64::saturating_add);
        if time == 0 {
            return None;
        }
        let capture = self.elapsed.0.saturating_mul(self.devices());
        (time < capture).then(|| time as f64 / capture as f64)
    }
}

/// From the first activity on; the time before belongs to a program's start.
fn used(spans: Spans, elapsed: Nanos) -> DeviceUse {
    let first = spans.iter().map(|(start, _)| *start).min().unwrap_or_default().min(elapsed.0);
    let since_first = elapsed.0 - first;
    let busy = Nanos(union(spans).min(since_first));
    DeviceUse { busy, until_first: Nanos(first), since_first: Nanos(since_first) }
}

fn union(mut spans: Spans) -> u64 {
    spans.sort_unstable();
    let (mut sum, mut until) = (0u64, 0u64);
    for (start, end) in spans {
        sum = sum.saturating_add(end.saturating_sub(start.max(until)));
        until = until.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_activities_count_once() {
        let check = |spans: &[(u64, u64)], expect| assert_eq!(union(spans.to_vec()), expect, "{spans:?}");
        check(&[], 0);
        check(&[(5, 9), (0, 2)], 6);
        check(&[(0, 10), (2, 3), (8, 12)], 12);
        check(&[(4, 2)], 0);
    }
}
