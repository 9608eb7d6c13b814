//! Half-precision matrix products with sizes that tensor cores cannot use.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashSet;

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "odd-sizes",
    what: "products in half precision with sizes that are no multiple of 8",
    definition: "operations of `mm`, `addmm`, `bmm`, `baddbmm`, `linear`, `matmul` with an f16 or bf16 \
                 tensor whose last two sizes are above 1 and no multiples of `multiple` / all modelled operations ≥ \
                 `min_percent`, in a program that launches kernels",
    source: "TorchTidy (`MatMulDimInFP16Pattern`)",
    origin: "any product in half precision with a size that is no multiple of 8",
    needs: "tensors of operators, and launches of kernels",
    parameters: &[
        Parameter { name: "multiple", default: 8.0, source: "TorchTidy" },
        Parameter { name: "min_percent", default: 5.0, source: "own; TorchTidy reports any" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let metric = Metric::ModelFlops;
    if !facts.has(metric) {
        return Outcome::missing(reason::NO_PRODUCT_TENSORS);
    }
    // CPUs have no tensor cores.
    if !facts.whole_has(Metric::Kernels) && !facts.whole_has(Metric::GpuTime) {
        return Outcome::missing(reason::NO_KERNEL_LAUNCHES);
    }
    let multiple = (values.get("multiple") as u64).max(1);
    let profile = facts.profile();
    let odd = profile.frames.iter().filter(|(_, frame)| match *frame {
        Frame::Operator { name } => is_odd(profile.strings.get(name), multiple),
        _ => false,
    });
    // Names are read once for each frame.
    let odd: FxHashSet<FrameId> = odd.map(|(frame, _)| frame).collect();
    let is_odd = |node: NodeId| odd.contains(&profile.tree.node(node).frame);
    let share = facts.share_where(metric, is_odd);
    let percent_odd = share.percent();
    let calls = facts.share_where(Metric::Calls, is_odd);
    if percent_odd < values.get("min_percent") || share.part.value == 0 {
        return Outcome::Healthy { datapoints: share.whole.count };
    }
    let mut shapes: Vec<_> = facts.parts(metric, PlaceKey::Leaf, is_odd).into_iter().collect();
    shapes.sort_rows_by_key(|(frame, part)| (Reverse(part.sum.value), frame.number()));
    let shapes = shapes.iter().take(3).map(|(frame, part)| facts.place(*frame, part, share.whole.value));
    let draft = Draft {
        title: format!(
            "{} of the modelled operations are half-precision products with sizes that are no multiple of \
             {multiple}",
            written(percent_odd)
        ),
        metric: metric.name(),
        share_percent: percent_odd,
        gain: Gain::Unknown {
            because: "how much slower such sizes are depends on the library's kernels".into(),
        },
        places: shapes.chain(facts.places(metric, PlaceKey::Line, is_odd, share.whole.value)).collect(),
        evidence: vec![
            Figure::modelled("operations with such sizes", share.part.value as f64, "count"),
            Figure::measured(
                "calls with such sizes",
                percent(calls.part.value, calls.whole.value),
                "percent",
            ),
        ],
        advice: "Pad these sizes (vocabulary, hidden size, batch) to a multiple of 8, better of 64.",
        datapoints: share.whole.count,
        violations: share.part.count,
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// Whether operands, in the format of `deepctx_profile::operator::operand`, have half precision and one has such a
/// size.
fn is_odd(name: &str, multiple: u64) -> bool {
    const PRODUCTS: [&str; 6] =
        ["aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::matmul"];
    let Some((operator, operands)) = name.split_once(" [") else { return false };
    let operator = operator.split('.').next().unwrap_or(operator);
    let half = operands.ends_with("] f16") || operands.ends_with("] bf16");
    if !half || !PRODUCTS.contains(&operator) {
        return false;
    }
    let list = operands.rsplit_once(']').map_or(operands, |(list, _)| list);
    list.split(", ").filter_map(sizes).any(|sizes| {
        let matrix = sizes.len() >= 2;
        // A single row is a product with a vector, which memory bounds: nothing is won by padding it.
        matrix && sizes.iter().rev().take(2).any(|size| *size > 1 && !size.is_multiple_of(multiple))
    })
}

/// `32x64 (transposed)`.
fn sizes(operand: &str) -> Option<Vec<u64>> {
    let sizes = operand.split(' ').next()?;
    sizes.split('x').map(|size| size.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_sizes_are_read_from_operands() {
        let check = |name: &str, expect| assert_eq!(is_odd(name, 8), expect, "{name}");
        check("aten::addmm [127, 32x64, 64x127 (transposed)] f16", true);
        check("aten::addmm [127, 32x64, 64x128 (transposed)] f16", false);
        check("aten::mm [32x64, 64x127] f32", false);
        check("aten::mm [32x60, 60x128] bf16", true);
        check("aten::bmm.out [3x32x64, 3x64x128] bf16", false);
        check("aten::mm [1x4096, 4096x4096] bf16", false);
        check("aten::mul [3x5, 3x5] f16", false);
        check("aten::mm [?, 64xxx] f16", false);
        check("aten::mm", false);
    }
}
