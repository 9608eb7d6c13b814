//! Copies that block their caller.

use deepctx_profile::metric::Metric;

use super::pageable_copies::share_of_device;
use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values};
use crate::findings::facts::{Class, Classes, KERNELS_AND_COPIES};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "blocking-copies",
    what: "copies to or from a device that block their caller",
    definition: "time of copies by `cudaMemcpy`, `cuMemcpyHtoD` and the like, not `…Async` nor within devices, which \
                 do not block / (time of kernels + of copies) ≥ `min_percent`",
    source: "Nsight Systems (expert rule `cuda_memcpy_sync`)",
    origin: "any copy that blocks, listed by length",
    needs: "copies with measured time",
    parameters: &[Parameter { name: "min_percent", default: 2.0, source: "own; Nsight Systems lists any" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if !facts.has(Metric::CopyTime) {
        return Outcome::missing(reason::NO_COPY_TIME);
    }
    let blocks = |classes: Classes| classes.has(Class::BlockingCopy) && !classes.has(Class::DeviceCopy);
    ShareCheck {
        metric: Metric::CopyTime,
        share: share_of_device(facts, blocks),
        limit: "min_percent",
        of: Some(KERNELS_AND_COPIES),
        places: None,
        is_in: &|node| blocks(facts.classes(node)),
        by: PlaceKey::Line,
        title: &|share| format!("{share} of the device's time is copies that block the program"),
        figure: "time of blocking copies",
        advice: "Pin the memory (pin_memory=True) and copy with non_blocking=True, so that copies overlap \
                 kernels.",
        because: "copies that overlap kernels take no time of their own",
    }
    .outcome(facts, values)
}
