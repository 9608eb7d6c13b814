//! Devices that are never busy for long.

use super::gpu_windows::{MIN_SECONDS, gpus};
use super::{Draft, Facts, Outcome, Rule, Values, counted, written};
use crate::findings::finding::{Figure, Gain};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "underused-device",
    what: "devices that are used little nearly all the time",
    definition: "in 95 % of the windows of time, from the first on in which a GPU was busy, each GPU that ran anything \
                 is busy for less than `max_percent`; a capture of at least `min_seconds`",
    source: "SageMaker Debugger (`LowGPUUtilization`, under-use)",
    origin: "p95 < 70 %, from 1000 values on",
    needs: "launches, and system metrics of GPUs",
    parameters: &[
        Parameter { name: "max_percent", default: 70.0, source: "SageMaker Debugger" },
        MIN_SECONDS,
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let utilization = match gpus(facts, values.get("min_seconds")) {
        Ok(utilization) => utilization,
        Err(missing) => return missing,
    };
    let (all, limit) = (&utilization.gpus, values.get("max_percent"));
    let datapoints = utilization.windows * all.len() as u64;
    // Another GPU may have a display only.
    let busy = utilization.busy_at_most();
    if busy >= limit {
        return Outcome::Healthy { datapoints };
    }
    let mean = utilization.mean_busy();
    let rest = utilization.of_capture(100.0 - mean);
    let count = all.len() as u64;
    let verb = if count == 1 { "is" } else { "are" };
    let draft = Draft {
        title: format!(
            "For 95% of the time, {} {verb} busy {} or less",
            counted(count, "GPU"),
            written(busy)
        ),
        metric: "length of the capture",
        share_percent: rest,
        gain: Gain::Bounded { at_most_percent: rest, because: "the devices' own work stays".into() },
        places: Vec::new(),
        evidence: vec![
            Figure::measured("GPUs busy, 95th percentile", busy, "percent"),
            Figure::measured("GPUs busy, mean", mean, "percent"),
        ],
        advice: "See what the program does meanwhile: rules on data loaders, waits and CPU latency, and the time view. \
                 Larger batches give a device more to do at a time.",
        datapoints,
        violations: all.iter().map(|gpu| gpu.busy.count_up_to(limit)).sum(),
    };
    Outcome::Findings(vec![draft.finding(values)])
}
