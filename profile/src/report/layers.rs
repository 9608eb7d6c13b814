//! The layers of a model: what each cost, with the layers in it and without.
//!
//! Owns: the table of layers in the report. Because: layers run the same functions, so that no table of functions tells
//! them apart. Does not: know how a layer was recognised.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{Extent, NAME_WIDTH, amount, share, without_middle};
use crate::frame::Frame;
use crate::intern::FrameId;
use crate::metric::Metric;
use crate::profile::Profile;
use crate::view::Selection;

/// What the table tells beside the metric that was asked for, where the profile has it.
const BESIDE: [Metric; 3] = [Metric::CpuTime, Metric::GpuTime, Metric::Kernels];

/// What a layer cost.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Without the layers in it.
    own: u64,
    /// With them.
    total: u64,
}

/// Writes the table, if there are layers.
pub(super) fn write(
    profile: &Profile,
    selection: &Selection,
    extent: Extent,
    out: &mut dyn Write,
) -> io::Result<()> {
    let costs = costs(profile, selection.metric);
    if costs.is_empty() {
        return Ok(());
    }
    let is_beside =
        |metric: &Metric| *metric != selection.metric && profile.tree.metrics().any(|m| m == *metric);
    let beside: Vec<_> =
        BESIDE.into_iter().filter(is_beside).map(|metric| (metric, self::costs(profile, metric))).collect();
    let mut rows: Vec<_> = costs
        .iter()
        .map(|(id, cost)| (profile.frames.get(*id).label(&profile.strings, false), *id, *cost))
        .collect();
    rows.sort_by(|(name, _, a), (other, _, b)| b.total.cmp(&a.total).then_with(|| name.cmp(other)));
    let whole = profile.tree.total(selection.metric).sum;
    writeln!(out, "\nLayers")?;
    write!(out, "    self   total")?;
    for (metric, _) in &beside {
        write!(out, "  {:>12}", metric.name())?;
    }
    writeln!(out, "  layer")?;
    let more = rows.len().saturating_sub(extent.rows);
    for (name, id, cost) in rows.into_iter().take(extent.rows) {
        write!(out, "  {}  {}", share(cost.own, whole), share(cost.total, whole))?;
        for (metric, costs) in &beside {
            let total = costs.get(&id).map_or(0, |cost| cost.total);
            write!(out, "  {:>12}", amount(metric.unit(), total))?;
        }
        writeln!(out, "  {}", without_middle(&name, NAME_WIDTH))?;
    }
    if more > 0 {
        writeln!(out, "  … {more} more")?;
    }
    Ok(())
}

/// What each layer cost. One that is called within itself counts once.
fn costs(profile: &Profile, metric: Metric) -> FxHashMap<FrameId, Cost> {
    let inclusive = profile.tree.inclusive(metric);
    let mut costs: FxHashMap<FrameId, Cost> = FxHashMap::default();
    // For each context the innermost layer that it is in, as a context; 0, the root, is none. Callers stand first.
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
        cost.own += inclusive[at];
        cost.total += if again { 0 } else { inclusive[at] };
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_has_what_the_layers_in_it_have_not_and_what_it_has_with_them() {
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
        let mut out = Vec::new();
        let extent = Extent { rows: 2, depth: 1 };
        write(&profile, &Selection::of(Metric::CpuTime), extent, &mut out).unwrap();
        let expect = "
Layers
    self   total       kernels  layer
    5.0%   50.0%             3  Net
   35.0%   35.0%             0  Net.b (Linear)
  … 1 more
";
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn a_profile_without_layers_has_no_table() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let name = profile.text("f");
        let frame = profile.frame(Frame::Operator { name });
        profile.add(&[frame], Metric::CpuTime, 1);
        let mut out = Vec::new();
        write(&profile, &Selection::of(Metric::CpuTime), Extent::default(), &mut out).unwrap();
        assert!(out.is_empty());
    }
}
