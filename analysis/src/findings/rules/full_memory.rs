//! GPUs whose memory is nearly full at its peak.

use super::gpu_windows::{MIN_SECONDS, gpus};
use super::{Draft, Facts, Outcome, Rule, Values, written};
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "full-memory",
    what: "GPUs whose memory is nearly full: the next allocation may fail, or wait for others to be freed",
    definition: "of the windows of time, one in which more than `max_percent` of the memory of a GPU that ran anything is \
                 taken; a capture of at least `min_seconds`",
    source: "Kineto's TensorBoard plug-in (peak memory > 90 %)",
    origin: "peak memory > 90 % of the GPU's",
    needs: "launches, and system metrics of GPUs",
    parameters: &[Parameter { name: "max_percent", default: 90.0, source: "Kineto" }, MIN_SECONDS],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let utilization = match gpus(facts, values.get("min_seconds")) {
        Ok(utilization) => utilization,
        Err(missing) => return missing,
    };
    let limit = values.get("max_percent");
    let Some(memory) = utilization.gpus.iter().map(|gpu| gpu.memory.as_ref()).collect::<Option<Vec<_>>>()
    else {
        return Outcome::missing(reason::NO_GPU_MEMORY);
    };
    let datapoints = utilization.windows * memory.len() as u64;
    let peak = memory.iter().filter_map(|of| of.at(1.0)).fold(0.0, f64::max);
    if peak <= limit {
        return Outcome::Healthy { datapoints };
    }
    let violations = datapoints - memory.iter().map(|of| of.count_up_to(limit)).sum::<u64>().min(datapoints);
    let share = violations as f64 * 100.0 / datapoints.max(1) as f64;
    let draft = Draft {
        title: format!("The memory of a GPU is {} full at its peak", written(peak)),
        metric: "length of the capture",
        share_percent: utilization.of_capture(share),
        gain: Gain::Unknown {
            because: "how much time allocations take that find no room is not known".into(),
        },
        places: Vec::new(),
        evidence: vec![
            Figure::measured("memory of GPUs taken, most", peak, "percent"),
            Figure::measured("windows with more than the limit", share, "percent"),
        ],
        advice: "Take smaller batches, checkpoint activations, or shard the model. Some programs take most of it \
                 at their start (JAX, TensorFlow, vLLM), and caching allocators keep what was freed: `--probe memory` \
                 says how much PyTorch has in use, and by which lines.",
        datapoints,
        violations,
    };
    Outcome::Findings(vec![draft.finding(values)])
}
