//! Batches that leave CPUs, GPUs and their memory unused.

use super::gpu_windows::{MIN_SECONDS, NEARLY_ALL, gpus};
use super::{Draft, Facts, Outcome, Rule, Values, written};
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "small-batch",
    what: "batches too small for the machine: CPUs, GPUs and their memory are all used little",
    definition: "in 95 % of the windows of time, from the first on in which a GPU was busy, all CPUs are busy for less \
                 than `max_cpu_percent`, and each GPU that ran anything for less than `max_gpu_percent`, with less than \
                 `max_memory_percent` of its memory taken; a capture of at least `min_seconds`",
    source: "SageMaker Debugger (`BatchSize`)",
    origin: "p95 of CPU, GPU and GPU memory all < 70 %, from 1000 values on",
    needs: "launches, and system metrics of GPUs",
    parameters: &[
        Parameter { name: "max_cpu_percent", default: 70.0, source: "SageMaker Debugger" },
        Parameter { name: "max_gpu_percent", default: 70.0, source: "SageMaker Debugger" },
        Parameter { name: "max_memory_percent", default: 70.0, source: "SageMaker Debugger" },
        MIN_SECONDS,
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let utilization = match gpus(facts, values.get("min_seconds")) {
        Ok(utilization) => utilization,
        Err(missing) => return missing,
    };
    let datapoints = utilization.windows;
    let memory = utilization.gpus.iter().map(|gpu| gpu.memory.as_ref()?.at(NEARLY_ALL));
    let Some(memory) = memory.collect::<Option<Vec<_>>>() else {
        return Outcome::missing(reason::NO_GPU_MEMORY);
    };
    let memory = memory.into_iter().fold(0.0, f64::max);
    let busy = utilization.busy_at_most();
    let cpus = utilization.cpus.at(NEARLY_ALL).unwrap_or(0.0);
    let limits = [(cpus, "max_cpu_percent"), (busy, "max_gpu_percent"), (memory, "max_memory_percent")];
    if limits.iter().any(|(share, limit)| *share >= values.get(limit)) {
        return Outcome::Healthy { datapoints };
    }
    let mean = utilization.mean_busy();
    let idle = utilization.of_capture(100.0 - mean);
    let is_one = utilization.gpus.len() == 1;
    let draft = Draft {
        title: format!(
            "For 95% of the time, {} busy {} or less, with {} of {} memory, and CPUs {}: larger batches fit",
            if is_one { "the GPU is" } else { "GPUs are" },
            written(busy),
            written(memory),
            if is_one { "its" } else { "their" },
            written(cpus)
        ),
        metric: "length of the capture",
        share_percent: idle,
        gain: Gain::Bounded {
            at_most_percent: idle,
            because: "larger batches keep the devices busy; their own work stays".into(),
        },
        places: Vec::new(),
        evidence: vec![
            Figure::measured("GPUs busy, 95th percentile", busy, "percent"),
            Figure::measured("memory of GPUs taken, 95th percentile", memory, "percent"),
            Figure::measured("CPUs busy, 95th percentile", cpus, "percent"),
            Figure::measured("GPUs busy, mean", mean, "percent"),
        ],
        advice: "Increase the batch size (`deepctx-bpf experiment -- CMD {batch}` finds the best one), or take a smaller \
                 machine.",
        datapoints,
        violations: (datapoints as f64 * NEARLY_ALL) as u64,
    };
    Outcome::Findings(vec![draft.finding(values)])
}
