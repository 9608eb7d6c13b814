//! Copies that wait although they are asynchronous, because their host memory is pageable.

use deepctx_profile::metric::Metric;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values};
use crate::findings::facts::{Class, Classes, KERNELS_AND_COPIES};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::findings::share::{Share, Sum};

pub(super) const RULE: Rule = Rule {
    id: "pageable-copies",
    what: "copies from or to host memory that is not pinned: asynchronous ones wait, too, and all are slow",
    definition: "time of copies from or to pageable memory, without those of `blocking-copies` and those of models \
                 that are loaded or go to a device / (time of kernels + of copies) ≥ `min_percent`, and at least \
                 `min_copies` of them",
    source: "Nsight Systems (expert rule `cuda_memcpy_async`)",
    origin: "any asynchronous copy from or to pageable memory, listed by length",
    needs: "copies with measured time, and the kind of their host memory",
    parameters: &[
        Parameter { name: "min_percent", default: 2.0, source: "own; Nsight Systems lists any" },
        Parameter { name: "min_copies", default: 100.0, source: "own: those of a start are few" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if !facts.has(Metric::CopyTime) {
        return Outcome::missing(reason::NO_COPY_TIME);
    }
    let share = share_of_device(facts, is_pageable);
    let datapoints = share.all()[1].count;
    let is_often = |share: &Share| share.part.count as f64 >= values.get("min_copies");
    let outcome = match is_often(&share) {
        true => judge(facts, values, share),
        false => Outcome::Healthy { datapoints },
    };
    let may_be = share_of_device(facts, |classes| is_pageable(classes) || is_unknown(classes));
    match outcome {
        Outcome::Healthy { .. } if is_often(&may_be) && may_be.percent() >= values.get("min_percent") => {
            Outcome::missing(reason::UNKNOWN_HOST_MEMORY)
        }
        outcome => outcome,
    }
}

fn judge(facts: &Facts<'_>, values: &Values<'_>, share: Share) -> Outcome {
    ShareCheck {
        metric: Metric::CopyTime,
        share,
        limit: "min_percent",
        of: Some(KERNELS_AND_COPIES),
        places: None,
        is_in: &|node| is_pageable(facts.classes(node)),
        by: PlaceKey::Line,
        title: &|share| format!("{share} of the device's time is copies from or to memory that is not pinned"),
        figure: "time of copies from or to pageable memory",
        advice: "Pin the host's memory (pin_memory=True of a DataLoader, Tensor.pin_memory(), cudaHostRegister) and \
                 keep it for the next copies; PyTorch then also needs non_blocking=True. Memory that is not pinned \
                 goes through a buffer of the driver, and its copies overlap little.",
        because: "copies that overlap kernels take no time of their own",
    }
    .outcome(facts, values)
}

/// The part of the time of kernels and copies that is in copies of these classes.
pub(super) fn share_of_device(facts: &Facts<'_>, is_in: impl Fn(Classes) -> bool) -> Share {
    let mut share = facts.share_of(Metric::CopyTime, |classes, _| is_in(classes));
    let kernels = facts.share(Metric::GpuTime, Class::PageableCopy).whole;
    share.exact = [Sum::default(), kernels];
    share
}

fn is_pageable(classes: Classes) -> bool {
    classes.has(Class::PageableCopy) && is_examined(classes)
}

fn is_unknown(classes: Classes) -> bool {
    classes.has(Class::UnknownHostCopy) && is_examined(classes)
}

/// Not a copy that `blocking-copies` finds, nor one of a model: that is copied once, and pinning takes longer.
fn is_examined(classes: Classes) -> bool {
    const OTHERS: [Class; 3] = [Class::BlockingCopy, Class::CheckpointRead, Class::ModelMove];
    !OTHERS.iter().any(|class| classes.has(*class))
}
