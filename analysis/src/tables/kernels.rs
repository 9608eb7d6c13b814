//! Kernels: the resources of a block, and the occupancy that they allow.
//!
//! Owns: [`Kernels`]. Because: these limits of a kernel's parallelism are known without a measurement. Does not: give
//! the achieved occupancy.

use std::cmp::Reverse;

use deepctx_profile::device::activity::Shape;
use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::metric::Metric;
use deepctx_profile::order::SortRows as _;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::{Subset, Table};

/// Kernels whose registers are known, most launches first.
pub type Kernels = Table<Kernel>;

/// One kernel, with the figures of its most frequent context.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kernel {
    /// Its name.
    pub kernel: String,
    /// Launches in all contexts.
    pub launches: u64,
    /// Threads of a block.
    pub threads_per_block: u32,
    /// Registers of a thread.
    pub registers_per_thread: Option<u32>,
    /// Static and dynamic shared memory of a block.
    pub shared_bytes_per_block: Option<u32>,
    /// Its occupancy; `None` unless all of its limits are known.
    pub occupancy: Option<KernelOccupancy>,
}

/// Occupancy of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelOccupancy {
    /// Architecture of the device, or of the code if that of the device is unknown: 80 for `sm_80`.
    pub architecture: u32,
    /// Concurrent blocks on a multiprocessor.
    pub blocks: u32,
    /// Their warps, as a share of the maximum.
    pub warps_percent: f64,
    /// The limit: `warps`, `blocks`, `registers` or `shared memory`.
    pub limited_by: String,
}

/// The context of a kernel with most launches, of several the first.
#[derive(Clone, Copy, Debug)]
struct MostFrequent {
    /// Launches, and the number of the context.
    order: (u64, Reverse<u32>),
    shape: Shape,
}

impl Kernels {
    /// The most launched kernels.
    pub fn compute(subset: &Subset<'_>) -> Self {
        let profile = subset.profile();
        let mut known: FxHashMap<&str, (u64, MostFrequent)> = FxHashMap::default();
        for (node, shape) in profile.gpu.shapes().filter(|(_, shape)| shape.registers.is_some()) {
            let Frame::GpuKernel { name } = profile.frames.get(profile.tree.node(node).frame) else {
                continue;
            };
            let launches = profile.tree.exclusive(node, Metric::Kernels).sum;
            let here = MostFrequent { order: (launches, Reverse(node.number())), shape: *shape };
            let (all, most) = known.entry(profile.strings.get(name)).or_insert((0, here));
            // Shapes come in no particular order.
            if here.order > most.order {
                *most = here;
            }
            *all = all.saturating_add(launches);
        }
        let mut known: Vec<_> = known.into_iter().collect();
        known.sort_rows_by(|(name, (n, _)), (other, (m, _))| m.cmp(n).then_with(|| name.cmp(other)));
        let rows = known.into_iter().map(|(name, (launches, most))| kernel(name, launches, &most.shape));
        Table::cut(rows.collect(), subset.selection().rows)
    }
}

fn kernel(name: &str, launches: u64, shape: &Shape) -> Kernel {
    let occupancy = shape.occupancy().zip(shape.runs_on()).map(|(fits, architecture)| KernelOccupancy {
        architecture,
        blocks: fits.blocks,
        warps_percent: f64::from(fits.warps) * 100.0 / f64::from(fits.warps_max),
        limited_by: fits.limit.to_string(),
    });
    Kernel {
        kernel: clean(name),
        launches,
        threads_per_block: shape.threads(),
        registers_per_thread: shape.registers.map(|of| of.last),
        shared_bytes_per_block: shape.shared(),
        occupancy,
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::device::activity::Launch;
    use deepctx_profile::profile::Profile;
    use deepctx_profile::text;

    use super::*;
    use crate::Selection;

    fn launch(profile: &mut Profile, path: &str, registers: Option<u32>, times: u64) {
        let stack: Vec<_> = path.split(" / ").map(|part| text::parse_frame(profile, part).unwrap()).collect();
        let node = profile.add(&stack, Metric::Kernels, times);
        let launch = Launch {
            grid: [4, 1, 1],
            block: [256, 1, 1],
            dynamic_shared: 1024,
            static_shared: Some(0),
            registers,
            arch: Some(80),
            device_arch: None,
        };
        profile.gpu.shape(node, &launch);
    }

    #[test]
    fn kernel_shape_comes_from_the_most_frequent_launch_context() {
        let mut profile = Profile::new(Default::default(), Default::default());
        launch(&mut profile, "n a / g gemm", Some(64), 1);
        launch(&mut profile, "n b / g gemm", Some(128), 9);
        launch(&mut profile, "n b / g copy", Some(16), 20);
        launch(&mut profile, "n b / g unknown", None, 100);
        let kernels = Kernels::compute(&Subset::new(&profile, &Selection::of(Metric::GpuTime)));
        let rows: Vec<_> = kernels
            .rows
            .iter()
            .map(|row| (row.kernel.as_str(), row.launches, row.registers_per_thread))
            .collect();
        assert_eq!(rows, [("copy", 20, Some(16)), ("gemm", 10, Some(128))]);
        let occupancy = kernels.rows[1].occupancy.as_ref().unwrap();
        assert_eq!((occupancy.blocks, occupancy.warps_percent, occupancy.architecture), (2, 25.0, 80));
        assert_eq!(occupancy.limited_by, "registers");
    }

    #[test]
    fn launches_of_other_contexts_do_not_hide_the_most_frequent() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let contexts = 0..12;
        for frequent in contexts.clone() {
            for context in contexts.clone() {
                let (registers, times) = if context == frequent { (128, 11) } else { (64, 10) };
                launch(&mut profile, &format!("n f{context} / g k{frequent}"), Some(registers), times);
            }
        }
        let selection = Selection { rows: 12, ..Selection::of(Metric::GpuTime) };
        let kernels = Kernels::compute(&Subset::new(&profile, &selection));
        let rows = kernels.rows.iter().map(|row| (row.launches, row.registers_per_thread));
        assert_eq!(rows.collect::<Vec<_>>(), [(121, Some(128)); 12]);
    }
}
