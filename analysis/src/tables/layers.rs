//! Layers of a model: inclusive and exclusive cost of each.
//!
//! Owns: [`Layers`]. Because: layers run the same functions, so a table of functions does not distinguish them. Does
//! not: know how a layer was recognised.

use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::order::SortRows as _;
use deepctx_profile::profile::Profile;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::amount::{Amount, exclusive, inclusive, percent, value};
use crate::{Subset, Table};

/// Further metrics of the table, if the profile has them.
const BESIDE: [Metric; 3] = [Metric::CpuTime, Metric::GpuTime, Metric::Kernels];

/// Layers, largest inclusive value first.
pub type Layers = Table<Layer>;

/// Cost of a layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layer {
    /// Its path in the model, and its class.
    pub layer: String,
    /// Without the layers in it.
    #[serde(flatten, serialize_with = "exclusive")]
    pub exclusive: Amount,
    /// As a share of the whole profile.
    pub exclusive_percent: f64,
    /// With the layers in it.
    #[serde(flatten, serialize_with = "inclusive")]
    pub inclusive: Amount,
    /// Likewise.
    pub inclusive_percent: f64,
    /// Inclusive values of further metrics; every row has the same ones.
    pub others: Vec<MetricValue>,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricValue {
    /// Name of the metric.
    pub metric: &'static str,
    /// The value.
    #[serde(flatten, serialize_with = "value")]
    pub value: Amount,
}

impl Layers {
    /// Cost of the layers.
    pub fn compute(subset: &Subset<'_>) -> Self {
        let (profile, metric) = (subset.profile(), subset.metric());
        let is_beside =
            |other: &Metric| *other != metric && profile.tree.metrics().any(|known| known == *other);
        let costs_by_layer = costs(profile, metric);
        let beside: Vec<_> = match costs_by_layer.is_empty() {
            true => Vec::new(),
            false => {
                BESIDE.into_iter().filter(is_beside).map(|other| (other, costs(profile, other))).collect()
            }
        };
        let mut sorted: Vec<(String, FrameId, Cost)> = costs_by_layer
            .into_iter()
            .map(|(id, cost)| (profile.frames.get(id).label(&profile.strings, false), id, cost))
            .collect();
        sorted
            .sort_rows_by(|(name, _, a), (other, _, b)| b.total.cmp(&a.total).then_with(|| name.cmp(other)));
        let (unit, whole) = (metric.unit(), profile.tree.total(metric).sum);
        let other = |id: FrameId, (metric, costs): &(Metric, FxHashMap<FrameId, Cost>)| MetricValue {
            metric: metric.name(),
            value: Amount::new(costs.get(&id).map_or(0, |cost| cost.total), metric.unit()),
        };
        let row = |(layer, id, cost): (String, FrameId, Cost)| Layer {
            layer,
            exclusive: Amount::new(cost.own, unit),
            exclusive_percent: percent(cost.own, whole),
            inclusive: Amount::new(cost.total, unit),
            inclusive_percent: percent(cost.total, whole),
            others: beside.iter().map(|of| other(id, of)).collect(),
        };
        Table::cut(sorted.into_iter().map(row).collect(), subset.selection().rows)
    }
}

/// Sums of one metric.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Without the layers in it.
    own: u64,
    /// With them.
    total: u64,
}

/// Cost of each layer. One called within itself counts once.
fn costs(profile: &Profile, metric: Metric) -> FxHashMap<FrameId, Cost> {
    let inclusive = profile.tree.inclusive(metric);
    let mut costs: FxHashMap<FrameId, Cost> = FxHashMap::default();
    // For each context its innermost layer, as a context; 0, the root, is none. Callers precede callees.
    let mut within = vec![0_usize; inclusive.len()];
    let nodes: Vec<_> = profile.tree.nodes().collect();
    for (at, node) in nodes.iter().enumerate().skip(1) {
        let outer = within[node.parent.index()];
        within[at] = outer;
        if !matches!(profile.frames.get(node.frame), Frame::Layer { .. }) {
            continue;
        }
        within[at] = at;
        if outer != 0
            && let Some(cost) = costs.get_mut(&nodes[outer].frame)
        {
            cost.own = cost.own.saturating_sub(inclusive[at]);
        }
        let around = std::iter::successors(Some(outer), |&at| Some(within[nodes[at].parent.index()]));
        let again = around.take_while(|at| *at != 0).any(|at| nodes[at].frame == node.frame);
        let cost = costs.entry(node.frame).or_default();
        cost.own = cost.own.saturating_add(inclusive[at]);
        cost.total = cost.total.saturating_add(if again { 0 } else { inclusive[at] });
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selection;

    #[test]
    fn layers_have_inclusive_and_exclusive_values() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let mut layer = |path: &str, class: &str| {
            let (path, class) = (profile.text(path), profile.text(class));
            profile.frame(Frame::Layer { path, class })
        };
        let [net, block, tied] = [layer("Net", "Net"), layer("Net.a", "Block"), layer("Net.b", "Linear")];
        let name = profile.text("aten::add");
        let operator = profile.frame(Frame::Operator { name });
        for (stack, value) in [
            (&[net, operator][..], 10),
            (&[net, block, operator], 20),
            (&[net, block, tied], 30),
            (&[net, tied, operator, tied], 40),
            (&[operator], 100),
        ] {
            profile.add(stack, Metric::CpuTime, value);
        }
        profile.add(&[net, block, operator], Metric::Kernels, 3);
        let selection = Selection { rows: 2, ..Selection::of(Metric::CpuTime) };
        let layers = Layers::compute(&Subset::new(&profile, &selection));
        let rows: Vec<_> = layers
            .rows
            .iter()
            .map(|row| {
                (row.layer.as_str(), row.exclusive.value, row.inclusive_percent, row.others[0].value.value)
            })
            .collect();
        assert_eq!(rows, [("Net", 10, 50.0, 3), ("Net.b (Linear)", 70, 35.0, 0)]);
        assert_eq!((layers.rows[0].others[0].metric, layers.left_out), ("kernels", 1));
    }

    #[test]
    fn huge_values_of_a_layer_saturate() {
        let lines = format!("n a / l h.0 (Block) {0}\n n b / l h.0 (Block) {0}", u64::MAX);
        let profile = deepctx_profile::text::parse(&lines).unwrap();
        let layers = Layers::compute(&Subset::new(&profile, &Selection::of(Metric::CpuTime)));
        let row = &layers.rows[0];
        assert_eq!((row.exclusive.value, row.inclusive.value), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_profile_without_layers_has_no_table() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let name = profile.text("f");
        let frame = profile.frame(Frame::Operator { name });
        profile.add(&[frame], Metric::CpuTime, 1);
        assert!(Layers::compute(&Subset::new(&profile, &Selection::of(Metric::CpuTime))).is_empty());
    }
}
