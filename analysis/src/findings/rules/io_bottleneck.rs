//! Devices that rest while a CPU has nothing to run but tasks that wait for disks.

use deepctx_profile::metric::Metric;

use super::gpu_windows::{MIN_SECONDS, Utilization, gpus};
use super::io_pressure::waits_for_disks;
use super::pressure::no_system_metrics;
use super::{Draft, Facts, Outcome, Rule, Values, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Gain};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "io-bottleneck",
    what: "devices that rest while a CPU of the machine waits for disks",
    definition: "windows of time, from the first on in which a GPU was busy, in which each GPU that ran anything is \
                 busy for less than `max_gpu_percent`, and a CPU has nothing to run but tasks that wait for disks (I/O \
                 wait of `/proc/stat`) for more than `min_wait_percent` / all these windows ≥ `min_percent`; a capture \
                 of at least `min_seconds`",
    source: "SageMaker Debugger (`IOBottleneck`)",
    origin: "share of snapshots with GPU < 10 % and I/O wait > 50 % is > 50 %",
    needs: "launches, and system metrics of CPUs and GPUs",
    parameters: &[
        Parameter { name: "max_gpu_percent", default: 10.0, source: "SageMaker Debugger" },
        Parameter { name: "min_wait_percent", default: 50.0, source: "SageMaker Debugger" },
        Parameter { name: "min_percent", default: 50.0, source: "SageMaker Debugger" },
        MIN_SECONDS,
    ],
    check,
};

/// Windows in which devices rest and a CPU waits.
struct Held {
    windows: u64,
    /// Sum over them: how much the busiest GPU rests, in percent of a window.
    rest: f64,
}

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let utilization = match gpus(facts, values.get("min_seconds")) {
        Ok(utilization) => utilization,
        Err(missing) => return missing,
    };
    let waited = facts.whole().tree.total(Metric::CpuIoWaitTime);
    if waited.count == 0 {
        return no_system_metrics();
    }
    let (held, datapoints) = (held(facts, values, &utilization), utilization.windows);
    let share = percent(held.windows, datapoints);
    if held.windows == 0 || share < values.get("min_percent") {
        return Outcome::Healthy { datapoints };
    }
    let rest = utilization.of_capture(held.rest / datapoints.max(1) as f64);
    let mut evidence = vec![
        Figure::measured("windows in which GPUs rest and a CPU waits for disks", share, "percent"),
        Figure::measured("CPUs waited for disks, all together", waited.sum as f64, "ns"),
    ];
    evidence.extend(waits_for_disks(facts));
    let draft = Draft {
        title: format!("For {} of the time, GPUs hardly work while a CPU waits for disks", written(share)),
        metric: "length of the capture",
        share_percent: utilization.of_capture(share),
        gain: Gain::Bounded {
            at_most_percent: rest,
            because: "the devices' own work stays; whether this program waited, --off-cpu says".into(),
        },
        places: Vec::new(),
        evidence,
        advice: "Read data ahead and from memory or a local disk, put small files into large ones, write checkpoints \
                 less often or in the background.",
        datapoints,
        violations: held.windows,
    };
    Outcome::Findings(vec![draft.finding(values)])
}

fn held(facts: &Facts<'_>, values: &Values<'_>, utilization: &Utilization) -> Held {
    let timeline = &facts.whole().timeline;
    let least_ns = timeline.window().0 as f64 * values.get("min_wait_percent") / 100.0;
    let cpus: Vec<_> = timeline.lanes().iter().filter(|lane| lane.metric == Metric::CpuIoWaitTime).collect();
    let waits = |at| cpus.iter().any(|lane| lane.values.get(at).is_some_and(|ns| *ns as f64 > least_ns));
    let mut held = Held { windows: 0, rest: 0.0 };
    for (at, busy) in (utilization.first..).zip(utilization.busiest()) {
        if busy < values.get("max_gpu_percent") && waits(at) {
            held.windows += 1;
            // More than all of a window is an error of the readings.
            held.rest += (100.0 - busy).clamp(0.0, 100.0);
        }
    }
    held
}
