//! Devices that alternate between fully busy and idle.

use super::gpu_windows::{MIN_SECONDS, gpus};
use super::{Draft, Facts, Outcome, Rule, Values, counted, written};
use crate::findings::finding::{Figure, Gain};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "bursty-device",
    what: "devices that are busy and idle by turns: something holds them up again and again",
    definition: "of the windows of time, from the first on in which a GPU was busy, a GPU is busy for more than \
                 `high_percent` in 5 % of them, and for less than `low_percent` in 5 %; a capture of at least \
                 `min_seconds`",
    source: "SageMaker Debugger (`LowGPUUtilization`, fluctuation)",
    origin: "p95 > 70 % and p5 < 10 %, from 1000 values on",
    needs: "launches, and system metrics of GPUs",
    parameters: &[
        Parameter { name: "high_percent", default: 70.0, source: "SageMaker Debugger" },
        Parameter { name: "low_percent", default: 10.0, source: "SageMaker Debugger" },
        MIN_SECONDS,
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let utilization = match gpus(facts, values.get("min_seconds")) {
        Ok(utilization) => utilization,
        Err(missing) => return missing,
    };
    let (high, low) = (values.get("high_percent"), values.get("low_percent"));
    let datapoints = utilization.windows * utilization.gpus.len() as u64;
    let bursty: Vec<_> = utilization
        .gpus
        .iter()
        .filter(|gpu| gpu.busy.at(0.95) > Some(high) && gpu.busy.at(0.05).is_some_and(|busy| busy < low))
        .collect();
    if bursty.is_empty() {
        return Outcome::Healthy { datapoints };
    }
    let count = bursty.len() as u64;
    let mean = bursty.iter().map(|gpu| gpu.mean_busy).sum::<f64>() / count as f64;
    let idle_windows: u64 = bursty.iter().map(|gpu| gpu.busy.count_up_to(low)).sum();
    let idle = idle_windows as f64 * 100.0 / (utilization.windows * count) as f64;
    let waits = utilization.of_capture(100.0 - mean);
    let verb = if count == 1 { "works" } else { "work" };
    let draft = Draft {
        title: format!(
            "{} {verb} in bursts, and hardly at all for {} of the time",
            counted(count, "GPU"),
            written(idle)
        ),
        metric: "length of the capture",
        share_percent: waits,
        gain: Gain::Bounded { at_most_percent: waits, because: "the device's own work stays".into() },
        places: Vec::new(),
        evidence: vec![
            Figure::measured("windows in which a GPU was hardly busy", idle, "percent"),
            Figure::measured("GPUs busy, mean", mean, "percent"),
        ],
        advice: "See what the program does meanwhile: rules on data loaders, checkpoints, waits and uneven steps, and the \
                 time view.",
        datapoints,
        violations: idle_windows,
    };
    Outcome::Findings(vec![draft.finding(values)])
}
