//! Gpu: all that devices did for a profile, beside the figures in its tree.
//!
//! Owns: [`Gpu`]. Because: processes, activities and shapes of launches are stored, selected and merged together. Does
//! not: say what one of them is ([`super::activity`]).

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::device::activity::{ACTIVITIES, Activities, Activity, GpuProcess, Launch, Shape};
use crate::device::processes::{self, SINGLE_MAX};
use crate::tree::NodeId;
use crate::units::Nanos;

/// Contexts whose shapes are kept: a torch program launches some thousand kernels from some ten thousand places. One
/// takes about 150 bytes.
pub const SHAPES_MAX: usize = 1 << 16;
/// Devices whose use is kept: more than any job has that was traced. One takes 24 bytes.
pub const USES_MAX: usize = 1 << 16;

/// How long one device of another tool's trace was at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// In which it did something.
    pub busy: Nanos,
    /// From the begin of the trace to its first work.
    pub until_first: Nanos,
    /// From there to the end of the trace.
    pub since_first: Nanos,
}

/// What devices did for a profile, beside the figures in its tree.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// By process: those that run, then sums of earlier ones, then the latest that ended, the last one first.
    pub processes: Vec<GpuProcess>,
    /// The last activities.
    pub activities: Activities,
    /// Devices of other tools' traces, which have no activities here.
    pub uses: Vec<DeviceUse>,
    shapes: FxHashMap<NodeId, Shape>,
    shapes_refused: u64,
}

impl Default for Gpu {
    fn default() -> Self {
        Gpu {
            processes: Vec::new(),
            activities: Activities::new(ACTIVITIES),
            uses: Vec::new(),
            shapes: FxHashMap::default(),
            shapes_refused: 0,
        }
    }
}

impl Gpu {
    /// Adds the launch of a kernel in a context.
    pub fn shape(&mut self, node: NodeId, launch: &Launch) {
        match self.shapes.get_mut(&node) {
            Some(shape) => shape.add(launch),
            None => self.new_shape(node, Shape::of(launch)),
        }
    }

    /// Adds the launches of several kernels in a context.
    pub fn add_shape(&mut self, node: NodeId, shape: &Shape) {
        match self.shapes.get_mut(&node) {
            Some(known) => known.merge(shape),
            None => self.new_shape(node, *shape),
        }
    }

    fn new_shape(&mut self, node: NodeId, shape: Shape) {
        if self.shapes.len() < SHAPES_MAX {
            self.shapes.insert(node, shape);
        } else {
            self.shapes_refused += 1;
        }
    }

    /// How the kernels of a context were launched.
    pub fn shape_of(&self, node: NodeId) -> Option<&Shape> {
        self.shapes.get(&node)
    }

    /// All shapes, in no particular order.
    pub fn shapes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Shape)> {
        self.shapes.iter().map(|(node, shape)| (*node, shape))
    }

    /// Launches whose shape found no room.
    pub fn shapes_refused(&self) -> u64 {
        self.shapes_refused
    }

    /// Adds that of another profile; `node` maps its contexts to contexts here.
    pub fn merge(&mut self, other: &Gpu, mut node: impl FnMut(NodeId) -> NodeId) {
        processes::add_rows(&mut self.processes, &other.processes, SINGLE_MAX);
        for activity in other.activities.iter() {
            self.activities.push(Activity { node: node(activity.node), ..*activity });
        }
        self.activities.leave_out(other.activities.left_out());
        let room = USES_MAX.saturating_sub(self.uses.len());
        self.uses.extend(other.uses.iter().take(room));
        for (there, shape) in other.shapes() {
            self.add_shape(node(there), shape);
        }
        self.shapes_refused = self.shapes_refused.saturating_add(other.shapes_refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::activity::Spread;

    fn node(number: u32) -> NodeId {
        NodeId::from_number(number)
    }

    fn launch(x: u32, registers: Option<u32>) -> Launch {
        Launch {
            grid: [x, 1, 1],
            block: [64, 2, 1],
            dynamic_shared: x * 16,
            static_shared: None,
            registers,
            arch: None,
            device_arch: None,
        }
    }

    #[test]
    fn shapes_keep_the_smallest_the_largest_and_the_last() {
        let mut gpu = Gpu::default();
        for launch in [launch(4, None), launch(9, Some(32)), launch(2, None)] {
            gpu.shape(node(1), &launch);
        }
        let shape = gpu.shape_of(node(1)).unwrap();
        assert_eq!(shape.grid[0], Spread { min: 2, max: 9, last: 2 });
        assert_eq!(shape.dynamic_shared, Spread { min: 32, max: 144, last: 32 });
        assert_eq!(shape.registers, Some(Spread { min: 32, max: 32, last: 32 }));
        assert_eq!(shape.static_shared, None);
    }

    #[test]
    fn merging_joins_shapes_and_adds_processes_and_devices() {
        let (mut a, mut b) = (Gpu::default(), Gpu::default());
        a.shape(node(1), &launch(4, None));
        b.shape(node(7), &launch(8, Some(16)));
        b.processes.push(GpuProcess { pid: 7, ..GpuProcess::default() });
        b.uses.push(DeviceUse { busy: Nanos(3), ..DeviceUse::default() });
        a.merge(&b, |_| node(1));
        assert_eq!(a.shape_of(node(1)).unwrap().grid[0], Spread { min: 4, max: 8, last: 8 });
        assert_eq!((a.processes[0].pid, &a.uses), (7, &b.uses));
    }
}
