//! Kernels of a model: by layer, and by name.
//!
//! Owns: [`LayerKernel`] (A8, A9) and [`KernelName`] (A10). Because: a layer gets faster if one of its kernels does,
//! and one kernel serves many layers. Does not: count operations on a device.
//!
//! The work of a kernel is that of the operator that launched it, if this operator launched kernels of one name only;
//! otherwise the share of each is unknown. It is the mean per launch over the recorded calls of the operator.

use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::intern::StrId;
use deepctx_profile::metric::Metric;
use deepctx_profile::order::SortRows as _;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::contexts::{ModelContext, ModelContexts};
use super::figures::{AvailableFigures, Figures, Sums, lacks_bytes};
use crate::amount::percent;

/// A kernel in a layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerKernel {
    /// Its name.
    pub kernel: String,
    /// Index of its layer; `None` outside any.
    pub layer_index: Option<usize>,
    /// Name of its layer; empty outside any.
    pub layer: String,
    /// As a share of the time of all kernels.
    pub latency_percent: f64,
    /// Occupancy that registers and shared memory allow, weighted by latency: a bound, not the achieved occupancy.
    pub modelled_occupancy_percent: Option<f64>,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A kernel over all layers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelName {
    /// Its name.
    pub kernel: String,
    /// Number of layers with it.
    pub layers: usize,
    /// As [`LayerKernel::latency_percent`].
    pub latency_percent: f64,
    /// As [`LayerKernel::modelled_occupancy_percent`].
    pub modelled_occupancy_percent: Option<f64>,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Sums of a kernel, with the weights for a mean occupancy.
#[derive(Clone, Copy, Debug, Default)]
struct KernelSums {
    sums: Sums,
    /// Occupancy times weight.
    occupancy: f64,
    weight: f64,
    /// Launches with known work.
    with_work: u64,
}

impl KernelSums {
    fn add(&mut self, other: &KernelSums) {
        self.sums.add(&other.sums);
        self.occupancy += other.occupancy;
        self.weight += other.weight;
        self.with_work = self.with_work.saturating_add(other.with_work);
    }

    fn occupancy_percent(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.occupancy / self.weight)
    }
}

/// A kernel of a layer.
type Key = (Option<usize>, StrId);
/// A kernel by the context that launched it.
type Launched = (NodeId, StrId);

/// Work of one operator's context, by its recorded calls.
#[derive(Clone, Copy, Debug, Default)]
struct OperatorWork {
    calls: u64,
    flops: u64,
    flops_without_bytes: u64,
    bytes: u64,
}

/// Kernels by layer.
#[derive(Debug, Default)]
pub(super) struct KernelsByLayer {
    sums: FxHashMap<Key, KernelSums>,
}

impl KernelsByLayer {
    /// Sums a profile up.
    pub(super) fn of(profile: &Profile, contexts: &ModelContexts) -> Self {
        let mut found = KernelsByLayer::default();
        let (works, counts) = (operator_works(profile, contexts), LaunchCounts::of(profile));
        // For each operator with work: the kernels that it launched, and how often.
        let mut launched: FxHashMap<u32, Vec<(Key, u64)>> = FxHashMap::default();
        let mut times: FxHashMap<Launched, u64> = FxHashMap::default();
        for (number, node) in (0u32..).zip(profile.tree.nodes()) {
            let Frame::GpuKernel { name } = profile.frames.get(node.frame) else { continue };
            let id = NodeId::from_number(number);
            let (time, launches) = (profile.tree.exclusive(id, Metric::GpuTime), counts.at(id));
            if launches == 0 && time.sum == 0 {
                continue;
            }
            let key = (contexts.at(id.index()).layer(), name);
            let sums = Sums { gpu_ns: time.sum, kernels: launches, ..Sums::default() };
            found.sums.entry(key).or_default().sums.add(&sums);
            let of_launches = times.entry((launcher(profile, id), name)).or_default();
            *of_launches = of_launches.saturating_add(time.sum);
            let operator = with_work(profile, contexts, &works, contexts.at(id.index()));
            if let Some(operator) = operator.filter(|_| launches > 0) {
                launched.entry(operator).or_default().push((key, launches));
            }
        }
        found.occupancies(profile, contexts, &times);
        found.work(&works, &launched);
        found
    }

    fn occupancies(&mut self, profile: &Profile, contexts: &ModelContexts, times: &FxHashMap<Launched, u64>) {
        for (node, shape) in profile.gpu.shapes() {
            let Frame::GpuKernel { name } = profile.frames.get(profile.tree.node(node).frame) else {
                continue;
            };
            let Some(fits) = shape.occupancy() else { continue };
            let time = times.get(&(launcher(profile, node), name)).copied().unwrap_or(0);
            let weight = if time > 0 { time as f64 } else { 1.0 };
            if let Some(sums) = self.sums.get_mut(&(contexts.at(node.index()).layer(), name)) {
                sums.occupancy += f64::from(fits.warps) * 100.0 / f64::from(fits.warps_max) * weight;
                sums.weight += weight;
            }
        }
    }

    fn work(&mut self, works: &FxHashMap<u32, OperatorWork>, launched: &FxHashMap<u32, Vec<(Key, u64)>>) {
        for (operator, kernels) in launched {
            let (Some(work), Some(((_, name), _))) = (works.get(operator), kernels.first()) else { continue };
            if kernels.iter().any(|((_, other), _)| other != name) {
                continue;
            }
            for (key, launches) in kernels {
                let of_launches =
                    |sum: u64| (sum as f64 / work.calls as f64 * *launches as f64).round() as u64;
                if let Some(of) = self.sums.get_mut(key) {
                    of.sums.add(&Sums {
                        flops: of_launches(work.flops),
                        flops_without_bytes: of_launches(work.flops_without_bytes),
                        bytes: of_launches(work.bytes),
                        ..Sums::default()
                    });
                    of.with_work = of.with_work.saturating_add(*launches);
                }
            }
        }
    }

    fn whole_ns(&self) -> u64 {
        self.sums.values().fold(0, |whole, of| whole.saturating_add(of.sums.gpu_ns))
    }

    /// Kernels by layer, most time first. `layer` gives index and name of a layer.
    pub(super) fn rows(
        &self,
        profile: &Profile,
        available: &AvailableFigures,
        layer: impl Fn(usize) -> Option<(usize, String)>,
    ) -> Vec<LayerKernel> {
        let whole = self.whole_ns();
        let row = |(&(of_layer, name), of): (&Key, &KernelSums)| {
            let (layer_index, layer) = of_layer.and_then(&layer).unzip();
            LayerKernel {
                kernel: clean(profile.strings.get(name)),
                layer_index,
                layer: layer.unwrap_or_default(),
                latency_percent: percent(of.sums.gpu_ns, whole),
                modelled_occupancy_percent: of.occupancy_percent(),
                figures: figures(of, available),
            }
        };
        let mut rows: Vec<LayerKernel> = self.sums.iter().map(row).collect();
        // A model has equal layers, and the sums are in the order of a hash table.
        rows.sort_rows_by(|a, b| {
            let by_name = || (&a.kernel, a.layer_index).cmp(&(&b.kernel, b.layer_index));
            order(&b.figures, &a.figures).then_with(by_name)
        });
        rows
    }

    /// Kernels by name, most time first.
    pub(super) fn names(&self, profile: &Profile, available: &AvailableFigures) -> Vec<KernelName> {
        let mut by_name: FxHashMap<StrId, (usize, KernelSums)> = FxHashMap::default();
        for ((layer, name), of) in &self.sums {
            let (layers, sums) = by_name.entry(*name).or_default();
            *layers += usize::from(layer.is_some());
            sums.add(of);
        }
        let whole = self.whole_ns();
        let row = |(name, (layers, of)): (StrId, (usize, KernelSums))| KernelName {
            kernel: clean(profile.strings.get(name)),
            layers,
            latency_percent: percent(of.sums.gpu_ns, whole),
            modelled_occupancy_percent: of.occupancy_percent(),
            figures: figures(&of, available),
        };
        let mut rows: Vec<KernelName> = by_name.into_iter().map(row).collect();
        rows.sort_rows_by(|a, b| order(&b.figures, &a.figures).then_with(|| a.kernel.cmp(&b.kernel)));
        rows
    }

    /// The mean occupancy of all kernels, weighted by their latency.
    pub(super) fn occupancy_percent(&self) -> Option<f64> {
        let mut all = KernelSums::default();
        self.sums.values().for_each(|of| all.add(of));
        all.occupancy_percent()
    }
}

/// The context that launched a kernel. Its time is below its stream, which is below that context, too.
fn launcher(profile: &Profile, kernel: NodeId) -> NodeId {
    let parent = profile.tree.node(kernel).parent;
    let above = profile.tree.node(parent);
    if matches!(profile.frames.get(above.frame), Frame::Stream { .. }) { above.parent } else { parent }
}

/// Launches of the contexts of kernels. In our captures they are at the launch, and times are below its stream; another
/// tool's profile may have only times, and each time counts as one launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchCounts<'p> {
    profile: &'p Profile,
    metric: Metric,
}

impl<'p> LaunchCounts<'p> {
    pub(super) fn of(profile: &'p Profile) -> Self {
        let counted = profile.tree.total(Metric::Kernels).sum > 0;
        LaunchCounts { profile, metric: if counted { Metric::Kernels } else { Metric::GpuTime } }
    }

    pub(super) fn at(self, node: NodeId) -> u64 {
        let cell = self.profile.tree.exclusive(node, self.metric);
        if self.metric == Metric::Kernels { cell.sum } else { cell.count }
    }
}

/// A kernel's own figures: it has no CPU time and no allocations, and each launch has its work. Latency is that of all
/// launches, so it has a throughput only if the work of all is known.
fn figures(of: &KernelSums, available: &AvailableFigures) -> Figures {
    of.sums.figures(&AvailableFigures {
        host: None,
        allocated: false,
        kernels: true,
        work: true,
        rates: of.with_work >= of.sums.kernels,
        ..available.clone()
    })
}

fn order(a: &Figures, b: &Figures) -> std::cmp::Ordering {
    (a.gpu_ns, a.kernels).cmp(&(b.gpu_ns, b.kernels))
}

/// Work by node of the operator whose operands were recorded.
fn operator_works(profile: &Profile, contexts: &ModelContexts) -> FxHashMap<u32, OperatorWork> {
    let mut works: FxHashMap<u32, OperatorWork> = FxHashMap::default();
    for (node, flops) in profile.tree.cells(Metric::ModelFlops) {
        let at = contexts.at(node.index());
        if !at.operands || at.without_stack {
            continue;
        }
        let calls = profile.tree.exclusive(node, Metric::Calls).sum.max(flops.count);
        let work = works.entry(at.operator).or_default();
        work.calls = work.calls.saturating_add(calls);
        work.flops = work.flops.saturating_add(flops.sum);
        if lacks_bytes(profile, node) {
            work.flops_without_bytes = work.flops_without_bytes.saturating_add(flops.sum);
        }
        work.bytes = work.bytes.saturating_add(profile.tree.exclusive(node, Metric::ModelBytes).sum);
    }
    works
}

/// The innermost operator with known work around a kernel. The backward pass of an operator is below it, but is other
/// work.
fn with_work(
    profile: &Profile,
    contexts: &ModelContexts,
    works: &FxHashMap<u32, OperatorWork>,
    kernel: ModelContext,
) -> Option<u32> {
    let mut operator = kernel.operator;
    while operator != 0 && !works.contains_key(&operator) {
        let parent = profile.tree.node(NodeId::from_number(operator)).parent;
        operator = contexts.at(parent.index()).operator;
    }
    let of_same_pass = || contexts.at(operator as usize).backward == kernel.backward;
    (operator != 0 && of_same_pass()).then_some(operator)
}
