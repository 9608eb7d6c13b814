//! Models that are copied to the devices of one process in each training step.

use super::path_check::PathCheck;
use super::{Facts, Outcome, PlaceKey, Rule, Values};
use crate::findings::rule::Parameter;

/// What it matches. Before Python 3.11 functions have no class in their name.
const PATH: &str = r"python:/(^|\.)(scatter|replicate|gather)$/@*/torch/nn/parallel/data_parallel.py";

pub(super) const RULE: Rule = Rule {
    id: "data-parallel",
    what: "a model that `torch.nn.DataParallel` copies to its devices in each step",
    definition: "time below `scatter`, `replicate` and `gather` of `torch.nn.DataParallel` / all time ≥ `min_percent`",
    source: "Kineto's TensorBoard plug-in (`DataParallel` with several GPUs)",
    origin: "any `DataParallel` with more than one GPU",
    needs: "samples with Python frames",
    parameters: &[Parameter { name: "min_percent", default: 2.0, source: "own; Kineto reports any" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    PathCheck {
        path: PATH,
        by: PlaceKey::Line,
        is: "is one process that spreads a model and its batches over devices",
        figure: "time in copies of the model, of batches and of results",
        advice: "Use torch.nn.parallel.DistributedDataParallel, also on one machine: a process for each device keeps its \
                 copy, and only gradients are exchanged.",
        because: "without it none of this runs; that the devices' threads share one GIL comes on top",
        unless: &[],
    }
    .outcome(facts, values)
}
