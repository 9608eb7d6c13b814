//! Devices that are idle.

use deepctx_profile::device::gpu::DeviceUse;
use deepctx_profile::metric::Metric;
use deepctx_profile::units::Nanos;

use super::{Draft, Facts, Outcome, Rule, Values, counted, no_device_time, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "idle-device",
    what: "devices that have nothing to do for much of the capture",
    definition: "time in which a device runs a kernel or a copy / time from the first of these to the end of the \
                 capture < `min_busy_percent`; where that was not measured, of GPUs that ran anything, as their \
                 driver says, in the whole capture; processes share a device with the same number, unless the driver \
                 says that as many were busy",
    source: "Kineto's TensorBoard plug-in (GPU utilization < 50 %); Nsight Systems (`gpu_time_util`, 50 %)",
    origin: "GPU utilization < 50 % (Kineto); of 30 equal parts of the trace, those < 50 % (Nsight Systems)",
    needs: "activities of devices, all of them kept; another tool's trace; or launches, and system metrics of GPUs",
    parameters: &[Parameter { name: "min_busy_percent", default: 50.0, source: "Kineto, Nsight Systems" }],
    check,
};

/// How busy devices were.
struct BusyTime {
    devices: usize,
    /// Share of the examined time.
    percent: f64,
    /// That time, in words, and its share of the capture, percent.
    of: &'static str,
    of_percent: f64,
    /// What the share is.
    figure: &'static str,
    datapoints: u64,
}

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let busy = if facts.whole_has(Metric::GpuTime) { measured(facts) } else { as_drivers_say(facts) };
    match busy {
        Ok(busy) => judge(busy, values),
        Err(outcome) => outcome,
    }
}

/// From single activities, or from another tool's trace.
fn measured(facts: &Facts<'_>) -> Result<BusyTime, Outcome> {
    let gpu = &facts.whole().gpu;
    let is_trace = !gpu.uses.is_empty();
    if !is_trace && (gpu.activities.left_out() > 0 || gpu.activities.iter().len() == 0) {
        return Err(Outcome::missing(reason::ACTIVITIES_INCOMPLETE));
    }
    if !is_trace && facts.elapsed().0 == 0 {
        return Err(Outcome::missing(reason::NO_CAPTURE_LENGTH));
    }
    let uses = facts.device_uses();
    // Waits are activities, too: the kernels are missing.
    if uses.is_empty() {
        return Err(Outcome::missing(reason::ACTIVITIES_INCOMPLETE));
    }
    let sum =
        |of: fn(&DeviceUse) -> Nanos| uses.iter().map(of).fold(0u64, |sum, time| sum.saturating_add(time.0));
    // The time before a program first uses a device belongs to `late-start`.
    let (until, since) = (sum(|of| of.until_first), sum(|of| of.since_first));
    // Clocks differ by a little: a live view may know of work before the capture is that long.
    if since == 0 {
        return Err(Outcome::missing(reason::WORK_AT_END));
    }
    let single = "the time since its first work";
    Ok(BusyTime {
        devices: uses.len(),
        percent: percent(sum(|of| of.busy), since),
        of: if uses.len() == 1 { single } else { "the time since their first work" },
        of_percent: percent(since, since.saturating_add(until)),
        figure: "time in which a kernel or a copy ran",
        datapoints: if is_trace { uses.len() } else { gpu.activities.iter().len() } as u64,
    })
}

/// For programs that launched something: the utilization of the machine's GPUs that were not always idle. The driver
/// does not report whose work they ran.
fn as_drivers_say(facts: &Facts<'_>) -> Result<BusyTime, Outcome> {
    let tree = &facts.whole().tree;
    let intervals = tree.cells(Metric::CpuBusyTime).map(|(_, cell)| cell.count).max().unwrap_or(0);
    if !facts.whole_has(Metric::Kernels) || intervals == 0 {
        return Err(no_device_time());
    }
    let (mut devices, mut busy, mut readings) = (0, 0, 0u64);
    for (_, cell) in tree.cells(Metric::GpuBusyTime).filter(|(_, cell)| cell.sum > 0) {
        (devices, busy) = (devices + 1, cell.sum.saturating_add(busy));
        readings = readings.saturating_add(cell.count);
    }
    // Intervals without a reading do not count.
    let whole = (facts.elapsed().0 / intervals).saturating_mul(readings);
    if whole == 0 {
        return Err(no_device_time());
    }
    let figure = "time in which a kernel of any program ran, as the driver says";
    let percent = percent(busy.min(whole), whole);
    Ok(BusyTime { devices, percent, of: "the capture", of_percent: 100.0, figure, datapoints: readings })
}

fn judge(busy: BusyTime, values: &Values<'_>) -> Outcome {
    let BusyTime { devices, percent, of, of_percent, figure, datapoints } = busy;
    if percent >= values.get("min_busy_percent") {
        return Outcome::Healthy { datapoints };
    }
    let idle = 100.0 - percent;
    let of_capture = idle * of_percent / 100.0;
    let draft = Draft {
        title: format!("{} idle {} of {of}", counted_devices(devices), written(idle)),
        metric: "length of the capture",
        share_percent: of_capture,
        gain: Gain::Bounded { at_most_percent: of_capture, because: "the device's own work stays".into() },
        places: Vec::new(),
        evidence: vec![Figure::measured(figure, percent, "percent")],
        advice: "See what the program does meanwhile: rules on data loaders, waits and CPU latency, and \
                 the time view.",
        datapoints,
        violations: devices as u64,
    };
    Outcome::Findings(vec![draft.finding(values)])
}

fn counted_devices(n: usize) -> String {
    match n {
        1 => "The device is".to_owned(),
        n => format!("{} are", counted(n as u64, "device")),
    }
}
