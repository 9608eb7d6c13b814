//! Layers of a model: in the order in which they were first seen, by type, and by thirds.
//!
//! Owns: [`ModelLayer`] (A2 to A4, A11, A12, A14), [`LayerType`] (A5 to A7) and [`Stage`]. Because: which layer, which
//! kind of layer and which part of the model costs most are the first questions about a model. Does not: find layers.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use serde::Serialize;

use super::contexts::ModelContexts;
use super::figures::{AvailableFigures, Figures, Sums, lacks_bytes};
use crate::amount::percent;

/// One layer, without the layers in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelLayer {
    /// Its place among all layers, from 1, in the order in which they were first seen.
    pub index: usize,
    /// Its name.
    pub layer: String,
    /// Class of the module, or the operator.
    #[serde(rename = "type")]
    pub layer_type: String,
    /// Operator and operands with most modelled operations of its forward pass; `None` if none were recorded.
    pub shape: Option<String>,
    /// As a share of the latency of the whole profile.
    pub latency_percent: f64,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// All layers of a type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerType {
    /// The type.
    #[serde(rename = "type")]
    pub layer_type: String,
    /// How many.
    pub layers: usize,
    /// As a share of all layers.
    pub layers_percent: f64,
    /// As a share of the latency of the whole profile.
    pub latency_percent: f64,
    /// Their figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A third of the layers, by index.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// `beginning`, `middle` or `end`.
    pub stage: &'static str,
    /// Index of its first layer.
    pub first: usize,
    /// Index of its last layer.
    pub last: usize,
    /// Figures with their maximum in this third: `latency`, `allocated bytes`, `flops`, `bytes`.
    pub dominates: Vec<&'static str>,
    /// Figures of its layers.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Sums by layer, and outside any.
#[derive(Debug, Default)]
pub(super) struct LayerSums {
    /// By number of the layer.
    pub(super) layers: Vec<Sums>,
    /// Operands by layer.
    shapes: Vec<Option<(u64, String)>>,
    /// Outside any layer.
    pub(super) outside: Sums,
    /// Of that, work of operators that began without a stack.
    pub(super) flops_without_stack: u64,
    /// Latency below operators that convolve.
    pub(super) convolution_ns: u64,
}

impl LayerSums {
    /// Sums a profile up.
    pub(super) fn of(profile: &Profile, contexts: &ModelContexts, available: &AvailableFigures) -> Self {
        let count = contexts.layers.len();
        let mut found = LayerSums {
            layers: vec![Sums::default(); count],
            shapes: vec![None; count],
            ..LayerSums::default()
        };
        let latency = if available.gpu { Some(Metric::GpuTime) } else { available.host };
        let mut metrics = vec![
            Metric::GpuTime,
            Metric::Kernels,
            Metric::TensorBytes,
            Metric::ModelFlops,
            Metric::ModelBytes,
        ];
        metrics.extend(available.host);
        for metric in metrics {
            for (node, cell) in profile.tree.cells(metric) {
                let at = contexts.at(node.index());
                let layer = at.layer().filter(|_| !at.without_stack);
                let mut sums = Sums::default();
                *of_metric(&mut sums, metric) = cell.sum;
                if metric == Metric::ModelFlops && lacks_bytes(profile, node) {
                    sums.flops_without_bytes = cell.sum;
                }
                layer.and_then(|at| found.layers.get_mut(at)).unwrap_or(&mut found.outside).add(&sums);
                if metric == Metric::ModelFlops && at.without_stack {
                    found.flops_without_stack = found.flops_without_stack.saturating_add(cell.sum);
                }
                if Some(metric) == latency && at.convolution {
                    found.convolution_ns = found.convolution_ns.saturating_add(cell.sum);
                }
            }
        }
        found.shapes(profile, contexts);
        found
    }

    /// Finds the operands with most work of each layer; those of the backward pass belong to its gradients.
    fn shapes(&mut self, profile: &Profile, contexts: &ModelContexts) {
        for (node, cell) in profile.tree.cells(Metric::Calls) {
            let at = contexts.at(node.index());
            let Some(layer) = at.layer().filter(|_| at.operands && !at.backward) else { continue };
            let work = profile.tree.exclusive(node, Metric::ModelFlops).sum.max(cell.sum);
            let Frame::Operator { name } = profile.frames.get(profile.tree.node(node).frame) else {
                continue;
            };
            let Some(known) = self.shapes.get_mut(layer) else { continue };
            if known.as_ref().is_none_or(|(most, _)| work > *most) {
                *known = Some((work, deepctx_profile::frame::clean(profile.strings.get(name))));
            }
        }
    }

    /// All sums.
    pub(super) fn total(&self) -> Sums {
        let mut total = self.outside;
        self.layers.iter().for_each(|sums| total.add(sums));
        total
    }

    /// The index of each layer, by its number; a layer without figures has no row, and gets the index of the previous
    /// one.
    pub(super) fn numbers(&self) -> Vec<usize> {
        let mut index = 0;
        let next = |sums: &Sums| {
            index += usize::from(!sums.is_zero());
            index
        };
        self.layers.iter().map(next).collect()
    }

    /// A row for each layer with a figure.
    pub(super) fn rows(
        &self,
        contexts: &ModelContexts,
        available: &AvailableFigures,
    ) -> Vec<(ModelLayer, Sums)> {
        let whole = self.total().latency_ns(available);
        let mut rows: Vec<(ModelLayer, Sums)> = Vec::new();
        for (number, sums) in self.layers.iter().enumerate().filter(|(_, sums)| !sums.is_zero()) {
            let Some(name) = contexts.layers.get(number) else { continue };
            let shape = self.shapes.get(number).and_then(Option::as_ref);
            let row = ModelLayer {
                index: rows.len() + 1,
                layer: name.layer.clone(),
                layer_type: name.layer_type.clone(),
                shape: shape.map(|(_, text)| text.clone()),
                latency_percent: percent(sums.latency_ns(available), whole),
                figures: sums.figures(available),
            };
            rows.push((row, *sums));
        }
        rows
    }
}

fn of_metric(sums: &mut Sums, metric: Metric) -> &mut u64 {
    match metric {
        Metric::GpuTime => &mut sums.gpu_ns,
        Metric::Kernels => &mut sums.kernels,
        Metric::TensorBytes => &mut sums.allocated_bytes,
        Metric::ModelFlops => &mut sums.flops,
        Metric::ModelBytes => &mut sums.bytes,
        _ => &mut sums.host_ns,
    }
}

/// Layers by type, most latency first.
pub(super) fn types(
    rows: &[(ModelLayer, Sums)],
    whole_ns: u64,
    available: &AvailableFigures,
) -> Vec<LayerType> {
    let mut sums: BTreeMap<&str, (usize, Sums)> = BTreeMap::new();
    for (row, of) in rows {
        let (count, sum) = sums.entry(&row.layer_type).or_default();
        *count += 1;
        sum.add(of);
    }
    let row = |(layer_type, (count, sums)): (&str, (usize, Sums))| LayerType {
        layer_type: layer_type.to_owned(),
        layers: count,
        layers_percent: percent(count as u64, rows.len() as u64),
        latency_percent: percent(sums.latency_ns(available), whole_ns),
        figures: sums.figures(available),
    };
    let mut types: Vec<LayerType> = sums.into_iter().map(row).collect();
    types.sort_rows_by_key(|row| Reverse((row.figures.latency_ns, row.layers)));
    types
}

/// A figure of sums.
type FigureFn = fn(&Sums, &AvailableFigures) -> u64;

/// The layers in three parts, as equal as their number allows; none for fewer than three layers.
pub(super) fn stages(rows: &[(ModelLayer, Sums)], available: &AvailableFigures) -> Vec<Stage> {
    let (count, names) = (rows.len(), ["beginning", "middle", "end"]);
    if count < names.len() {
        return Vec::new();
    }
    let parts = [0, 1, 2].map(|part| (part * count / 3, (part + 1) * count / 3));
    let sums = parts.map(|(from, until)| {
        let mut sum = Sums::default();
        rows.get(from..until).unwrap_or_default().iter().for_each(|(_, of)| sum.add(of));
        sum
    });
    let figures: [(&'static str, FigureFn); 4] = [
        ("latency", |of, available| of.latency_ns(available)),
        ("allocated bytes", |of, _| of.allocated_bytes),
        ("flops", |of, available| if available.work { of.flops } else { 0 }),
        ("bytes", |of, available| if available.work { of.bytes } else { 0 }),
    ];
    let stage = |(place, (from, until)): (usize, (usize, usize))| {
        let is_largest = |of: FigureFn| {
            let own = of(&sums[place], available);
            let others = sums.iter().enumerate().filter(|(other, _)| *other != place);
            own > 0 && others.map(|(_, other)| of(other, available)).all(|other| other < own)
        };
        Stage {
            stage: names[place],
            first: from + 1,
            last: until,
            dominates: figures.iter().filter(|(_, of)| is_largest(*of)).map(|(name, _)| *name).collect(),
            figures: sums[place].figures(available),
        }
    };
    parts.into_iter().enumerate().map(stage).collect()
}
