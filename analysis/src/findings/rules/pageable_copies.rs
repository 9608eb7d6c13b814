//! Copies that wait although they are asynchronous, because their host memory is pageable.

use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashSet;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values};
use crate::findings::facts::{Class, Classes, KERNELS_AND_COPIES, PlacePart};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::findings::share::{Share, Sum};

pub(super) const RULE: Rule = Rule {
    id: "pageable-copies",
    what: "copies from or to host memory that is not pinned: asynchronous ones wait, too, and all are slow",
    definition: "time of copies from or to pageable memory, without those of `blocking-copies`, those of models that \
                 are loaded or go to a device, and those at lines where they have less than `min_mean_kib` KiB on \
                 average / (time of kernels + of copies) ≥ `min_percent`, and at least `min_copies` of them",
    source: "Nsight Systems (expert rule `cuda_memcpy_async`)",
    origin: "any asynchronous copy from or to pageable memory, listed by length",
    needs: "copies with measured time, and the kind of their host memory",
    parameters: &[
        Parameter { name: "min_percent", default: 2.0, source: "own; Nsight Systems lists any" },
        Parameter { name: "min_copies", default: 100.0, source: "own: those of a start are few" },
        // Of smaller ones, also from a device, the call takes most of the time, pinned or not.
        Parameter {
            name: "min_mean_kib",
            default: 64.0,
            source: "CUDA C++ Programming Guide: the host does not wait for copies of 64 KB or less to a device",
        },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if !facts.has(Metric::CopyTime) {
        return Outcome::missing(reason::NO_COPY_TIME);
    }
    let pageable = large_copies(facts, values, is_pageable);
    let share = beside_kernels(facts, facts.share_where(Metric::CopyTime, &pageable));
    let datapoints = share.all()[1].count;
    let is_often = |share: &Share| share.part.count as f64 >= values.get("min_copies");
    let outcome = match is_often(&share) {
        true => judge(facts, values, share, &pageable),
        false => Outcome::Healthy { datapoints },
    };
    let may_be = large_copies(facts, values, |classes| is_pageable(classes) || is_unknown(classes));
    let may_be = beside_kernels(facts, facts.share_where(Metric::CopyTime, may_be));
    match outcome {
        Outcome::Healthy { .. } if is_often(&may_be) && may_be.percent() >= values.get("min_percent") => {
            Outcome::missing(reason::UNKNOWN_HOST_MEMORY)
        }
        outcome => outcome,
    }
}

fn judge(facts: &Facts<'_>, values: &Values<'_>, share: Share, is_in: &dyn Fn(NodeId) -> bool) -> Outcome {
    ShareCheck {
        metric: Metric::CopyTime,
        share,
        limit: "min_percent",
        of: Some(KERNELS_AND_COPIES),
        places: None,
        is_in,
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
    beside_kernels(facts, facts.share_of(Metric::CopyTime, |classes, _| is_in(classes)))
}

/// A part of the time of copies, with the time of kernels in the whole.
fn beside_kernels(facts: &Facts<'_>, copies: Share) -> Share {
    let kernels = facts.share(Metric::GpuTime, Class::PageableCopy).whole;
    Share { exact: [Sum::default(), kernels], ..copies }
}

/// Whether a context is a copy of these classes at a line where they are not small. Line by line, since a program may
/// copy batches at one and read single values at others.
fn large_copies(
    facts: &Facts<'_>,
    values: &Values<'_>,
    is_in: fn(Classes) -> bool,
) -> impl Fn(NodeId) -> bool {
    let least = values.get("min_mean_kib") * 1024.0;
    // Traces that do not say how many bytes a copy has count none.
    let is_small =
        |part: &PlacePart| part.sum.value > 0 && (part.sum.value as f64) < least * part.sum.count as f64;
    let by_line = facts.parts(Metric::CopyBytes, PlaceKey::Line, |node| is_in(facts.classes(node)));
    // A line whose bytes were not counted is not among them.
    let small: FxHashSet<FrameId> =
        by_line.into_iter().filter(|(_, part)| is_small(part)).map(|(line, _)| line).collect();
    move |node| is_in(facts.classes(node)) && !small.contains(&facts.place_frame(node, PlaceKey::Line))
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
