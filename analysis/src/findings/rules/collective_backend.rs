//! Collectives of a program with GPUs that run on its CPUs.

use deepctx_profile::metric::Metric;

use super::path_check::PathCheck;
use super::{Facts, Outcome, PlaceKey, Rule, Values};
use crate::findings::reason;
use crate::findings::rule::Parameter;

/// What it matches.
const PATH: &str = r"native:/\bgloo::|c10d::ProcessGroup(Gloo|MPI)::/";

pub(super) const RULE: Rule = Rule {
    id: "collective-backend",
    what: "collectives of a program with devices that run on its CPUs: Gloo or MPI instead of NCCL or RCCL",
    definition: "time in functions of Gloo and of PyTorch's groups over Gloo or MPI / all time ≥ `min_percent`, in a \
                 program that launches kernels",
    source: "Kineto's TensorBoard plug-in (distributed training on GPUs without NCCL)",
    origin: "any distributed run on GPUs whose backend is not NCCL",
    needs: "launches of kernels, and samples with native frames",
    parameters: &[Parameter { name: "min_percent", default: 2.0, source: "own; Kineto reports any" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if !facts.whole_has(Metric::Kernels) {
        return Outcome::missing(reason::NO_KERNEL_LAUNCHES);
    }
    PathCheck {
        path: PATH,
        by: PlaceKey::Line,
        is: "is collectives on CPUs, by Gloo or MPI, in a program that has devices",
        figure: "time in collectives on CPUs",
        advice: "Use init_process_group(\"nccl\") for tensors on devices (RCCL has the same name): they then go from \
                 device to device.",
        because: "collectives of devices take none of the CPUs' time; copies between device and host come on top",
        unless: &[],
    }
    .outcome(facts, values)
}
