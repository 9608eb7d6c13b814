//! Extremes: how often each kernel was launched, and the kernels with extreme values, with their stacks.
//!
//! Owns: [`KernelFrequency`] and [`ExtremeKernel`]. Because: nobody reads the full stack of every kernel, and the stack
//! of the kernel with most launches shows where to begin (PASTA's invocation frequency and inefficiency locator). Does
//! not: count memory accesses, which takes code on the device.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::device::activity::Shape;
use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::intern::StrId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::kernels::LaunchCounts;
use crate::amount::percent;

/// How often a kernel was launched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelFrequency {
    /// Its name.
    pub kernel: String,
    /// Launches in all contexts.
    pub launches: u64,
    /// As a share of all launches.
    pub launches_percent: f64,
    /// Contexts that launch it.
    pub contexts: usize,
    /// Mean time of a launch; `None` unless it was measured.
    pub mean_ns: Option<f64>,
}

/// A kernel with the maximum of some quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExtremeKernel {
    /// The quantity: `launches`, `time`, `single launch`, `registers of a thread` or `shared memory of a block`.
    pub most: &'static str,
    /// Its name.
    pub kernel: String,
    /// Its value, over all contexts.
    pub value: u64,
    /// Unit of that: `count`, `ns` or `bytes`.
    pub unit: &'static str,
    /// Number of the context with the largest part, as in the tables of the stored profile.
    pub context: u32,
    /// The whole stack of that context, outermost first.
    pub stack: Vec<String>,
}

/// Figures of a kernel.
#[derive(Clone, Debug, Default)]
struct KernelSums {
    launches: u64,
    time_ns: u64,
    timed: u64,
    contexts: usize,
    /// For each extreme: the value, a sum or a maximum, and the context with the largest part.
    most: [Extreme; MOST.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Extreme {
    value: u64,
    part: u64,
    context: u32,
}

/// The quantities, their units, and whether contexts add up.
const MOST: [(&str, &str, bool); 5] = [
    ("launches", "count", true),
    ("time", "ns", true),
    ("single launch", "ns", false),
    ("registers of a thread", "count", false),
    ("shared memory of a block", "bytes", false),
];

impl KernelSums {
    fn add(&mut self, node: NodeId, values: [u64; MOST.len()]) {
        for ((largest, value), (_, _, adds)) in self.most.iter_mut().zip(values).zip(MOST) {
            largest.value = if adds { largest.value.saturating_add(value) } else { largest.value.max(value) };
            if value > largest.part {
                (largest.part, largest.context) = (value, node.number());
            }
        }
    }
}

/// The kernels of a profile.
#[derive(Debug, Default)]
pub(super) struct KernelCounts {
    kernels: FxHashMap<StrId, KernelSums>,
}

impl KernelCounts {
    pub(super) fn of(profile: &Profile) -> Self {
        let (mut found, counts) = (KernelCounts::default(), LaunchCounts::of(profile));
        for (number, node) in (0u32..).zip(profile.tree.nodes()) {
            let Frame::GpuKernel { name } = profile.frames.get(node.frame) else { continue };
            let id = NodeId::from_number(number);
            let time = profile.tree.exclusive(id, Metric::GpuTime);
            let launches = counts.at(id);
            if launches == 0 && time.sum == 0 {
                continue;
            }
            let shape = profile.gpu.shape_of(id);
            let registers = shape.and_then(|of| of.registers).map_or(0, |of| u64::from(of.max));
            let shared = shape.and_then(Shape::most_shared).map_or(0, u64::from);
            let sums = found.kernels.entry(name).or_default();
            sums.launches = sums.launches.saturating_add(launches);
            sums.contexts += usize::from(launches > 0);
            sums.time_ns = sums.time_ns.saturating_add(time.sum);
            sums.timed = sums.timed.saturating_add(time.count);
            sums.add(id, [launches, time.sum, time.max, registers, shared]);
        }
        found
    }

    /// Kernels, most launches first.
    pub(super) fn frequency(&self, profile: &Profile) -> Vec<KernelFrequency> {
        let all = self.kernels.values().fold(0, |sum: u64, of| sum.saturating_add(of.launches));
        let row = |(name, of): (&StrId, &KernelSums)| KernelFrequency {
            kernel: clean(profile.strings.get(*name)),
            launches: of.launches,
            launches_percent: percent(of.launches, all),
            contexts: of.contexts,
            mean_ns: (of.timed > 0).then(|| of.time_ns as f64 / of.timed as f64),
        };
        let mut rows: Vec<KernelFrequency> = self.kernels.iter().map(row).collect();
        rows.sort_rows_by(|a, b| b.launches.cmp(&a.launches).then_with(|| a.kernel.cmp(&b.kernel)));
        rows
    }

    /// The kernel with the maximum of each known quantity.
    pub(super) fn extremes(&self, profile: &Profile) -> Vec<ExtremeKernel> {
        let extreme = |(at, (most, unit, _)): (usize, (&'static str, &'static str, bool))| {
            let largest = |of: &KernelSums| of.most.get(at).copied().unwrap_or_default();
            let name = |name: &StrId| profile.strings.get(*name);
            let of = self.kernels.iter().max_by_key(|(key, of)| (largest(of).value, Reverse(name(key))))?;
            let Extreme { value, context, .. } = largest(of.1);
            let stack = stack(profile, NodeId::from_number(context));
            (value > 0).then(|| ExtremeKernel {
                most,
                kernel: clean(name(of.0)),
                value,
                unit,
                context,
                stack,
            })
        };
        MOST.into_iter().enumerate().filter_map(extreme).collect()
    }
}

fn stack(profile: &Profile, node: NodeId) -> Vec<String> {
    let frames = profile.tree.stack(node).into_iter().map(|frame| profile.frames.get(frame));
    frames.map(|frame| clean(&frame.label(&profile.strings, true))).collect()
}
